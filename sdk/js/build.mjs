#!/usr/bin/env node
// Builds the component of a plugin: `toolbay-js plugin.js -o plugin.wasm`.
//
// The module and what it imports become one file; it is run once here, so that what is wrong with it is said now; then
// it is put into a QuickJS that has already loaded it when a call comes. Source maps lead from errors to the author's
// lines.

import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { SourceMap } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const SDK = dirname(fileURLToPath(import.meta.url));
const USAGE = 'usage: toolbay-js PLUGIN.js -o PLUGIN.wasm [--fast]';

/** The part of `wasi:random` that the SDK imports. */
const RANDOM = `package wasi:random@0.2.0;

interface random {
  get-random-bytes: func(len: u64) -> list<u8>;
}
`;

/** The optional exports of a plugin. */
const EXPORTS = {
  tools: (made) => made.tools.length > 0,
  reducers: (made) => made.reducers.length > 0,
  availability: (made) => made.available !== null && made.tools.length > 0,
  about: () => true,
};

const folder = mkdtempSync(join(tmpdir(), 'toolbay-js-'));
try {
  const { file, output, fast } = options(process.argv.slice(2));
  const bytes = await build(file, fast);
  mkdirSync(dirname(output), { recursive: true });
  writeFileSync(output, bytes);
  console.error(`${output}: ${Math.ceil(bytes.length / 1024)} KiB`);
} catch (error) {
  console.error(`error: ${error.message}`);
  process.exitCode = 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}

function options(args) {
  const named = args.indexOf('-o');
  const output = named >= 0 ? args.splice(named, 2)[1] : undefined;
  const fast = args.includes('--fast');
  const [file, ...more] = args.filter((arg) => arg !== '--fast');
  if (!file || !output || more.length > 0) throw new Error(USAGE);
  if (!existsSync(file)) throw new Error(`\`${file}\` does not exist\n${USAGE}`);
  return { file: resolve(file), output: resolve(output), fast };
}

async function build(file, fast) {
  const { esbuild, componentize } = await toolchain();
  const made = await evaluated(esbuild, file);
  const names = Object.keys(EXPORTS).filter((name) => EXPORTS[name](made));
  // A plugin with reducers only must not import anything.
  const sealed = made.tools.length === 0;
  const declares = (wanted) => made.tools.some(({ definition }) => definition.capabilities.some(({ kind }) => kind === wanted));
  const imports = { sealed, calls: declares('invoke'), draws: declares('random') };
  const { source, map } = await bundled(esbuild, entry(file, names), dirname(file), imports);
  const script = join(folder, 'plugin.js');
  writeFileSync(script, source);
  try {
    const { component } = await componentize({
      witPath: contract(names, imports), world: 'built', jsSource: source, jsPath: script, moduleRoot: folder, sync: true,
      optSize: !fast, stubWasi: sealed,
    });
    return component;
  } catch (error) {
    const at = authorLine(originals(frames(error.message), map));
    throw new Error(at ? `${at}: in QuickJS: ${quickJsMessage(error.message)}` : `componentize-qjs: ${error.message}`);
  }
}

async function toolchain() {
  try {
    const [esbuild, { componentize }] = await Promise.all([import('esbuild'), import('componentize-qjs')]);
    return { esbuild, componentize };
  } catch (error) {
    if (error.code !== 'ERR_MODULE_NOT_FOUND' && error.code !== 'MODULE_NOT_FOUND') throw error;
    throw new Error(`a package is missing (${error.message.split('\n')[0]}): run \`npm install\` in the plugin's folder`);
  }
}

/** Loads the plugin in Node, with a host that grants nothing. */
async function evaluated(esbuild, file) {
  const outfile = join(folder, 'evaluated.mjs');
  const options = { entryPoints: [file], outfile, platform: 'node', conditions: ['node'], sourcemap: 'inline' };
  await esbuild.build(common(options)).catch(explain);
  process.setSourceMapsEnabled(true);
  const [random, drawn] = [Math.random, []];
  Math.random = () => {
    drawn.push(new Error('drawn'));
    return random();
  };
  const made = (await import(pathToFileURL(outfile)).catch(locate).finally(() => (Math.random = random))).default;
  const at = drawn.map(({ stack }) => authorLine(frames(stack))).find((line) => line !== undefined);
  if (at !== undefined) {
    console.error(`warning: ${at}: \`Math.random\` runs while the module loads, so each call gets the same number: call it in \`run\``);
  }
  if (!Array.isArray(made?.tools) || !Array.isArray(made?.reducers)) {
    throw new Error(`\`${file}\` has no plugin: write \`export default plugin({ tools: [ … ] })\``);
  }
  return made;
}

function entry(file, names) {
  const about = JSON.stringify(aboutOf(dirname(file)));
  return [
    `import ${JSON.stringify(join(SDK, 'src/install-random.js'))};`,
    `import made from ${JSON.stringify(file)};`,
    `import { exported } from ${JSON.stringify(join(SDK, 'src/plugin.js'))};`,
    `export const { ${names.join(', ')} } = exported(made, ${about});`,
  ].join('\n');
}

