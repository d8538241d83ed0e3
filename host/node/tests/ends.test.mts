// The ends of programs and of worker threads.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';

import { CACHE, TestFolder, callOk, run, runProgram } from './support.mts';
import type { ProgramEnd } from './support.mts';

import { tool } from 'toolbay';

const BEGIN = `
  import { Host, Policy, tool } from 'toolbay'
  import { join } from 'node:path'
  import { Worker, isMainThread, parentPort } from 'node:worker_threads'
  const folder = process.argv[1]
  const started = Promise.withResolvers()
  const wait = tool({ name: 'wait', description: 'Wait.', run() { started.resolve(); return new Promise(() => {}) } })
  const open = () => Host.start(Policy.denyAll(folder), { stateDir: join(folder, 'state') })
  const begin = async (host) => {
    host.register(wait)
    host.callAll(host.view(), [{ id: '1', tool: 'wait' }]).catch(() => {})
    await started.promise
  }
`;

/** Runs a program, and checks how it ends. */
async function ends(folder: TestFolder, source: string): Promise<ProgramEnd> {
  return await runProgram(BEGIN + source, folder.path);
}

test('a program ends while calls run, and each is recorded', async (t) => {
  for (const [end, code] of [['process.exit(7)', 7], ["throw new Error('lost')", 1]] as const) {
    const folder = new TestFolder(t);
    const ended = await ends(folder, `const host = await open(); await begin(host); ${end}`);
    assert.deepEqual([ended.code, ended.signal], [code, null], ended.errors);
    assert.match(folder.audit, /"cancelled"/);
  }
});

test('a program ends by itself when no call runs', async (t) => {
  const folder = new TestFolder(t);
  const ended = await ends(folder, `
    globalThis.host = await open()
    host.register(tool({ name: 'work', description: 'Work.', run: () => 'done' }))
    const [result] = await host.callAll(host.view(), [{ id: '1', tool: 'work' }])
    console.log(result.output.value)
    // Nobody reads the second result.
    globalThis.stream = host.stream(host.view(), [{ id: '1', tool: 'work' }, { id: '2', tool: 'work' }])
    await stream.next()
  `);
  assert.deepEqual([ended.code, ended.output, ended.errors], [0, 'done\n', '']);
});

test('a host stays open while it loads a plugin', async (t) => {
  const folder = new TestFolder(t);
  const source = `
    import { Host, Policy } from 'toolbay'
    const [plugins, cacheDir] = process.argv.slice(1)
    async function load() {
      const host = await Host.start(Policy.denyAll(plugins), { cacheDir })
      return host.loadFile('text', plugins + '/text.wasm')
    }
    let isDone = false
    const loading = Promise.all([load(), load(), load()]).finally(() => (isDone = true))
    while (!isDone) {
      gc()
      await new Promise(setImmediate)
    }
    console.log(await loading)
  `;
  const ended = await run(process.execPath, ['--expose-gc', '--input-type=module', '--eval', source, folder.plugins, CACHE]);
  assert.deepEqual([ended.code, ended.output, ended.errors], [0, '[ [], [], [] ]\n', '']);
});

test('a call keeps the program running', async (t) => {
  const folder = new TestFolder(t);
  // The timer of the tool does not.
  const ended = await ends(folder, `
    const host = await open()
    const run = () => new Promise((resolve) => setTimeout(resolve, 50, 'done').unref())
    host.register(tool({ name: 'work', description: 'Work.', run }))
    const [result] = await host.callAll(host.view(), [{ id: '1', tool: 'work' }])
    console.log(result.output.value)
  `);
  assert.deepEqual([ended.code, ended.output, ended.errors], [0, 'done\n', '']);
});

test('signals end a program as without a host', async (t) => {
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    const folder = new TestFolder(t);
    const ended = await ends(folder, `
      const host = await open()
      await begin(host)
      process.kill(process.pid, '${signal}')
      setInterval(() => {}, 1000)
    `);
    assert.deepEqual([ended.code, ended.signal], [null, signal], ended.errors);
  }
});

