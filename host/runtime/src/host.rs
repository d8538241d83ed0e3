//! The facade for embedders: a host with plugins, and calls to their tools.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use toolbay_core::audit::call_log::{self, CallLog};
use toolbay_core::audit::{AuditSink, LogAudit};
use toolbay_core::call::approval::Approver;
use toolbay_core::call::{ToolCall, TurnContext};
use toolbay_core::pipeline::intercept::{Interceptor, Interceptors, Scope};
use toolbay_core::pipeline::{Delivered, Gates, Pipeline};
use toolbay_core::registry::event::Events;
use toolbay_core::registry::read_output;
use toolbay_core::registry::view::{Filter, View};
use toolbay_core::registry::{Bundle, Collision, Registered, Registry, Switches};
use toolbay_core::session::kv::KvStore;
use toolbay_core::session::spool::{MemorySpool, Quota, Spool};
use toolbay_core::tool::ToolSource;
use toolbay_core::tool::offer::Document;
use toolbay_policy::capability::Capability;
use toolbay_policy::capability::floor::{Floor, Keep};
use toolbay_policy::consent::ConsentStore;
use toolbay_policy::name::{PluginId, ToolName};
use toolbay_policy::{Policy, Profile};

use crate::capability::clock::{Clock, Random, TimeAndChance};
use crate::capability::files::{Folders, ReadLog};
use crate::capability::http::recorded::RecordedHttp;
use crate::capability::process::cage::Confinement;
use crate::capability::{Services, kv};
use crate::engine::Metering;
use crate::engine::admission::Admission;
use crate::engine::engines::Engines;
use crate::engine::machine;
use crate::engine::warm::WarmInstances;
use crate::error::{HostError, LoadError};
use crate::explain::{self, Explanation};
use crate::openapi::Sources;
use crate::outside::Outward;
use crate::plugins::cache;
use crate::plugins::compiler::Compiler;
use crate::plugins::descriptor::{About, Descriptors};
use crate::plugins::directory::{Directory, Look};
use crate::plugins::installed::{Installed, Why};
use crate::plugins::loader::check_listing;
use crate::plugins::loading::LoadListener;
use crate::plugins::plugin::{Plugin, Shared};
use crate::plugins::report::{LoadProblem, LoadReport, LoadWarning};
use crate::plugins::resident::{LoadedCode, Resident};
use crate::storage::consent::{FileConsents, Keeper};
use crate::storage::private::DEFAULT_STATE_WAIT;
use crate::storage::spool::FileSpool;

/// A plugin host. Cheap to clone; all clones are one host.
#[derive(Clone)]
pub struct Host {
    pub(crate) installed: Arc<Installed>,
    pipeline: Pipeline,
    /// The directories in the order in which they were loaded. Held while plugins are put in order.
    pub(crate) directories: Arc<tokio::sync::Mutex<Vec<Directory>>>,
    /// Held while directories are read, of which there is one at a time.
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

/// Settings of a [`Host`] before it is made.
pub struct HostBuilder {
    policy: Policy,
    cache: Option<PathBuf>,
    cache_bounds: cache::Bounds,
    state: Option<PathBuf>,
    state_wait: Duration,
    worker: Option<PathBuf>,
    guard: Option<PathBuf>,
    floor: Floor,
    tls_roots: Option<Vec<u8>>,
    recorded_http: Option<Arc<dyn RecordedHttp>>,
    time_and_chance: TimeAndChance,
    kv: Option<Arc<dyn KvStore>>,
    consents: Option<Arc<dyn ConsentStore>>,
    spool: Option<Arc<dyn Spool>>,
    audit: Arc<dyn AuditSink>,
    listener: Option<LoadListener>,
    events: Events,
    switches: Switches,
    approver: Option<Arc<dyn Approver>>,
    interceptors: Interceptors,
    call_log: usize,
}

impl std::fmt::Debug for HostBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostBuilder")
            .field("policy", &self.policy)
            .field("cache", &self.cache)
            .field("state", &self.state)
            .finish_non_exhaustive()
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

impl HostBuilder {
    /// Keeps compiled code in this folder, which is made if it is not there. Without it every start compiles.
    #[must_use]
    pub fn cache_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cache = Some(dir.into());
        self
    }

    /// Keeps at most `bytes` of compiled code, and none that was not used for `age`: 2 GiB and 30 days by default.
    /// What goes is what was used longest ago; it is compiled again when it is needed.
    #[must_use]
    pub fn cache_bounds(mut self, bytes: u64, age: Duration) -> Self {
        self.cache_bounds = cache::Bounds { bytes, age };
        self
    }

