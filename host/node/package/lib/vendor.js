// Tools, calls and results in the formats of model vendors.
'use strict';

const { fields, optionTable, query } = require('./bridge.js');
const { encode } = require('./json.js');
const { CallResult } = require('./results.js');
const { View } = require('./view.js');

const OPTIONS = optionTable({ strict: null });

function viewDefinitions(vendor, view, options = {}) {
  const { strict = false } = fields('vendor.viewDefinitions', options, OPTIONS);
  // Packages of vendors write them with `JSON.stringify`, which refuses BigInts. Large bounds are rounded; the host has the
  // exact ones.
  return query('definitions', { vendor, view: View.numberOf(view), strict }, '', JSON.parse).tools;
}

function parseCalls(vendor, message) {
  return query('parse_calls', { vendor }, encode(message));
}

function resultMessages(vendor, results) {
  return query('result_messages', { vendor }, encode(results.map(CallResult.documentOf)));
}

module.exports = { parseCalls, resultMessages, viewDefinitions };
