// The results of tools, and their conversion to the record of the contract.

import { failed } from './errors.js';
import { stringify } from './json.js';

/** A result built by hand: text for the model, data for programs, blocks, cost. */
export class Output {
  constructor(value = '') {
    this.value = value;
    this.data = undefined;
    this.content = [];
    this.costUsd = null;
    this.meta = null;
  }

  /** Sets the structured result for programs. A value that is not an object is wrapped as `{result: …}`. */
  structured(data) {
    this.data = data;
    return this;
  }

  /** Adds a block of text. */
  text(text) {
    return this.block({ tag: 'text', val: text });
  }

  /** Adds an image: bytes and their media type. */
  image(bytes, mimeType) {
    return this.block({ tag: 'image', val: { data: bytes, mimeType } });
  }

  /** Adds audio: bytes and their media type. */
  audio(bytes, mimeType) {
    return this.block({ tag: 'audio', val: { data: bytes, mimeType } });
  }

  /** Adds a link to a resource. */
  link(uri, name, { title = null, description = null, mimeType = null, size = null } = {}) {
    return this.block({ tag: 'link', val: { uri, name, title, description, mimeType, size } });
  }

  /** Adds a resource with its content, a text or bytes. */
  embedded(uri, data, mimeType = null) {
    const body = typeof data === 'string' ? { tag: 'text', val: data } : { tag: 'blob', val: data };
    return this.block({ tag: 'embedded', val: { uri, mimeType, body } });
  }

  /** Annotates the last block. */
  annotate({ audience = [], priority = null, lastModified = null }) {
    const last = this.content.at(-1);
    if (last === undefined) throw failed('there is no block to annotate');
    last.annotations = { audience: [...audience], priority, lastModified };
    return this;
  }

  /** Adds a block as the contract has it (`content-block.body`). */
  block(body) {
    this.content.push({ body, annotations: null });
    return this;
  }

  /** Sets the cost of the call, in US dollars. */
  cost(usd) {
    this.costUsd = usd;
    return this;
  }

  /** Adds metadata for the host, an object. The model never sees it. */
  metadata(meta) {
    this.meta = meta;
    return this;
  }
}

/** A result with a text for the model and data for programs. */
export const rendered = (text, data) => new Output(text).structured(data);

/** Converts the result of `run` to the record of the contract: text is unchanged, everything else becomes JSON. */
export function toRecord(result) {
  if (result === undefined || result === null) return record(new Output());
  if (result instanceof Output) return record(result);
  if (typeof result === 'string') return record(new Output(result));
  if (typeof result.then === 'function') {
    throw new TypeError('`run` returned a promise: calls of the host are not asynchronous here, so leave `async` out');
  }
  const text = stringify(result);
  return record(Object.assign(new Output(text), { data: result }), text);
}

function record(output, text) {
  const { value, data, content, costUsd, meta } = output;
  return {
    value: String(value).toWellFormed(),
    structured: data === undefined ? null : object(text ?? stringify(data)),
    content,
    costUsd,
    meta: meta === null ? null : object(stringify(meta)),
  };
}

const object = (json) => (json.startsWith('{') ? json : `{"result":${json}}`);
