// Lets Node load TypeScript: `node --import @toolbay/sdk/typescript --test plugin.test.ts`. esbuild removes the types,
// in tests as in the build, so both accept the same syntax in every version of Node.

import { readFile } from 'node:fs/promises';
import { register } from 'node:module';
import { fileURLToPath } from 'node:url';
import { isMainThread } from 'node:worker_threads';

// Node runs the hooks below in a thread of their own, which loads this module again.
if (isMainThread) register(import.meta.url);

/** Resolves `./table.js` to `./table.ts` if only that exists, as TypeScript and esbuild do. */
export async function resolve(specifier, context, next) {
  try {
    return await next(specifier, context);
  } catch (error) {
    if (error.code !== 'ERR_MODULE_NOT_FOUND' || !/^\.{1,2}\/.*\.[cm]?js$/.test(specifier)) throw error;
    return next(specifier.replace(/js$/, 'ts'), context).catch(() => Promise.reject(error));
  }
}

/** Loads a module without its types. */
export async function load(url, context, next) {
  if (!/^file:.*\.m?ts$/.test(url)) return next(url, context);
  const { transform } = await import('esbuild');
  const sourcefile = fileURLToPath(url);
  const options = { sourcefile, loader: 'ts', format: 'esm', target: 'es2023', sourcemap: 'inline' };
  const { code } = await transform(await readFile(sourcefile, 'utf8'), options);
  return { format: 'module', source: code, shortCircuit: true };
}
