//! Connects to the MCP servers of the policy: starts programs in the sandbox, sends requests through the host's HTTP
//! client, and injects secrets at the last moment.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use toolbay_capabilities::process::server;
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::call::server_connector::{
    ConnectorError, ConnectorRequest, ConnectorResponse, CredentialsLock, OAuthRequest, ServerConnector,
    ServerProcess,
};
use toolbay_mcp::client::{self, MAX_SAVED_LIST_BYTES, SavedTools};
use toolbay_policy::Policy;
use toolbay_policy::mcp_server::{HttpServerConfig, MAX_SERVERS, McpServer, StdioServerConfig};
use toolbay_policy::name::PluginId;
use toolbay_sandbox::compile::cache::CacheLimits;
use toolbay_state::private;
use zeroize::Zeroizing;

use super::ServerFolders;
use crate::plugins::installed::InstalledPlugins;

/// Connects under the host's policy. Each start and each request uses the current services, so a policy reload applies
/// to the next one.
pub(super) struct PolicyServerConnector {
    pub(super) installed: Arc<InstalledPlugins>,
    pub(super) folders: ServerFolders,
}

/// The file of a server in a folder. A server name contains no path separator.
fn server_file(folder: &Path, name: &PluginId) -> PathBuf {
    folder.join(format!("{name}.{EXTENSION}"))
}

/// How the files of servers end.
const EXTENSION: &str = "json";
/// The limits of the tool lists: those of as many servers as a policy can have, at their largest. Lists of servers that no
/// policy names any more go first, because nothing writes them.
const LIST_LIMITS: CacheLimits =
    CacheLimits { bytes: (MAX_SERVERS * MAX_SAVED_LIST_BYTES) as u64, age: Duration::MAX };

/// The folder of the last known tool lists.
pub(super) fn tool_list_folder(state_dir: &Path) -> PathBuf {
    state_dir.join("mcp")
}

/// The tools that the servers of a policy had when a host with this state directory last listed them, by server. Blocks on
/// files, and starts no server.
#[must_use]
pub fn saved_tools(state_dir: &Path, policy: &Policy) -> BTreeMap<String, SavedTools> {
    let folder = tool_list_folder(state_dir);
    let read = |server: &Arc<McpServer>| {
        let bytes = private::read(&server_file(&folder, &server.name), MAX_SAVED_LIST_BYTES as u64);
        // A list that cannot be read is reported when a server starts.
        let saved = client::saved_tools(server, &bytes.ok().flatten()?)?;
        Some((server.name.to_string(), saved))
    };
    policy.mcp_servers().filter_map(read).collect()
}

/// How long a change of credentials waits for another one. A renewal holds the lock during its request, which takes up
/// to 20 s.
const LOCK_WAIT: Duration = Duration::from_secs(30);

/// Locks the credentials of a server. The lock is a file beside theirs, because that one is replaced.
fn lock_credentials(file: &Path) -> Result<CredentialsLock, String> {
    private::make_dir(file.parent().unwrap_or(Path::new("/")))?;
    private::lock(&file.with_extension("lock"), LOCK_WAIT).map(CredentialsLock::new)
}

/// Replaces the credentials of a server, or removes them. Synced, because the authorization server may no longer accept
/// the old refresh token.
fn write_credentials(file: &Path, bytes: Option<&[u8]>) -> Result<(), String> {
    let dir = file.parent().unwrap_or(Path::new("/"));
    let written = match bytes {
        Some(bytes) => {
            private::make_dir(dir)?;
            private::replace(file, bytes)
        }
        None => std::fs::remove_file(file).or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        }),
    };
    written.map_err(|error| format!("`{}`: {error}", file.display()))
}

/// Writes a tool list, and removes the oldest ones beyond the limits.
fn write_tool_list(file: &Path, bytes: &[u8], limits: CacheLimits) -> Result<(), String> {
    let dir = file.parent().unwrap_or(Path::new("/"));
    private::make_dir(dir)?;
    private::replace_unsynced(file, &[bytes]).map_err(|error| format!("`{}`: {error}", file.display()))?;
    limits.enforce_in(dir, EXTENSION);
    Ok(())
}

impl std::fmt::Debug for PolicyServerConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PolicyServerConnector").finish_non_exhaustive()
    }
}

