// Errors of the build for bad input.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';

const SDK = dirname(dirname(fileURLToPath(import.meta.url)));

/** Builds a module with this text, in a folder whose path has special characters. */
function build(text, read = () => null) {
  const folder = mkdtempSync(join(SDK, 'größe 1 '));
  try {
    const [source, output] = [join(folder, 'plugin.js'), join(folder, 'out', 'ä b.wasm')];
    if (text !== null) writeFileSync(source, text);
    const { status, stderr } = spawnSync(process.execPath, [join(SDK, 'build.mjs'), source, '-o', output], { encoding: 'utf8' });
    return { status, stderr, read: existsSync(output) ? read(readFileSync(output)) : null };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const plugin = (parts) => `import { plugin, reducer, tool } from '@toolbay/sdk'; export default plugin({ ${parts} });`;
const GOOD = plugin("tools: [tool({ name: 'hello', description: 'Say hello.', run: () => 'hello' })]");

test('a path with spaces and umlauts is one', () => {
  const { status, stderr, read } = build(GOOD, (bytes) => [...bytes.subarray(0, 8)]);
  assert.equal(status, 0, stderr);
  assert.deepEqual(read, [0, 0x61, 0x73, 0x6d, 0x0d, 0, 1, 0]);
});

test('what only reduces imports nothing', () => {
  const made = plugin("reducers: [reducer({ tool: 'a', reduce: ({ value }) => value.slice(1) })]");
  const { status, stderr, read } = build(made, (bytes) => bytes.includes('toolbay:plugin/kv@0.1.0'));
  assert.equal(status, 0, stderr);
  assert.equal(read, false);
});

test('what is wrong is said', () => {
  const cases = [
    [null, 'does not exist'],
    ['export default {;', 'plugin.js:1: Expected identifier'],
    ['export default 1;', 'has no plugin: write `export default plugin({ tools: [ … ] })`'],
    ['throw new Error("at the top");', 'at the top'],
    ['import x from "no-such-package"; export default x;', 'install it with `npm install no-such-package`'],
    [`import fs from 'node:fs'; ${GOOD.replace("'hello' })", "fs.readFileSync('x') })")}`, 'a component has nothing of Node'],
    [GOOD.replace("'Say hello.'", "''"), '`description` is missing'],
    [plugin(''), 'no tools and no reducers'],
  ];
  for (const [text, expected] of cases) {
    const { status, stderr } = build(text);
    assert.equal(status, 1, expected);
    assert.ok(stderr.includes(expected), `${expected}: ${stderr}`);
    assert.ok(!stderr.includes('at file:'), stderr);
  }
});
