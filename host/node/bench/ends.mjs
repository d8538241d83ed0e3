// Bar 9: programs with eight workers each end while calls run. None may be ended by a signal, take more than five
// seconds, or leave a call without a record.
import { spawn } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { recorded, report, WORK } from './support.mjs';

const PROGRAMS = Number(process.argv[2]);
/** The ways to end, with the status that each has. */
const WAYS = [['exit', 0], ['throw', 1], ['terminate', 0], ['exit-workers', 0]];
/** A program that has not ended by then never will. */
const KILL_MS = 60_000;
const COMPLAINTS = 5;
const PROGRAM = fileURLToPath(new URL('ends-program.mjs', import.meta.url));

const figures = { wrong: 0, slowest_s: 0, begun: 0, unrecorded: 0, complaints: [] };
for (let number = 0; number < PROGRAMS; number++) {
  const [way, expected] = WAYS[number % WAYS.length];
  const folder = mkdtempSync(path.join(WORK, 'program-'));
  const ended = await run(way, folder);
  const records = recordedCalls(folder);
  const isWrong = ended.signal !== null || ended.status !== expected;
  const unrecorded = ended.begun.filter((call) => records.get(call) !== 1);
  figures.wrong += Number(isWrong);
  figures.slowest_s = Math.max(figures.slowest_s, ended.seconds);
  figures.begun += ended.begun.length;
  figures.unrecorded += unrecorded.length;
  if ((isWrong || unrecorded.length > 0) && figures.complaints.length < COMPLAINTS) {
    const { status, signal, errors } = ended;
    figures.complaints.push({ way, status, signal, unrecorded: unrecorded.slice(0, 5), errors: errors.slice(-500) });
  }
  rmSync(folder, { recursive: true });
}
report(figures);

/** Runs a program to its end. It prints into a file: a pipe may be full, and then Node does not write. */
function run(way, folder) {
  return new Promise((resolve, reject) => {
    const file = path.join(folder, 'output');
    const output = openSync(file, 'a');
    const env = { ...process.env, TOOLBAY_BENCH_WORK: folder };
    const program = spawn(process.execPath, [PROGRAM, way], { env, stdio: ['ignore', output, 'pipe'] });
    closeSync(output);
    const timer = setTimeout(() => program.kill('SIGKILL'), KILL_MS);
    let errors = '';
    program.stderr.setEncoding('utf8').on('data', (text) => { errors += text; });
    program.on('error', reject).on('close', (status, signal) => {
      clearTimeout(timer);
      const printed = readFileSync(file, 'utf8');
      const ends = /^ends (\d+)$/m.exec(printed);
      const seconds = (ends === null ? KILL_MS : Date.now() - Number(ends[1])) / 1000;
      const begun = [...printed.matchAll(/^begun (\d+) (\S+)$/gm)].map(([, worker, id]) => `${worker} ${id}`);
      resolve({ status, signal, seconds, begun, errors });
    });
  });
}

/** How many records each call of the workers' hosts has. */
function recordedCalls(folder) {
  const records = new Map();
  for (const worker of readdirSync(folder).filter((name) => /^\d+$/.test(name))) {
    for (const { call_id: id } of recorded(path.join(folder, worker))) {
      records.set(`${worker} ${id}`, (records.get(`${worker} ${id}`) ?? 0) + 1);
    }
  }
  return records;
}
