// Write Toolbay plugins in JavaScript: tools are functions with a description and a JSON Schema.

export { plugin, reducer, tool } from './plugin.js';
export { failed, inputError, notAvailable, stale, ToolError } from './errors.js';
export { Output, rendered } from './output.js';
export * as attachments from './attachments.js';
export * as config from './config.js';
export * as context from './context.js';
export * as files from './files.js';
export * as http from './http.js';
export * as invoke from './invoke.js';
export * as kv from './kv.js';
export * as log from './log.js';
export * as process from './process.js';
export * as secrets from './secrets.js';
