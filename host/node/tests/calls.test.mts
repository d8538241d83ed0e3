// Calls of plugins and native tools.

import assert from 'node:assert/strict';
import { AsyncLocalStorage } from 'node:async_hooks';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { Policy, Session, ToolError, ToolOutput, tool, vendor } from 'toolbay';
import type { ApprovalReply, ApprovalRequest, ProgressEvent } from 'toolbay';

import { TestFolder, call, callFails, callOk, forever, gate, logged } from './support.mts';

const user = new AsyncLocalStorage<string>();

const order = tool({
  name: 'order',
  description: 'Look up an order.',
  readOnly: true,
  timeoutMs: 10_000,
  input: { number: { type: 'string', description: 'The number on the invoice.' } },
  async run({ number }, context) {
    const text: string = number;
    // @ts-expect-error: no number
    number.toFixed;
    context.progress('asking the warehouse', 50);
    await null;
    if (text === '0') throw new ToolError('input_invalid', `there is no order ${text}`, { subject: '/number' });
    return { number: text, user: user.getStore() ?? 'nobody', call: context.callId };
  },
});

const double = tool({
  name: 'double',
  description: 'Double a number.',
  input: { n: { type: 'integer' } },
  run: ({ n }) => ({ n: typeof n === 'bigint' ? 2n * n : 2 * n }),
});

test('a plugin is called and its result becomes a message', async (t) => {
  const folder = new TestFolder(t);
  {
    await using host = await folder.host({ plugins: folder.plugins, stateDir: folder.state });
    assert.deepEqual(host.problems, []);
    const view = host.view({ allowedPlugins: ['text'] });
    assert(view.tools.some(({ name, inputSchema }) => name === 'text__word_count' && inputSchema.type === 'object'));
    assert(vendor.viewDefinitions('anthropic', view).some(({ name }) => name === 'text__word_count'));
    const message = {
      role: 'assistant',
      content: [{ type: 'tool_use', id: 'toolu_1', name: 'text__word_count', input: { text: 'a b a' } }],
    };
    const [result, ...others] = await host.callAll(view, vendor.parseCalls('anthropic', message));
    assert(result?.ok && others.length === 0);
    assert.deepEqual([result.callId, result.source], ['toolu_1', 'plugin:text']);
    assert(result.usage.wallMs > 0);
    const [reply] = vendor.resultMessages('anthropic', [result]);
    assert.equal(reply.content[0].tool_use_id, 'toolu_1');
    assert(reply.content[0].content[0].text.includes(result.output.value));
    const [entry] = host.calls({ limit: 1 });
    assert.deepEqual([entry?.tool, entry?.outcome], ['text__word_count', 'ok']);
    assert.equal(host.unload('text'), true);
    await callFails(host, 'text__word_count', { text: 'a' });
  }
  assert.match(folder.audit, /text__word_count/);
});

test('a plugin is loaded from a file and from memory', async (t) => {
  const folder = new TestFolder(t);
  const component = join(folder.plugins, 'text.wasm');
  await using host = await folder.host();
  await host.loadFile('one', component);
  await host.loadBytes('two', readFileSync(component));
  for (const plugin of ['one', 'two']) await callOk(host, `${plugin}__word_count`, { text: 'a' });
});

test('a policy is replaced', async (t) => {
  const folder = new TestFolder(t);
  await using host = await folder.host();
  assert.throws(() => host.view({ profile: 'few' }), TypeError);
  await host.reloadPolicy(Policy.parse({ version: 1, profile: { few: { tools: [] } } }, { base: folder.path }));
  assert.deepEqual(host.view({ profile: 'few' }).tools, []);
});

test('a tool runs in the context of its caller', async (t) => {
  const folder = new TestFolder(t);
  const seen: [ProgressEvent, string | undefined][] = [];
  await using host = await folder.host();
  host.register(order);
  const progress = (event: ProgressEvent) => seen.push([event, user.getStore()]);
  const result = await user.run('Ada', () => callOk(host, 'order', { number: '7' }, { progress }));
  assert.deepEqual(result.output.structured, { number: '7', user: 'Ada', call: '1' });
  const message = 'asking the warehouse';
  const event = { type: 'progress', callId: '1', tool: 'order', message, percent: 50, audience: 'user' };
  assert.deepEqual(seen, [[event, 'Ada']]);
  const { failure } = await callFails(host, 'order', { number: '0' });
  assert.deepEqual([failure.kind, failure.code, failure.message, failure.subject],
    ['refused', 'input_invalid', 'there is no order 0', '/number']);
  assert.equal(host.unregister(order), true);
  assert.equal(host.unregister('order'), false);
});

