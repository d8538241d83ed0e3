//! The facade for embedders: a host with plugins, and calls to their tools.

mod builder;
#[cfg(feature = "net")]
mod http;
#[cfg(not(feature = "net"))]
#[path = "host/no_http.rs"]
mod http;
pub(crate) mod known_names;
#[cfg(feature = "mcp")]
mod mcp_servers;
#[cfg(feature = "openapi")]
mod openapi;
pub(crate) mod probe;
mod reload;
pub(crate) mod running;
mod this_machine;
pub(crate) mod watch;
pub(crate) mod workers;

pub use self::builder::{HostBuilder, SOURCE_WAIT};
use self::probe::CallProbe;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolbay_core::audit::call_log::CallLog;
use toolbay_core::call::{ToolCall, TurnContext};
use toolbay_core::pipeline::{CallPolicy, CallResult, Pipeline};
use toolbay_core::registry::event::Events;
use toolbay_core::registry::view::{Filter, View};
use toolbay_core::registry::{Bundle, Collision, RegistrationResult, Registry};
use toolbay_core::tool::prompts_and_resources::PromptsAndResourcesDocument;
use toolbay_core::tool::{PluginOrigin, ToolSource};
use toolbay_distribution::lock::LockFile;
use toolbay_distribution::store::BlobStore;
use toolbay_policy::capability::Capability;
use toolbay_policy::capability::program::SandboxMode;
use toolbay_policy::capability::protected_paths::Protection;
use toolbay_policy::name::{PluginId, ToolName};
use toolbay_policy::{DocumentLocation, Policy, Profile};
use toolbay_sandbox::process_sandbox::{self, Confinement};

use crate::error::{HostError, LoadError};
use crate::explain::{self, Explanation};
use crate::mcp_servers::ServerFolders;
use crate::openapi::OpenApiServices;
use crate::openapi_info::OpenApiInfo;
use crate::plugins::descriptor::PluginAbout;
use crate::plugins::directory::{PluginLocation, ScanMode};
use crate::plugins::installed::{InstalledPlugins, ReplanReason};
use crate::plugins::loader::check_listing;
use crate::plugins::plugin::Plugin;
use crate::plugins::report::{LoadProblem, LoadReport, LoadWarning};
use crate::plugins::resident_code::LoadedCode;
use crate::plugins::run_blocking;
use crate::plugins::state::ActivePlugin;

/// A plugin host. Cheap to clone; all clones share one host.
///
/// ```
/// use std::path::Path;
/// use toolbay::{Filter, Host, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let greet = toolbay::native_tool("greet").description("Greets the user.");
/// # let greet = greet.run(async |_, _| Ok(toolbay::core::tool::content::ToolOutput::text("Hello!")))?;
/// let host = Host::builder(Policy::deny_all(Path::new("/srv/agent"))).build()?;
/// let clone = host.clone();
/// clone.register(greet)?;
/// assert!(host.view(Filter::default()).find("greet").is_ok());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Host {
    pub(crate) installed: Arc<InstalledPlugins>,
    pipeline: Pipeline,
    /// Held during a pass over all directories.
    pub(crate) passes: Arc<tokio::sync::Mutex<()>>,
    /// Held during a scan: a pass, and the reading and compiling that follow from it.
    pub(crate) scanning: Arc<tokio::sync::Mutex<()>>,
    /// The consents file, if the host manages consents itself.
    pub(crate) consents_file: Option<PathBuf>,
    /// The services with OpenAPI documents.
    pub(crate) openapi: Arc<OpenApiServices>,
    /// The folders for MCP servers.
    pub(crate) server_folders: ServerFolders,
    probe: Arc<CallProbe>,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("plugins", &self.plugins().len()).finish_non_exhaustive()
    }
}

