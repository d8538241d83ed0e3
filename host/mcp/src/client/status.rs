//! The public status of a server.

use serde::Serialize;

/// The connection state of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// The host is starting the server and listing its tools.
    #[default]
    Connecting,
    /// The server is connected and its tools can be called.
    Ready,
    /// The server could not be reached, or disconnected. The host retries.
    Failed,
    /// The server failed repeatedly. The host pauses before it retries.
    Suspended,
}

/// The status of a server.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ServerStatus {
    /// The server's name in the policy.
    pub name: String,
    /// The connection state.
    pub state: ServerState,
    /// The negotiated protocol revision.
    pub protocol: Option<String>,
    /// The name that the server reports.
    pub title: Option<String>,
    /// The version that the server reports.
    pub version: Option<String>,
    /// Number of registered tools.
    pub tools: usize,
    /// How a child process is sandboxed; `None` for a URL.
    pub confinement: Option<&'static str>,
    /// Why the server is not ready.
    pub reason: Option<String>,
    /// Problems in the server's lists.
    pub problems: Vec<String>,
    /// Number of successful connections.
    pub connects: u64,
}
