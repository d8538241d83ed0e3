// What a program or its tools do wrong, and what is missing on its machine.

import assert from 'node:assert/strict';
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { test } from 'node:test';

import * as toolbay from 'toolbay';
import { Host, HostError, Policy, Session, ToolError, ToolOutput, tool, vendor } from 'toolbay';

import { TestFolder, call, callFails, callOk, logged, run } from './support.mts';

// The types of Node leave it out.
declare const WebAssembly: any;

const cycle: unknown[] = [];
cycle.push({ x: cycle });

function nested(depth: number): unknown {
  return depth === 0 ? null : [nested(depth - 1)];
}

// A value, its error, and the pointer to it.
const NO_JSON: [object, typeof TypeError | typeof RangeError, string][] = [
  [{ a: [NaN] }, RangeError, '/a/0'],
  [{ a: Infinity }, RangeError, '/a'],
  [{ a: 2 ** 53 }, RangeError, '/a'],
  [{ a: new Uint8Array(1) }, TypeError, '/a'],
  [{ a: Buffer.from('x') }, TypeError, '/a'],
  [{ 'a/b': new Set([1]) }, TypeError, '/a~1b'],
  [{ a: new Map() }, TypeError, '/a'],
  [{ a: cycle }, TypeError, '/a/0/x'],
  [{ a: '\ud800' }, RangeError, '/a'],
  [{ a: [undefined] }, TypeError, '/a/0'],
  [{ a: () => 1 }, TypeError, '/a'],
  [{ a: nested(127) }, RangeError, '/a/0'],
];

test('what JSON cannot express is refused with its pointer, and no call of the batch runs', async (t) => {
  const folder = new TestFolder(t);
  let runs = 0;
  const count = tool({ name: 'count', description: 'Count.', input: { type: 'object' }, run: () => void runs++ });
  await using host = await folder.host();
  host.register(count);
  for (const [args, error, pointer] of NO_JSON) {
    const calls = [{ id: '1', tool: 'count' }, { id: '2', tool: 'count', args }];
    await assert.rejects(host.callAll(host.view(), calls), (thrown: Error) => {
      assert(thrown instanceof error, String(thrown));
      assert(thrown.message.includes(`at \`${pointer}`), thrown.message);
      return true;
    });
  }
  const unreadable = [{ id: '1', tool: 'count' }, { id: '2', tool: 'count', args: '"\ud800"' }];
  await assert.rejects(host.callAll(host.view(), unreadable), RangeError);
  assert.equal(runs, 0);
  assert.throws(() => vendor.parseCalls('anthropic', cycle), TypeError);
});

test('values with a JSON form are written', async (t) => {
  const folder = new TestFolder(t);
  const input = { type: 'object', additionalProperties: true } as const;
  const echo = tool({ name: 'echo', description: 'Repeat.', input, run: (args) => args });
  await using host = await folder.host();
  host.register(echo);
  const date = new Date(0);
  const rest = { deep: nested(125), ['__proto__']: 1, text: 'é\u2028"\\', small: 1e-7 };
  const { structured } = (await callOk(host, 'echo', { date, nothing: undefined, ...rest })).output;
  assert.deepEqual(structured, { date: date.toJSON(), ...rest });
});

test('what a model writes wrongly is a refusal', async (t) => {
  const folder = new TestFolder(t);
  const add = tool({ name: 'add', description: 'Add one.', input: { n: { type: 'integer' } }, run: ({ n }) => n + 1 });
  await using host = await folder.host();
  host.register(add);
  for (const args of ['{', '[]', '{"n": "x"}', '{"n": 1, "m": 2}', '{"n": 1, "n": 2}', '{}']) {
    const { failure } = await callFails(host, 'add', args);
    assert.deepEqual([failure.kind, failure.code], ['refused', 'input_invalid'], args);
  }
  await callFails(host, 'no_such_tool');
});

