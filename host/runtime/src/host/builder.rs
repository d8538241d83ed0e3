//! Builds a host from settings.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;

use toolbay_capabilities::environment::clock::{Clock, EnvironmentOverrides, SeededRandom};
use toolbay_capabilities::files::{FolderHandles, PathResolution, ReadLog};
use toolbay_capabilities::process::guard::ProgramGuard;
use toolbay_capabilities::state::GuestEngines;
use toolbay_capabilities::{Services, link_all};
use toolbay_core::approval::Approver;
use toolbay_core::audit::call_log::{self, CallLog};
use toolbay_core::audit::{AuditSink, LogAudit};
use toolbay_core::call::shared::SharedState;
use toolbay_core::call::trace::Tracer;
use toolbay_core::pipeline::Pipeline;
use toolbay_core::pipeline::intercept::{Interceptor, InterceptorScope, Interceptors};
use toolbay_core::registry::event::Events;
use toolbay_core::registry::read_output;
use toolbay_core::registry::{Bundle, Registry, Switches};
use toolbay_core::session::kv::KvStore;
use toolbay_core::session::output_store::{MemoryOutputStore, OutputQuota, OutputStore};
use toolbay_policy::Policy;
use toolbay_policy::capability::protected_paths::{ProtectedPaths, Protection};
use toolbay_policy::consent::ConsentStore;
use toolbay_sandbox::admission::ConcurrencyLimiter;
use toolbay_sandbox::compile::cache::{Cache, CacheLimits};
use toolbay_sandbox::compile::compiler::Compiler;
use toolbay_sandbox::engine::{AsyncSupport, EngineKind, Metering};
use toolbay_sandbox::host_memory;
use toolbay_sandbox::idle_instances::IdleInstances;
use toolbay_state::private::DEFAULT_STATE_WAIT;
use toolbay_state::user_dirs::{shared_cache_dir, xdg_cache_dir};

use crate::error::HostError;
use crate::features::FEATURES;
use crate::mcp_servers::ServerFolders;
use crate::openapi::OpenApiServices;
use crate::plugins::consent_gate::ConsentGate;
use crate::plugins::descriptor::DescriptorCache;
use crate::plugins::installed::InstalledPlugins;
use crate::plugins::loading::LoadListener;
use crate::plugins::plugin::HostResources;
use crate::plugins::resident_code::ResidentCode;
use crate::storage::consent::FileConsents;
use crate::storage::output_store::FileOutputStore;

use super::http::HttpSettings;
use super::{Host, call_policy};

/// How long a start waits for OpenAPI documents and MCP servers. Some take several seconds, and one that hangs must not
/// delay the others for longer.
pub const SOURCE_WAIT: Duration = Duration::from_secs(10);

/// Where compiled code and OpenAPI documents are cached.
#[derive(Debug)]
enum CacheLocation {
    /// In the folder that the user's programs share.
    Shared,
    /// In a folder of the embedder.
    Dir(PathBuf),
    /// Nowhere.
    Off,
}

impl CacheLocation {
    /// The folder. Without a home there is no shared one; that is logged once, because a program may build many hosts.
    fn dir(&self) -> Option<PathBuf> {
        static WARNED: Once = Once::new();
        match self {
            Self::Off => None,
            Self::Dir(dir) => Some(dir.clone()),
            Self::Shared => shared_cache_dir().or_else(|| {
                WARNED.call_once(|| {
                    tracing::warn!(
                        "this user has no home for a compile cache: each start compiles all plugins"
                    );
                });
                None
            }),
        }
    }

    /// Opens the compile cache in the folder. The host works without one. A problem of the shared folder is logged once,
    /// because a program may build many hosts.
    fn open(&self, dir: &Path, engine: EngineKind, limits: CacheLimits) -> Option<Cache> {
        static WARNED: Once = Once::new();
        let warn = |problem: &str| tracing::warn!("the compile cache is not used: {problem}");
        let opened = Cache::open(dir, engine, limits).inspect_err(|problem| match self {
            Self::Shared => WARNED.call_once(|| warn(problem)),
            Self::Dir(_) | Self::Off => warn(problem),
        });
        opened.ok()
    }
}

