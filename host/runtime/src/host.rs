//! The facade for embedders: a host with plugins, and calls to their tools.

mod builder;

pub use self::builder::HostBuilder;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolbay_core::audit::call_log::CallLog;
use toolbay_core::call::{ToolCall, TurnContext};
use toolbay_core::pipeline::{CallResult, Gates, Pipeline};
use toolbay_core::registry::event::Events;
use toolbay_core::registry::view::{Filter, View};
use toolbay_core::registry::{Bundle, Collision, Registered, Registry};
use toolbay_core::tool::ToolSource;
use toolbay_core::tool::offer::Document;
use toolbay_policy::capability::Capability;
use toolbay_policy::capability::floor::Keep;
use toolbay_policy::name::{PluginId, ToolName};
use toolbay_policy::{Policy, Profile};

use crate::capability::process::cage::Confinement;
use crate::error::{HostError, LoadError};
use crate::explain::{self, Explanation};
use crate::openapi::Sources;
use crate::outside::Outward;
use crate::plugins::compiler::off_the_async_threads;
use crate::plugins::descriptor::About;
use crate::plugins::directory::Look;
use crate::plugins::installed::{InstalledPlugins, ReplanReason};
use crate::plugins::loader::check_listing;
use crate::plugins::plugin::Plugin;
use crate::plugins::report::{LoadProblem, LoadReport, LoadWarning};
use crate::plugins::resident::LoadedCode;

/// A plugin host. Cheap to clone; all clones are one host.
#[derive(Clone)]
pub struct Host {
    pub(crate) installed: Arc<InstalledPlugins>,
    pipeline: Pipeline,
    /// Held during a pass over all directories.
    pub(crate) passes: Arc<tokio::sync::Mutex<()>>,
    /// Held during a scan: a pass, and all reading and compiling that it asks for.
    pub(crate) scanning: Arc<tokio::sync::Mutex<()>>,
    /// The file in which consents are kept, where that is the host's own.
    pub(crate) consents_file: Option<PathBuf>,
    /// The services that documents describe.
    pub(crate) openapi: Arc<Sources>,
    /// Where it is kept what other MCP servers listed last.
    lists: Option<PathBuf>,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("plugins", &self.plugins().len()).finish_non_exhaustive()
    }
}

/// What is known of a loaded plugin.
#[derive(Debug, Clone)]
pub struct PluginInfo {
    /// Its id.
    pub id: PluginId,
    /// SHA-256 of its bytes, in hex.
    pub digest: Arc<str>,
    /// Its size in bytes.
    pub bytes: u64,
    /// The file it came from.
    pub file: Option<PathBuf>,
    /// What it says of its origin.
    pub about: Option<About>,
    /// The interfaces with functions that it imports: an upper bound of what it can ask for.
    pub imports: Vec<String>,
    /// The tools whose results it wants to reduce, as it declared them.
    pub reducers: Vec<String>,
    /// Every capability its tools declare, without repetition.
    pub capabilities: Vec<Capability>,
    /// The prompts, resources and icons that it ships.
    pub offers: Option<Document>,
    /// Whether its metadata came from the cache, so that nothing was compiled.
    pub from_cache: bool,
}

impl Host {
    /// Starts a host under a policy.
    #[must_use]
    pub fn builder(policy: Policy) -> HostBuilder {
        HostBuilder::new(policy)
    }

    /// Loads every `.wasm` file of a directory, in the order of their names. A bad file is reported and stops none
    /// of the others. A directory that was loaded before is brought up to date, as by [`Host::rescan`], but files that
    /// look unchanged are not read.
    ///
    /// # Errors
    /// Only when the directory itself cannot be read.
    pub async fn load_dir(&self, dir: &Path) -> Result<LoadReport, HostError> {
        // Looked at first: a directory that cannot be read is none of this host's.
        let path = dir.to_path_buf();
        let listing = tokio::task::spawn_blocking(move || check_listing(&path)).await;
        listing.unwrap_or_else(|e| {
            Err(HostError::Directory { path: dir.to_path_buf(), error: std::io::Error::other(e) })
        })?;
        // Whoever writes there is a plugin the next time.
        self.installed.shared.folders.keep(dir, Keep::FromWriters);
        self.add_directory(dir).await;
        self.installed.readmit();
        let (report, _) = self.scan(Look::Changed, ReplanReason::Agreed).await;
        let here = |file: &Path| file.parent() == Some(dir);
        let snapshot = self.installed.snapshot();
        let from = |id: &PluginId| snapshot.plugins.get(id).and_then(|one| one.plugin.file.as_deref());
        Ok(LoadReport {
            loaded: report.loaded.into_iter().filter(|id| from(id).is_some_and(here)).collect(),
            problems: report.problems.into_iter().filter(|problem| here(&problem.file)).collect(),
            ..report
        })
    }

