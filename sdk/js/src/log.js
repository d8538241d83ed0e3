// Log lines for the operator. `console.log` also writes to the host's log, without level and fields.

import { host } from '#host';

const write = (level) => (message, fields = {}) =>
  host.log.write(level, String(message), Object.entries(fields).map(([key, value]) => [key, String(value)]));

export const trace = write('trace');
export const debug = write('debug');
export const info = write('info');
export const warn = write('warn');
export const error = write('error');