/// Information about a loaded plugin.
#[derive(Debug, Clone)]
pub struct PluginInfo {
    /// The plugin's id.
    pub id: PluginId,
    /// SHA-256 of the component, in hex.
    pub digest: Arc<str>,
    /// The size of the component in bytes.
    pub bytes: u64,
    /// The file it was loaded from.
    pub file: Option<PathBuf>,
    /// The registry that it comes from; `None` for a file that no lock names.
    pub origin: Option<Arc<PluginOrigin>>,
    /// The plugin's own description of itself.
    pub about: Option<PluginAbout>,
    /// The imported interfaces that have functions: an upper bound of what the plugin can request.
    pub imports: Vec<String>,
    /// The exported functions of a plain component that are not tools, each with the reason.
    pub dropped_functions: Vec<String>,
    /// The tools whose results the plugin can reduce, as declared.
    pub reducers: Vec<String>,
    /// All capabilities that its tools declare, without duplicates.
    pub capabilities: Vec<Capability>,
    /// The prompts, resources and icons that the plugin ships.
    pub prompts_and_resources: Option<PromptsAndResourcesDocument>,
    /// Whether the metadata came from the cache, so that nothing was compiled.
    pub from_cache: bool,
    /// Why the plugin waits for consent and none of its tools can be called.
    pub held: Option<String>,
}

impl Host {
    /// Creates a builder for a host with this policy.
    #[must_use]
    pub fn builder(policy: Policy) -> HostBuilder {
        HostBuilder::new(policy)
    }

    /// Loads every `.wasm` file of a directory, in the order of their names. A bad file is reported and does not affect
    /// the others. A directory that was loaded before is updated as by [`Host::rescan`], except that files which look
    /// unchanged are not read.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let temporary = tempfile::tempdir()?;
    /// # let plugins = temporary.path();
    /// # std::fs::write(plugins.join("broken.wasm"), "not WebAssembly")?;
    /// # let policy = toolbay::Policy::deny_all("/srv/agent".as_ref());
    /// # let host = toolbay::Host::builder(policy).build()?;
    /// let report = host.load_dir(plugins).await?;
    /// for id in &report.loaded {
    ///     println!("loaded {id}");
    /// }
    /// for problem in &report.problems {
    ///     eprintln!("{}: {}", problem.file.display(), problem.error);
    /// }
    /// # assert_eq!((report.loaded.len(), report.problems.len()), (0, 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The directory cannot be read.
    pub async fn load_dir(&self, dir: &Path) -> Result<LoadReport, HostError> {
        // Checked first, so that an unreadable directory is not added to the host.
        let path = dir.to_path_buf();
        let listing = tokio::task::spawn_blocking(move || check_listing(&path)).await;
        listing.unwrap_or_else(|e| {
            Err(HostError::Directory { path: dir.to_path_buf(), error: std::io::Error::other(e) })
        })?;
        // A plugin that could write there could install plugins.
        self.installed.shared.folders.protect(dir, Protection::WriteOnly);
        self.add_location(PluginLocation::Folder(dir.to_path_buf())).await;
        Ok(self.scan_location(dir).await)
    }

    /// Loads the plugins of a lock from a store. A plugin whose component is missing or damaged is reported and does not
    /// affect the others. Nothing is downloaded. A lock that was loaded before is updated. The store remembers the lock, so
    /// that it keeps its components.
    ///
    /// # Errors
    /// The lock cannot be read, or is not understood.
    pub async fn load_lock(&self, lock: &Path, store: &BlobStore) -> Result<LoadReport, HostError> {
        let file = LockFile::new(lock);
        let (read, known) = (file.clone(), store.clone());
        let checked = tokio::task::spawn_blocking(move || {
            let plugins = read.read()?.unwrap_or_default();
            known.remember_lock(read.path(), &plugins);
            Ok(())
        });
        checked.await.map_err(|error| HostError::Engine(error.to_string()))?.map_err(HostError::Lock)?;
        let blobs = store.blob_folder();
        // A plugin that could write there could install plugins.
        for path in [lock, &blobs] {
            self.installed.shared.folders.protect(path, Protection::WriteOnly);
        }
        self.add_location(PluginLocation::Lock { file, store: store.clone() }).await;
        Ok(self.scan_location(&blobs).await)
    }

    /// Scans all locations. The report has the plugins of those in one folder.
    async fn scan_location(&self, folder: &Path) -> LoadReport {
        self.installed.restore_unloaded();
        let (report, _) = self.scan(ScanMode::Changed, ReplanReason::ConsentsChanged).await;
        let here = |file: &Path| file.parent() == Some(folder);
        let snapshot = self.installed.snapshot();
        let from = |id: &PluginId| snapshot.plugins.get(id).and_then(|one| one.plugin.file.as_deref());
        LoadReport {
            loaded: report.loaded.into_iter().filter(|id| from(id).is_some_and(here)).collect(),
            problems: report.problems.into_iter().filter(|problem| here(&problem.file)).collect(),
            ..report
        }
    }

