// State that outlives a call. Instances do not. `scope` is `tool`, `plugin`, `session` or `agent`.
//
// Calls run concurrently. Use `increment` or `replace` for values that several calls change.

import { host } from '#host';
import { asked } from './asked.js';
import * as utf8 from './bytes.js';
import { parse, stringify } from './json.js';

/** Returns the bytes under a key, or null. */
export const get = (scope, key) => asked('kv', key, () => host.kv.get(scope, key) ?? null);

/** Returns the text under a key, or null. */
export function getText(scope, key) {
  const data = get(scope, key);
  return data === null ? null : utf8.text(data);
}

/** Returns the JSON under a key, or null. */
export function getJson(scope, key) {
  const text = getText(scope, key);
  return text === null ? null : parse(text);
}

/** Sets a key to text or bytes, with or without an expiry. */
export const set = (scope, key, value, { ttlSeconds = null } = {}) =>
  asked('kv', key, () => host.kv.set(scope, key, utf8.bytes(value), ttlSeconds));

/** Sets a key to JSON, with or without an expiry. */
export const setJson = (scope, key, value, options) => set(scope, key, stringify(value), options);

/** Removes a key. */
export const remove = (scope, key) => asked('kv', key, () => host.kv.remove(scope, key));

/** Returns the sorted keys with a prefix that follow `after`. */
export const keys = (scope, prefix = '', { after = null, limit = 1000 } = {}) =>
  asked('kv', prefix, () => host.kv.keys(scope, prefix, after, limit));

/** Adds atomically to a number and returns the sum. An absent key counts as 0. Exact up to 2^53. */
export const increment = (scope, key, by = 1) => asked('kv', key, () => host.kv.increment(scope, key, by));

/** Sets a key only if it holds `expected` (null: no value). Returns whether it did. */
export const replace = (scope, key, expected, value) =>
  asked('kv', key, () => host.kv.replace(scope, key, expected === null ? null : utf8.bytes(expected), utf8.bytes(value)));