test('arguments of a model that JavaScript cannot hold cost one call', async (t) => {
  const folder = new TestFolder(t);
  const input = { text: { type: 'string' }, n: { type: 'integer', optional: true } } as const;
  await using host = await folder.host();
  host.register(tool({ name: 'repeat', description: 'Repeat.', input, run: ({ text }) => text }));
  const inputs = [{ text: '\ud800' }, { text: 'a' }, { text: 'b', n: 2 ** 53 }, { text: 'c', more: nested(130) }, NaN];
  const use = (args: unknown, id: number) => ({ type: 'tool_use', id: String(id), name: 'repeat', input: args });
  const message = { content: [{ type: 'text', text: '\ud800', score: NaN, count: 2 ** 60 }, ...inputs.map(use)] };
  const results = await host.callAll(host.view(), vendor.parseCalls('anthropic', message));
  assert.deepEqual(results.map(({ ok }) => ok), [false, true, false, false, false]);
  for (const { failure } of results) assert(failure === null || failure.code === 'input_invalid', failure?.message);
  assert.match(results[2]?.failure?.message ?? '', /9007199254740992.*rounded.*`\/n`/);
  const written = ['{"text": "\ud800"}', '{"text": "d"}'].map((text) => ({ function: { name: 'repeat', arguments: text } }));
  const repeated = await host.callAll(host.view(), vendor.parseCalls('openai-chat', written));
  assert.deepEqual(repeated.map(({ ok }) => ok), [false, true]);
});

test('integers are exact both ways', async (t) => {
  const folder = new TestFolder(t);
  const echo = tool({
    name: 'echo',
    description: 'Repeat a number.',
    input: { n: { type: 'integer' } },
    run: ({ n }) => ({ n, s: '[1, "2"]' }),
  });
  await using host = await folder.host();
  host.register(echo);
  for (const n of [2n ** 53n + 1n, -(2n ** 63n), 2n ** 64n, 10n ** 99n + 7n]) {
    const expected = { n, s: '[1, "2"]' };
    assert.deepEqual((await callOk(host, 'echo', { n })).output.structured, expected);
    assert.deepEqual((await callOk(host, 'echo', `{ "n" : ${n} }`)).output.structured, expected);
    const message = { content: [{ type: 'tool_use', id: '1', name: 'echo', input: { n } }] };
    const text = JSON.stringify(message, (_, value) => (typeof value === 'bigint' ? 'N' : value)).replace('"N"', String(n));
    for (const form of [message, text]) {
      const results = await host.callAll(host.view(), vendor.parseCalls('anthropic', form));
      assert.deepEqual(results[0]?.output?.structured, expected);
      assert.match(JSON.stringify(vendor.resultMessages('mcp', results)), RegExp(`"structuredContent":{"n":${n},`));
    }
  }
  // A number that it can hold stays one.
  assert.deepEqual((await callOk(host, 'echo', { n: 2n ** 53n - 1n })).output.structured.n, 2 ** 53 - 1);
});

test('definitions with large bounds can be written for a vendor', async (t) => {
  const folder = new TestFolder(t);
  const n = { type: 'integer', maximum: 2n ** 63n - 1n };
  await using host = await folder.host();
  host.register(tool({ name: 'add', description: 'Add one.', input: { n }, run: () => '' }));
  const view = host.view();
  const written = JSON.stringify(vendor.viewDefinitions('anthropic', view));
  assert.equal(JSON.parse(written)[0].input_schema.properties.n.maximum, 2 ** 63);
  assert.equal(view.tools[0]?.inputSchema.properties.n.maximum, n.maximum);
});

test('a result that is no JSON names tool and pointer', async (t) => {
  const folder = new TestFolder(t);
  await using host = await folder.host();
  for (const [number, [value, , pointer]] of NO_JSON.entries()) {
    const name = `t${number}`;
    host.register(tool({ name, description: 'Answer.', run: async () => value }));
    const { failure } = await callFails(host, name);
    assert.equal(failure.code, 'execution_failed');
    assert(failure.message.includes(`\`${name}\``), failure.message);
    assert(failure.message.includes(`\`${pointer}`), failure.message);
  }
});