test('a rejected call without a handler is reported as any promise', async (t) => {
  const folder = new TestFolder(t);
  const ended = await ends(folder, `
    const host = await open()
    process.on('unhandledRejection', (error) => console.log('unhandled', error.message))
    host.callAll(host.view(), [{ id: '1', tool: 'x', args: { n: NaN } }])
    host.register(tool({ name: 'fail', description: 'Fail.', async run() { throw new Error('handled') } }))
    await host.callAll(host.view(), [{ id: '1', tool: 'fail' }])
    const unreadable = Object.defineProperty(new Error(), 'stack', { get() { throw new Error('no stack') } })
    host.register(tool({ name: 'hide', description: 'Fail.', async run() { throw unreadable } }))
    await host.callAll(host.view(), [{ id: '1', tool: 'hide' }])
  `);
  assert.equal(ended.code, 0, ended.errors);
  assert.match(ended.output, /^unhandled the arguments of the call `1`: NaN[^\n]*\n$/);
  // Nobody subscribed to the messages of the library.
  assert.match(ended.errors, /the tool `fail` failed/);
});

test('worker threads have hosts of their own', async (t) => {
  const folder = new TestFolder(t);
  const source = `${BEGIN.replace('process.argv[1]', JSON.stringify(folder.path))}
    const host = await open()
    host.register(tool({ name: 'work', description: 'Work.', run: () => 'done' }))
    for (let n = 0; n < 10; n++) await host.callAll(host.view(), [{ id: '1', tool: 'work' }])
    parentPort.postMessage(host.calls().length)
    await host.close()
  `;
  const ends = Array.from({ length: 8 }, () => new Promise((resolve, reject) => {
    const worker = inWorker(source);
    let calls: unknown;
    worker.on('message', (message) => (calls = message));
    worker.on('error', reject);
    worker.on('exit', () => resolve(calls));
  }));
  assert.deepEqual(await Promise.all(ends), Array(8).fill(10));
});

test('a worker thread that ends cancels its calls, and others go on', async (t) => {
  const folder = new TestFolder(t);
  await using host = await folder.host();
  host.register(tool({ name: 'work', description: 'Work.', run: () => 'done' }));
  for (const end of ['process.exit(3)', "parentPort.postMessage('begun')", "throw new Error('lost')"]) {
    const own = new TestFolder(t);
    const worker = inWorker(`${BEGIN.replace('process.argv[1]', JSON.stringify(own.path))}
      const host = await open(); await begin(host); ${end}
    `);
    worker.on('message', () => void worker.terminate());
    worker.on('error', () => {});
    await new Promise((resolve) => worker.on('exit', resolve));
    assert.match(own.audit, /"cancelled"/, end);
    await callOk(host, 'work');
  }
});

test('a program ends while worker threads call', async (t) => {
  for (const end of ['process.exit(7)', "throw new Error('lost')"]) {
    const folder = new TestFolder(t);
    const source = JSON.stringify(`${BEGIN.replace('process.argv[1]', JSON.stringify(folder.path))}
      const host = await open(); await begin(host); parentPort.postMessage('begun')
    `);
    const ended = await ends(folder, `
      const start = () => new Worker(${source}, { eval: true, execArgv: ['--input-type=module'] })
      const workers = Array.from({ length: 8 }, start)
      await Promise.all(workers.map((worker) => new Promise((resolve) => worker.once('message', resolve))))
      ${end}
    `);
    assert.deepEqual([ended.code, ended.signal], [end.includes('7') ? 7 : 1, null], ended.errors);
    assert.equal(folder.audit.match(/"cancelled"/g)?.length, 8);
  }
});

test('the import starts and opens nothing', async (t) => {
  const folder = new TestFolder(t);
  const ended = await runProgram(`
    import { readFileSync, readdirSync } from 'node:fs'
    const count = (name) => readdirSync('/proc/self/' + name).length
    const loaded = () => readFileSync('/proc/self/maps', 'utf8').includes('toolbay.node')
    const state = () => JSON.stringify([count('task'), count('fd'), loaded()])
    const before = state()
    await import('toolbay')
    console.log(before === state(), before)
  `, folder.path);
  assert.match(ended.output, /^true .*false\]\n$/, ended.errors);
});

test('CommonJS works as ESM does', async (t) => {
  const folder = new TestFolder(t);
  for (const name of ['smoke.mjs', 'smoke.cjs']) {
    const ended = await run(process.execPath, [join(import.meta.dirname, name), folder.path]);
    assert.deepEqual([ended.code, ended.output, ended.errors], [0, 'done\n', ''], name);
  }
});

function inWorker(source: string): Worker {
  return new Worker(source, { eval: true, execArgv: ['--input-type=module'], stderr: true });
}
