//! The names of OpenTelemetry's conventions, and our own.
//!
//! Generative AI and MCP: `semantic-conventions-genai` 0.1.0, whose state is Development. HTTP, network, server, client,
//! service and errors: stable since 1.23.0 of the semantic conventions. The constants of Rust's crates for them are
//! deprecated, so the few that are used are here.

/// The name of an unknown tool, and of what is not in a fixed list.
pub(crate) const OTHER: &str = "_OTHER";

// Generative AI.
pub(crate) const OPERATION_NAME: &str = "gen_ai.operation.name";
pub(crate) const EXECUTE_TOOL: &str = "execute_tool";
pub(crate) const TOOL_NAME: &str = "gen_ai.tool.name";
pub(crate) const TOOL_CALL_ID: &str = "gen_ai.tool.call.id";
pub(crate) const TOOL_CALL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
pub(crate) const TOOL_CALL_RESULT: &str = "gen_ai.tool.call.result";
pub(crate) const EXECUTE_TOOL_DURATION: &str = "gen_ai.execute_tool.duration";

// MCP.
pub(crate) const METHOD_NAME: &str = "mcp.method.name";
pub(crate) const TOOLS_CALL: &str = "tools/call";
pub(crate) const PROTOCOL_VERSION: &str = "mcp.protocol.version";
pub(crate) const SESSION_ID: &str = "mcp.session.id";
pub(crate) const REQUEST_ID: &str = "jsonrpc.request.id";
pub(crate) const SERVER_OPERATION_DURATION: &str = "mcp.server.operation.duration";

// General.
pub(crate) const ERROR_TYPE: &str = "error.type";
/// The error of a call whose result has `isError`.
pub(crate) const TOOL_ERROR: &str = "tool_error";
pub(crate) const NETWORK_TRANSPORT: &str = "network.transport";
pub(crate) const CLIENT_ADDRESS: &str = "client.address";
pub(crate) const SERVER_ADDRESS: &str = "server.address";
pub(crate) const SERVER_PORT: &str = "server.port";
pub(crate) const URL_FULL: &str = "url.full";
pub(crate) const HTTP_METHOD: &str = "http.request.method";
pub(crate) const HTTP_STATUS: &str = "http.response.status_code";
pub(crate) const SERVICE_NAME: &str = "service.name";
pub(crate) const SERVICE_VERSION: &str = "service.version";
pub(crate) const SERVICE_INSTANCE_ID: &str = "service.instance.id";

// Our own.
pub(crate) const OUTCOME: &str = "toolbay.outcome";
/// Why the host refused the call before its tool was started.
pub(crate) const REFUSAL: &str = "toolbay.refusal";
pub(crate) const PLUGIN_ID: &str = "toolbay.plugin.id";
pub(crate) const PLUGIN_DIGEST: &str = "toolbay.plugin.digest";
pub(crate) const FUEL: &str = "toolbay.fuel";
pub(crate) const MEMORY_PEAK: &str = "toolbay.memory_peak";
pub(crate) const PROFILE: &str = "toolbay.profile";
pub(crate) const CACHED: &str = "toolbay.cached";
/// The requests of a call beyond those that have a span.
pub(crate) const REQUESTS_NOT_KEPT: &str = "toolbay.http.requests_not_kept";

/// The methods that have a name in the conventions.
const METHODS: [&str; 9] = ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];

/// A method as an attribute: guests can send any name.
pub(crate) fn http_method(name: &str) -> &str {
    if METHODS.contains(&name) { name } else { OTHER }
}