test('a plain function is a tool, with defaults and optional arguments', async (t) => {
  const folder = new TestFolder(t);
  const greet = tool({
    name: 'greet',
    description: 'Greet.',
    input: { name: { type: 'string', default: 'Ada' }, title: { type: 'string', optional: true } },
    run: ({ name, title }) => [title, name].filter(Boolean).join(' '),
  });
  const input = { constructor: { type: 'string', default: 'Brunel' } } as const;
  const build = tool({ name: 'build', description: 'Build.', input, run: (args) => args.constructor });
  await using host = await folder.host();
  host.register(greet, double, build);
  assert.equal((await callOk(host, 'build')).output.value, 'Brunel');
  assert.equal((await callOk(host, 'greet')).output.value, 'Ada');
  assert.equal((await callOk(host, 'greet', { name: 'Joy', title: 'Dr' })).output.value, 'Dr Joy');
  assert.deepEqual((await callOk(host, 'double', { n: 4 })).output.structured, { n: 8 });
});

test('calls run side by side', async (t) => {
  const folder = new TestFolder(t);
  const both = gate();
  let arrived = 0;
  const meet = tool({
    name: 'meet',
    description: 'Meet another call.',
    async run() {
      if (++arrived === 2) both.resolve();
      await both.promise;
      return 'met';
    },
  });
  await using host = await folder.host();
  host.register(meet);
  const results = await host.callAll(host.view(), ['1', '2'].map((id) => ({ id, tool: 'meet' })));
  assert.deepEqual(results.map(({ output }) => output?.value), ['met', 'met']);
});

test('an output has all its parts', async (t) => {
  const folder = new TestFolder(t);
  const embedded = { type: 'resource', resource: { uri: 'a:c', mimeType: 'text/plain', text: 'c' } };
  const content = [
    { type: 'image', data: new Uint8Array([0x89, 0x50, 0x4e, 0x47]), mimeType: 'image/png' },
    { type: 'resource_link', uri: 'a:b', name: 'b', annotations: { priority: 0.5 } }, embedded, { type: 'text', text: 't' },
  ];
  const draw = tool({
    name: 'draw',
    description: 'Draw a picture.',
    run: () => new ToolOutput('a picture', { structured: [1, 2], content, costUsd: 0.25, meta: { seed: 1 } }),
  });
  await using host = await folder.host();
  host.register(draw);
  const session = new Session({ maxCostUsd: 0.5 });
  const { output, costUsd } = await callOk(host, 'draw', {}, { session });
  assert.deepEqual([output.value, output.structured], ['a picture', { result: [1, 2] }]);
  assert.deepEqual([output.costUsd, costUsd], [0.25, 0.25]);
  assert.deepEqual(output.content[0], { type: 'image', data: 'iVBORw==', mimeType: 'image/png' });
  assert.deepEqual(output.content.map(({ type }) => type), ['image', 'resource_link', 'resource', 'text']);
  assert.deepEqual(output.content[2], embedded);
  assert.deepEqual([session.calls, session.costUsd], [1, 0.25]);
});

test('budgets of a session hold', async (t) => {
  const folder = new TestFolder(t);
  await using host = await folder.host();
  host.register(double);
  const session = new Session({ maxCalls: 1 });
  await callOk(host, 'double', { n: 1 }, { session });
  const { failure } = await callFails(host, 'double', { n: 1 }, { session });
  assert.deepEqual([failure.kind, failure.code], ['refused', 'not_available']);
});

test('a stream has progress and results as they come', async (t) => {
  const folder = new TestFolder(t);
  await using host = await folder.host();
  host.register(order);
  const calls = [{ id: '1', tool: 'order', args: { number: '1' } }, { id: '2', tool: 'order', args: { number: '0' } }];
  const seen: string[] = [];
  for await (const event of host.stream(host.view(), calls)) {
    if (event.type === 'progress') seen.push(`${event.callId} ${event.percent}`);
    else seen.push(`${event.callId} ${event.ok ? event.output.structured.number : event.failure.code}`);
  }
  assert.deepEqual(seen.sort(), ['1 1', '1 50', '2 50', '2 input_invalid']);
});

