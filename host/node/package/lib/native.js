// The native module, and the program `toolbay` beside it, which compiles plugins and guards their programs.
'use strict';

const path = require('node:path');

const { version } = require('../package.json');
const { HostError } = require('./errors.js');

const LIBRARIES = ['gnu', 'musl'];

let loaded = null;

/** The functions of the native module. It is loaded when it is first used, so that an import never fails. */
function native() {
  loaded ??= load();
  return loaded.functions;
}

/** The path of the program: `TOOLBAY_BIN`, or that of the package with the module. */
function executable() {
  const { TOOLBAY_BIN: chosen } = process.env;
  if (chosen) return path.resolve(chosen);
  native();
  return path.join(path.dirname(loaded.file), 'bin', 'toolbay');
}

function load() {
  if (process.versions.bun !== undefined) {
    // Without this, calls would wait for ever.
    throw new HostError('executable', 'Bun does not read from the socket of the native module: use Node or Deno');
  }
  if (process.platform !== 'linux' || !['x64', 'arm64'].includes(process.arch)) {
    throw new HostError(
      'executable', `there is no package for ${process.platform} on ${process.arch}, only for Linux on x64 and arm64`,
    );
  }
  const failures = [];
  for (const library of LIBRARIES) {
    try {
      const file = require.resolve(`${platformPackage(library)}/toolbay.node`);
      return { file, functions: checked(require(file), file) };
    } catch (error) {
      if (error instanceof HostError) throw error;
      // A module for another C library cannot be loaded.
      if (error.code !== 'MODULE_NOT_FOUND') failures.push(error);
    }
  }
  throw failures.length > 0 ? unusable(failures) : missing();
}

function checked(functions, file) {
  const found = functions.version();
  if (found === version) return functions;
  throw new HostError('executable', `the module \`${file}\` is version ${found}, and this package needs ${version}`);
}

function unusable([failure]) {
  return new HostError('executable', `the native module cannot be loaded: ${failure.message}`, { cause: failure });
}

function missing() {
  const name = platformPackage(process.report.getReport().header.glibcVersionRuntime ? 'gnu' : 'musl');
  return new HostError(
    'executable',
    `the package \`${name}\` is missing, which has the native module. npm leaves it out with \`--omit=optional\`, and if ` +
      'the lockfile was written on another platform (https://github.com/npm/cli/issues/4828, ' +
      'https://github.com/npm/cli/issues/8320). Remove `node_modules` and `package-lock.json` and run `npm install`, or ' +
      `run \`npm install ${name}@${version}\``,
  );
}

function platformPackage(library) {
  return `@toolbay/linux-${process.arch}-${library}`;
}

module.exports = { executable, native };
