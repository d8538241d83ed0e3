// Warnings of the host, and errors of functions of the program that fail a call only.
'use strict';

const { channel } = require('node:diagnostics_channel');

// Subscribers of `diagnostics_channel` get `{ level, message, error }`.
const messages = channel('toolbay');

/** Publishes a message, or prints it to the standard error output if nobody subscribed. */
function log(level, message, error = null) {
  if (messages.hasSubscribers) return messages.publish({ level, message, error });
  try {
    console.error(...(error === null ? [`toolbay: ${message}`] : [`toolbay: ${message}:`, error]));
  } catch {
    // The error cannot be shown.
    console.error(`toolbay: ${message}`);
  }
}

module.exports = { log };
