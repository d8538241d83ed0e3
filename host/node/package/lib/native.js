// The native module, and the program `toolbay` beside it, which compiles plugins and guards their programs.
'use strict';

const path = require('node:path');

const { version } = require('../package.json');
const { HostError } = require('./errors.js');
const { LIBRARIES, missing, platformPackage, unsupported } = require('./platform.js');

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
  const reason = unsupported();
  if (reason) throw new HostError('executable', reason);
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
  throw failures.length > 0 ? unusable(failures) : new HostError('executable', missing('the native module'));
}

function checked(functions, file) {
  const found = functions.version();
  if (found === version) return functions;
  throw new HostError('executable', `the module \`${file}\` is version ${found}, and this package needs ${version}`);
}

function unusable([failure]) {
  return new HostError('executable', `the native module cannot be loaded: ${failure.message}`, { cause: failure });
}

module.exports = { executable, native };