test('what a tool throws is a failure and is logged', async (t) => {
  const folder = new TestFolder(t);
  const entries = logged(t);
  const unreadable = Object.defineProperty(new Error(), 'message', {
    get() {
      throw new Error('no text');
    },
  });
  const changed = Object.assign(new ToolError('execution_failed', 'x'), { costUsd: NaN });
  const cases: [string, () => unknown, string][] = [
    ['throws', () => { throw new Error('no page', { cause: new Error('status 404') }); }, 'no page: status 404'],
    ['rejects', () => Promise.reject(new TypeError('no list')), 'no list'],
    ['throws_text', () => { throw 'bad'; }, 'bad'],
    ['rejects_nothing', () => Promise.reject(), 'the tool threw undefined'],
    ['unreadable', () => { throw unreadable; }, 'the tool failed with an error that cannot be shown'],
    ['changed', () => { throw changed; }, 'the tool failed with an error that cannot be shown'],
    [
      'block', () => new ToolOutput('', { content: [{ type: 'sound' }] }),
      'the tool `block` returned a content block of the unknown type "sound"',
    ],
  ];
  await using host = await folder.host();
  host.register(...cases.map(([name, work]) => tool({ name, description: 'Fail.', run: work })));
  for (const [name, , message] of cases) {
    const { failure } = await callFails(host, name);
    assert.deepEqual([failure.code, failure.message], ['execution_failed', message]);
  }
  // A result that cannot be sent and a `ToolError` are not logged.
  assert.equal(entries.length, cases.length - 2);
  assert.equal((entries[0]?.error as Error).message, 'no page');
});

test('a tool refuses with an error of its own', async (t) => {
  const folder = new TestFolder(t);
  const refuse = tool({
    name: 'refuse',
    description: 'Refuse.',
    run() {
      throw new ToolError('not_available', 'closed \ud800', { subject: 'later', costUsd: 0.5 });
    },
  });
  await using host = await folder.host();
  host.register(refuse);
  const { failure, costUsd } = await callFails(host, 'refuse');
  assert.deepEqual([failure.code, failure.subject, costUsd], ['not_available', 'later', 0.5]);
  assert.throws(() => new ToolError('no_such_code' as 'not_available', 'x'), TypeError);
  assert.throws(() => new ToolError('execution_failed', 'x', { costUsd: NaN }), RangeError);
});

test('a progress function that fails costs its event only', async (t) => {
  const folder = new TestFolder(t);
  const entries = logged(t);
  const report = tool({ name: 'report', description: 'Report.', run: (_, context) => context.progress('x') });
  await using host = await folder.host();
  host.register(report);
  const fail = () => {
    throw new Error('no terminal');
  };
  await callOk(host, 'report', {}, { progress: fail });
  await callOk(host, 'report', {}, { progress: async () => fail() });
  assert.equal(entries.length, 2);
});