/** The metadata of the nearest `package.json`. */
function aboutOf(start) {
  let at = start;
  while (!existsSync(join(at, 'package.json')) && dirname(at) !== at) at = dirname(at);
  const path = join(at, 'package.json');
  const json = existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')) : {};
  const text = (value) => (typeof value === 'string' && value !== '' ? value : null);
  return {
    name: text(json.name) ?? 'plugin', version: text(json.version) ?? '0.0.0', description: text(json.description),
    authors: text(json.author?.name ?? json.author), license: text(json.license), homepage: text(json.homepage),
    source: text(json.repository?.url ?? json.repository), configSchema: json.toolbay?.config ? JSON.stringify(json.toolbay.config) : null,
    meta: null,
  };
}

async function bundled(esbuild, contents, resolveDir, { sealed, calls, draws }) {
  const alias = {
    ...(sealed ? { '#host': join(SDK, 'src/no-host.js') } : {}), ...(calls ? {} : { '#invoke': join(SDK, 'src/no-invoke.js') }),
    ...(draws ? {} : { '#random': join(SDK, 'src/no-random.js') }),
  };
  const made = await esbuild.build(common({
    stdin: { contents, resolveDir }, write: false, platform: 'neutral', mainFields: ['module', 'main'], target: 'es2023',
    minify: true, keepNames: true, external: ['toolbay:*', 'wasi:*'], alias, sourcemap: 'external', outfile: join(folder, 'plugin.js'),
  })).catch(explain);
  const text = (suffix) => made.outputFiles.find(({ path }) => path.endsWith(suffix)).text;
  return { source: text('.js'), map: new SourceMap(JSON.parse(text('.map'))) };
}

/** A single copy of the SDK, wherever the plugin imports it from. */
function common(more) {
  const own = {
    name: 'toolbay',
    setup({ onResolve }) {
      onResolve({ filter: /^@toolbay\/sdk$/ }, () => ({ path: join(SDK, 'src/index.js') }));
    },
  };
  return { bundle: true, format: 'esm', logLevel: 'silent', plugins: [own], ...more };
}

function explain(error) {
  const lines = (error.errors ?? []).map(({ text, location }) =>
    `${location ? `${location.file}:${location.line}: ` : ''}${text}${hint(text)}`);
  throw new Error(lines.length > 0 ? lines.join('\n') : error.message);
}

/** Throws an error of the module with the author's line before it. */
function locate(error) {
  const at = authorLine(frames(String(error?.stack)));
  const message = error instanceof Error ? `${error.name}: ${error.message}` : `it throws ${JSON.stringify(error)}`;
  throw new Error(at ? `${at}: ${message}` : message);
}

/** The frames of a stack trace. Node writes them as URLs, QuickJS as paths. */
function frames(stack) {
  const places = stack.matchAll(/^ +at .*?\(?((?:file:\/\/)?\/[^()]*):(\d+):(\d+)\)?$/gm);
  return [...places].map(([, place, line, column]) => ({
    path: place.startsWith('file:') ? fileURLToPath(place) : place, line: Number(line), column: Number(column),
  }));
}

/** The frames of a bundle as frames of its sources. A source map has URLs. */
function originals(bundled, map) {
  return bundled.flatMap(({ line, column }) => {
    const { originalSource, originalLine } = map.findEntry(line - 1, column - 1);
    return originalSource === undefined ? [] : [{ path: resolve(folder, decodeURIComponent(originalSource)), line: originalLine + 1 }];
  });
}

/** The first frame outside of the SDK and of packages, as `FILE:LINE`. */
function authorLine(stack) {
  const own = (path) => path.startsWith(join(SDK, 'src') + sep) || path === fileURLToPath(import.meta.url);
  const foreign = (path) => own(path) || path.includes(`${sep}node_modules${sep}`);
  const found = stack.find(({ path }) => !foreign(path) && existsSync(path));
  return found && `${relative(process.cwd(), found.path)}:${found.line}`;
}

function quickJsMessage(text) {
  return text.split('\n')[0].replace(/^.*JavaScript module evaluation: /, '');
}

function hint(text) {
  const [, name] = text.match(/^Could not resolve "(.*)"/) ?? [];
  if (name === undefined || name.startsWith('.')) return '';
  if (name.startsWith('node:')) return ': a component has nothing of Node; files, http and programs come from `@toolbay/sdk`';
  return `: install it with \`npm install ${name}\`; it must need nothing of Node`;
}

/** The contract with an additional world that has exactly the exports of this plugin. */
function contract(names, { sealed, calls, draws }) {
  const path = join(folder, 'wit');
  const copies = join(path, 'deps/toolbay');
  cpSync(join(SDK, 'wit'), copies, { recursive: true, dereference: true });
  if (calls) {
    // componentize-qjs enables no unstable features.
    for (const copy of readdirSync(copies).map((name) => join(copies, name))) {
      writeFileSync(copy, readFileSync(copy, 'utf8').replaceAll('@unstable(feature = tool-invoke)', ''));
    }
  }
  const of = (name) => `toolbay:plugin/${name}@0.1.0`;
  const lines = names.map((name) => `  export ${of(name)};`);
  if (draws) {
    const random = join(path, 'deps/random');
    mkdirSync(random);
    writeFileSync(join(random, 'random.wit'), RANDOM);
    lines.unshift('  import wasi:random/random@0.2.0;');
  }
  if (!sealed) lines.unshift(`  include ${of(calls ? 'imports-of-callers' : 'imports')};`);
  writeFileSync(join(path, 'built.wit'), `package toolbay:built;\n\nworld built {\n${lines.join('\n')}\n}\n`);
  return path;
}
