// Bar 6: `text__word_count`: one call at a time, batches of 64 calls, and 64 batches of one call at a time.
import path from 'node:path';
import { BATCH, batch, checked, open, report, sideBySide, WORK } from './support.mjs';

const host = await open(['text'], { stateDir: path.join(WORK, 'state') });
const view = host.view();
const call = async (size) => checked(await host.callAll(view, batch('text__word_count', size)));
report(await sideBySide({
  one: () => call(1),
  many: () => call(BATCH),
  separate: async () => (await Promise.all(Array.from({ length: BATCH }, () => call(1)))).length,
}));
await host.close();
