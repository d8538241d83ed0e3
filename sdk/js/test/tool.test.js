// The definitions that `tool` creates, and calls.

import assert from 'node:assert/strict';
import test from 'node:test';

import {
  config, context, failed, files, http, inputError, invoke, kv, log, Output, plugin, process, reducer, rendered, secrets, tool, ToolError,
} from '@toolbay/sdk';
import { describe, FakeHost } from '@toolbay/sdk/testing';
import { exported } from '../src/plugin.js';
import * as randomness from '../src/random.js';

const forecast = tool({
  name: 'forecast',
  description: 'Forecast the weather.',
  toolset: 'web', tags: ['a'], readOnly: true, untrustedOutput: true, maxResultChars: 500,
  examples: [{ args: { place: 'Bern' }, value: '[4,1,0]' }], meta: { a: 1 },
  needs: [{ net: ['https://a.example', 'https://b.example'], reason: 'asks both' }, { clock: true, optional: true }],
  input: {
    place: { type: 'string', minLength: 1 },
    days: { type: 'integer', default: 1 },
    scale: { type: 'string', enum: ['c', 'f'], optional: true },
  },
  output: { type: 'array', items: { type: 'number' } },
  run: ({ place, days, scale }) => [place.length, days, scale === 'f' ? 1 : 0],
});

const simple = (run, more = {}) => plugin({ tools: [tool({ name: 't', description: 'T.', run, ...more })] });

test('the definition says what the options say', () => {
  const definition = describe(plugin({ tools: [forecast] }), 'forecast');
  assert.deepEqual(definition.inputSchema, {
    type: 'object', additionalProperties: false, required: ['place'],
    properties: {
      place: { type: 'string', minLength: 1 }, days: { type: 'integer', default: 1 }, scale: { type: 'string', enum: ['c', 'f'] },
    },
  });
  assert.deepEqual(definition.outputSchema, {
    type: 'object', properties: { result: { type: 'array', items: { type: 'number' } } }, required: ['result'],
  });
  assert.deepEqual(JSON.parse(definition.meta), { a: 1, examples: [{ args: { place: 'Bern' }, value: '[4,1,0]' }] });
  assert.deepEqual(definition.capabilities, [
    { kind: 'net', target: 'https://a.example', optional: false, reason: 'asks both' },
    { kind: 'net', target: 'https://b.example', optional: false, reason: 'asks both' },
    { kind: 'clock', target: 'wall', optional: true, reason: null },
  ]);
  assert.deepEqual(Object.keys(definition.traits).filter((name) => definition.traits[name]), ['readOnly', 'untrustedOutput']);
  assert.deepEqual([definition.toolset, definition.tags, definition.maxResultChars, definition.title], ['web', ['a'], 500, null]);
});

test('a whole schema stays as it is', () => {
  const input = { type: 'object', properties: { a: { type: 'string' } }, required: ['a'], additionalProperties: true };
  const { inputSchema } = describe(simple(() => '', { input }), 't');
  assert.deepEqual(inputSchema, input);
});

test('what is wrong with a tool is said where it is written', () => {
  const cases = [
    [{ name: 'a b' }, /`name` must be/],
    [{ description: ' ' }, /`description` is missing/],
    [{ tags: 'destructive' }, /`tags` is a list/],
    [{ needsApproval: 1 }, /`needsApproval` is true or false/],
    [{ run: undefined }, /`run` must be a function/],
    [{ run: async () => '' }, /must not be `async`/],
    [{ readonly: true }, /unknown option `readonly`; known are .*`readOnly`/],
    [{ needs: { files: '**' } }, /unknown need `files`; known are `fsRead`/],
    [{ needs: { kv: 'global' } }, /unknown kv scope `global`/],
    [{ needs: { clock: 'wall' } }, /has no target: write `clock: true`/],
    [{ input: { a: 'string' } }, /`input.a` must be a JSON Schema/],
  ];
  for (const [options, expected] of cases) {
    assert.throws(() => tool({ name: 't', description: 'T.', run: () => '', ...options }), expected);
  }
  assert.throws(() => plugin({ tools: [forecast, forecast] }), /two tools have the name "forecast"/);
  assert.throws(() => plugin({}), /no tools and no reducers/);
});

test('every kind of result becomes an output', () => {
  const value = (result) => new FakeHost().call(simple(() => result), 't');
  assert.deepEqual([value(undefined).value, value('x').value, value('x').structured], ['', 'x', null]);
  assert.deepEqual([value({ a: 1 }).value, value({ a: 1 }).structured], ['{"a":1}', { a: 1 }]);
  assert.deepEqual([value([1]).value, value([1]).structured], ['[1]', { result: [1] }]);
  assert.deepEqual([value(0).value, value(false).structured], ['0', { result: false }]);
  const both = value(rendered('text', { a: 1 }));
  assert.deepEqual([both.value, both.structured], ['text', { a: 1 }]);
  const rich = value(new Output('x').image(Uint8Array.of(1), 'image/png').cost(0.5).metadata({ b: 2 }));
  assert.deepEqual([rich.content.length, rich.costUsd, rich.meta], [1, 0.5, '{"b":2}']);
  assert.equal(value('\ud800').value, '\ufffd', 'half of a pair is no text');
});

