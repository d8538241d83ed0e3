// Credentials by name. What `get` returns is usually not the value but a token good for one call, which the host swaps
// for the value in the headers of requests to the hosts the operator bound it to.

import { host } from '#host';
import { asked } from './asked.js';
import { failed, notAvailable } from './errors.js';

/** Returns a secret, or a stand-in for it: `{text, revealed}`. */
export const get = (name) => asked(() => host.secrets.get(name), (tag, val) => {
  switch (tag) {
    case 'denied': return notAvailable(`no access to the secret \`${name}\`: ${val}`, 'denied');
    case 'not-found': return notAvailable(`the secret \`${name}\` is not set`, 'missing-secret');
    default: return failed(`the secret \`${name}\`: ${val}`);
  }
});
