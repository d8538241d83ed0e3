// What somebody does who installed the packages: opens a host with plugins and a tool of the program, and calls both. Says which
// native module was loaded.
//
// `embed.mjs PLUGINS STATE`
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

import { Host, Policy, Session, tool } from 'toolbay';

const [plugins, stateDir] = process.argv.slice(2);
const twice = tool({
  name: 'twice',
  description: 'Double a number.',
  readOnly: true,
  input: { number: { type: 'integer', description: 'The number.' } },
  run: async ({ number }) => `twice: ${2 * number}`,
});
// Compilation is slow in an emulator.
const policy = Policy.parse('version = 1\n[host]\ncompile_timeout = "20m"', { base: '.' });
const host = await Host.start(policy, { plugins, stateDir });
assert.deepEqual(host.problems, []);
host.register(twice);
const calls = [
  { id: '1', tool: 'text__word_count', args: { text: 'a b a' } },
  { id: '2', tool: 'twice', args: { number: 3 } },
];
for (const result of await host.callAll(host.view(), calls, { session: new Session() })) {
  assert.ok(result.ok, result.failure?.message);
  console.log(result.output.value);
}
await host.close();
const loaded = Object.keys(createRequire(import.meta.url).cache);
console.log(...loaded.filter((file) => file.endsWith('.node')));
