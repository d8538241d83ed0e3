//! What is known of a server, for whoever asks.

use serde::Serialize;

/// Where a server stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// It is being started, and its tools are asked for.
    #[default]
    Connecting,
    /// Its tools can be called.
    Ready,
    /// It could not be reached, or has gone; it is tried again.
    Failed,
    /// It failed so often in a row that it is left alone for a while.
    Suspended,
}

/// What is known of a server.
#[derive(Debug, Clone, Default, Serialize)]
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
