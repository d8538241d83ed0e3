// Calls, their results, and what happens in between.
'use strict';

const { encode, parse } = require('./json.js');
const { members } = require('./bridge.js');
const { any, fields, optionTable } = require('./options.js');

const OPTIONS = optionTable({ structured: any, content: any, costUsd: any, meta: any });

/** An output: text for the model, data for programs, content blocks as in MCP, and the cost in US dollars. */
class ToolOutput {
  // JSON texts.
  #structured = null;
  #meta = null;

  constructor(value = '', options = {}) {
    const { content = [], cost_usd: costUsd = null } = fields('ToolOutput', options, OPTIONS);
    this.value = String(value);
    this.content = content;
    this.costUsd = costUsd;
    if (options.structured !== undefined) this.#structured = encode(options.structured);
    if (options.meta !== undefined && options.meta !== null) this.#meta = encode(options.meta);
  }

  get structured() {
    return this.#structured === null ? null : parse(this.#structured);
  }

  get meta() {
    return this.#meta === null ? null : parse(this.#meta);
  }

  /** The output of a document of the bridge. */
  static read({ value, structured, content, meta }, costUsd) {
    const output = new ToolOutput(value, { content: content.map(readBlock), costUsd });
    output.#structured = structured;
    output.#meta = meta;
    return output;
  }

  /** The output of a value with another type, which programs get as data. */
  static ofData(value) {
    const text = encode(value);
    const output = new ToolOutput(text);
    output.#structured = text;
    return output;
  }

  /** The reply of a tool. */
  static reply(output) {
    return {
      value: output.value.toWellFormed(), structured: output.#structured, meta: output.#meta, cost_usd: output.costUsd,
      content: output.content.map(writeBlock),
    };
  }
}

/** The result of a call: an output or a failure. */
class CallResult {
  #document;

  constructor(document) {
    this.#document = document;
    const { output, failure } = document;
    this.type = 'result';
    this.ok = failure === null;
    this.callId = document.call_id;
    this.tool = document.tool;
    this.output = output === null ? null : ToolOutput.read(output, document.cost_usd);
    this.failure = failure === null ? null : failureOf(failure, document.hints);
    this.costUsd = document.cost_usd;
    this.durationMs = document.duration_us / 1000;
    this.source = document.source;
    this.cachedMs = document.cached_ms;
    this.callSha256 = document.call_sha256;
    this.cutFromChars = document.cut_from_chars;
    this.saved = document.saved;
    this.untrusted = document.untrusted;
    this.usage = usageOf(document.usage);
    this.hints = document.hints;
  }

  static documentOf(result) {
    if (!(result instanceof CallResult)) throw new TypeError('a result is made by `host.callAll` or `host.stream`');
    return result.#document;
  }
}

function usageOf(usage) {
  return {
    fuel: usage.fuel ?? null, wallMs: usage.wall_us / 1000, queuedMs: usage.queued_us / 1000,
    peakMemoryBytes: usage.peak_memory_bytes, argsBytes: usage.args_bytes, resultBytes: usage.result_bytes,
  };
}

function failureOf({ kind, code, message, subject, limit, retry_after_ms: retryAfterMs }, hints) {
  return { kind, code, message, subject, limit, retryAfterMs, hints };
}

const MEDIA = { image: 'Image', audio: 'Audio' };

/** A content block of MCP as the host has it. */
function writeBlock(block) {
  const { annotations } = block;
  const notes = annotations === undefined || annotations === null ? null : {
    audience: annotations.audience ?? [], priority: annotations.priority, last_modified: annotations.lastModified,
  };
  return { body: writeBody(block), annotations: notes };
}

function writeBody(block) {
  switch (block.type) {
    case 'text':
      return { Text: block.text };
    case 'image':
    case 'audio':
      return { [MEDIA[block.type]]: { data: base64(block.data), mime_type: block.mimeType } };
    case 'resource_link': {
      const { uri, name, title, description, size, mimeType } = block;
      return { Link: { uri, name, title, description, size, mime_type: mimeType } };
    }
    case 'resource': {
      const { uri, mimeType, text, blob } = block.resource;
      const body = text === undefined ? { Blob: base64(blob) } : { Text: text };
      return { Embedded: { uri, mime_type: mimeType, body } };
    }
    default:
      throw new TypeError(`a content block of the unknown type ${JSON.stringify(block.type)}`);
  }
}

function base64(data) {
  if (typeof data === 'string') return data;
  if (!(data instanceof Uint8Array)) throw new TypeError('the data of a content block is bytes or a text in base64');
  return Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('base64');
}

/** A content block of the host as in MCP. */
function readBlock({ body, annotations }) {
  const [[kind, value]] = Object.entries(body);
  const block = readBody(kind, value);
  if (annotations !== null) block.annotations = present(annotations);
  return block;
}

function readBody(kind, value) {
  switch (kind) {
    case 'Text':
      return { type: 'text', text: value };
    case 'Image':
    case 'Audio':
      return { type: kind.toLowerCase(), data: value.data, mimeType: value.mime_type };
    case 'Link':
      return { type: 'resource_link', ...present(value) };
    default: {
      const [[inner, content]] = Object.entries(value.body);
      const { uri, mime_type } = value;
      const resource = { ...present({ uri, mime_type }), [inner === 'Text' ? 'text' : 'blob']: content };
      return { type: 'resource', resource };
    }
  }
}

/** The members that have a value. */
function present(document) {
  return members(Object.fromEntries(Object.entries(document).filter(([, value]) => value !== null)));
}

module.exports = { CallResult, ToolOutput };
