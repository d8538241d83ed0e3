// The tests of plugins are found and run, also those in TypeScript.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';

const SDK = dirname(dirname(fileURLToPath(import.meta.url)));

/** Runs the tests of a folder with these files. */
function run(files) {
  const folder = mkdtempSync(join(SDK, 'größe 2 '));
  try {
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(dirname(join(folder, name)), { recursive: true });
      writeFileSync(join(folder, name), text);
    }
    // A test that is run by Node reports to it, unless this variable is absent.
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const args = [join(SDK, 'run-tests.mjs'), '--test-reporter=tap'];
    const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: folder, env, encoding: 'utf8' });
    return { status, said: stdout + stderr };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const testOf = (code) => `import assert from 'node:assert/strict';\nimport test from 'node:test';\n${code}`;
const TWICE = 'enum Kind { A }\n\nexport const twice = (text: string): string => {\n  if (text === "") throw new Error(Kind[0]);\n  return text + text;\n};';

test('tests in TypeScript run, with imports as TypeScript writes them', () => {
  const code = "import { twice } from './twice.js';\ntest('is twice', () => assert.equal(twice('a' as string), 'aa'));";
  const { status, said } = run({ 'twice.ts': TWICE, 'twice.test.ts': testOf(code) });
  assert.equal(status, 0, said);
  assert.match(said, /ok 1 - is twice/);
});

test('a failure names the line of the source', () => {
  const { status, said } = run({ 'twice.ts': TWICE, 'test/a.ts': testOf("import { twice } from '../twice.ts';\ntest('fails', () => void twice(''));") });
  assert.equal(status, 1, said);
  assert.match(said, /twice\.ts:4:/);
});

test('packages and built files hold no tests', () => {
  const failing = testOf("test('fails', () => assert.fail());");
  const { status, said } = run({ 'vendor/a.test.js': failing, 'target/b.test.js': failing, 'a.test.js': testOf("test('runs', () => {});") });
  assert.equal(status, 0, said);
  assert.match(run({ 'plugin.js': '' }).said, /no tests/);
});
