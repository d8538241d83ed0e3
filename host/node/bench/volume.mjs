// Bar 7: 10 000 calls with 64 in flight, and then a million: none lost or doubled, and memory that does not grow.
//
//     node --expose-gc volume.mjs CALLS
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { tool } from 'toolbay';
import { BATCH, checked, open, recorded, report, WORK } from './support.mjs';

const CALLS = Number(process.argv[2]);
const WARM_UP = 1_000;
/** Calls that the audit has in one file. */
const AUDITED = 10_000;
const PAGE_BYTES = 4096;

/** How often the function was called with each number. */
const ran = new Uint8Array(CALLS + 1);
const record = tool({
  name: 'record', description: 'Record a call.',
  input: { number: { type: 'integer' } },
  run: async ({ number }) => {
    ran[number]++;
    return number;
  },
});

const stateDir = path.join(WORK, 'state');
const host = await open(['text'], { stateDir, policy: '[audit]\nbytes = "128MiB"\n' });
host.register(record);
const view = host.view();
let [next, done, wrong, afterWarmUp] = [1, 0, 0, 0];
const begin = performance.now();
await Promise.all(Array.from({ length: BATCH }, work));
const seconds = (performance.now() - begin) / 1000;
const memory = residentBytes();
for (let number = 1; number <= CALLS; number++) wrong += Number(ran[number] !== number % 2);
await host.close();
if (CALLS <= AUDITED) wrong += Math.abs(recorded(stateDir).length - CALLS);
report({ calls: done, per_s: done / seconds, grown_mb: (memory - afterWarmUp) / 1e6, wrong });

/** Makes calls until all are made: of the function, and of a plugin. */
async function work() {
  while (next <= CALLS) {
    const number = next++;
    const ofProgram = number % 2 === 1;
    const [tool, args] = ofProgram ? ['record', { number }] : ['text__word_count', { text: 'a '.repeat(number % 100) }];
    const results = await host.callAll(view, [{ id: String(number), tool, args }]);
    checked(results);
    const { callId, output: { structured } } = results[0];
    const hasData = ofProgram ? structured.result === number : structured.words === number % 100;
    const isOwn = hasData && callId === String(number);
    wrong += Number(!isOwn);
    done++;
    if (done === WARM_UP) afterWarmUp = residentBytes();
  }
}

/**
 * The resident memory without the free part of V8's heap, which follows the rate of allocation: it grows to 70 MB while 6 MB
 * of it are in use.
 */
function residentBytes() {
  globalThis.gc();
  const resident = Number(readFileSync('/proc/self/statm', 'utf8').split(' ')[1]) * PAGE_BYTES;
  const { heapTotal, heapUsed } = process.memoryUsage();
  return resident - (heapTotal - heapUsed);
}