impl ServerConnector for PolicyServerConnector {
    fn start<'a>(
        &'a self,
        name: &'a PluginId,
        child: &'a StdioServerConfig,
    ) -> BoxFuture<'a, Result<ServerProcess, ConnectorError>> {
        Box::pin(async move { server::start_server(&self.installed.services(), name, child).await })
    }

    fn send<'a>(
        &'a self,
        name: &'a PluginId,
        endpoint: &'a HttpServerConfig,
        request: ConnectorRequest,
    ) -> BoxFuture<'a, Result<ConnectorResponse, ConnectorError>> {
        Box::pin(async move {
            let services = self.installed.services();
            services.http.send_to_mcp_server(name, endpoint, request, &services.secrets).await
        })
    }

    fn send_oauth<'a>(
        &'a self,
        name: &'a PluginId,
        endpoint: &'a HttpServerConfig,
        request: OAuthRequest,
    ) -> BoxFuture<'a, Result<ConnectorResponse, ConnectorError>> {
        Box::pin(async move {
            let services = self.installed.services();
            services.http.send_oauth(name, endpoint, request, &services.secrets).await
        })
    }

    fn load_credentials<'a>(
        &'a self,
        name: &'a PluginId,
        max: usize,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, String>> {
        Box::pin(async move {
            let Some(folder) = &self.folders.credentials else { return Ok(None) };
            let file = server_file(folder, name);
            let read = tokio::task::spawn_blocking(move || private::read(&file, max as u64)).await;
            read.map_err(|error| error.to_string())?
        })
    }

    fn save_credentials<'a>(
        &'a self,
        name: &'a PluginId,
        bytes: Option<Vec<u8>>,
    ) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(async move {
            let Some(folder) = &self.folders.credentials else { return Ok(false) };
            let file = server_file(folder, name);
            let bytes = bytes.map(Zeroizing::new);
            let write = move || write_credentials(&file, bytes.as_deref().map(Vec::as_slice));
            tokio::task::spawn_blocking(write).await.map_err(|error| error.to_string())?.map(|()| true)
        })
    }

    fn lock_credentials<'a>(&'a self, name: &'a PluginId) -> BoxFuture<'a, Result<CredentialsLock, String>> {
        Box::pin(async move {
            let Some(folder) = &self.folders.credentials else { return Ok(CredentialsLock::none()) };
            let file = server_file(folder, name);
            let lock = tokio::task::spawn_blocking(move || lock_credentials(&file)).await;
            lock.map_err(|error| error.to_string())?
        })
    }

    fn secrets_fingerprint(&self, child: &StdioServerConfig) -> u64 {
        // Keyed, so that the hash reveals nothing about a secret.
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let services = self.installed.services();
        let values = child.env_secrets.values().map(|name| services.secrets.value(name));
        KEY.hash_one(values.collect::<Vec<_>>())
    }

    fn load_tool_list<'a>(&'a self, name: &'a PluginId, max: usize) -> BoxFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let file = server_file(self.folders.tool_lists.as_ref()?, name);
            let read = tokio::task::spawn_blocking(move || private::read(&file, max as u64)).await;
            read.ok()?.unwrap_or_else(|problem| {
                tracing::warn!(server = %name, "the saved tool list is not used: {problem}");
                None
            })
        })
    }

    fn save_tool_list<'a>(&'a self, name: &'a PluginId, bytes: Vec<u8>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(folder) = &self.folders.tool_lists else { return };
            let file = server_file(folder, name);
            let written =
                tokio::task::spawn_blocking(move || write_tool_list(&file, &bytes, LIST_LIMITS)).await;
            if let Ok(Err(problem)) = written {
                tracing::warn!(server = %name, "the tool list was not saved: {problem}");
            }
        })
    }

    fn is_protected_path(&self, path: &Path, writing: bool) -> bool {
        self.installed.services().process.protected.overlaps_name(path, writing)
    }

    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.installed.services().redactor.redact_text(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_tool_lists_beyond_the_limit_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = tool_list_folder(dir.path());
        let file = |name: &str| server_file(&folder, &PluginId::new(name).unwrap());
        let limits = CacheLimits { bytes: 250, ..LIST_LIMITS };
        for (name, days) in [("a", 2), ("b", 1), ("c", 0)] {
            write_tool_list(&file(name), &[b' '; 100], limits).unwrap();
            let time = std::time::SystemTime::now() - Duration::from_secs(days * 24 * 3600);
            std::fs::File::open(file(name)).unwrap().set_modified(time).unwrap();
        }
        assert_eq!(["a", "b", "c"].map(|name| file(name).exists()), [false, true, true]);
    }

    #[test]
    fn the_credentials_of_a_server_have_one_lock_for_all_processes() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join("credentials").join(name);
        let held = lock_credentials(&file("a.json")).unwrap();
        let other = || private::lock(&file("a.lock"), Duration::ZERO);
        assert!(other().unwrap_err().contains("another process has held it"));
        // Its holder changes the file, and other servers are not concerned.
        write_credentials(&file("a.json"), Some(b"{}")).unwrap();
        drop(lock_credentials(&file("b.json")).unwrap());
        drop(held);
        drop(other().unwrap());
    }
}