test('a stream drops the oldest progress and no result', async (t) => {
  const folder = new TestFolder(t);
  const entries = logged(t);
  const next = gate();
  const report = tool({
    name: 'report',
    description: 'Report.',
    async run(_, context) {
      for (let n = 0; n < 800; n++) context.progress(String(n));
      await next.promise;
      for (let n = 800; n < 1600; n++) context.progress(String(n));
    },
  });
  const finish = tool({ name: 'finish', description: 'Finish.', run: () => 'done' });
  await using host = await folder.host();
  host.register(report, finish);
  const stream = host.stream(host.view(), [{ id: '1', tool: 'report' }]);
  const seen = [(await stream.next()).value];
  await callOk(host, 'finish');
  next.resolve();
  // The rest of the events arrives before this call ends.
  await callOk(host, 'finish');
  for await (const event of stream) seen.push(event);
  const messages = seen.map((event) => (event?.type === 'progress' ? event.message : 'result'));
  assert.deepEqual(messages.slice(-4), ['1597', '1598', '1599', 'result']);
  assert(messages.length < 1600);
  assert(entries.some(({ level }) => level === 'warning'));
});

test('leaving a stream cancels the rest', async (t) => {
  const folder = new TestFolder(t);
  const [started, ended] = [gate(), gate()];
  const wait = tool({
    name: 'wait',
    description: 'Wait.',
    async run(_, { signal }) {
      signal.addEventListener('abort', () => ended.resolve());
      started.resolve();
      await forever();
    },
  });
  const first = tool({ name: 'first', description: 'End when the other call has begun.', run: () => started.promise });
  await using host = await folder.host();
  host.register(first, wait);
  for await (const event of host.stream(host.view(), [{ id: '1', tool: 'first' }, { id: '2', tool: 'wait' }])) {
    assert.equal(event.callId, '1');
    break;
  }
  // The host has no call, and the event loop would end.
  const timer = setInterval(() => {}, 1000);
  await ended.promise;
  const stream = host.stream(host.view(), [{ id: '1', tool: 'wait' }]);
  const next = stream.next();
  await stream.return();
  assert.deepEqual(await next, { done: true, value: undefined });
  clearInterval(timer);
});

test('an aborted signal cancels its calls', async (t) => {
  const folder = new TestFolder(t);
  const started = gate();
  let ended = false;
  const wait = tool({
    name: 'wait',
    description: 'Wait.',
    async run(_, { signal }) {
      signal.addEventListener('abort', () => (ended = true));
      started.resolve();
      await forever();
    },
  });
  {
    await using host = await folder.host({ stateDir: folder.state });
    host.register(wait);
    for (const reason of [new Error('not now'), 'no error', null]) {
      const controller = new AbortController();
      const calls = call(host, 'wait', {}, { signal: controller.signal });
      await started.promise;
      controller.abort(reason);
      await assert.rejects(calls, (error) => error === reason);
      await assert.rejects(call(host, 'wait', {}, { signal: controller.signal }), (error) => error === reason);
      const stream = host.stream(host.view(), [{ id: '1', tool: 'wait' }], { signal: controller.signal });
      await assert.rejects(stream.next(), (error) => error === reason);
    }
  }
  assert(ended);
  assert.match(folder.audit, /"cancelled"/);
});

test('an aborted signal cancels the calls of a stream whose loop is busy', async (t) => {
  const folder = new TestFolder(t);
  const [started, cancelled] = [gate(), gate()];
  const first = tool({ name: 'first', description: 'End when the other call has begun.', run: () => started.promise });
  const wait = tool({
    name: 'wait',
    description: 'Wait.',
    run(_, { signal }) {
      signal.addEventListener('abort', () => cancelled.resolve());
      started.resolve();
      return forever();
    },
  });
  await using host = await folder.host();
  host.register(first, wait);
  const controller = new AbortController();
  const calls = [{ id: '1', tool: 'first' }, { id: '2', tool: 'wait' }];
  const timer = setInterval(() => {}, 1000);
  await assert.rejects(async () => {
    for await (const event of host.stream(host.view(), calls, { signal: controller.signal })) {
      assert.equal(event.callId, '1');
      controller.abort();
      await cancelled.promise;
    }
  }, { name: 'AbortError' });
  clearInterval(timer);
});

