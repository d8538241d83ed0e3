// Calls of the host, and the conversion of its errors.

import { ToolError } from './errors.js';

/** Calls the host. `describe` converts the interface's error to an error of the tool. */
export function asked(question, describe) {
  try {
    return question();
  } catch (error) {
    const { tag, val } = reasonOf(error);
    if (tag === undefined) throw error;
    const told = describe(tag, val);
    throw told instanceof ToolError ? told : error;
  }
}

/** Engines wrap the error of an import in their own error. */
function reasonOf(error) {
  const reason = error?.payload ?? error;
  return typeof reason === 'object' && reason !== null && typeof reason.tag === 'string' ? reason : {};
}
