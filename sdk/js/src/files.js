// Files under the operator's globs, with a guard against blind overwrites.

import { host } from '#host';
import { asked } from './asked.js';
import * as utf8 from './bytes.js';
import { failed, notAvailable, stale } from './errors.js';

/** Reads a file, or `maxBytes` of it from `offset` on: `{data, stat}`. */
export const read = (path, { offset = 0, maxBytes = null } = {}) =>
  asked(() => host.files.read(path, offset, maxBytes), describe(path));

/** Reads a whole file that must be UTF-8. */
export function readText(path) {
  const text = utf8.text(read(path).data, true);
  if (text === null) throw failed(`\`${path}\` is not UTF-8 text`, 'not-text');
  return text;
}

/**
 * Writes a whole file atomically and returns its new metadata. With `expectedVersion`, the write fails as stale unless
 * the file is at that version. Without, it fails if the file changed since this session last read it.
 */
export const write = (path, data, expectedVersion = null) =>
  asked(() => host.files.write(path, utf8.bytes(data), expectedVersion), describe(path));

/** Returns the metadata of a path: `{kind, size, modifiedMs, version}`. */
export const stat = (path) => asked(() => host.files.stat(path), describe(path));

/** Lists a directory: `[{name, kind}]`. */
export const readDir = (path) => asked(() => host.files.readDir(path), describe(path));

/** Creates a directory. */
export const makeDir = (path) => asked(() => host.files.makeDir(path), describe(path));

/** Removes a file or an empty directory. */
export const remove = (path) => asked(() => host.files.remove(path), describe(path));

const describe = (path) => (tag, val) => {
  switch (tag) {
    // The host's reason names the path and the policy line that would allow it.
    case 'denied': return notAvailable(val, 'denied');
    case 'not-found': return failed(`\`${path}\` does not exist`, 'not-found');
    case 'stale': return stale(`\`${path}\` changed since it was read: read it again, then write`, path);
    case 'too-large': return failed(`\`${path}\` is too large: ${val} bytes`, 'too-large');
    default: return failed(val);
  }
};
