//! What is known of a server, for whoever asks.

use serde::Serialize;
use toolbay_policy::mcp_server::McpServer;

/// Where a server stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// It is being started, and its tools are asked for.
    Connecting,
    /// Its tools can be called.
    Ready,
    /// It could not be reached, or has gone; it is tried again.
    Failed,
    /// It failed so often in a row that it is left alone for a while.
    Suspended,
}

/// What is known of a server.
#[derive(Debug, Clone, Serialize)]
pub struct ServerStatus {
    /// Its name in the policy.
    pub name: String,
    /// Where it stands.
    pub state: ServerState,
    /// The revision of the protocol that is spoken.
    pub protocol: Option<String>,
    /// The name it gives itself.
    pub title: Option<String>,
    /// The version it claims.
    pub version: Option<String>,
    /// How many of its tools are there.
    pub tools: usize,
    /// What holds it, if it is a program.
    pub confinement: Option<&'static str>,
    /// Why it is not ready.
    pub reason: Option<String>,
    /// What is wrong with its lists.
    pub problems: Vec<String>,
    /// How often it was connected to.
    pub connects: u64,
}

impl ServerStatus {
    /// Of a server that is being started for the first time.
    pub(super) fn new(server: &McpServer) -> Self {
        Self {
            name: server.name.to_string(),
            state: ServerState::Connecting,
            protocol: None,
            title: None,
            version: None,
            tools: 0,
            confinement: None,
            reason: None,
            problems: Vec::new(),
            connects: 0,
        }
    }
}