    /// Keeps there what outlives the host: the state of plugins, consents, what was cut from results. Made if it is not
    /// there, for this user only. Without it state lives as long as the host.
    #[must_use]
    pub fn state_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.state = Some(dir.into());
        self
    }

    /// Waits up to `limit` for another process that writes to the state directory; 30 seconds by default
    /// ([`DEFAULT_STATE_WAIT`]). A call still ends at its own deadline.
    #[must_use]
    pub fn state_wait(mut self, limit: Duration) -> Self {
        self.state_wait = limit;
        self
    }

    /// Compiles components in processes of their own: `program` is started with [`crate::COMPILE_WORKER`] as its only
    /// argument and must then call [`crate::run_compile_worker`]. Give the path of your own executable, and of nothing
    /// else: the code it sends is run. A component that takes too long or too much memory is then ended; without this
    /// it is given up, but its thread goes on. Needs a tokio runtime with I/O enabled.
    #[must_use]
    pub fn compile_worker(mut self, program: impl Into<PathBuf>) -> Self {
        self.worker = Some(program.into());
        self
    }

    /// Ends the programs of other MCP servers also when this process is killed: `program` is started beside each with
    /// [`crate::PROGRAM_GUARD`] as its only argument and must then call [`crate::run_program_guard`]. Give the path of
    /// your own executable. Without it, such a server is told by the end of its stdin.
    #[must_use]
    pub fn program_guard(mut self, program: impl Into<PathBuf>) -> Self {
        self.guard = Some(program.into());
        self
    }

    /// Keeps a file or a folder from plugins, whatever the policy grants: besides key files, histories, `/proc` and the
    /// like, the cache, the state and the plugins of the host, and the files that hold its secrets.
    #[must_use]
    pub fn keep(mut self, place: impl Into<PathBuf>, from: Keep) -> Self {
        self.floor.keep(place.into(), from);
        self
    }

    /// Lets the policy grant a path that is kept from plugins otherwise, and all below it.
    #[must_use]
    pub fn allow_floor(mut self, path: impl Into<PathBuf>) -> Self {
        self.floor.open(path.into());
        self
    }

    /// Trusts these root certificates for TLS, too: PEM, one or more. Those of the system are trusted anyway.
    #[must_use]
    pub fn tls_roots_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls_roots = Some(pem.into());
        self
    }

    /// Answers the requests of plugins and services from a record, or keeps what the network answers in one: for tests.
    /// The policy is asked before, as always. Without it, requests go to the network.
    #[must_use]
    pub fn recorded_http(mut self, recorded: Arc<dyn RecordedHttp>) -> Self {
        self.recorded_http = Some(recorded);
        self
    }

    /// Shows guests this time instead of the machine's: for tests. The wall clock still takes the capability `clock`.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.time_and_chance.clock = Some(clock);
        self
    }

    /// Gives tools with the capability `random` the sequence that belongs to this seed, from which all calls draw: for
    /// tests, and never where a guest makes keys.
    #[must_use]
    pub fn random_seed(mut self, seed: u64) -> Self {
        self.time_and_chance.random = Some(Random::new(seed));
        self
    }

    /// Keeps the state of plugins there instead of in a file of the state folder.
    #[must_use]
    pub fn kv(mut self, store: Arc<dyn KvStore>) -> Self {
        self.kv = Some(store);
        self
    }

    /// Holds plugins that would get more than was agreed to in there. Without it, the folder of state holds the
    /// consents; without that either, nothing is held.
    #[must_use]
    pub fn consents(mut self, store: Arc<dyn ConsentStore>) -> Self {
        self.consents = Some(store);
        self
    }

    /// Keeps there what is cut from results, for `read_output`, instead of in files of the state folder, or in memory
    /// where there is none. How much is kept, and for how long, `[host]` of the policy says.
    #[must_use]
    pub fn spool(mut self, spool: Arc<dyn Spool>) -> Self {
        self.spool = Some(spool);
        self
    }

    /// Sends audit records there instead of to the log.
    #[must_use]
    pub fn audit(mut self, sink: Arc<dyn AuditSink>) -> Self {
        self.audit = sink;
        self
    }

    /// Tells these what changes, also while the first plugins are loaded.
    #[must_use]
    pub fn events(mut self, events: Events) -> Self {
        self.events = events;
        self
    }

    /// Switches tools and namespaces off, also those that come later; [`FileSwitches`](crate::FileSwitches) keeps such
    /// switches in a file.
    #[must_use]
    pub fn switches(mut self, switches: Switches) -> Self {
        self.switches = switches;
        self
    }

    /// Tells `listener` what happens while plugins are loaded.
    #[must_use]
    pub fn on_load(mut self, listener: LoadListener) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Asks there about calls that the policy's rules want asked about, and those of tools that declare `needs_approval`,
    /// unless a session has somebody of its own. Without anybody such calls are refused.
    #[must_use]
    pub fn approver(mut self, approver: Arc<dyn Approver>) -> Self {
        self.approver = Some(approver);
        self
    }

    /// Puts code of yours around the calls of a scope, inside what was put around them before.
    #[must_use]
    pub fn interceptor(mut self, scope: Scope, interceptor: Arc<dyn Interceptor>) -> Self {
        self.interceptors.push(scope, interceptor);
        self
    }

    /// Remembers the last `entries` calls for [`Host::calls`]; 0 remembers none. The default is 1000. The room for all of
    /// them, some 200 bytes each, is taken when the host is made.
    #[must_use]
    pub fn call_log(mut self, entries: usize) -> Self {
        self.call_log = entries;
        self
    }

    /// Makes the host.
    ///
    /// # Errors
    /// When wasmtime gives no engine, the TLS roots are none, or the values of the secrets are too large to be searched
    /// for. A cache folder that can not be trusted is only warned of: the host then works without a cache.
    pub fn build(self) -> Result<Host, HostError> {
        let folders = Folders::new(self.floor);
        if let Some(dir) = &self.state {
            folders.keep(dir, Keep::FromAll);
        }
        if let Some(dir) = &self.cache {
            folders.keep(dir, Keep::FromWriters);
        }
        folders.keep_secrets(&self.policy);
        let openapi = Sources::new(self.cache.as_ref().map(|dir| dir.join("openapi")));
        let usual = if self.policy.counts_fuel() { Metering::Fuel } else { Metering::Time };
        let cache = self.cache.as_deref().map(|dir| (dir, self.cache_bounds));
        let limits = machine::settled(self.policy.host());
        let engines = Engines::new(&limits, usual, cache)?;
        let policy = Arc::new(self.policy);
        let mut services = Services::new(Arc::clone(&policy), self.state.as_deref(), self.state_wait)
            .map_err(HostError::Secrets)?;
        services.process.kept = folders.kept();
        services.process.guard = self.guard;
        services.time_and_chance = self.time_and_chance;
        if let Some(store) = self.kv {
            services.kv = kv::Store(store);
        }
        if let Some(pem) = &self.tls_roots {
            services.http.trust(pem).map_err(HostError::Tls)?;
        }
        if let Some(recorded) = self.recorded_http {
            services.http.record(recorded);
        }
        let quota = Quota::from(policy.host());
        let spool = self.spool.unwrap_or_else(|| match &self.state {
            Some(dir) => Arc::new(FileSpool::new(dir, quota)),
            None => Arc::new(MemorySpool::new(quota)),
        });
        let registry = Registry::new(self.events.clone());
        registry.set_switches(&self.switches);
        let read_output = read_output::entry(Arc::clone(&spool)).map_err(HostError::Native)?;
        let native = Bundle { tools: vec![read_output], reducers: vec![] };
        registry.register(native).map_err(|e| HostError::Native(e.to_string()))?;
        let mut pipeline = Pipeline::new(Arc::clone(&self.audit))
            .with_redactor(services.redactor.clone())
            .with_gates(gates(&policy))
            .with_events(self.events.clone())
            .with_interceptors(self.interceptors)
            .with_log(CallLog::new(self.call_log))
            .with_host_limits(&limits)
            .with_spool(spool);

        if let Some(approver) = self.approver {
            pipeline = pipeline.with_approver(approver);
        }
        let shared = Shared {
            engines,
            compiler: Compiler::new(policy.host(), self.worker),
            listener: self.listener,
            descriptors: Descriptors::default(),
            resident: Resident::new(policy.host().code_bytes),
            warm: WarmInstances::new(policy.host()),
            admission: Admission::new(limits),
            folders,
            reads: Arc::new(ReadLog::default()),
        };
        let lists = self.state.as_ref().map(|dir| dir.join("mcp"));
        let in_state = self.state.filter(|_| self.consents.is_none());
        let in_state = in_state.map(|dir| FileConsents::new(dir).with_wait(self.state_wait));
        let consents_file = in_state.as_ref().map(FileConsents::file);
        let in_state = in_state.map(|store| Arc::new(store) as Arc<dyn ConsentStore>);
        let keeper = Arc::new(Keeper { store: self.consents.or(in_state), audit: self.audit });
        let installed = Installed::new(Arc::new(shared), services, keeper, registry);
        Ok(Host {
            installed: Arc::new(installed),
            pipeline,
            directories: Arc::default(),
            scanning: Arc::default(),
            consents_file,
            openapi: Arc::new(openapi),
            lists,
        })
    }
}

