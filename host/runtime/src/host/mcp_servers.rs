//! The embedder's API for the MCP servers of the policy.

use std::path::PathBuf;
use std::sync::Arc;

use toolbay_core::call::server_connector::ServerConnector;
use toolbay_mcp::Bridge;
use toolbay_mcp::client::ServerStatus;
use toolbay_policy::capability::protected_paths::Protection;

use crate::host::running::RunningHost;
use crate::host::{Host, HostBuilder};
use crate::mcp_servers::{new_bridge, policy_connector};

impl HostBuilder {
    /// Keeps the credentials of MCP servers in this folder instead of `credentials` in the state directory. It is created
    /// for this user only, and plugins can neither read nor write it.
    #[must_use]
    pub fn credentials_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        self.credentials = Some(dir.clone());
        self.protect_path(dir, Protection::ReadAndWrite)
    }
}

impl Host {
    /// Connects to the MCP servers of the policy, always under the current policy.
    #[must_use]
    pub fn server_connector(&self) -> Arc<dyn ServerConnector> {
        policy_connector(&self.installed, &self.server_folders)
    }

    /// A bridge to MCP servers that has none yet. [`HostBuilder::start`] connects those of the policy.
    #[must_use]
    pub fn mcp_bridge(&self) -> Bridge {
        new_bridge(&self.installed, &self.server_folders)
    }
}

impl RunningHost {
    /// The states of the MCP servers.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerStatus> {
        self.servers.status()
    }
}
