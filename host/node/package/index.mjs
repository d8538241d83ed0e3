// The same implementation for `import`, so that both ways share the mailbox of their environment.

export { Host, HostError, Policy, Session, ToolError, ToolOutput, tool, vendor } from './index.js';
