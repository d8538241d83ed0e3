//! The world as other MCP servers of the policy are reached through it: programs in the sandbox, requests through the
//! one client of the host, values of secrets put in at the last moment.

use std::borrow::Cow;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::call::outside::{Outside, OutsideError, Request, Response, Started};
use toolbay_policy::mcp_server::{Child, Endpoint};
use toolbay_policy::name::PluginId;

use crate::capability::process::server;
use crate::plugins::installed::InstalledPlugins;
use crate::storage::private;

/// What a host lets a client of other servers do. Looks the policy's services up anew each time: when the policy is read
/// again, the next start and the next request are under the new one.
pub(crate) struct Outward {
    pub(crate) installed: Arc<InstalledPlugins>,
    /// Where it is kept what servers listed last.
    pub(crate) kept: Option<PathBuf>,
}

impl Outward {
    /// The file of a server, whose name is no path.
    fn file(&self, name: &PluginId) -> Option<PathBuf> {
        Some(self.kept.as_ref()?.join(format!("{name}.json")))
    }
}

/// Keeps a file in a folder of the host's own.
fn keep(file: &Path, bytes: &[u8]) -> Result<(), String> {
    let dir = file.parent().unwrap_or(Path::new("/"));
    private::make_dir(dir)?;
    private::put(file, &[bytes]).map_err(|error| format!("`{}`: {error}", file.display()))
}

impl std::fmt::Debug for Outward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outward").finish_non_exhaustive()
    }
}

impl Outside for Outward {
    fn start<'a>(
        &'a self,
        name: &'a PluginId,
        child: &'a Child,
    ) -> BoxFuture<'a, Result<Started, OutsideError>> {
        Box::pin(async move { server::serve(&self.installed.services(), name, child).await })
    }

    fn send<'a>(
        &'a self,
        name: &'a PluginId,
        endpoint: &'a Endpoint,
        request: Request,
    ) -> BoxFuture<'a, Result<Response, OutsideError>> {
        Box::pin(async move {
            let services = self.installed.services();
            services.http.send_outward(name, endpoint, request, &services.secrets).await
        })
    }

    fn handed(&self, child: &Child) -> u64 {
        // Keyed, so that nothing of a value can be told from its mark.
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let services = self.installed.services();
        let values = child.env_secrets.values().map(|name| services.secrets.value(name));
        KEY.hash_one(values.collect::<Vec<_>>())
    }

    fn recall<'a>(&'a self, name: &'a PluginId, most: usize) -> BoxFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let file = self.file(name)?;
            let read = tokio::task::spawn_blocking(move || private::read(&file, most as u64)).await;
            read.ok()?.unwrap_or_else(|problem| {
                tracing::warn!(server = %name, "its last known tools are not used: {problem}");
                None
            })
        })
    }

    fn remember<'a>(&'a self, name: &'a PluginId, bytes: Vec<u8>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(file) = self.file(name) else { return };
            let kept = tokio::task::spawn_blocking(move || keep(&file, &bytes)).await;
            if let Ok(Err(problem)) = kept {
                tracing::warn!(server = %name, "its tools are not kept for the next start: {problem}");
            }
        })
    }

    fn redacted<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.installed.services().redactor.text(text)
    }
}
