//! The facade for embedders: a host with plugins, and calls to their tools.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use toolbay_core::audit::{AuditSink, LogAudit};
use toolbay_core::call::{ToolCall, TurnContext};
use toolbay_core::capability::Capability;
use toolbay_core::name::PluginId;
use toolbay_core::pipeline::{Delivered, Pipeline};
use toolbay_core::policy::Policy;
use toolbay_core::registry::Registry;
use toolbay_core::view::{Filter, View};

use crate::admission::Admission;
use crate::cache::Cache;
use crate::capability::files::{Folders, ReadLog};
use crate::code;
use crate::descriptor::About;
use crate::engine::Engine;
use crate::error::{HostError, LoadError};
use crate::loader::{self, LoadListener, Loader};
use crate::plugin::{Plugin, Shared};

/// A plugin host. Cheap to clone; all clones are one host.
#[derive(Clone)]
pub struct Host {
    loader: Loader,
    registry: Arc<Registry>,
    pipeline: Pipeline,
    plugins: Arc<Mutex<std::collections::BTreeMap<PluginId, Arc<Plugin>>>>,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("plugins", &self.plugins().len()).finish_non_exhaustive()
    }
}

/// Settings of a [`Host`] before it is made.
pub struct HostBuilder {
    policy: Policy,
    cache: Option<PathBuf>,
    audit: Arc<dyn AuditSink>,
    listener: Option<LoadListener>,
}

impl std::fmt::Debug for HostBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostBuilder")
            .field("policy", &self.policy)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

/// What loading a directory came to.
#[derive(Debug, Default)]
pub struct LoadReport {
    /// The plugins that were loaded, in the order of their files.
    pub loaded: Vec<PluginId>,
    /// The files that were not, each with the reason.
    pub problems: Vec<LoadProblem>,
    /// What does not stop a plugin but should be known.
    pub warnings: Vec<LoadWarning>,
}

/// A file that is not a plugin of this host.
#[derive(Debug)]
pub struct LoadProblem {
    /// The file.
    pub file: PathBuf,
    /// Why it was not loaded.
    pub error: LoadError,
}

/// Something about a loaded plugin that its operator should know.
#[derive(Debug)]
pub struct LoadWarning {
    /// The plugin.
    pub plugin: PluginId,
    /// What.
    pub message: String,
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
    /// Whether its metadata came from the cache, so that nothing was compiled.
    pub from_cache: bool,
}

impl HostBuilder {
    /// Keeps compiled code in this folder, which is made if it is not there. Without it every start compiles.
    #[must_use]
    pub fn cache_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cache = Some(dir.into());
        self
    }

    /// Sends audit records there instead of to the log.
    #[must_use]
    pub fn audit(mut self, sink: Arc<dyn AuditSink>) -> Self {
        self.audit = sink;
        self
    }

    /// Tells `listener` what happens while plugins are loaded.
    #[must_use]
    pub fn on_load(mut self, listener: LoadListener) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Makes the host.
    ///
    /// # Errors
    /// When wasmtime gives no engine. A cache folder that can not be trusted is only warned of: the host then works
    /// without a cache.
    pub fn build(self) -> Result<Host, HostError> {
        let engine = Engine::new(self.policy.host())?;
        let linker = code::linker(&engine).map_err(|e| HostError::Engine(e.to_string()))?;
        let cache = self.cache.and_then(|dir| {
            Cache::open(&dir, &engine)
                .inspect_err(|problem| tracing::warn!("no compile cache: {problem}"))
                .ok()
        });
        let shared = Shared {
            engine,
            linker,
            cache,
            admission: Admission::new(self.policy.host().clone()),
            folders: Folders::default(),
            reads: Arc::new(ReadLog::default()),
        };
        let loader =
            Loader { shared: Arc::new(shared), policy: Arc::new(self.policy), listener: self.listener };
        Ok(Host {
            loader,
            registry: Arc::default(),
            pipeline: Pipeline::new(self.audit),
            plugins: Arc::default(),
        })
    }
}

impl Host {
    /// Starts a host under a policy.
    #[must_use]
    pub fn builder(policy: Policy) -> HostBuilder {
        HostBuilder { policy, cache: None, audit: Arc::new(LogAudit), listener: None }
    }

