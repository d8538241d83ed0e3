#!/usr/bin/env node
// Runs the tests of a plugin, in JavaScript and TypeScript: `toolbay-js-test [NODE-FLAG…] [FILE…]`.
//
// Node 20 neither finds nor loads TypeScript. This script names the files to `node --test`, and `typescript.mjs` loads
// them as esbuild does for the component.

import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

/** Names of tests as in `node --test`, also with the extensions of TypeScript. */
const TEST = /(^|\/)test\/.*\.[cm]?[jt]s$|(^|[/._-])test\.[cm]?[jt]s$|(^|\/)test-[^/]*\.[cm]?[jt]s$/;
/** Folders without tests of the author. */
const SKIPPED = ['node_modules', 'target', 'vendor'];

function tests(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = folder === '.' ? entry.name : `${folder}/${entry.name}`;
    if (entry.isDirectory()) return SKIPPED.includes(entry.name) || entry.name.startsWith('.') ? [] : tests(path);
    return TEST.test(path) && !path.endsWith('.d.ts') ? [path] : [];
  });
}

const given = process.argv.slice(2);
const named = given.filter((arg) => !arg.startsWith('-'));
const files = named.length > 0 ? named : tests('.').sort();
if (files.length === 0) {
  console.error('no tests: name a file like `plugin.test.js` or `plugin.test.ts`');
} else {
  const loader = pathToFileURL(join(dirname(fileURLToPath(import.meta.url)), 'typescript.mjs')).href;
  const flags = ['--enable-source-maps', '--import', loader, '--test', ...given.filter((arg) => arg.startsWith('-'))];
  const { status } = spawnSync(process.execPath, [...flags, ...files], { stdio: 'inherit' });
  process.exitCode = status ?? 1;
}