impl Host {
    /// Starts a host under a policy.
    #[must_use]
    pub fn builder(policy: Policy) -> HostBuilder {
        let floor = Floor::of_system(std::env::home_dir().as_deref());
        HostBuilder {
            policy,
            cache: None,
            cache_bounds: cache::Bounds::default(),
            state: None,
            state_wait: DEFAULT_STATE_WAIT,
            recorded_http: None,
            time_and_chance: TimeAndChance::default(),
            kv: None,
            worker: None,
            guard: None,
            floor,
            tls_roots: None,
            consents: None,
            spool: None,
            audit: Arc::new(LogAudit),
            listener: None,
            events: Events::default(),
            switches: Switches::default(),
            approver: None,
            interceptors: Interceptors::default(),
            call_log: call_log::DEFAULT_ENTRIES,
        }
    }

    /// Loads every `.wasm` file of a directory, in the order of their names. A bad file is reported and stops none
    /// of the others. A directory that was loaded before is brought up to date, as by [`Host::rescan`], but files that
    /// look unchanged are not read.
    ///
    /// # Errors
    /// Only when the directory itself can not be read.
    pub async fn load_dir(&self, dir: &Path) -> Result<LoadReport, HostError> {
        // Looked at first: a directory that can not be read is none of this host's.
        let path = dir.to_path_buf();
        let listing = tokio::task::spawn_blocking(move || check_listing(&path)).await;
        listing.unwrap_or_else(|e| {
            Err(HostError::Directory { path: dir.to_path_buf(), error: std::io::Error::other(e) })
        })?;
        // Whoever writes there is a plugin the next time.
        self.installed.shared.folders.keep(dir, Keep::FromWriters);
        let mut directories = self.directories.lock().await;
        if !directories.iter().any(|known| known.path == dir) {
            directories.push(Directory::new(dir.to_path_buf()));
        }
        drop(directories);
        self.installed.forget_taken_out();
        let (report, _) = self.scan(Look::Changed, Why::Agreed).await;
        let here = |file: &Path| file.parent() == Some(dir);
        let loaded = self.installed.loaded();
        let from = |id: &PluginId| loaded.plugins.get(id).and_then(|one| one.plugin.file.as_deref());
        Ok(LoadReport {
            loaded: report.loaded.into_iter().filter(|id| from(id).is_some_and(here)).collect(),
            problems: report.problems.into_iter().filter(|problem| here(&problem.file)).collect(),
            ..report
        })
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
        let put = tokio::task::spawn_blocking(move || installed.put(file, &plugin));
        put.await.unwrap_or_else(|e| Err(LoadError::Host(e.to_string())))
    }