test('a wrong definition says what is wrong', async (t) => {
  const folder = new TestFolder(t);
  const good = { name: 'good', description: 'Good.', run: () => '' };
  const cases: [() => unknown, RegExp][] = [
    // @ts-expect-error: no description
    [() => tool({ name: 'x', run: () => '' }), /`description` is missing/],
    // @ts-expect-error: no such option
    [() => tool({ name: 'x', description: 'X.', readonly: true, run: () => '' }), /no option `readonly`/],
    // @ts-expect-error: no function
    [() => tool({ ...good, run: 1 }), /`run` must be a function/],
    [() => tool({ ...good, name: 'a b' }), /must be 1 to 48/],
    [() => tool({ ...good, *run() { yield 1; } }), /must not `yield`/],
    // @ts-expect-error: no boolean
    [() => tool({ ...good, needsApproval: 1 }), /`needsApproval` is true or false/],
    // @ts-expect-error: no list
    [() => tool({ ...good, tags: 'destructive' }), /`tags` is a list of texts/],
    // @ts-expect-error: no options
    [() => tool(), /takes an object with `name`/],
  ];
  for (const [make, expected] of cases) {
    assert.throws(make, (error: Error) => error instanceof TypeError && expected.test(error.message));
  }
  await using host = await folder.host();
  // @ts-expect-error: no tool
  assert.throws(() => host.register(() => ''), /made by `tool/);
  host.register(tool(good));
  assert.throws(() => host.register(tool(good)), /already registered/);
  // @ts-expect-error: no such option
  await assert.rejects(call(host, 'good', {}, { sesion: new Session() }), /no option `sesion`/);
  // @ts-expect-error: no policy
  await assert.rejects(Host.start('toolbay.toml'), /made by `Policy.read/);
  // @ts-expect-error: no view
  await assert.rejects(host.callAll({}, []), /made by `host.view/);
  // @ts-expect-error: no list of calls
  await assert.rejects(host.callAll(host.view(), { id: '1', tool: 'good' }), /are a list/);
  // @ts-expect-error: private
  assert.throws(() => new Host(Policy.denyAll(folder.path)), /made by `await Host.start/);
  // @ts-expect-error: a text
  assert.throws(() => host.view({ allowedTools: 'good' }), /`allowedTools` is a list of texts/);
  // @ts-expect-error: no function
  await assert.rejects(folder.host({ approver: 'yes' }), /`approver` is a function/);
  // @ts-expect-error: no path
  await assert.rejects(folder.host({ stateDir: 1 }), /`stateDir` is a text or a URL/);
});

test('an option of another type or value is named', async (t) => {
  const folder = new TestFolder(t);
  await using host = await folder.host();
  const view = host.view();
  const good = { name: 'good', description: 'Good.', run: () => '' };
  const uses: [string, (options: any) => unknown][] = [
    [
      'name id maxCalls maxIdenticalCalls maxCallsPerTurn maxIdenticalCallsPerTurn maxCostUsd',
      (options) => new Session(options),
    ],
    ['plugins stateDir cacheDir approver stateWaitMs sourceWaitMs callLog', (options) => folder.host(options)],
    [
      'profile allowedTools allowedPlugins allowedToolsets allowedTags allowedMcpServers allowedMcpTools.a excludeTools ' +
        'excludeTags lazy toolcallReason',
      (options) => host.view(options),
    ],
    ['limit tool outcome sessionId', (options) => host.calls(options)],
    [
      'title namespace toolset tags searchHint maxResultChars timeoutMs serial cacheMs readOnly input output',
      (options) => tool({ ...good, ...options }),
    ],
    ['session signal timeoutMs budgetChars dryRun identity progress', (options) => host.callAll(view, [], options)],
    ['turn', (identity) => host.callAll(view, [], { identity })],
    ['base', (options) => Policy.parse('', options)],
  ];
  for (const [names, use] of uses) {
    for (const path of names.split(' ')) {
      const [name = '', inner] = path.split('.');
      const value = inner === undefined ? Symbol('wrong') : { [inner]: 1 };
      await assert.rejects(async () => use({ [name]: value }), (error: Error) => {
        const names = [`\`${path}\` is `, `\`${path}\` takes `];
        return error instanceof TypeError && names.some((text) => error.message.includes(text));
      }, path);
    }
  }
  const values: [RegExp, () => unknown][] = [
    [/`maxCalls` is /, () => new Session({ maxCalls: -3 })],
    [/`maxCostUsd` is /, () => new Session({ maxCostUsd: NaN })],
    [/`timeoutMs` is /, () => host.callAll(view, [], { timeoutMs: 2 ** 31 })],
    [/`maxResultChars` is /, () => tool({ ...good, maxResultChars: 2 ** 32 })],
  ];
  for (const [expected, use] of values) {
    await assert.rejects(async () => use(), (error: Error) => error instanceof RangeError && expected.test(error.message));
  }
});

