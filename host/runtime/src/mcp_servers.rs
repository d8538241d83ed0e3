//! The MCP servers of a policy as tool sources of the host.

mod known;
mod server_connector;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;
use toolbay_core::registry::event::HostEvent;
use toolbay_mcp::Bridge;
use toolbay_mcp::client::ServerStatus;
use toolbay_policy::capability::protected_paths::Protection;

pub(crate) use known::add_saved_tools;
pub use server_connector::saved_tools;

use crate::host::running::RunningHost;
use crate::host::{Host, HostBuilder};
use server_connector::PolicyServerConnector;

/// The folders of a host for MCP servers.
#[derive(Debug, Clone)]
pub(crate) struct ServerFolders {
    /// The last known tool lists.
    tool_lists: Option<PathBuf>,
    /// The credentials.
    credentials: Option<PathBuf>,
}

impl ServerFolders {
    /// The folders in a state directory, and the one that the embedder named for credentials.
    pub(crate) fn new(state: Option<&Path>, credentials: Option<PathBuf>) -> Self {
        Self {
            tool_lists: state.map(server_connector::tool_list_folder),
            credentials: credentials.or_else(|| state.map(|dir| dir.join("credentials"))),
        }
    }
}

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
    pub fn server_connector(&self) -> Arc<dyn toolbay_core::call::server_connector::ServerConnector> {
        Arc::new(PolicyServerConnector {
            installed: Arc::clone(&self.installed),
            folders: self.server_folders.clone(),
        })
    }

    /// A bridge to MCP servers that has none yet. [`HostBuilder::start`] connects those of the policy.
    #[must_use]
    pub fn mcp_bridge(&self) -> Bridge {
        let reducer = |name: &str| crate::reducers::native("x", name).ok().map(|entry| entry.reducer);
        Bridge::new(Arc::clone(self.registry()), self.server_connector()).with_reducers(Arc::new(reducer))
    }
}

impl RunningHost {
    /// The states of the MCP servers.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerStatus> {
        self.servers.bridge.status()
    }
}

/// The connections to the MCP servers, which follow the policy.
#[derive(Debug)]
pub(crate) struct Servers {
    bridge: Arc<Bridge>,
    follow: AbortOnDropHandle<()>,
}

impl Servers {
    /// Connects to the servers of the policy, and follows it.
    pub(crate) fn start(host: &Host) -> Self {
        let bridge = Arc::new(host.mcp_bridge());
        bridge.apply(&host.policy());
        let reloaded = Arc::new(Notify::new());
        let (newest, changed) = (host.clone(), Arc::clone(&reloaded));
        host.events().listen(move |event| {
            if matches!(event, HostEvent::PolicyReloaded { .. }) {
                reloaded.notify_one();
            }
        });
        // Follows the policy until these `Servers` end.
        let follow = Bridge::follow_policy(Arc::downgrade(&bridge), changed, move || newest.policy());
        Self { bridge, follow: AbortOnDropHandle::new(tokio::spawn(follow)) }
    }

    /// Waits until each server is ready or has failed.
    pub(crate) async fn wait_started(&self) {
        self.bridge.wait_started().await;
    }

    /// Closes the bridge after the task that follows the policy, which could start servers.
    pub(crate) async fn close(self) {
        self.follow.abort();
        // The task was aborted, so its result is an error.
        drop(self.follow.await);
        self.bridge.close().await;
    }
}
