// The same implementation for `import`: one environment has one table of running calls.
export { Host, HostError, Policy, Session, ToolError, ToolOutput, tool, vendor } from './index.js'