    pub(crate) async fn add_directory(&self, dir: &Path) {
        let (installed, dir) = (Arc::clone(&self.installed), dir.to_path_buf());
        // Off the async threads: it waits for a pass that reads folders.
        tokio::task::spawn_blocking(move || installed.add_directory(&dir)).await.ok();
    }

    /// Loads one file under an id, in place of what that id had before. It comes before what a directory offers under
    /// that id.
    ///
    /// # Errors
    /// Why it was not loaded; what the id had before then stays.
    pub async fn load_file(&self, id: PluginId, file: &Path) -> Result<Vec<LoadWarning>, LoadError> {
        self.installed.shared.folders.keep(file, Keep::FromWriters);
        let plugin = self.installed.loader().prepare(id, file).await?;
        self.put(Some(file.into()), plugin).await
    }

    /// Loads a component from memory under an id, in place of what that id had before. It comes before what a
    /// directory offers under that id.
    ///
    /// # Errors
    /// Why it was not loaded; what the id had before then stays.
    pub async fn load_bytes(&self, id: PluginId, bytes: Vec<u8>) -> Result<Vec<LoadWarning>, LoadError> {
        let plugin = self.installed.loader().prepare_bytes(id, bytes).await?;
        self.put(None, plugin).await
    }

    async fn put(&self, file: Option<Arc<Path>>, plugin: Arc<Plugin>) -> Result<Vec<LoadWarning>, LoadError> {
        let installed = Arc::clone(&self.installed);
        off_the_async_threads(move || installed.put(file, &plugin)).await
    }

    /// Takes a plugin out; returns whether it was there. Its calls in flight end as usual. One that a directory offers
    /// stays out until its file holds something else, or the directory is read anew.
    pub fn unload(&self, id: &PluginId) -> bool {
        self.installed.take_out(id)
    }

    /// The plugins that are loaded, in the order of their ids.
    #[must_use]
    pub fn plugins(&self) -> Vec<PluginInfo> {
        self.installed.snapshot().plugins.values().map(|active| info(&active.plugin)).collect()
    }

    /// What is known of one plugin.
    #[must_use]
    pub fn plugin(&self, id: &str) -> Option<PluginInfo> {
        self.installed.snapshot().plugins.get(id).map(|active| info(&active.plugin))
    }

    /// The files that are not loaded, or not in place of what runs under their id, as of now.
    #[must_use]
    pub fn problems(&self) -> Vec<LoadProblem> {
        self.installed.snapshot().problems.clone()
    }

    /// All that decides what a tool of a plugin or of a service may do, under a profile or without one; `None` if there is
    /// no such tool or it is native code, which nothing bounds.
    #[must_use]
    pub fn explain(&self, tool: &str, profile: Option<&Arc<Profile>>) -> Option<Explanation> {
        let (view, snapshot) = (self.view(Filter::of_profile(profile.cloned())), self.installed.snapshot());
        let entry = view.catalog().get(tool)?;
        if let ToolSource::OpenApi { document } = &*entry.def.source {
            let info = self.openapi().into_iter().find(|info| *info.name == **document)?;
            let profile = profile.map(|profile| &**profile.name());
            return explain::explain_service(&self.policy(), &info, entry, profile, view.why_not(entry));
        }
        let plugin = &snapshot.plugins.get(entry.def.source.plugin()?)?.plugin;
        let name = ToolName::new(entry.def.bare()).ok()?;
        let profile = profile.map(|profile| &**profile.name());
        explain::explain(&self.policy(), plugin, entry, &name, profile, view.why_not(entry))
    }