/// The settings of a [`Host`] before it is built.
///
/// ```
/// use toolbay::{Host, Policy};
///
/// # let temporary = tempfile::tempdir()?;
/// # let folder = temporary.path();
/// let host = Host::builder(Policy::deny_all(&folder.join("workspace")))
///     .cache_dir(folder.join("cache"))
///     .state_dir(folder.join("state"))
///     .call_log(100)
///     .build()?;
/// assert!(host.plugins().is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HostBuilder {
    policy: Policy,
    cache: CacheLocation,
    cache_limits: CacheLimits,
    state: Option<PathBuf>,
    pub(super) credentials: Option<PathBuf>,
    state_wait: Duration,
    pub(super) source_wait: Duration,
    pub(super) worker: Option<PathBuf>,
    base: Option<PathBuf>,
    pub(super) guard: Option<PathBuf>,
    protected_paths: ProtectedPaths,
    pub(super) http: HttpSettings,
    environment_overrides: EnvironmentOverrides,
    kv: Option<Arc<dyn KvStore>>,
    consents: Option<Arc<dyn ConsentStore>>,
    output_store: Option<Arc<dyn OutputStore>>,
    audit: Arc<dyn AuditSink>,
    listener: Option<LoadListener>,
    events: Events,
    switches: Switches,
    approver: Option<Arc<dyn Approver>>,
    tracer: Option<Tracer>,
    shared: Option<SharedState>,
    interceptors: Interceptors,
    call_log: usize,
    path_resolution: PathResolution,
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

impl HostBuilder {
    pub(super) fn new(policy: Policy) -> Self {
        let protected_paths = ProtectedPaths::system_defaults(std::env::home_dir().as_deref());
        Self {
            policy,
            cache: CacheLocation::Shared,
            cache_limits: CacheLimits::default(),
            state: None,
            credentials: None,
            state_wait: DEFAULT_STATE_WAIT,
            source_wait: SOURCE_WAIT,
            environment_overrides: EnvironmentOverrides::default(),
            kv: None,
            worker: None,
            base: None,
            guard: None,
            protected_paths,
            http: HttpSettings::default(),
            consents: None,
            output_store: None,
            audit: Arc::new(LogAudit),
            listener: None,
            events: Events::default(),
            switches: Switches::default(),
            approver: None,
            tracer: None,
            shared: None,
            interceptors: Interceptors::default(),
            call_log: call_log::DEFAULT_ENTRIES,
            path_resolution: PathResolution::default(),
        }
    }

    /// Sets how long [`HostBuilder::start`] waits for OpenAPI documents and MCP servers, [`SOURCE_WAIT`] by default.
    /// Sources that are ready later are registered then.
    #[must_use]
    pub fn source_wait(self, wait: Duration) -> Self {
        Self { source_wait: wait, ..self }
    }

