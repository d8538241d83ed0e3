//! The public status of a server.

use serde::Serialize;
use toolbay_core::registry::SourceState;

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

impl ServerState {
    /// The state in one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Ready => "ready",
            Self::Failed => "failed",
            Self::Suspended => "suspended",
        }
    }

    /// The state as that of a source without tools; `None` for a ready server.
    pub(super) const fn of_source(self) -> Option<SourceState> {
        match self {
            Self::Ready => None,
            Self::Connecting => Some(SourceState::Connecting),
            Self::Failed => Some(SourceState::Failed),
            Self::Suspended => Some(SourceState::Suspended),
        }
    }
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
    /// Why the server is not ready, for the operator: with the policy lines that would help.
    pub reason: Option<String>,
    /// Problems in the server's lists.
    pub problems: Vec<String>,
    /// Number of successful connections.
    pub connects: u64,
}