test('a result that is no JSON is an error that says what it is', () => {
  const circle = {};
  circle.self = circle;
  const cases = [
    [{ a: NaN }, /NaN at `a`, which JSON has not/], [() => 1, /a function, which JSON has not/],
    [new Map(), /a Map, which JSON has not/], [circle, /circular/], [Promise.resolve(1), /returned a promise/],
  ];
  for (const [result, expected] of cases) {
    assert.throws(() => new FakeHost().call(simple(() => result), 't'), (error) => {
      assert.equal(error.code, 'execution-failed');
      assert.match(error.message, expected);
      return true;
    });
  }
});

test('whatever is thrown is an error of the contract', () => {
  const thrown = (what) => {
    try {
      new FakeHost().call(simple(() => { throw what; }), 't');
      return null;
    } catch ({ code, message, subject }) {
      return [code, message, subject];
    }
  };
  assert.deepEqual(thrown(new RangeError('too far')), ['execution-failed', 'too far', null]);
  assert.deepEqual(thrown(new Error('no page', { cause: new Error('status 404') })), ['execution-failed', 'no page: status 404', null]);
  assert.deepEqual(thrown('text'), ['execution-failed', 'text', null]);
  assert.deepEqual(thrown({ a: 1n }), ['execution-failed', 'the tool threw object', null]);
  assert.deepEqual(thrown(null), ['execution-failed', 'the tool threw null', null]);
  assert.deepEqual(thrown(inputError('bad', '/a')), ['input-invalid', 'bad', '/a']);
  assert.throws(() => new FakeHost().call(simple(() => ''), 'other'), /no tool `other`/);
});

test('out of memory is not told to the model: it ends the instance', () => {
  const error = Object.assign(new Error('out of memory'), { name: 'InternalError' });
  const { tools } = exported(simple(() => { throw error; }), null);
  assert.throws(() => tools.call('t', '{}'), (thrown) => thrown === error);
});

test('defaults fill in what is left out, afresh for each call', () => {
  const made = simple(({ list, n }) => { list.push(n); return list; }, {
    input: { list: { type: 'array', default: [] }, n: { type: 'integer', default: 7 } },
  });
  assert.equal(new FakeHost().call(made, 't').value, '[7]');
  assert.equal(new FakeHost().call(made, 't', { n: 8 }).value, '[8]');
});

test('a fake host plays and remembers', () => {
  const made = simple(({ path }) => {
    context.progress('reading', 10);
    log.info('reading', { path });
    kv.setJson('plugin', 'last', { path });
    context.checkCancelled();
    return `${config.require('greeting')} ${files.readText(path)} ${kv.increment('plugin', 'n')} ${kv.keys('plugin').join()}`;
  }, { input: { path: { type: 'string' } } });
  const fake = new FakeHost({ files: { a: 'wörld' }, kv: {}, config: { greeting: 'hello' } });
  assert.equal(fake.call(made, 't', { path: 'a' }).value, 'hello wörld 1 last,n');
  assert.deepEqual(fake.progress, [{ message: 'reading', percent: 10, audience: 'user' }]);
  assert.deepEqual(fake.log, [{ level: 'info', message: 'reading', fields: { path: 'a' } }]);
  assert.throws(() => fake.call(made, 't', { path: 'b' }), { code: 'execution-failed', subject: 'not-found' });
  const given = { kv: {}, cancelAfter: 0 };
  assert.throws(() => new FakeHost(given).call(made, 't', { path: 'a' }), { subject: 'cancelled' });
});

test('without a fake nothing is granted', () => {
  const asks = [
    () => files.read('a'), () => kv.get('tool', 'a'), () => secrets.get('a'), () => http.get('https://a.example'),
    () => process.run('ls'),
  ];
  for (const ask of asks) assert.throws(ask, { code: 'not-available', subject: 'denied' });
});

test('a response knows its status', () => {
  const fake = new FakeHost({ http: ({ url }) => ({ status: url.endsWith('x') ? 404 : 200, body: '{"n": 9007199254740993}', headers: { 'X-A': '1' } }) });
  fake.run(() => {
    const response = http.get('https://a.example/', { json: undefined });
    assert.deepEqual([response.ok().json(), response.header('x-a'), response.header('y')], [{ n: 9007199254740993n }, '1', null]);
    assert.throws(() => http.post('https://a.example/x', { json: { a: 1 } }).ok(), { subject: '404' });
  });
});

