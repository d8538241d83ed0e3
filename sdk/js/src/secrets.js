// Credentials by name. `get` usually returns a placeholder that is valid for one call. The host replaces it with the
// value in headers of requests to the hosts that the operator bound it to.

import { host } from '#host';
import { asked } from './asked.js';

/** Returns a secret, or its placeholder: `{text, revealed}`. */
export const get = (name) => asked('secrets', name, () => host.secrets.get(name));
