// The packages of the platforms, which npm installs beside this one. They have the program and the native module.
'use strict';

const { version } = require('../package.json');

/** The C libraries of the packages for this processor, in the order to try them. */
const LIBRARIES = ['gnu', 'musl'];

/** The name of the package for a C library. */
function platformPackage(library) {
  return `@toolbay/linux-${process.arch}-${library}`;
}

/** Why there is no package for this platform; null if there is one. */
function unsupported() {
  if (process.platform === 'linux' && ['x64', 'arm64'].includes(process.arch)) return null;
  return `there is no package for ${process.platform} on ${process.arch}, only for Linux on x64 and arm64`;
}

/** Why the package of this platform is missing, and what helps. */
function missing(content) {
  const name = platformPackage(process.report.getReport().header.glibcVersionRuntime ? 'gnu' : 'musl');
  return (
    `the package \`${name}\` is missing, which has ${content}. npm leaves it out with \`--omit=optional\`, and if the ` +
    'lockfile was written on another platform (https://github.com/npm/cli/issues/4828, ' +
    'https://github.com/npm/cli/issues/8320). Remove `node_modules` and `package-lock.json` and run `npm install`, or run ' +
    `\`npm install ${name}@${version}\``
  );
}

module.exports = { LIBRARIES, missing, platformPackage, unsupported };
