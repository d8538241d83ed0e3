//! What the client and a server agree on in the handshake.

use std::sync::Arc;

use serde_json::{Value, json};

/// The stateless revision.
pub(super) const MODERN: &str = "2026-07-28";
/// Header with the protocol version.
pub(super) const VERSION_HEADER: &str = "mcp-protocol-version";

/// The result of the handshake.
#[derive(Debug, Clone, Default)]
pub(super) struct NegotiatedServer {
    pub(super) modern: bool,
    /// The protocol revision.
    pub(super) protocol: String,
    /// The name that the server reports.
    pub(super) title: Option<String>,
    /// The version that the server reports.
    pub(super) version: Option<Arc<str>>,
    pub(super) has_tools: bool,
    /// Whether it declares no tools, resources or prompts.
    pub(super) declares_nothing: bool,
    pub(super) tools_list_changed: bool,
    pub(super) has_resources: bool,
    /// Whether the server reports changes of its resources.
    pub(super) resources_list_changed: bool,
}

/// The name and version of this client.
pub(super) fn client_info() -> Value {
    json!({"name": "toolbay", "version": env!("CARGO_PKG_VERSION")})
}