    pub(crate) async fn add_location(&self, location: PluginLocation) {
        let installed = Arc::clone(&self.installed);
        // On a blocking thread: it waits for a pass that reads folders.
        tokio::task::spawn_blocking(move || installed.add_location(location)).await.ok();
    }

    /// Loads one file under an id and replaces the plugin that has the id. It takes precedence over the plugins of
    /// directories.
    ///
    /// # Errors
    /// The reason why the file was not loaded. The previous plugin stays.
    pub async fn load_file(&self, id: PluginId, file: &Path) -> Result<Vec<LoadWarning>, LoadError> {
        self.installed.shared.folders.protect(file, Protection::WriteOnly);
        let plugin = self.installed.loader().prepare(id, file).await?;
        self.put(Some(file.into()), plugin).await
    }

    /// Loads a component from memory under an id and replaces the plugin that has the id. It takes precedence over the
    /// plugins of directories.
    ///
    /// ```
    /// use toolbay::{Filter, PluginId};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let component = wat::parse_str(
    /// #     r#"(component
    /// #         (core module $m (func (export "one") (result i32) i32.const 1))
    /// #         (core instance $i (instantiate $m))
    /// #         (func (export "one") (result u32) (canon lift (core func $i "one"))))"#,
    /// # )?;
    /// # let policy = toolbay::Policy::deny_all("/srv/agent".as_ref());
    /// # let host = toolbay::Host::builder(policy).build()?;
    /// for warning in host.load_bytes(PluginId::new("numbers")?, component).await? {
    ///     eprintln!("{}", warning.message);
    /// }
    /// // The component exports the function `one`.
    /// assert!(host.view(Filter::default()).find("numbers__one").is_ok());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The reason why the component was not loaded. The previous plugin stays.
    pub async fn load_bytes(&self, id: PluginId, bytes: Vec<u8>) -> Result<Vec<LoadWarning>, LoadError> {
        let plugin = self.installed.loader().prepare_bytes(id, bytes).await?;
        self.put(None, plugin).await
    }

    async fn put(&self, file: Option<Arc<Path>>, plugin: Arc<Plugin>) -> Result<Vec<LoadWarning>, LoadError> {
        let installed = Arc::clone(&self.installed);
        run_blocking(move || installed.install(file.as_ref(), &plugin)).await
    }

    /// Unloads a plugin. Returns `false` if it was not loaded. Calls in flight end as usual. A plugin from a directory
    /// stays unloaded until its file changes or the directory is rescanned.
    pub fn unload(&self, id: &PluginId) -> bool {
        self.installed.unload(id)
    }

    /// The loaded plugins, in the order of their ids.
    #[must_use]
    pub fn plugins(&self) -> Vec<PluginInfo> {
        self.installed.snapshot().plugins.values().map(|active| info(active)).collect()
    }

    /// Information about one plugin.
    #[must_use]
    pub fn plugin(&self, id: &str) -> Option<PluginInfo> {
        self.installed.snapshot().plugins.get(id).map(|active| info(active))
    }

    /// The files that are not loaded now, or that could not replace the running version of their plugin.
    #[must_use]
    pub fn problems(&self) -> Vec<LoadProblem> {
        self.installed.snapshot().problems.clone()
    }

    /// Explains what a tool of a plugin or service may do, with or without a profile. Returns `None` if the tool does
    /// not exist or is native code, which has no limits.
    #[must_use]
    pub fn explain(&self, tool: &str, profile: Option<&Arc<Profile>>) -> Option<Explanation> {
        let (view, snapshot) = (self.view(Filter::for_profile(profile.cloned())), self.installed.snapshot());
        let entry = view.catalog().get(tool)?;
        if let ToolSource::OpenApi { document } = &*entry.def.source {
            let info = self.openapi().into_iter().find(|info| *info.name == **document)?;
            let profile = profile.map(|profile| &**profile.name());
            let denial = view.denial_reason(entry).map(|why| why.for_operator());
            return explain::explain_service_tool(&self.policy(), &info, entry, profile, denial);
        }
        let plugin = &snapshot.plugins.get(entry.def.source.plugin()?)?.plugin;
        let name = ToolName::new(entry.def.bare()).ok()?;
        let profile = profile.map(|profile| &**profile.name());
        let denial = view.denial_reason(entry).map(|why| why.for_operator());
        explain::explain_plugin_tool(&self.policy(), plugin, entry, &name, profile, denial)
    }

