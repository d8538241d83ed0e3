// Errors of the build for bad input.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';

const SDK = dirname(dirname(fileURLToPath(import.meta.url)));

/** Builds a module with this text, in a folder whose path has special characters. */
function build(text, read = () => null, files = {}) {
  const folder = mkdtempSync(join(SDK, 'größe 1 '));
  try {
    const output = join(folder, 'out', 'ä b.wasm');
    if (text !== null) files['plugin.js'] = text;
    for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content);
    const args = [join(SDK, 'build.mjs'), 'plugin.js', '-o', output];
    const { status, stderr } = spawnSync(process.execPath, args, { cwd: folder, encoding: 'utf8' });
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

test('what draws random numbers imports them, and a number of the build is warned about', () => {
  const made = (needs) => plugin(`tools: [tool({ name: 'hello', description: 'Say hello.', ${needs} run: () => String(Math.random()) })]`);
  for (const [needs, expected] of [["needs: { random: true },", true], ['', false]]) {
    const { status, stderr, read } = build(made(needs), (bytes) => bytes.includes('wasi:random/random@0.2.0'));
    assert.equal(status, 0, stderr);
    assert.equal(read, expected, needs);
  }
  const { status, stderr } = build(`\nconst chosen = Math.random();\n${GOOD.replace("() => 'hello'", '() => String(chosen)')}`);
  assert.equal(status, 0, stderr);
  assert.ok(stderr.includes('warning: plugin.js:2: `Math.random` runs while the module loads'), stderr);
  assert.ok(build(`crypto.randomUUID();\n${GOOD}`).stderr.includes('draws while the module loads'));
});

test('what is wrong is said', () => {
  const cases = [
    [null, 'does not exist'],
    ['export default {;', 'plugin.js:1: Expected identifier'],
    ['export default 1;', 'has no plugin: write `export default plugin({ tools: [ … ] })`'],
    ['let a;\nthrow new Error("at the top");', 'error: plugin.js:2: Error: at the top'],
    ['throw 1;', 'error: it throws 1'],
    ['import x from "no-such-package"; export default x;', 'install it with `npm install no-such-package`'],
    [`import fs from 'node:fs'; ${GOOD.replace("'hello' })", "fs.readFileSync('x') })")}`, 'a component has nothing of Node'],
    [`\n\n${GOOD.replace("'Say hello.'", "''")}`, 'error: plugin.js:3: TypeError: tool "hello": `description` is missing'],
    [plugin(''), 'plugin.js:1: TypeError: the plugin has no tools and no reducers'],
    [`const home = () =>\n  new URL('https://a.example');\nhome();\n${GOOD}`, 'plugin.js:2: in QuickJS: Error: URL is not defined'],
  ];
  for (const [text, expected] of cases) {
    const { status, stderr } = build(text);
    assert.equal(status, 1, expected);
    assert.ok(stderr.includes(expected), `${expected}: ${stderr}`);
    assert.ok(!stderr.includes('at file:'), stderr);
  }
});

test('an error in a module names its line, also in TypeScript', () => {
  const files = { 'table.ts': 'interface Table { rows: number }\n\nexport function load(): Table {\n  throw new RangeError("no");\n}' };
  const { stderr } = build(`import { load } from './table.js';\nload();\n${GOOD}`, undefined, files);
  assert.equal(stderr, 'error: table.ts:4: RangeError: no\n');
});