test('a wrong policy names file, line and key', (t) => {
  const folder = new TestFolder(t);
  const file = join(folder.path, 'toolbay.toml');
  writeFileSync(file, "version = 1\n[plugins.text.grant]\nfs_red = ['a']\n");
  assert.throws(() => Policy.read(file), (error: HostError) => {
    assert.deepEqual([error.kind, error.file, error.line], ['policy', file, 3]);
    assert.match(error.key ?? '', /fs_red/);
    return true;
  });
  const makers = [
    () => Policy.read(join(folder.path, 'none.toml')), () => Policy.parse('version = 2', { base: folder.path }),
    () => Policy.parse({ version: 1, x: 1 }, { base: folder.path }),
  ];
  for (const make of makers) assert.throws(make, (error: Error) => error instanceof HostError && error.kind === 'policy');
  writeFileSync(file, 'version = 1\n');
  Policy.read(new URL(`file://${file}`));
  for (const wrong of [{ version: new Set([1]) }, [], 1, null, undefined] as object[]) {
    assert.throws(() => Policy.parse(wrong, { base: folder.path }), TypeError);
  }
});

/*
 * (component
 *   (core module $m
 *     (memory 1)
 *     (func (export "crash") (result i32) (i32.load (i32.const 0x7fffffff))))
 *   (core instance $i (instantiate $m))
 *   (func (export "crash") (result u32) (canon lift (core func $i "crash"))))
 */
const CRASH = Buffer.from([
  '0061736d0d000100013d0061736d010000000105016000017f03020100050301000107090105637261736800000a0d010b0041ffffffff07',
  '2802000b0009046e616d650002016d02040100000007050140000079060b010000010005637261736808060100000000000b0b0100056372',
  '617368010000001f0e636f6d706f6e656e742d6e616d65010600110100016d0106001201000169',
].join(''), 'hex');
// After the head of the component, and that of its first section.
const CRASH_MODULE = CRASH.subarray(10, 10 + 61);

test('a trap of a guest is a fault, and one of WebAssembly in JavaScript still an error', async (t) => {
  const folder = new TestFolder(t);
  const entries = logged(t);
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(CRASH_MODULE));
  const crashHere = () => assert.throws(exports['crash'] as () => void, WebAssembly.RuntimeError);
  await using host = await folder.host();
  await host.loadBytes('guest', CRASH);
  for (let n = 0; n < 3; n++) {
    crashHere();
    const { failure } = await callFails(host, 'guest__crash');
    assert.deepEqual([failure.kind, failure.code], ['fault', 'trap']);
  }
  crashHere();
  assert(entries.some(({ message }) => message.includes('trapped')));
});

test('a file that does not load is a problem, and a component that does not is an error', async (t) => {
  const folder = new TestFolder(t);
  const entries = logged(t);
  const { plugins } = folder;
  writeFileSync(join(plugins, 'broken.wasm'), 'no component');
  await using host = await folder.host({ plugins });
  assert.deepEqual(host.problems.map(({ plugin }) => plugin), ['broken']);
  assert(entries.some(({ message }) => message.includes('broken.wasm')));
  const none = join(folder.path, 'none');
  const loads: [subject: string, load: () => Promise<string[]>][] = [
    ['`x`', () => host.loadBytes('x', Buffer.from('no component'))], [none, () => host.loadFile('x', none)],
  ];
  for (const [subject, load] of loads) {
    await assert.rejects(load, (error: HostError) => error.kind === 'load' && error.message.includes(subject));
  }
});

test('events that cannot be read fail what waits for them', async (t) => {
  const folder = new TestFolder(t);
  await using host = await folder.host();
  host.register(tool({ name: 'work', description: 'Work.', run: () => 'done' }));
  const require = createRequire(import.meta.url);
  const functions = require(join(dirname(require.resolve('toolbay')), 'lib/native.js')).native();
  const { drain } = functions;
  functions.drain = (mailbox: number) => {
    functions.drain = drain;
    drain(mailbox);
    throw new Error('too long');
  };
  await assert.rejects(call(host, 'work'), { kind: 'internal', message: /too long/ });
  assert.equal((await callOk(host, 'work')).output.value, 'done');
});

