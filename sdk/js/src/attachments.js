// Files of the conversation turn, and files that the tool returns.

import { host } from '#host';
import { asked } from './asked.js';
import * as utf8 from './bytes.js';

/** Lists the attachments of the turn: `[{id, name, mimeType, size}]`. */
export const all = () => host.attachments.all();

/** Reads an attachment: its bytes. */
export const read = (id) => asked('attachments', id, () => host.attachments.read(id));

/** Reads an attachment as text; invalid UTF-8 becomes U+FFFD. */
export const readText = (id) => utf8.text(read(id));

/** Stores a new attachment, of text or bytes; link to it with `attachment:<id>`. */
export const create = (name, mimeType, data) =>
  asked('attachments', name, () => host.attachments.create(name, mimeType, utf8.bytes(data)));
