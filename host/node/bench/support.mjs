// What the measurements share. `cargo xtask arrive node` sets the variables, and reads the JSON object that each script
// prints.
import { copyFileSync, mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { Host, Policy } from 'toolbay';

const { TOOLBAY_BENCH_PLUGINS: PLUGINS, TOOLBAY_BENCH_CACHE: CACHE } = process.env;
/** A folder that is empty when the script begins. */
export const WORK = process.env.TOOLBAY_BENCH_WORK;

export const BATCH = 64;
export const TEXT = 'Lorem ipsum dolor sit amet, consetetur sadipscing elitr, sed diam nonumy eirmod temp';
const ARGUMENTS = JSON.stringify({ text: TEXT });
const ROUNDS = 9;
const ROUND_MS = 500;

/** Opens a host with these first-party plugins. Without a policy it grants nothing. */
export function open(plugins, { policy = '', ...options } = {}) {
  const parsed = Policy.parse(`version = 1\n${policy}`, { base: WORK });
  return Host.start(parsed, { plugins: pluginsIn(WORK, plugins), cacheDir: CACHE, ...options });
}

/** Copies first-party plugins into a folder of a folder. */
export function pluginsIn(folder, names) {
  const to = path.join(folder, 'plugins');
  mkdirSync(to, { recursive: true });
  for (const name of names) copyFileSync(path.join(PLUGINS, `${name}.wasm`), path.join(to, `${name}.wasm`));
  return to;
}

/** Calls of one tool. */
export function batch(tool, size, args = ARGUMENTS) {
  return Array.from({ length: size }, (_, number) => ({ id: String(number), tool, args }));
}

/** The number of results, all of which must have an output. */
export function checked(results) {
  for (const result of results) if (!result.ok) throw new Error(`${result.tool} failed: ${result.failure.message}`);
  return results.length;
}

/** The records of calls in a state directory. */
export function recorded(stateDir) {
  // A line that is being written has no end.
  const lines = readFileSync(path.join(stateDir, 'audit.jsonl'), 'utf8').split('\n').slice(0, -1);
  return lines.map((line) => JSON.parse(line)).filter(({ kind }) => kind === 'call');
}

/**
 * Measures work that returns how many calls it made: the medians of its rate as `NAME_per_s`, and of the microseconds of
 * processor time for each call as `NAME_cpu_us`. The kinds of work take turns.
 */
export async function sideBySide(kinds) {
  const rounds = Object.keys(kinds).map(() => []);
  for (const work of Object.values(kinds)) await rate(work);
  for (let round = 0; round < ROUNDS; round++) {
    for (const [index, work] of Object.values(kinds).entries()) rounds[index].push(await rate(work));
  }
  const figures = Object.keys(kinds).map((name, index) => [
    [`${name}_per_s`, median(rounds[index].map((round) => round.perSecond))],
    [`${name}_cpu_us`, median(rounds[index].map((round) => round.microseconds))],
  ]);
  return Object.fromEntries(figures.flat());
}

async function rate(work) {
  const [begin, used] = [performance.now(), process.cpuUsage()];
  let calls = 0;
  while (performance.now() - begin < ROUND_MS) calls += await work();
  const { user, system } = process.cpuUsage(used);
  return { perSecond: calls / (performance.now() - begin) * 1000, microseconds: (user + system) / calls };
}

/** The middle of some numbers. */
export function median(numbers) {
  return numbers.toSorted((one, other) => one - other)[Math.floor(numbers.length / 2)];
}

/** Prints the figures. */
export function report(figures) {
  console.log(JSON.stringify(figures));
}
