// The operator's settings for this plugin. They are never secret; secrets come from `secrets`.

import { host } from '#host';
import { notAvailable } from './errors.js';
import { parse } from './json.js';

/** Returns a setting, or `otherwise` if the operator did not set it. */
export function get(key, otherwise = null) {
  const text = host.config.get(key);
  return text === null || text === undefined ? otherwise : parse(text);
}

/** Returns a required setting. */
export function require(key) {
  const value = get(key);
  if (value === null) throw notAvailable(`the setting \`${key}\` is missing`, 'config');
  return value;
}

/** Returns the names of the settings. */
export const keys = () => host.config.keys();
