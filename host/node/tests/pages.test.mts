// The program of the documentation: its types, and what it prints. The step `node` types the tutorial, too.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { test } from 'node:test';

import { TestFolder } from './support.mts';

// `cargo xtask test node` sets it.
const DOCS = process.env['TOOLBAY_TEST_DOCS'] ?? 'docs';

const MODULES = dirname(dirname(createRequire(import.meta.url).resolve('typescript/package.json')));
const COMPILERS = ['typescript/bin/tsc', 'typescript-7/bin/tsc'].map((file) => join(MODULES, file));
const OPTIONS = ['--noEmit', '--strict', '--target', 'esnext', '--module', 'nodenext', '--types', 'node'];

test('the program of the page runs and has the right types', (t) => {
  const [, ...blocks] = readFileSync(join(DOCS, 'reference/node-library.md'), 'utf8').split('\n```ts\n');
  assert.equal(blocks.length, 1);
  const folder = new TestFolder(t);
  const program = join(folder.path, 'program.mts');
  writeFileSync(program, `${blocks[0]?.split('\n```')[0]}\n`);
  symlinkSync(MODULES, join(folder.path, 'node_modules'));
  // The program loads this folder.
  assert.equal(folder.plugins, join(folder.path, 'plugins'));
  const run = (...args: string[]) => {
    return execFileSync(process.execPath, args, { cwd: folder.path, encoding: 'utf8', timeout: 120_000 });
  };
  for (const compiler of COMPILERS) run(compiler, ...OPTIONS, program);
  const output = run(program);
  assert.match(output, /"count":3/);
  assert.match(output, /refused/);
});
