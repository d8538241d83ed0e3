// Paths that a program passes.
'use strict';

const path = require('node:path');
const { fileURLToPath } = require('node:url');

/** The absolute path of a text or a `file:` URL. */
function absolute(file, name = 'file') {
  if (file instanceof URL) return fileURLToPath(file);
  if (typeof file !== 'string') throw new TypeError(`\`${name}\` is a text or a URL, not ${typeof file}`);
  return path.resolve(file);
}

module.exports = { absolute };