    /// What the kernel holds the [compile worker](HostBuilder::compile_worker) with, as one word: `landlock+seccomp`,
    /// `seccomp`, `landlock` or `no sandbox`. Starts one to hear it. `None`: the host was given none.
    ///
    /// # Errors
    /// When the worker does not start, or says nothing.
    pub async fn compile_worker_sandbox(&self) -> Option<Result<&'static str, LoadError>> {
        let held = self.installed.shared.compiler.confinement().await?;
        Some(held.map(Confinement::shown))
    }

    /// Puts native tools in: [`native_tool`](crate::native_tool) makes them.
    ///
    /// # Errors
    /// A name that something else has. All of them are put in, or none.
    pub fn register(&self, tools: impl Into<Bundle>) -> Result<Registered, Collision> {
        self.registry().register(tools)
    }

    /// Takes one tool out; returns whether it was there. Calls in flight end as usual.
    pub fn unregister(&self, name: &str) -> bool {
        self.registry().unregister(name)
    }

    /// What listens to changes, and to what of calls is worth knowing at once.
    #[must_use]
    pub fn events(&self) -> &Events {
        self.registry().events()
    }

    /// A view on the tools as they are now.
    #[must_use]
    pub fn view(&self, filter: impl Into<Arc<Filter>>) -> View {
        View::new(self.installed.registry.current(), filter)
    }

    /// Runs calls in parallel; one result for each, in their order. See [`Pipeline::call_all`].
    pub async fn call_all(&self, view: &View, calls: Vec<ToolCall>, turn: TurnContext) -> Vec<CallResult> {
        self.pipeline.call_all(view, calls, turn).await
    }

    /// The last calls, with filters and statistics. The audit is for keeps; this is in memory.
    #[must_use]
    pub fn calls(&self) -> &CallLog {
        self.pipeline.log()
    }

    /// The registry, for adapters.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.installed.registry
    }

    /// The world, for what reaches other MCP servers of the policy: under the policy as it is at the time.
    #[must_use]
    pub fn outside(&self) -> Arc<dyn toolbay_core::call::outside::Outside> {
        Arc::new(Outward { installed: Arc::clone(&self.installed), kept: self.lists.clone() })
    }

    /// The pipeline, for adapters.
    #[must_use]
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// The policy as it is now.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.installed.services().policy)
    }

    /// Gets what is at an address that the operator wrote, at most `most` bytes: one request, no redirects. No grant is
    /// asked, so never give it an address that a model or a plugin wrote. An address that stands in it may be any; a name
    /// leads to public addresses, and to those of `[serve.oauth] net_private`.
    ///
    /// # Errors
    /// Why there is nothing.
    pub async fn fetch(&self, url: &str, most: u64) -> Result<Vec<u8>, String> {
        let services = self.installed.services();
        let private = services.policy.serve().oauth.as_ref().map(|oauth| oauth.net_private.as_slice());
        services.http.get(url, most, private.unwrap_or_default()).await
    }

    /// How much code of plugins is in memory now, and how often some was dropped: what was not called for longest goes when
    /// there is more than `code_bytes` under `[host]`, and is mapped again from the cache when it is called. Code that could
    /// not come back stays: without a cache, of a component that was given as bytes.
    #[must_use]
    pub fn loaded_code(&self) -> LoadedCode {
        self.installed.shared.resident.loaded()
    }

    /// How many instances wait for another call of the session that used them, of plugins with `reuse` in the policy.
    #[must_use]
    pub fn idle_instances(&self) -> usize {
        self.installed.shared.warm.count()
    }

    /// Places for guests that are free now; all of them when nothing runs.
    #[must_use]
    pub fn free_places(&self) -> usize {
        self.installed.shared.admission.free()
    }
}

/// What a policy says of calls, beside what it grants.
pub(crate) fn gates(policy: &Policy) -> Gates {
    Gates {
        permissions: policy.permissions().clone(),
        session: policy.session().clone(),
        delivery: policy.results(),
        audit: policy.audit().clone(),
    }
}

fn info(plugin: &Plugin) -> PluginInfo {
    let mut capabilities: Vec<Capability> = Vec::new();
    for wish in plugin.descriptor.tools.iter().flat_map(|tool| &tool.capabilities) {
        if !capabilities.contains(wish) {
            capabilities.push(wish.clone());
        }
    }
    PluginInfo {
        id: plugin.id.clone(),
        digest: Arc::clone(plugin.digest.text()),
        bytes: plugin.bytes,
        file: plugin.file.as_deref().map(Path::to_path_buf),
        about: plugin.descriptor.about.clone(),
        imports: plugin.descriptor.imports.clone(),
        reducers: plugin.descriptor.reducers.iter().map(|r| r.tool_name.clone()).collect(),
        capabilities,
        offers: plugin.descriptor.offers.clone(),
        from_cache: plugin.from_cache,
    }
}
