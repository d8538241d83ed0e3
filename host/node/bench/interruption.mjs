// Bar 8: the cancellation of 64 spinning calls.
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { tool } from 'toolbay';
import { BATCH, batch, median, open, recorded, report, WORK } from './support.mjs';

const ROUNDS = 9;
const POLL_MS = 1;
const MOST_MS = 60_000;
// By default fewer calls of one plugin run at the same time, and fewer that call tools.
const POLICY = `
host.parallel_calls = ${8 * BATCH}
plugins.script.grant.invoke = ["begin"]
plugins.script.limits = { concurrency = ${BATCH}, fuel = "none", memory = "32MiB" }
`;
/** Calls the tool `begin`, and then never ends. */
const SPIN = JSON.stringify({ code: 'await tools.begin({}); while (true) {}' });

const cancelled = [];
for (let round = 0; round < ROUNDS; round++) cancelled.push(await cancel(path.join(WORK, `state-${round}`)));
report({
  returned_ms: median(cancelled.map(({ returned }) => returned)),
  recorded_ms: median(cancelled.map(({ complete }) => complete)),
});

/** The milliseconds until the promise of cancelled calls has settled, and until all of them are recorded. */
async function cancel(stateDir) {
  const host = await open(['script'], { policy: POLICY, stateDir });
  let begun = 0;
  const run = () => {
    begun++;
  };
  host.register(tool({ name: 'begin', description: 'Count a call that spins.', readOnly: true, run }));
  const abort = new AbortController();
  const results = host.callAll(host.view(), batch('script__run', BATCH, SPIN), { signal: abort.signal });
  const ended = results.then(([{ failure }]) => new Error(`the calls ended: ${failure?.message}`), () => null);
  await until(() => begun === BATCH);
  const begin = performance.now();
  abort.abort();
  const error = await ended;
  const returned = performance.now() - begin;
  if (error !== null) throw error;
  // Those that spin, and those of `begin`.
  await until(() => readFileSync(path.join(stateDir, 'audit.jsonl'), 'utf8').split('"kind":"call"').length > 2 * BATCH);
  const complete = performance.now() - begin;
  const outcomes = new Set(recorded(stateDir).filter((record) => record.tool !== 'begin').map(({ outcome }) => outcome));
  if (outcomes.size !== 1 || !outcomes.has('cancelled')) throw new Error(`the calls are recorded as ${[...outcomes]}`);
  await host.close();
  return { returned, complete };
}

/** Waits for a condition. */
async function until(isTrue) {
  for (const begin = performance.now(); !isTrue(); await setTimeout(POLL_MS)) {
    if (performance.now() - begin > MOST_MS) throw new Error(`a condition does not become true: ${isTrue}`);
  }
}
