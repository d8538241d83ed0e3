//! A host with everything that its policy names: plugins, OpenAPI services and MCP servers.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use tokio_util::task::AbortOnDropHandle;

use super::{Host, HostBuilder};
use crate::error::HostError;
use crate::host::watch::{WatchHandle, WatchOptions};
use crate::mcp_servers::Servers;
use crate::openapi_info::OpenApiInfo;
use crate::plugins::report::LoadReport;

/// A [`Host`] with everything that its policy names. Dropping it stops the MCP servers and the watch.
///
/// ```no_run
/// use toolbay::{Filter, Host, Policy, WatchOptions};
///
/// # async fn example(policy: Policy) -> Result<(), Box<dyn std::error::Error>> {
/// let mut host = Host::builder(policy).state_dir("/var/lib/agent").start("plugins".as_ref()).await?;
/// host.watch(WatchOptions::default()).await;
/// println!("{} tools", host.view(Filter::default()).definitions().count());
/// host.close().await;
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping the host stops its MCP servers and its watch"]
#[derive(Debug)]
pub struct RunningHost {
    host: Host,
    plugins: Option<PathBuf>,
    report: LoadReport,
    watch: Option<WatchHandle>,
    pub(super) servers: Servers,
    /// The first load of the documents. It ends when every document is loaded or has failed.
    _documents: AbortOnDropHandle<()>,
}

impl Deref for RunningHost {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl HostBuilder {
    /// Builds the host, loads the plugins of a directory and the OpenAPI services of the policy, and connects to its MCP
    /// servers. Waits until each service and each server is ready or has failed, for at most
    /// [`HostBuilder::source_wait`] after the plugins are loaded. Sources that are ready later are registered then; a
    /// server that fails is connected again later.
    ///
    /// If `main` calls [`run_worker`](crate::run_worker), plugins are compiled in separate processes, and programs and
    /// MCP servers end with this process even if it is killed. Needs a tokio runtime with timers and I/O.
    ///
    /// # Errors
    /// As [`HostBuilder::build`], or the directory cannot be read. A problem with one plugin, service or server does
    /// not affect the others: see [`RunningHost::report`], [`RunningHost::services`] and [`RunningHost::servers`].
    pub async fn start(self, plugins: &Path) -> Result<RunningHost, HostError> {
        self.start_with(Some(plugins)).await
    }

    /// Does the same as [`HostBuilder::start`], without a directory of plugins.
    ///
    /// # Errors
    /// As [`HostBuilder::build`].
    pub async fn start_without_plugins(self) -> Result<RunningHost, HostError> {
        self.start_with(None).await
    }

    async fn start_with(self, plugins: Option<&Path>) -> Result<RunningHost, HostError> {
        let wait = self.source_wait;
        let host = self.with_workers().build()?;
        // MCP servers must not write files that are still to be loaded.
        match plugins {
            Some(plugins) => host.protect_sources(plugins),
            None => host.protect_documents(),
        }
        let servers = Servers::start(&host.installed, &host.server_folders);
        let loading = host.clone();
        // The `RunningHost` owns the task, which ends when every document is loaded or has failed.
        let load = async move { loading.openapi.load_all(&loading.installed).await };
        let mut documents = AbortOnDropHandle::new(tokio::spawn(load));
        let report = match plugins {
            Some(plugins) => host.load_dir(plugins).await?,
            None => LoadReport::default(),
        };
        let sources = async { tokio::join!(&mut documents, servers.wait_started()) };
        // A slow source delays only itself.
        drop(tokio::time::timeout(wait, sources).await);
        let plugins = plugins.map(Path::to_path_buf);
        Ok(RunningHost { host, plugins, report, watch: None, servers, _documents: documents })
    }
}

impl RunningHost {
    /// The report of the first load of the plugins.
    #[must_use]
    pub fn report(&self) -> &LoadReport {
        &self.report
    }

    /// The OpenAPI services, each with the state of its document.
    #[must_use]
    pub fn services(&self) -> Vec<OpenApiInfo> {
        self.host.openapi()
    }

    /// Follows the plugin directory, if there is one, the consents and [`WatchOptions::files`] as [`Host::watch`], as long
    /// as the host runs. A second call replaces the first one's options.
    pub async fn watch(&mut self, options: WatchOptions) {
        self.watch = Some(match &self.plugins {
            Some(plugins) => self.host.watch(plugins, options).await,
            None => self.host.watch_loaded(options),
        });
    }

    /// Reads all watched files again, even if they look unchanged. Does nothing without a watch.
    pub fn reload(&self) {
        if let Some(watch) = &self.watch {
            watch.reload();
        }
    }

    /// Ends the watch, gives the MCP servers time to exit, and completes the audit.
    pub async fn close(self) {
        drop(self.watch);
        self.servers.close().await;
        self.host.pipeline().audit().finish();
    }
}
