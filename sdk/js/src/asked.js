// A question to the host, and what becomes of its "no".

import { ToolError } from './errors.js';

/** Asks the host; `describe` makes an error of the tool out of the interface's own. */
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

/** Engines wrap what an import says in an error of their own. */
function reasonOf(error) {
  const reason = error?.payload ?? error;
  return typeof reason === 'object' && reason !== null && typeof reason.tag === 'string' ? reason : {};
}
