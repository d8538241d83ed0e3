// A program of `ends.mjs`: eight workers, each with a host of its own. It ends in one of several ways while calls run.
// It prints `begun WORKER ID` for each call that has begun, and `ends MILLISECONDS`, the time, before it ends.
import { writeSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
import path from 'node:path';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { tool } from 'toolbay';
import { open, pluginsIn, WORK } from './support.mjs';

const WORKERS = 8;
/** Calls of a function that never returns, and loops of calls of a plugin. */
const ENDLESS = 2;
const LOOPS = 4;
/** Until some calls have ended. */
const RUN_MS = 50;

if (isMainThread) await main(process.argv[2]);
else await work(workerData);

/** Starts the workers, and ends when the calls of all of them run. */
async function main(way) {
  pluginsIn(WORK, ['text']);
  const start = (number) => new Worker(new URL(import.meta.url), { workerData: number });
  const workers = Array.from({ length: WORKERS }, (_, number) => start(number));
  await Promise.all(workers.map((worker) => new Promise((resolve, reject) => {
    worker.once('message', resolve).once('error', reject);
  })));
  writeSync(1, `ends ${Date.now()}\n`);
  if (way === 'exit') process.exit(0);
  if (way === 'throw') throw new Error('the program ends');
  if (way === 'terminate') await Promise.all(workers.map((worker) => worker.terminate()));
  if (way === 'exit-workers') workers.forEach((worker) => worker.postMessage('exit'));
}

/** Makes calls until the end. */
async function work(number) {
  parentPort.once('message', () => process.exit(0));
  const begun = (id) => writeSync(1, `begun ${number} ${id}\n`);
  const host = await open([], { stateDir: path.join(WORK, String(number)) });
  host.register(tool({
    name: 'endless', description: 'Never ends.',
    run: (_, context) => {
      begun(context.callId);
      return new Promise(() => {});
    },
  }));
  const view = host.view();
  const call = (id, tool, args) => host.callAll(view, [{ id, tool, args }]).catch(() => {});
  for (let one = 0; one < ENDLESS; one++) call(`endless-${one}`, 'endless', {});
  const loop = async (name) => {
    for (let one = 0; ; one++) {
      const ended = call(`${name}-${one}`, 'text__word_count', { text: 'a b a' });
      begun(`${name}-${one}`);
      await ended;
    }
  };
  for (let one = 0; one < LOOPS; one++) loop(`words-${one}`);
  await setTimeout(RUN_MS);
  parentPort.postMessage('ready');
}