    /// Caches compiled code in this folder, and copies of fetched OpenAPI documents in `openapi` below it. Both are created if
    /// they do not exist. The default is the folder that all programs of the user with Toolbay share: `TOOLBAY_CACHE`, or
    /// `toolbay` in the user's cache directory (`$XDG_CACHE_HOME`, else `~/.cache`). Other hosts of the user do not protect a
    /// folder that only this program knows: choose one outside of what their policies let plugins write.
    #[must_use]
    pub fn cache_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cache = CacheLocation::Dir(dir.into());
        self
    }

    /// Caches nothing on disk, neither compiled code nor OpenAPI documents. Every start compiles, and fetches each document.
    #[must_use]
    pub fn no_cache(mut self) -> Self {
        self.cache = CacheLocation::Off;
        self
    }

    /// Limits the compile cache to `bytes`, and to entries used within `age`: 2 GiB and 30 days by default. The least
    /// recently used entries are removed first and compiled again when they are needed. In the shared folder, the limits
    /// hold for the entries of all programs. Copies of OpenAPI documents have the same limits, and are counted on their own.
    #[must_use]
    pub fn cache_limits(mut self, bytes: u64, age: Duration) -> Self {
        self.cache_limits = CacheLimits { bytes, age };
        self
    }

    /// Stores persistent state in this folder: the key-value data of plugins, consents and saved output. The folder is
    /// created if it does not exist, for this user only. Without a folder, state lives as long as the host.
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

    /// Resolves the paths of guests in this way. [`PathResolution::Portable`] is for tests: it does on Linux what is done on
    /// macOS, where it is the only way.
    #[must_use]
    pub fn path_resolution(self, path_resolution: PathResolution) -> Self {
        Self { path_resolution, ..self }
    }

    /// Compiles components in separate processes. The host starts `program` with [`crate::COMPILE_WORKER`] as its only
    /// argument, and the program must then call [`crate::run_worker`]. Pass only the absolute path of your own
    /// executable, or of the command `toolbay` of the same version, because the host runs the code that it sends. The command
    /// of the npm package is a Node script: pass the program itself, `node_modules/@toolbay/linux-…/bin/toolbay`. A worker of
    /// another version, or with another release of wasmtime, is refused. A worker that exceeds its time or memory is killed.
    /// Without a worker, a compilation that times out is abandoned, but its thread continues. A program without the
    /// feature `compiler` must name a worker, which is a program with it. Needs a tokio runtime with I/O enabled.
    #[must_use]
    pub fn compile_worker(mut self, program: impl Into<PathBuf>) -> Self {
        self.worker = Some(program.into());
        self
    }

    /// Compiles components with the machine code of this component, for functions that both have. The base is compiled
    /// once, and its functions are cached. Components are then compiled in this process, so name a base only to build
    /// your own plugins: versions of one interpreter with different scripts.
    #[cfg(feature = "compiler")]
    #[must_use]
    pub fn compile_base(mut self, component: impl Into<PathBuf>) -> Self {
        self.base = Some(component.into());
        self
    }

    /// Ends the programs of plugins and of MCP servers even if this process is killed. Before the first of them starts,
    /// the host starts `program` with [`crate::PROGRAM_GUARD`] as its only argument, and that program must call
    /// [`crate::run_worker`]. Pass the path of your own executable. Without a guard, programs outlive a process that is
    /// killed.
    #[must_use]
    pub fn program_guard(mut self, program: impl Into<PathBuf>) -> Self {
        self.guard = Some(program.into());
        self
    }

    /// Protects a file or folder from plugins, whatever the policy grants. Always protected are key files, shell
    /// histories, `/proc` and similar paths, the cache, state and plugin folders of the host, and the files with its
    /// secrets.
    #[must_use]
    pub fn protect_path(mut self, path: impl Into<PathBuf>, protection: Protection) -> Self {
        self.protected_paths.protect(path.into(), protection);
        self
    }

    /// Lets the policy grant a protected path and everything below it.
    #[must_use]
    pub fn allow_protected_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.protected_paths.exempt(path.into());
        self
    }

    /// Gives guests this clock instead of the system's. For tests. The wall clock still needs the capability `clock`.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.environment_overrides.clock = Some(clock);
        self
    }

    /// Seeds the randomness of tools with the capability `random`. All calls draw from one sequence. For tests only:
    /// never use it where a guest creates keys.
    #[must_use]
    pub fn random_seed(mut self, seed: u64) -> Self {
        self.environment_overrides.random = Some(SeededRandom::new(seed));
        self
    }

    /// Stores the key-value data of plugins in this store instead of a file in the state folder.
    #[must_use]
    pub fn kv(mut self, store: Arc<dyn KvStore>) -> Self {
        self.kv = Some(store);
        self
    }

    /// Stores consents here instead of in the state folder. Plugins that would get more than the operator agreed to are
    /// held. With neither a store nor a state folder, no plugin is held.
    #[must_use]
    pub fn consents(mut self, store: Arc<dyn ConsentStore>) -> Self {
        self.consents = Some(store);
        self
    }

    /// Saves output that was cut from results here, for `read_output`. The default is the state folder, or memory
    /// without one. `[host]` in the policy limits the size and age.
    #[must_use]
    pub fn output_store(mut self, store: Arc<dyn OutputStore>) -> Self {
        self.output_store = Some(store);
        self
    }

    /// Sends audit records to this sink instead of the log.
    #[must_use]
    pub fn audit(mut self, sink: Arc<dyn AuditSink>) -> Self {
        self.audit = sink;
        self
    }

    /// Wraps the audit sink in another one, which passes the records on.
    #[must_use]
    pub fn wrap_audit(mut self, wrap: impl FnOnce(Arc<dyn AuditSink>) -> Arc<dyn AuditSink>) -> Self {
        self.audit = wrap(self.audit);
        self
    }

    /// Traces the calls. The audit sink gets the trace of each call in its record.
    #[must_use]
    pub fn tracer(mut self, tracer: Tracer) -> Self {
        self.tracer = Some(tracer);
        self
    }

    /// Shares budgets, serial queues and revocations with other replicas.
    #[must_use]
    pub fn shared_state(mut self, shared: SharedState) -> Self {
        self.shared = Some(shared);
        self
    }

    /// Emits events to these listeners, beginning with the first load.
    #[must_use]
    pub fn events(mut self, events: Events) -> Self {
        self.events = events;
        self
    }

    /// Disables tools and namespaces, including those that are loaded later. [`FileSwitches`](crate::FileSwitches)
    /// stores the switches in a file.
    #[must_use]
    pub fn switches(mut self, switches: Switches) -> Self {
        self.switches = switches;
        self
    }

    /// Calls `listener` with the events of loading.
    #[must_use]
    pub fn on_load(mut self, listener: LoadListener) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Asks this approver about calls that need approval by the permission rules or because the tool declares
    /// `needs_approval`. A session's own approver takes precedence. Without an approver, such calls are refused.
    #[must_use]
    pub fn approver(mut self, approver: Arc<dyn Approver>) -> Self {
        self.approver = Some(approver);
        self
    }

    /// Wraps an interceptor around the calls of a scope, inside the interceptors that were added before.
    #[must_use]
    pub fn interceptor(mut self, scope: InterceptorScope, interceptor: Arc<dyn Interceptor>) -> Self {
        self.interceptors.push(scope, interceptor);
        self
    }

    /// Keeps the last `entries` calls for [`Host::calls`]; 0 keeps none. The default is 1000. Memory for all entries,
    /// about 200 bytes each, is allocated when the host is built.
    #[must_use]
    pub fn call_log(mut self, entries: usize) -> Self {
        self.call_log = entries;
        self
    }

    /// Builds the host.
    ///
    /// # Errors
    /// wasmtime cannot create an engine, the TLS roots are invalid, or the secrets are too large for the redactor. This
    /// program lacks a part that the policy names, or has no compiler and no [compile worker](Self::compile_worker). An
    /// untrusted cache folder, or a missing one, is not an error: the host logs a warning and runs without a cache. For the
    /// shared folder, a process logs one warning.
    pub fn build(self) -> Result<Host, HostError> {
        self.policy.check_features(FEATURES).map_err(HostError::Policy)?;
        let cache = self.cache.dir();
        let folders = self.protected_folders(cache.as_deref());
        let compiler = Compiler::new(self.policy.host(), self.worker, self.base)?;
        let openapi = OpenApiServices::new(cache.as_ref().map(|dir| dir.join("openapi")), self.cache_limits);
        let metering = if self.policy.counts_fuel() { Metering::Fuel } else { Metering::Time };
        let kind = EngineKind { metering, async_support: AsyncSupport::Off };
        let cache = cache.and_then(|dir| self.cache.open(&dir, kind, self.cache_limits));
        let limits = host_memory::with_default_budgets(self.policy.host());
        let engines = GuestEngines::new(&limits, metering, cache, link_all)?;
        let policy = Arc::new(self.policy);
        let mut services = Services::new(Arc::clone(&policy), self.state.as_deref(), self.state_wait)
            .map_err(HostError::Secrets)?;
        services.process.protected = folders.protected();
        services.process.guard = Arc::new(ProgramGuard::new(self.guard));
        services.environment_overrides = self.environment_overrides;
        if let Some(store) = self.kv {
            services.kv = store;
        }
        self.http.apply(&services.http)?;
        let quota = OutputQuota::from(policy.host());
        let output_store = self.output_store.unwrap_or_else(|| match &self.state {
            Some(dir) => Arc::new(FileOutputStore::new(dir, quota)),
            None => Arc::new(MemoryOutputStore::new(quota)),
        });
        let registry = Registry::new(self.events.clone());
        registry.set_switches(&self.switches);
        let read_output = read_output::entry(Arc::clone(&output_store)).map_err(HostError::Native)?;
        let native = Bundle { tools: vec![read_output], reducers: vec![] };
        registry.register(native).map_err(|e| HostError::Native(e.to_string()))?;
        let mut pipeline = Pipeline::new(Arc::clone(&self.audit))
            .with_redactor(services.redactor.clone())
            .with_call_policy(call_policy(&policy))
            .with_events(self.events.clone())
            .with_interceptors(self.interceptors)
            .with_call_log(CallLog::new(self.call_log))
            .with_host_limits(&limits)
            .with_output_store(output_store)
            .with_tracer(self.tracer);
        if let Some(shared) = self.shared {
            pipeline = pipeline.with_shared_state(shared);
        }
        if let Some(approver) = self.approver {
            pipeline = pipeline.with_approver(approver);
        }
        let shared = HostResources {
            engines,
            compiler,
            listener: self.listener,
            descriptors: DescriptorCache::default(),
            resident_code: ResidentCode::new(policy.host().code_bytes),
            idle_instances: IdleInstances::new(policy.host()),
            concurrency: ConcurrencyLimiter::new(limits),
            folders,
            reads: Arc::new(ReadLog::default()),
        };
        let server_folders = ServerFolders::new(self.state.as_deref(), self.credentials);
        let in_state = self.state.filter(|_| self.consents.is_none());
        let in_state = in_state.map(|dir| FileConsents::new(dir).with_wait(self.state_wait));
        let consents_file = in_state.as_ref().map(FileConsents::file);
        let in_state = in_state.map(|store| Arc::new(store) as Arc<dyn ConsentStore>);
        let consent_gate = Arc::new(ConsentGate { store: self.consents.or(in_state), audit: self.audit });
        let installed = InstalledPlugins::new(Arc::new(shared), services, consent_gate, registry);
        Ok(Host {
            installed: Arc::new(installed),
            pipeline,
            passes: Arc::default(),
            scanning: Arc::default(),
            consents_file,
            openapi: Arc::new(openapi),
            server_folders,
            probe: Arc::default(),
        })
    }

    /// Protects the state and cache folders, the paths the embedder named and the files of secrets from guests. The shared
    /// cache is protected even if this host does not use it, because the user's other programs run the code in it.
    fn protected_folders(&self, cache: Option<&Path>) -> FolderHandles {
        let folders = FolderHandles::new(self.protected_paths.clone()).with_resolution(self.path_resolution);
        if let Some(dir) = &self.state {
            folders.protect(dir, Protection::ReadAndWrite);
        }
        for dir in [shared_cache_dir(), xdg_cache_dir()].iter().flatten().map(PathBuf::as_path).chain(cache) {
            folders.protect(dir, Protection::WriteOnly);
        }
        folders.protect_secret_files(&self.policy);
        folders
    }
}