    /// The sandbox in which the kernel runs the [compile worker](HostBuilder::compile_worker): `landlock+seccomp`,
    /// `seccomp`, `landlock` or `no sandbox`. Starts a worker to find out. Returns `None` if the host has no worker.
    ///
    /// # Errors
    /// The worker does not start or does not answer.
    pub async fn compile_worker_sandbox(&self) -> Option<Result<&'static str, LoadError>> {
        let held = self.installed.shared.compiler.confinement().await?;
        Some(held.map(Confinement::as_str).map_err(LoadError::from))
    }

    /// What this system lacks for the sandbox of programs and of MCP servers on stdio, and the `sandbox` with which a policy lets
    /// them run all the same; or the error with which the sandbox fails. `None` if it lacks nothing. Starts a thread to find out.
    #[must_use]
    pub fn missing_program_sandbox() -> Option<String> {
        let confinement = match process_sandbox::available() {
            Ok(confinement) => confinement,
            Err(error) => return Some(format!("the sandbox of programs and servers fails: {error}")),
        };
        let (problem, mode) =
            (confinement.unmet_requirement(SandboxMode::Required)?, confinement.weaker_mode()?);
        Some(format!("{problem}: programs and servers run only with `sandbox = \"{}\"`", mode.name()))
    }

    /// The result of the last read of each section, in the order of their names.
    #[must_use]
    pub fn openapi(&self) -> Vec<OpenApiInfo> {
        self.openapi.infos()
    }

    /// Protects the plugin folder and the OpenAPI documents from all writers. Call it before they are loaded, so that
    /// programs started meanwhile cannot change them.
    pub fn protect_sources(&self, plugins: &Path) {
        self.installed.shared.folders.protect(plugins, Protection::WriteOnly);
        self.protect_documents();
    }

    /// Protects the OpenAPI documents from all writers.
    pub(crate) fn protect_documents(&self) {
        let folders = &self.installed.shared.folders;
        for section in self.policy().openapi_services() {
            if let DocumentLocation::File(path) = &section.document {
                folders.protect(path, Protection::WriteOnly);
            }
        }
    }

    /// Registers native tools. [`native_tool`](crate::native_tool) creates them.
    ///
    /// # Errors
    /// A name is already taken. Either all tools are registered or none.
    pub fn register(&self, tools: impl Into<Bundle>) -> Result<RegistrationResult, Collision> {
        self.registry().register(tools)
    }

    /// Unregisters one tool. Returns `false` if it was not registered. Calls in flight end as usual.
    pub fn unregister(&self, name: &str) -> bool {
        self.registry().unregister(name)
    }

    /// The events of the host: changes of plugins and tools, and events of calls that need attention.
    ///
    /// ```
    /// use toolbay::core::registry::event::HostEvent;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let greet = toolbay::native_tool("greet").description("Greets the user.");
    /// # let greet = greet.run(async |_, _| Ok(toolbay::core::tool::content::ToolOutput::text("Hello!")))?;
    /// # let policy = toolbay::Policy::deny_all("/srv/agent".as_ref());
    /// # let host = toolbay::Host::builder(policy).build()?;
    /// // A callback runs on the thread that emits the event. A stream is read later.
    /// host.events().listen(|event| println!("{event:?}"));
    /// let mut stream = host.events().stream();
    /// host.register(greet)?;
    /// assert!(matches!(stream.recv().await?, HostEvent::Registered { .. }));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn events(&self) -> &Events {
        self.registry().events()
    }

    /// A view of the current tools.
    ///
    /// ```
    /// use toolbay::Filter;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let greet = toolbay::native_tool("greet").description("Greets the user.");
    /// # let greet = greet.run(async |_, _| Ok(toolbay::core::tool::content::ToolOutput::text("Hello!")))?;
    /// # let policy = toolbay::Policy::deny_all("/srv/agent".as_ref());
    /// # let host = toolbay::Host::builder(policy).build()?;
    /// let view = host.view(Filter::default());
    /// host.register(greet)?;
    /// // A view does not change. The next view has the new tool.
    /// assert!(view.find("greet").is_err());
    /// assert!(host.view(Filter::default()).find("greet").is_ok());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn view(&self, filter: impl Into<Arc<Filter>>) -> View {
        self.installed.registry.refresh_availability();
        View::new(self.installed.registry.snapshot(), filter)
    }

    /// Runs calls in parallel. Returns one result per call, in their order. See [`Pipeline::call_all`].
    ///
    /// ```
    /// use toolbay::{Filter, ToolCall, TurnContext};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let greet = toolbay::native_tool("greet").description("Greets the user.");
    /// # let greet = greet.run(async |_, _| Ok(toolbay::core::tool::content::ToolOutput::text("Hello!")))?;
    /// # let policy = toolbay::Policy::deny_all("/srv/agent".as_ref());
    /// # let host = toolbay::Host::builder(policy).build()?;
    /// # host.register(greet)?;
    /// let view = host.view(Filter::default());
    /// let calls = vec![ToolCall::new("1", "greet", "{}"), ToolCall::new("2", "no_such_tool", "{}")];
    /// let results = host.call_all(&view, calls, TurnContext::default()).await;
    ///
    /// assert_eq!(results[0].result.as_ref().unwrap().value, "Hello!");
    /// let error = results[1].result.as_ref().unwrap_err();
    /// assert!(error.to_string().starts_with("Unknown tool"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn call_all(&self, view: &View, calls: Vec<ToolCall>, turn: TurnContext) -> Vec<CallResult> {
        self.pipeline.call_all(view, calls, turn).await
    }

    /// Runs calls in parallel. Passes on each result as its call ends, with the index of the call. Dropping the future
    /// cancels every call.
    pub async fn call_each(
        &self,
        view: &View,
        calls: Vec<ToolCall>,
        turn: TurnContext,
        take: impl FnMut(usize, CallResult) + Send,
    ) {
        self.pipeline.call_each(view, calls, turn, take).await;
    }

    /// The most recent calls, with filters and statistics. This log is in memory; the audit is permanent.
    #[must_use]
    pub fn calls(&self) -> &CallLog {
        self.pipeline.call_log()
    }

    /// The registry, for adapters.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.installed.registry
    }

    /// The pipeline, for adapters.
    #[must_use]
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// The current policy.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.installed.services().policy)
    }

    /// Statistics about the plugin code in memory. When the code exceeds `code_bytes` in `[host]`, the least recently
    /// called code is dropped and mapped again from the cache at the next call. Code that the cache cannot restore
    /// stays in memory: all code of a host without a cache, and components loaded from bytes.
    #[must_use]
    pub fn loaded_code(&self) -> LoadedCode {
        self.installed.shared.resident_code.stats()
    }

    /// The number of idle instances. Only plugins with `reuse` in the policy have any.
    #[must_use]
    pub fn idle_instances(&self) -> usize {
        self.installed.shared.idle_instances.count()
    }

    /// The number of free run permits. All are free when no call runs.
    #[must_use]
    pub fn available_call_permits(&self) -> usize {
        self.installed.shared.concurrency.free_permits()
    }
}