test('after a timeout the results say what was cancelled', async (t) => {
  const folder = new TestFolder(t);
  await using host = await folder.host();
  const wait = tool({ name: 'wait', description: 'Wait.', run: forever });
  host.register(wait, double);
  const view = host.view();
  const results = await host.callAll(view, [{ id: '1', tool: 'wait' }, { id: '2', tool: 'wait' }], { timeoutMs: 100 });
  assert.deepEqual(results.map(({ failure }) => failure?.code), ['cancelled', 'cancelled']);
  const codes = [];
  for await (const event of host.stream(view, [{ id: '3', tool: 'wait' }], { timeoutMs: 100 })) {
    assert(event.type === 'result');
    codes.push(event.failure?.code);
  }
  assert.deepEqual(codes, ['cancelled']);
  await callOk(host, 'double', { n: 1 }, { timeoutMs: 60_000 });
  await assert.rejects(host.callAll(view, [], { timeoutMs: NaN }), RangeError);
});

test('a tool that never returns ends at its timeout', async (t) => {
  const folder = new TestFolder(t);
  const aborted = gate();
  const wait = tool({
    name: 'wait',
    description: 'Wait.',
    timeoutMs: 50,
    run(_, { signal }) {
      signal.addEventListener('abort', () => aborted.resolve());
      return forever();
    },
  });
  await using host = await folder.host();
  host.register(wait);
  const { failure } = await callFails(host, 'wait');
  assert.deepEqual([failure.kind, failure.code], ['fault', 'deadline']);
  await aborted.promise;
});

test('an approver decides', async (t) => {
  const folder = new TestFolder(t);
  const entries = logged(t);
  const send = tool({
    name: 'send',
    description: 'Send a note.',
    needsApproval: true,
    input: { text: { type: 'string' } },
    run: ({ text }) => text,
  });
  const asked: ApprovalRequest[] = [];
  const answers: unknown[] = [
    'yes', 'no', { no: 'not today' }, 'deferred', 'perhaps', { yes: 'x' }, Promise.reject(new Error('x')), null, 'always',
  ];
  for (const answer of answers) void Promise.resolve(answer).catch(() => {});
  const approver = async (request: ApprovalRequest) => {
    asked.push(request);
    return (await answers.shift()) as ApprovalReply;
  };
  await using host = await folder.host({ approver });
  host.register(send);
  const session = new Session();
  const outcomes: boolean[] = [];
  for (let n = 0; n < 10; n++) outcomes.push((await call(host, 'send', { text: String(n) }, { session })).ok);
  assert.deepEqual(outcomes, [true, false, false, false, false, false, false, false, true, true]);
  assert.deepEqual([asked[0]?.tool, asked[0]?.args, asked.length], ['send', { text: '0' }, 9]);
  assert.equal(entries.length, 4);
});

test('a plain function can approve, and without an approver the call is refused', async (t) => {
  const folder = new TestFolder(t);
  const send = tool({ name: 'send', description: 'Send a note.', needsApproval: true, run: () => 'sent' });
  await using asks = await folder.host({ approver: () => 'yes' });
  asks.register(send);
  assert.equal((await callOk(asks, 'send')).output.value, 'sent');
  await using silent = await folder.host();
  silent.register(send);
  await callFails(silent, 'send');
});

test('closing withdraws the question', async (t) => {
  const folder = new TestFolder(t);
  const [started, ended] = [gate(), gate()];
  const send = tool({ name: 'send', description: 'Send a note.', needsApproval: true, run: () => 'sent' });
  const approver = ({ signal }: ApprovalRequest) => {
    signal.addEventListener('abort', () => ended.resolve());
    started.resolve();
    return forever();
  };
  const host = await folder.host({ approver, stateDir: folder.state });
  host.register(send);
  const result = callFails(host, 'send');
  await started.promise;
  void host.close();
  await host.close();
  assert.match(folder.audit, /"cancelled"/);
  await ended.promise;
  assert.equal((await result).failure.code, 'cancelled');
});