test('two hosts share a state directory', async (t) => {
  const folder = new TestFolder(t);
  {
    await using one = await folder.host({ stateDir: folder.state });
    await using two = await folder.host({ stateDir: folder.state });
    for (const host of [one, two]) await callFails(host, 'no_such_tool');
  }
  assert.equal(folder.audit.match(/no_such_tool/g)?.length, 2);
});

test('a closed host says so', async (t) => {
  const folder = new TestFolder(t);
  const host = await folder.host();
  const view = host.view();
  await host.close();
  const uses = [() => host.view(), () => host.problems, () => host.unregister('x'), () => host.unload('x')];
  for (const use of uses) assert.throws(use, (error: HostError) => error.kind === 'closed');
  await assert.rejects(host.callAll(view, []), (error: HostError) => error.kind === 'closed');
});

test('a missing program is named', async (t) => {
  const folder = new TestFolder(t);
  const before = process.env['TOOLBAY_BIN'];
  process.env['TOOLBAY_BIN'] = join(folder.path, 'none');
  t.after(() => (before === undefined ? delete process.env['TOOLBAY_BIN'] : (process.env['TOOLBAY_BIN'] = before)));
  await assert.rejects(Host.start(Policy.denyAll(folder.path)), (error: HostError) => {
    assert.equal(error.kind, 'executable');
    assert(error.message.includes(join(folder.path, 'none')) && error.message.includes('TOOLBAY_BIN'), error.message);
    return true;
  });
});

test('a package without its module says how to get it, and one of another version does not load', async (t) => {
  const folder = new TestFolder(t);
  const modules = join(folder.path, 'node_modules');
  const require = createRequire(import.meta.url);
  mkdirSync(modules);
  cpSync(dirname(require.resolve('toolbay/package.json')), join(modules, 'toolbay'), { recursive: true });
  const program = join(folder.path, 'program.cjs');
  writeFileSync(program, `
    const { Policy } = require('toolbay')
    try { Policy.denyAll('/'); Policy.parse('version = 1', { base: '/' }) }
    catch (error) { console.log(error.name, error.kind, error.message) }
  `);
  const start = () => run(process.execPath, [program]);
  const absent = await start();
  assert.match(absent.output, /^HostError executable the package `@toolbay\/linux-\S+` is missing/);
  assert.match(absent.output, /npm\/cli\/issues\/4828.*npm install @toolbay/);
  const scope = join(modules, '@toolbay', `linux-${process.arch}-gnu`);
  mkdirSync(scope, { recursive: true });
  writeFileSync(join(scope, 'toolbay.node'), 'no module');
  assert.match((await start()).output, /^HostError executable the native module cannot be loaded/);
  rmSync(join(scope, 'toolbay.node'));
  cpSync(require.resolve(`@toolbay/linux-${process.arch}-gnu/toolbay.node`), join(scope, 'toolbay.node'));
  assert.equal((await start()).output, '');
  const manifest = join(modules, 'toolbay', 'package.json');
  const document = JSON.parse(readFileSync(manifest, 'utf8')) as object;
  writeFileSync(manifest, JSON.stringify({ ...document, version: '0.0.1' }));
  assert.match((await start()).output, /^HostError executable the module .* needs 0\.0\.1/);
});

test('the public names are those of the documentation', () => {
  const require = createRequire(import.meta.url);
  const types = readFileSync(join(dirname(require.resolve('toolbay/package.json')), 'index.d.ts'), 'utf8');
  const names = [...types.matchAll(/^export (?:class|function|interface|namespace|type) (\w+)/gm)].map(([, name]) => name);
  assert.equal(new Set(names).size, 16, '15 names and the alias `ApprovalReply`');
  const values = [...types.matchAll(/^export (?:class|function) (\w+)/gm)].map(([, name]) => name);
  assert.deepEqual([...values, 'vendor'].sort(), Object.keys(toolbay).sort());
  const common = require('toolbay') as typeof toolbay;
  assert.equal(common.Host, Host);
});
