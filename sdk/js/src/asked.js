// Calls of the host, and the conversion of its errors.

import { hostError } from './errors.js';

/** Calls a function of an interface. `name` is what the author asked for: errors name it. */
export function asked(interfaceName, name, question) {
  try {
    return question();
  } catch (error) {
    const { tag, val } = reasonOf(error);
    throw (tag !== undefined && hostError(interfaceName, name, tag, val)) || error;
  }
}

/** Engines wrap the error of an import in their own error. */
function reasonOf(error) {
  const reason = error?.payload ?? error;
  return typeof reason === 'object' && reason !== null && typeof reason.tag === 'string' ? reason : {};
}
