// Files of the conversation turn, and files that the tool returns.

import { host } from '#host';
import { asked } from './asked.js';
import * as utf8 from './bytes.js';
import { failed, notAvailable } from './errors.js';

/** Lists the attachments of the turn: `[{id, name, mimeType, size}]`. */
export const all = () => host.attachments.all();

/** Reads an attachment: its bytes. */
export const read = (id) => asked(() => host.attachments.read(id), describe(id));

/** Reads an attachment as text; invalid UTF-8 becomes U+FFFD. */
export const readText = (id) => utf8.text(read(id));

/** Stores a new attachment, of text or bytes; link to it with `attachment:<id>`. */
export const create = (name, mimeType, data) =>
  asked(() => host.attachments.create(name, mimeType, utf8.bytes(data)), describe(name));

const describe = (name) => (tag, val) => {
  switch (tag) {
    case 'denied': return notAvailable(`no access to the attachment \`${name}\`: ${val}`, 'denied');
    case 'not-found': return failed(`no attachment \`${name}\``, 'not-found');
    case 'too-large': return failed(`the attachment \`${name}\` is too large: ${val} bytes`, 'too-large');
    default: return failed(`the attachment \`${name}\`: ${val}`);
  }
};
