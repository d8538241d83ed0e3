//! The MCP servers of a policy as tool sources of the host.

mod known;
mod server_connector;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;
use toolbay_core::call::server_connector::ServerConnector;
use toolbay_core::registry::event::HostEvent;
use toolbay_mcp::Bridge;
use toolbay_mcp::client::ServerStatus;

pub(crate) use known::add_saved_tools;
pub use server_connector::saved_tools;

use crate::plugins::installed::InstalledPlugins;
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

/// Connects to the MCP servers of the policy, always under the current policy.
pub(crate) fn policy_connector(
    installed: &Arc<InstalledPlugins>,
    folders: &ServerFolders,
) -> Arc<dyn ServerConnector> {
    Arc::new(PolicyServerConnector { installed: Arc::clone(installed), folders: folders.clone() })
}

/// A bridge to MCP servers that has none yet.
pub(crate) fn new_bridge(installed: &Arc<InstalledPlugins>, folders: &ServerFolders) -> Bridge {
    let reducer = |name: &str| crate::reducers::native("x", name).ok().map(|entry| entry.reducer);
    let connector = policy_connector(installed, folders);
    Bridge::new(Arc::clone(&installed.registry), connector).with_reducers(Arc::new(reducer))
}

/// The connections to the MCP servers, which follow the policy.
#[derive(Debug)]
pub(crate) struct Servers {
    bridge: Arc<Bridge>,
    follow: AbortOnDropHandle<()>,
}

impl Servers {
    /// Connects to the servers of the policy, and follows it.
    pub(crate) fn start(installed: &Arc<InstalledPlugins>, folders: &ServerFolders) -> Self {
        let bridge = Arc::new(new_bridge(installed, folders));
        bridge.apply(&installed.services().policy);
        let reloaded = Arc::new(Notify::new());
        let (newest, changed) = (Arc::clone(installed), Arc::clone(&reloaded));
        installed.registry.events().listen(move |event| {
            if matches!(event, HostEvent::PolicyReloaded { .. }) {
                reloaded.notify_one();
            }
        });
        // Follows the policy until these `Servers` end.
        let newest = move || Arc::clone(&newest.services().policy);
        let follow = Bridge::follow_policy(Arc::downgrade(&bridge), changed, newest);
        Self { bridge, follow: AbortOnDropHandle::new(tokio::spawn(follow)) }
    }

    /// The states of the servers.
    pub(crate) fn status(&self) -> Vec<ServerStatus> {
        self.bridge.status()
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
