// Files under the operator's globs, with a guard against blind overwrites.

import { host } from '#host';
import { asked } from './asked.js';
import * as utf8 from './bytes.js';
import { failed } from './errors.js';

/** Reads a file, or `maxBytes` of it from `offset` on: `{data, stat}`. */
export const read = (path, { offset = 0, maxBytes = null } = {}) =>
  asked('files', path, () => host.files.read(path, offset, maxBytes));

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
  asked('files', path, () => host.files.write(path, utf8.bytes(data), expectedVersion));

/** Returns the metadata of a path: `{kind, size, modifiedMs, version}`. */
export const stat = (path) => asked('files', path, () => host.files.stat(path));

/** Lists a directory: `[{name, kind}]`. */
export const readDir = (path) => asked('files', path, () => host.files.readDir(path));

/** Creates a directory. */
export const makeDir = (path) => asked('files', path, () => host.files.makeDir(path));

/** Removes a file or an empty directory. */
export const remove = (path) => asked('files', path, () => host.files.remove(path));