test('a reducer gets what the tool gave and returns less', () => {
  const made = plugin({
    tools: [forecast],
    reducers: [reducer({ tool: 'forecast', reduce: (result) => (result instanceof Error ? failed('short') : result.value.slice(0, 1)) })],
  });
  const { reducers } = exported(made, null);
  const ctx = { toolName: 'forecast', args: '{}', turnCount: 1, budgetChars: 10 };
  const output = { value: 'long', structured: '{"a":1}', content: [], costUsd: null, meta: null };
  assert.deepEqual(reducers.reduce({ tag: 'ok', val: output }, ctx), { tag: 'ok', val: { ...output, value: 'l' } });
  const error = { code: 'not-available', message: 'm', subject: null, costUsd: null };
  assert.equal(reducers.reduce({ tag: 'err', val: error }, ctx).val.message, 'short');
});

test('an output has blocks of every kind, with annotations', () => {
  const bytes = Uint8Array.of(1);
  const { content } = new FakeHost().call(simple(() => new Output('x')
    .audio(bytes, 'audio/wav').annotate({ audience: ['user'], priority: 0.5 })
    .embedded('a:b', 'text', 'text/plain').embedded('a:c', bytes)), 't');
  assert.deepEqual(content, [
    { body: { tag: 'audio', val: { data: bytes, mimeType: 'audio/wav' } }, annotations: { audience: ['user'], priority: 0.5, lastModified: null } },
    { body: { tag: 'embedded', val: { uri: 'a:b', mimeType: 'text/plain', body: { tag: 'text', val: 'text' } } }, annotations: null },
    { body: { tag: 'embedded', val: { uri: 'a:c', mimeType: null, body: { tag: 'blob', val: bytes } } }, annotations: null },
  ]);
  assert.throws(() => new Output('x').annotate({}), { message: 'there is no block to annotate' });
});

test('a tool calls other tools', () => {
  const made = simple(() => {
    assert.deepEqual(invoke.tools().map(({ name }) => name), ['a__say', 'a__sum']);
    const [sum, none, no] = invoke.callAll([['a__sum', { a: 2n ** 60n }], ['a__none'], ['a__say', {}]]);
    assert.deepEqual([sum.structured, none.subject, no.code, no.costUsd], [{ sum: 3 }, 'unknown-tool', 'stale-write', null]);
    return invoke.call('a__sum', { a: 1 }).value;
  }, { needs: { invoke: 'a__*' } });
  const tools = { a__sum: () => ({ value: 'sum', structured: { sum: 3 } }), a__say: () => { throw new ToolError('stale-write', 'no', 'x', { costUsd: 1 }); } };
  const fake = new FakeHost({ tools });
  assert.equal(fake.call(made, 't').value, 'sum');
  assert.deepEqual(fake.invocations.at(-1), { name: 'a__sum', args: { a: 1 } });
  assert.throws(() => fake.run(() => invoke.call('a__say')), { code: 'stale-write' });
  assert.throws(() => new FakeHost().call(made, 't', {}), { code: 'execution-failed' });
  assert.throws(() => invoke.call('a__say'), { code: 'not-available', subject: 'denied' });
});

const drawing = (more) => simple(() => `${Math.random()} ${crypto.randomUUID()} ${crypto.getRandomValues(new Uint32Array(4)).join('-')}`, more);

test('random numbers come from the host and need its grant', () => {
  const [engine, web] = [Math.random, globalThis.crypto];
  const given = new FakeHost({ random: true });
  const values = Array.from({ length: 300 }, () => given.call(drawing({ needs: { random: true } }), 't').value);
  const parts = values.map((value) => value.split(' '));
  for (const index of [0, 1, 2]) assert.equal(new Set(parts.map((part) => part[index])).size, values.length);
  for (const [number, uuid] of parts) {
    assert.ok(number >= 0 && number < 1, number);
    assert.match(uuid, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  }
  const refused = (host, made, message) => assert.throws(() => host.call(made, 't'), { message });
  refused(new FakeHost(), drawing({ needs: { random: true, optional: true } }), /`Math.random` needs the capability `random`, which is not granted/);
  refused(given, drawing({}), /declare it with `needs: \{ random: true \}`/);
  refused(given, simple(() => crypto.getRandomValues(new Float64Array(1)), { needs: { random: true } }), /array of integers/);
  refused(given, simple(() => crypto.getRandomValues(new Uint8Array(65_537)), { needs: { random: true } }), /at most 65536 bytes/);
  assert.equal(new FakeHost().call(simple(() => 'no draw', { needs: { random: true, optional: true } }), 't').value, 'no draw');
  assert.deepEqual([Math.random, globalThis.crypto], [engine, web], 'Node keeps its own');
});

test('a reducer draws no random numbers', () => {
  const made = plugin({ reducers: [reducer({ tool: 'a', reduce: () => String(Math.random()) })] });
  const { reducers } = exported(made, null);
  const { install } = randomness;
  const restore = install();
  try {
    assert.throws(() => reducers.reduce({ tag: 'ok', val: { value: 'x', structured: null, content: [], costUsd: null, meta: null } }, { toolName: 'a', args: '{}' }), /not there for reducers/);
  } finally {
    restore();
  }
});
