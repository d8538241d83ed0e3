// The plugin that the contract suite is run against, in TypeScript. Without its types it is also the plugin in JavaScript.
// `api_contract.rs` is what it is compared with.

import {
  attachments, config, context, failed, files, http, inputError, invoke, kv, log, notAvailable, Output, plugin, process,
  reducer, secrets, stale, tool, ToolError, type Schema,
} from '@toolbay/sdk';

const text = (description?: string) => (description ? { type: 'string', description } : { type: 'string' }) as { type: 'string' };
const integer = { type: 'integer' } as const;
const optional = (schema: Schema) => ({ ...schema, type: [schema.type as string, 'null'], optional: true }) as const;
const BYTES = Uint8Array.of(1, 2, 255);

const tools = [
  tool({
    name: 'add',
    description: 'Add two numbers.',
    readOnly: true,
    input: {
      a: { ...integer, description: 'The first.' },
      b: { ...integer, description: 'The second.', default: 1 },
    },
    output: {
      type: 'object', description: 'The sum of two numbers.',
      properties: { sum: { ...integer, description: 'It.' } }, required: ['sum'],
    },
    run({ a, b }) {
      const sum = BigInt(a) + BigInt(b);
      if (sum !== BigInt.asIntN(64, sum)) throw inputError('the sum is too large', '/b');
      return { sum };
    },
  }),
  tool({
    name: 'announce',
    description: 'Tell each audience how far it is.',
    run() {
      context.progress('for the log', 10, 'internal');
      context.progress('for the user', 50);
      context.progress('for the operator', null, 'dashboard');
    },
  }),
  tool({
    name: 'attach',
    description: 'Store a text for the caller, and say what the turn has.',
    needs: { attachments: ['read text/plain', 'create text/plain'], optional: true },
    input: { name: text(), text: text() },
    run({ name, text }) {
      const { id, mimeType, size } = attachments.create(name, 'text/plain', text);
      return `${id} ${mimeType} ${size}, ${attachments.all().map(({ name }) => name).join('+')}`;
    },
  }),
  tool({
    name: 'attached',
    description: 'Read a text of the caller.',
    needs: { attachments: 'read text/plain', optional: true },
    input: { id: text() },
    run: ({ id }) => attachments.readText(id),
  }),
  tool({
    name: 'blocks',
    description: 'Return a block of each kind.',
    run: () => new Output('text')
      .text('more').annotate({ audience: ['user'], priority: 0.5 })
      .image(BYTES, 'image/png')
      .audio(BYTES, 'audio/wav').annotate({ audience: ['user', 'assistant'], lastModified: '2026-01-02T03:04:05Z' })
      .link('https://a.example/x', 'x', { title: 'X', description: 'It.', mimeType: 'text/html', size: 7 })
      .embedded('note://1', 'größer', 'text/plain')
      .embedded('note://2', BYTES),
  }),
  tool({
    name: 'count',
    description: 'Count up.',
    needs: { kv: 'plugin', optional: true },
    input: { key: text(), by: integer },
    run: ({ key, by }) => String(kv.increment('plugin', key, by)),
  }),
  tool({
    name: 'crash',
    description: 'Fail as code of others fails.',
    input: { message: text() },
    run({ message }) {
      throw new RangeError(message);
    },
  }),
  tool({
    name: 'delegate',
    description: 'Call other tools.',
    needs: { invoke: ['contract__echo', 'contract__refuse'], optional: true },
    input: { tool: text(), text: text() },
    run({ tool, text }) {
      const names = invoke.tools().map(({ name }) => name).join('+');
      const answers = invoke.callAll([
        [tool, { text }], ['contract__refuse', { code: 'stale-write', message: text, subject: 'a', cost: 1 }], ['contract__add', { a: 1 }],
      ]);
      const said = answers.map((answer) => (answer instanceof ToolError ? `${answer.code} ${answer.message}` : answer.value));
      return `${names}: ${said.join(', ')}`;
    },
  }),
  tool({
    name: 'draw',
    description: 'Draw random numbers.',
    needs: { random: true, optional: true },
    input: { count: integer },
    run: ({ count }) => Array.from({ length: count }, () => String(Math.random())).join(' '),
  }),
  tool({
    name: 'echo',
    title: 'Echo',
    description: 'Return a text as it is.',
    toolset: 'contract', tags: ['a', 'b'], readOnly: true, idempotent: true, closedWorld: true,
    maxResultChars: 50_000, timeoutMs: 20_000, meta: { 'example.org/hint': { levels: [1, 'zwei'] } },
    input: { text: text('The text.') },
    run: ({ text }) => text,
  }),
  tool({
    name: 'facts',
    description: 'Say where the call is.',
    run() {
      const { budgetChars, sessionId, turn, attribute } = context;
      const scope = attribute('memory-scope') ?? 'none';
      return `budget ${budgetChars()}, session ${sessionId() ?? 'none'}, turn ${turn() ?? 'none'}, scope ${scope}`;
    },
  }),
  tool({
    name: 'fetch',
    description: 'Fetch a page.',
    needs: { net: ['http://*', 'http://127.0.0.1:1'], optional: true },
    input: { url: text() },
    run({ url }) {
      const response = http.get(url, { headers: { 'x-test': 'yes' } });
      return `${response.status} ${response.text()}`;
    },
  }),
  tool({
    name: 'hog',
    description: 'Take memory for ever.',
    run() {
      const all: Uint8Array[] = [];
      for (;;) all.push(new Uint8Array(1 << 20).fill(1));
    },
  }),
  tool({
    name: 'kinds',
    description: 'Take arguments of every kind.',
    readOnly: true,
    input: {
      word: { ...text('A text that is not long.'), minLength: 1, maxLength: 20 },
      words: { type: 'array', items: text(), description: 'Texts.' },
      mode: { ...text('How.'), enum: ['fast', 'slow'] },
      place: optional({
        type: 'object', description: 'Where it is.',
        properties: { name: text('Its name.'), zip: { type: ['integer', 'null'] } }, required: ['name'],
      }),
      count: { ...integer, default: 3, minimum: 1, maximum: 10 },
      ratio: { type: 'number', default: 0.5 },
      flag: { type: 'boolean', default: false },
    },
    run({ word, words, mode, place, count, ratio, flag }) {
      const where = place ? [place.name, place.zip].filter((part) => part != null).join(' ') : 'nowhere';
      return `${word}, ${words.join('+')} words, ${mode}, ${where}, ${count}, ${ratio > 1 ? 'more' : 'less'}, ${flag}`;
    },
  }),
  tool({
    name: 'lines',
    description: 'Return this many lines.',
    input: { count: integer },
    run: ({ count }) => Array.from({ length: count }, (_, index) => `line ${index + 1}\n`).join(''),
  }),
  tool({
    name: 'list',
    description: 'List a folder.',
    needs: { fsRead: '$workspace/**' },
    input: { path: text() },
    run: ({ path }) => files.readDir(path).map(({ name }) => name).sort().join(','),
  }),
  tool({
    name: 'note',
    description: 'Write a line for the operator.',
    input: { text: text() },
    run({ text }) {
      log.warn(text, { kind: 'note', letters: text.length });
    },
  }),
  tool({ name: 'nothing', description: 'Return nothing.', run() {} }),
  tool({
    name: 'read',
    description: 'Read a file.',
    needs: { fsRead: '$workspace/**', reason: 'reads the file you name' },
    input: { path: text() },
    run: ({ path }) => files.readText(path),
  }),
  tool({
    name: 'refuse',
    description: 'Say no.',
    input: {
      code: { ...text('How.'), enum: ['input-invalid', 'not-available', 'execution-failed', 'stale-write'] },
      message: text(),
      subject: optional(text()),
      cost: optional({ type: 'number' }),
    },
    run({ code, message, subject, cost }) {
      const say = { 'input-invalid': inputError, 'not-available': notAvailable, 'execution-failed': failed, 'stale-write': stale };
      throw say[code as keyof typeof say](message, subject, { costUsd: cost });
    },
  }),
  tool({
    name: 'remember',
    description: 'Remember a text, and say what was there.',
    needs: { kv: ['tool', 'plugin'], optional: true },
    input: { key: text(), text: text() },
    run({ key, text }) {
      const before = kv.getText('plugin', key) ?? 'nothing';
      kv.set('plugin', key, text);
      const same = kv.replace('plugin', key, text, text);
      return `${before}, ${same}, ${kv.keys('plugin', '', { limit: 10 }).join('+')}`;
    },
  }),
  tool({
    name: 'rich',
    description: 'Return all that a result can have.',
    run: () => new Output('text').structured([1, 'zwei']).image(Uint8Array.of(1, 2, 255), 'image/png')
      .link('https://a.example/x', 'x').cost(0.25).metadata({ a: 1 }),
  }),
  tool({
    name: 'run',
    description: 'Run a program.',
    needs: { process: 'echo *', optional: true },
    input: { program: text(), args: { type: 'array', items: text() } },
    run({ program, args }) {
      const { exitCode, stdout } = process.run(program, args);
      return `${exitCode ?? -1}: ${stdout.trimEnd()}`;
    },
  }),
  tool({
    name: 'secret',
    description: 'Use a secret.',
    needs: { secret: 'KEY', optional: true },
    input: { name: text() },
    run: ({ name }) => (secrets.get(name).revealed ? 'the value' : 'a placeholder'),
  }),
  tool({
    name: 'setting',
    description: 'Return a setting.',
    input: { key: text() },
    run: ({ key }) => config.require(key),
  }),
  tool({ name: 'sometimes', description: 'Be there only with a setting.', run: () => 'here' }),
  tool({
    name: 'spin',
    description: 'Compute for ever.',
    run() {
      for (;;);
    },
  }),
  tool({
    name: 'steps',
    description: 'Report each step.',
    input: { count: integer },
    run({ count }) {
      for (let step = 1; step <= count; step++) context.progress(`step ${step} of ${count}`, (100 * step) / count);
      return 'done';
    },
  }),
  tool({
    name: 'unannotated',
    description: 'Annotate a block that there is not.',
    run: () => new Output('text').annotate({ priority: 1 }),
  }),
  tool({
    name: 'wait',
    description: 'Wait until the caller gives up.',
    run() {
      context.progress('waiting');
      for (;;) context.checkCancelled();
    },
  }),
  tool({
    name: 'write',
    description: 'Write a file.',
    needs: { fsRead: '$workspace/**', fsWrite: '$workspace/**' },
    input: { path: text(), text: text(), version: optional(text()) },
    run: ({ path, text, version }) => `${files.write(path, text, version ?? null).size} bytes`,
  }),
];

const firstLine = reducer({
  tool: 'lines',
  description: 'Keeps the first line.',
  reduce(result) {
    if (result instanceof ToolError) return null;
    const [first, ...rest] = result.value.split('\n');
    return rest.length > 0 ? `${first}…` : null;
  },
});

export default plugin({
  tools,
  reducers: [firstLine],
  available: (name) => (name === 'sometimes' && config.keys().length === 0 ? 'it needs a setting' : null),
  reusable: true,
});