    /// Takes a plugin out; returns whether it was there. Its calls in flight end as usual. One that a directory offers
    /// stays out until its file holds something else, or the directory is read anew.
    pub fn unload(&self, id: &PluginId) -> bool {
        self.installed.take_out(id)
    }

    /// The plugins that are loaded, in the order of their ids.
    #[must_use]
    pub fn plugins(&self) -> Vec<PluginInfo> {
        self.installed.loaded().plugins.values().map(|running| info(&running.plugin)).collect()
    }

    /// What is known of one plugin.
    #[must_use]
    pub fn plugin(&self, id: &str) -> Option<PluginInfo> {
        self.installed.loaded().plugins.get(id).map(|running| info(&running.plugin))
    }

    /// The files that are not loaded, or not in place of what runs under their id, as of now.
    #[must_use]
    pub fn problems(&self) -> Vec<LoadProblem> {
        self.installed.loaded().problems.clone()
    }

    /// All that decides what a tool of a plugin or of a service may do, under a profile or without one; `None` if there is
    /// no such tool or it is native code, which nothing bounds.
    #[must_use]
    pub fn explain(&self, tool: &str, profile: Option<&Arc<Profile>>) -> Option<Explanation> {
        let (view, loaded) = (self.view(Filter::of_profile(profile.cloned())), self.installed.loaded());
        let entry = view.catalog().get(tool)?;
        if let ToolSource::OpenApi { document } = &*entry.def.source {
            let info = self.openapi().into_iter().find(|info| *info.name == **document)?;
            let profile = profile.map(|profile| &**profile.name());
            return explain::explain_service(&self.policy(), &info, entry, profile, view.why_not(entry));
        }
        let plugin = &loaded.plugins.get(entry.def.source.plugin()?)?.plugin;
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
    pub async fn call_all(&self, view: &View, calls: Vec<ToolCall>, turn: TurnContext) -> Vec<Delivered> {
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
    pub fn warm_instances(&self) -> usize {
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
