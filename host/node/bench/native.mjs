// Bar 5: an async function as a tool: one call at a time, batches of 64 calls, and 64 batches of one call at a time.
import { tool } from 'toolbay';
import { BATCH, batch, checked, open, report, sideBySide } from './support.mjs';

const echo = tool({
  name: 'echo', description: 'Say a text again.',
  input: { text: { type: 'string' } },
  run: async ({ text }) => text,
});

const host = await open([]);
host.register(echo);
const view = host.view();
const call = async (size) => checked(await host.callAll(view, batch('echo', size)));
report(await sideBySide({
  one: () => call(1),
  many: () => call(BATCH),
  separate: async () => (await Promise.all(Array.from({ length: BATCH }, () => call(1)))).length,
}));
await host.close();
