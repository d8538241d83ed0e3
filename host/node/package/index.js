// The names of the package. `index.d.ts` describes them.
'use strict';

const { HostError, ToolError } = require('./lib/errors.js');
const { Host } = require('./lib/host.js');
const { Policy } = require('./lib/policy.js');
const { ToolOutput } = require('./lib/results.js');
const { Session } = require('./lib/session.js');
const { tool } = require('./lib/tools.js');
const vendor = require('./lib/vendor.js');

// Written so that Node finds the names for `import` of this file.
module.exports = { Host, HostError, Policy, Session, ToolError, ToolOutput, tool, vendor };