/// The parts of the policy that the pipeline applies to calls, without the grants.
pub(crate) fn call_policy(policy: &Policy) -> CallPolicy {
    CallPolicy {
        permissions: policy.permissions().clone(),
        session: policy.session().clone(),
        output: policy.results(),
        audit: policy.audit().clone(),
        epoch: policy.epoch(),
        reruns_idempotent: policy.shared().rerun_idempotent,
    }
}

fn info(active: &ActivePlugin) -> PluginInfo {
    let plugin = &active.plugin;
    let mut capabilities: Vec<Capability> = Vec::new();
    for declared in plugin.descriptor.tools.iter().flat_map(|tool| &tool.capabilities) {
        if !capabilities.contains(declared) {
            capabilities.push(declared.clone());
        }
    }
    PluginInfo {
        id: plugin.id.clone(),
        digest: Arc::from(&*plugin.digest.hex()),
        bytes: plugin.bytes,
        file: plugin.file.as_deref().map(Path::to_path_buf),
        origin: plugin.origin.clone(),
        about: plugin.descriptor.about.clone(),
        imports: plugin.descriptor.imports.clone(),
        dropped_functions: plugin.descriptor.left_out.clone(),
        reducers: plugin.descriptor.reducers.iter().map(|r| r.tool_name.clone()).collect(),
        capabilities,
        prompts_and_resources: plugin.descriptor.prompts_and_resources.clone(),
        from_cache: plugin.from_cache,
        held: active.held.clone(),
    }
}
