// Credentials by name. `get` usually returns a placeholder that is valid for one call. The host replaces it with the
// value in headers of requests to the hosts that the operator bound it to.

import { host } from '#host';
import { asked } from './asked.js';
import { failed, notAvailable } from './errors.js';

/** Returns a secret, or its placeholder: `{text, revealed}`. */
export const get = (name) => asked(() => host.secrets.get(name), (tag, val) => {
  switch (tag) {
    case 'denied': return notAvailable(`no access to the secret \`${name}\`: ${val}`, 'denied');
    case 'not-found': return notAvailable(`the secret \`${name}\` is not set`, 'missing-secret');
    default: return failed(`the secret \`${name}\`: ${val}`);
  }
});
