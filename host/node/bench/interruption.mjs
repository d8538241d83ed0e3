// Bar 8: the cancellation of 64 spinning calls.
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { BATCH, batch, median, open, recorded, report, WORK } from './support.mjs';

const ROUNDS = 9;
const POLL_MS = 1;
/** Enough for the guests that compute at the same time to begin. */
const SPIN_MS = 300;
const MOST_MS = 60_000;
const POLICY = '[plugins.script.grant]\ninvoke = ["*"]\n';
const SPIN = JSON.stringify({ code: 'while (true) {}' });

const cancelled = [];
for (let round = 0; round < ROUNDS; round++) cancelled.push(await cancel(path.join(WORK, `state-${round}`)));
report({
  returned_ms: median(cancelled.map(({ returned }) => returned)),
  recorded_ms: median(cancelled.map(({ complete }) => complete)),
});

/** The milliseconds until the promise of cancelled calls has settled, and until all of them are recorded. */
async function cancel(stateDir) {
  const host = await open(['script'], { policy: POLICY, stateDir });
  const abort = new AbortController();
  const ended = host.callAll(host.view(), batch('script__run', BATCH, SPIN), { signal: abort.signal });
  const results = await Promise.race([ended, setTimeout(SPIN_MS)]);
  if (results !== undefined) throw new Error(`the calls ended: ${JSON.stringify(results[0].failure)}`);
  const begin = performance.now();
  abort.abort();
  await ended.catch(() => {});
  const returned = performance.now() - begin;
  while (recorded(stateDir).length < BATCH) {
    if (performance.now() - begin > MOST_MS) throw new Error(`${recorded(stateDir).length} of ${BATCH} calls are recorded`);
    await setTimeout(POLL_MS);
  }
  const complete = performance.now() - begin;
  const outcomes = new Set(recorded(stateDir).map(({ outcome }) => outcome));
  if (outcomes.size !== 1 || !outcomes.has('cancelled')) throw new Error(`the calls are recorded as ${[...outcomes]}`);
  await host.close();
  return { returned, complete };
}
