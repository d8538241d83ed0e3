// The four error classes of a tool. Any other exception becomes `execution-failed` with its message.
// `options.costUsd` is the cost of the failed attempt.

import { CODES, ERRORS } from './contract.js';

/** An error of a tool. The model reads its message unchanged. */
export class ToolError extends Error {
  constructor(code, message, subject = null, options = {}) {
    super(message);
    if (!CODES.includes(code)) {
      throw new TypeError(`unknown error code ${JSON.stringify(code)}; known are ${CODES.join(', ')}`);
    }
    this.name = 'ToolError';
    this.code = code;
    this.subject = subject;
    this.costUsd = options.costUsd ?? null;
  }
}

/** The tool cannot accept the arguments of the model; `subject` is a JSON pointer to the argument. */
export const inputError = (message, subject, options) => new ToolError('input-invalid', message, subject, options);

/** The tool cannot run now; `subject` is a short machine-readable reason. */
export const notAvailable = (message, subject, options) => new ToolError('not-available', message, subject, options);

/** The tool ran and failed; `subject` is a cause, if known. */
export const failed = (message, subject, options) => new ToolError('execution-failed', message, subject, options);

/** The target of a write changed since it was read; `subject` is the path or key. */
export const stale = (message, subject, options) => new ToolError('stale-write', message, subject, options);

/** The error of a tool for an error of an interface. `name` is what the author asked for. */
export function hostError(interfaceName, name, tag, value) {
  const found = ERRORS[interfaceName][tag];
  if (!found) return null;
  const [code, subject, message] = found.map((text) => text?.replace(/\{(name|value)\}/g, (_, key) => (key === 'name' ? name : value)));
  return new ToolError(code, message, subject);
}

/** Converts an exception to the record of the contract. */
export function toRecord(error) {
  if (error instanceof ToolError) {
    const { code, message, subject, costUsd } = error;
    return { code, message: message.toWellFormed(), subject: subject ?? null, costUsd };
  }
  return { code: 'execution-failed', message: messageOf(error).toWellFormed(), subject: null, costUsd: null };
}

/** Whether the engine ran out of memory. The model does not get this error, because the host names the limit. */
export function isOutOfMemory(error) {
  return error instanceof Error && error.name === 'InternalError' && error.message === 'out of memory';
}

function messageOf(error) {
  if (!(error instanceof Error)) return typeof error === 'string' ? error : `the tool threw ${shown(error)}`;
  let message = error.message || error.name;
  for (let cause = error.cause, depth = 0; cause instanceof Error && depth < 8; cause = cause.cause, depth++) {
    // Many errors already print their cause.
    if (!message.includes(cause.message)) message += `: ${cause.message}`;
  }
  return message;
}

function shown(value) {
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return typeof value;
  }
}
