// The errors of the library, and the error of a tool.
'use strict';

const CODES = ['input_invalid', 'not_available', 'execution_failed', 'STALE_WRITE'];
// What plugins write for it.
const OTHER_NAMES = {
  'input-invalid': CODES[0], 'not-available': CODES[1], 'execution-failed': CODES[2], 'stale-write': CODES[3],
  stale_write: CODES[3],
};

/** The host failed. */
class HostError extends Error {
  constructor(kind, message, { file, line, key, cause } = {}) {
    super(message, withCause(cause));
    this.name = 'HostError';
    this.kind = kind;
    this.file = file ?? null;
    this.line = line ?? null;
    this.key = key ?? null;
  }
}

/** An error of a native tool. */
class ToolError extends Error {
  constructor(code, message, { subject = null, costUsd = null, cause } = {}) {
    const known = Object.hasOwn(OTHER_NAMES, code) ? OTHER_NAMES[code] : code;
    if (!CODES.includes(known)) {
      throw new TypeError(`unknown error code ${JSON.stringify(code)}; known are ${CODES.join(', ')}`);
    }
    if (costUsd !== null && !Number.isFinite(costUsd)) {
      throw new RangeError(`the cost ${String(costUsd)} is no finite number of US dollars`);
    }
    super(message, withCause(cause));
    this.name = 'ToolError';
    this.code = known;
    this.subject = subject;
    this.costUsd = costUsd;
  }
}

// Otherwise an error without a cause would be shown with one.
const withCause = (cause) => (cause === undefined ? {} : { cause });

/** The message of what was thrown, with its causes, as for plugins. */
function describe(error) {
  if (!(error instanceof Error)) return typeof error === 'string' ? error : `the tool threw ${shown(error)}`;
  let message = messageOf(error);
  for (let { cause } = error, depth = 0; cause instanceof Error && depth < 8; cause = cause.cause, depth++) {
    // Many errors already print their cause.
    if (!message.includes(messageOf(cause))) message += `: ${messageOf(cause)}`;
  }
  return message;
}

const messageOf = (error) => String(error.message || error.name);

function shown(value) {
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return typeof value;
  }
}

module.exports = { HostError, ToolError, describe };
