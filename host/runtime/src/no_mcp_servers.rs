//! The place of MCP servers in a build without the feature `mcp`. The policy names none: it would have been refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolbay_policy::{KnownNames, Policy, PolicyFinding};

use crate::plugins::installed::InstalledPlugins;

/// No folder is needed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerFolders;

impl ServerFolders {
    pub(crate) fn new(_state: Option<&Path>, _credentials: Option<PathBuf>) -> Self {
        Self
    }
}

/// No connections.
#[derive(Debug)]
pub(crate) struct Servers;

impl Servers {
    pub(crate) fn start(_installed: &Arc<InstalledPlugins>, _folders: &ServerFolders) -> Self {
        Self
    }

    pub(crate) async fn wait_started(&self) {}

    pub(crate) async fn close(self) {}
}

pub(crate) fn add_saved_tools(
    _state_dir: Option<&Path>,
    _policy: &Policy,
    _known: &mut KnownNames,
) -> Vec<PolicyFinding> {
    Vec::new()
}
