// Tools, calls and results in the formats of model vendors.
'use strict';

const { query } = require('./bridge.js');
const { encode, exactly, parse } = require('./json.js');
const { boolean, fields, optionTable } = require('./options.js');
const { CallResult } = require('./results.js');
const { View } = require('./view.js');

const OPTIONS = optionTable({ strict: boolean });
// The members that hold the arguments of a call: `input` of Anthropic, `args` of Gemini, `arguments` of the others.
const ARGUMENTS = new Set(['input', 'args', 'arguments']);
// Begins arguments that cannot be written. The reason follows, and the host refuses the call with it.
const UNREADABLE = '\0';

function viewDefinitions(vendor, view, options = {}) {
  const { strict = false } = fields('vendor.viewDefinitions', options, OPTIONS);
  // Packages of vendors write them with `JSON.stringify`, which refuses BigInts. Large bounds are rounded; the host has the
  // exact ones.
  return query('definitions', { vendor, view: View.numberOf(view), strict }, '', JSON.parse).tools;
}

function parseCalls(vendor, message) {
  const plain = typeof message === 'string' ? parse(message) : message;
  return query('parse_calls', { vendor }, JSON.stringify(plain, readable));
}

/** A member of a message for the bridge. A model wrote it: what JSON lacks costs one call at most, and never the others. */
function readable(key, value) {
  if (ARGUMENTS.has(key) && value !== undefined && value !== null) return argumentText(value);
  if (typeof value === 'bigint') return String(value);
  return typeof value === 'string' ? value.toWellFormed() : value;
}

/** Arguments as JSON text. Models of OpenAI write them as a text. */
function argumentText(args) {
  try {
    const text = encode(args);
    return typeof args === 'string' ? args : text;
  } catch (error) {
    return `${UNREADABLE}${error.message}`;
  }
}

function resultMessages(vendor, results) {
  const documents = results.map(CallResult.documentOf);
  const messages = query('result_messages', { vendor }, encode(documents), JSON.parse);
  if (vendor !== 'mcp') return messages;
  return messages.map((message, index) => withExactIntegers(message, documents[index]));
}

/** A result of MCP as `JSON.stringify` writes it exactly: it refuses BigInts, and the host has integers of 64 bits there. */
function withExactIntegers(message, { output, failure }) {
  const structured = (output ?? failure).structured;
  if (structured === null) return message;
  return { ...message, result: { ...message.result, structuredContent: parse(structured, exactly) } };
}

module.exports = { parseCalls, resultMessages, viewDefinitions };
