// Batches of 64 trivial calls through the registry of Ethos; prints calls a second for each line of stdin.
//
// Node runs it over a checkout of https://github.com/ethosagent/ethos, which is not on a package registry:
//   node --import tsx ethos_batch.mjs CHECKOUT

import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const SPAN = 500;
const BATCH = 64;

const checkout = process.argv[2];
const { DefaultToolRegistry } = await import(pathToFileURL(`${checkout}/packages/core/src/tool-registry.ts`));

const registry = new DefaultToolRegistry();
registry.register({
  name: 'echo',
  description: 'Says the text again.',
  schema: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
  capabilities: {},
  async execute({ text }) {
    return { ok: true, value: text };
  },
});
const text = 'Lorem ipsum dolor sit amet, consetetur sadipscing elitr, sed diam nonumy eirmod temp';
const calls = Array.from({ length: BATCH }, (_, n) => ({ toolCallId: `${n}`, name: 'echo', args: { text } }));
const context = () => ({
  sessionId: 's',
  sessionKey: 's',
  platform: 'bench',
  workingDir: '/',
  currentTurn: 1,
  messageCount: 1,
  abortSignal: new AbortController().signal,
  emit: () => {},
  resultBudgetChars: 80_000,
});

for await (const _ of createInterface({ input: process.stdin })) {
  const start = performance.now();
  let done = 0;
  while (performance.now() - start < SPAN) {
    const results = await registry.executeParallel(calls, context());
    if (results.length !== BATCH || !results.every((r) => r.result.ok)) throw new Error(JSON.stringify(results[0]));
    done += BATCH;
  }
  console.log((done * 1000) / (performance.now() - start));
}
