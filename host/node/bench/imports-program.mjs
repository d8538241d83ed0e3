// A program of `imports.mjs`: imports the package, and uses it.
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';

// The first read starts the threads of Node that read files.
await readFile(new URL(import.meta.url));
const before = seen();
const begin = performance.now();
const { Session } = await import('toolbay');
const imported = performance.now();
new Session();
const used = performance.now();
const sideEffects = [...seen()].filter((one) => !before.has(one) && !isOwn(one));
console.log(JSON.stringify({ import_ms: imported - begin, first_use_ms: used - imported, side_effects: sideEffects }));

/** The threads, children, open files and mapped files of this process. */
function seen() {
  const tasks = readdirSync('/proc/self/task');
  const threads = tasks.map((task) => `thread ${task}`);
  const children = tasks.flatMap((task) => read(() => readFileSync(`/proc/self/task/${task}/children`, 'utf8')).split(' '));
  const processes = children.map((child) => `process ${child}`);
  const open = readdirSync('/proc/self/fd').map((number) => read(() => readlinkSync(`/proc/self/fd/${number}`)));
  const mapped = readFileSync('/proc/self/maps', 'utf8').match(/\/.*/g);
  return new Set([...threads, ...processes, ...open, ...mapped]);
}

/** What has ended in the meantime is empty: a thread, and the descriptor of the folder that is read. */
function read(look) {
  try {
    return look();
  } catch {
    return '';
  }
}

/** Files of the package, and libraries of the system that the native module links to. */
function isOwn(file) {
  return file.includes(`${path.sep}node_modules${path.sep}`) || /\.so(\.\d+)*$/.test(file);
}