    /// Loads every `.wasm` file of a directory, in the order of their names. A bad file is reported and stops none
    /// of the others.
    ///
    /// # Errors
    /// Only when the directory itself can not be read.
    pub async fn load_dir(&self, dir: &Path) -> Result<LoadReport, HostError> {
        let candidates = loader::candidates(dir, &self.loader.policy)?;
        let mut report = LoadReport::default();
        for (file, plugin) in self.loader.prepare_all(candidates).await {
            match plugin.and_then(|plugin| self.install(plugin)) {
                Ok((id, warnings)) => {
                    report.warnings.extend(warnings);
                    report.loaded.push(id);
                }
                Err(error) => report.problems.push(LoadProblem { file, error }),
            }
        }
        Ok(report)
    }

    /// Loads one file under an id, in place of what that id had before.
    ///
    /// # Errors
    /// Why it was not loaded; what the id had before then stays.
    pub async fn load_file(&self, id: PluginId, file: &Path) -> Result<Vec<LoadWarning>, LoadError> {
        let candidate = loader::Candidate { file: file.to_path_buf(), id: Ok(id) };
        let prepared = self.loader.prepare_all(vec![candidate]).await;
        let Some((_, plugin)) = prepared.into_iter().next() else { return Ok(Vec::new()) };
        self.install(plugin?).map(|(_, warnings)| warnings)
    }

    /// Loads a component from memory under an id, in place of what that id had before.
    ///
    /// # Errors
    /// Why it was not loaded; what the id had before then stays.
    pub async fn load_bytes(&self, id: PluginId, bytes: Vec<u8>) -> Result<Vec<LoadWarning>, LoadError> {
        let plugin = self.loader.prepare_bytes(id, bytes).await?;
        self.install(plugin).map(|(_, warnings)| warnings)
    }

    fn install(&self, plugin: Arc<Plugin>) -> Result<(PluginId, Vec<LoadWarning>), LoadError> {
        let id = plugin.id.clone();
        let mut warnings = Vec::new();
        let warn = |message| warnings.push(LoadWarning { plugin: id.clone(), message });
        let bundle = self.loader.bundle(&plugin, warn)?;
        let mut plugins = self.plugins.lock().unwrap_or_else(PoisonError::into_inner);
        self.registry.install(&id, bundle)?;
        plugins.insert(id.clone(), plugin);
        drop(plugins);
        Ok((id, warnings))
    }

    /// Takes a plugin out; returns whether it was there. Its calls in flight end as usual.
    pub fn unload(&self, id: &PluginId) -> bool {
        let mut plugins = self.plugins.lock().unwrap_or_else(PoisonError::into_inner);
        self.registry.remove(id);
        plugins.remove(id).is_some()
    }

    /// The plugins that are loaded, in the order of their ids.
    #[must_use]
    pub fn plugins(&self) -> Vec<PluginInfo> {
        let plugins = self.plugins.lock().unwrap_or_else(PoisonError::into_inner);
        plugins.values().map(|plugin| info(plugin)).collect()
    }

    /// What is known of one plugin.
    #[must_use]
    pub fn plugin(&self, id: &str) -> Option<PluginInfo> {
        let plugins = self.plugins.lock().unwrap_or_else(PoisonError::into_inner);
        plugins.get(id).map(|plugin| info(plugin))
    }

    /// A view on the tools as they are now.
    #[must_use]
    pub fn view(&self, filter: impl Into<Arc<Filter>>) -> View {
        View::new(self.registry.snapshot(), filter)
    }

    /// Runs calls in parallel; one result for each, in their order. See [`Pipeline::call_all`].
    pub async fn call_all(&self, view: &View, calls: Vec<ToolCall>, turn: TurnContext) -> Vec<Delivered> {
        self.pipeline.call_all(view, calls, turn).await
    }

    /// The registry, for adapters.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The pipeline, for adapters.
    #[must_use]
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.loader.policy
    }

    /// Places for guests that are free now; all of them when nothing runs.
    #[must_use]
    pub fn free_places(&self) -> usize {
        self.loader.shared.admission.free()
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
        file: plugin.file.clone(),
        about: plugin.descriptor.about.clone(),
        imports: plugin.descriptor.imports.clone(),
        reducers: plugin.descriptor.reducers.iter().map(|r| r.tool_name.clone()).collect(),
        capabilities,
        from_cache: plugin.from_cache,
    }
}
