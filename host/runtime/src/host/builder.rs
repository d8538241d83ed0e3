//! Building a host: settings, and the parts that are made of them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use toolbay_core::audit::call_log::{self, CallLog};
use toolbay_core::audit::{AuditSink, LogAudit};
use toolbay_core::call::approval::Approver;
use toolbay_core::pipeline::Pipeline;
use toolbay_core::pipeline::intercept::{Interceptor, Interceptors, Scope};
use toolbay_core::registry::event::Events;
use toolbay_core::registry::read_output;
use toolbay_core::registry::{Bundle, Registry, Switches};
use toolbay_core::session::kv::KvStore;
use toolbay_core::session::spool::{MemorySpool, Quota, Spool};
use toolbay_policy::Policy;
use toolbay_policy::capability::floor::{Floor, Keep};
use toolbay_policy::consent::ConsentStore;

use crate::capability::Services;
use crate::capability::clock::{Clock, Random, TimeAndChance};
use crate::capability::files::{Folders, ReadLog};
use crate::capability::http::recorded::RecordedHttp;
use crate::engine::Metering;
use crate::engine::admission::Admission;
use crate::engine::engines::Engines;
use crate::engine::machine;
use crate::engine::warm::WarmInstances;
use crate::error::HostError;
use crate::openapi::Sources;
use crate::plugins::cache;
use crate::plugins::compiler::Compiler;
use crate::plugins::descriptor::Descriptors;
use crate::plugins::installed::InstalledPlugins;
use crate::plugins::loading::LoadListener;
use crate::plugins::plugin::Shared;
use crate::plugins::resident::Resident;
use crate::storage::consent::{FileConsents, Keeper};
use crate::storage::private::DEFAULT_STATE_WAIT;
use crate::storage::spool::FileSpool;

use super::{Host, gates};

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

impl HostBuilder {
    pub(super) fn new(policy: Policy) -> Self {
        let floor = Floor::of_system(std::env::home_dir().as_deref());
        Self {
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
    pub fn allow_protected_path(mut self, path: impl Into<PathBuf>) -> Self {
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
    /// for. A cache folder that cannot be trusted is only warned of: the host then works without a cache.
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
            services.kv = store;
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
        let installed = InstalledPlugins::new(Arc::new(shared), services, keeper, registry);
        Ok(Host {
            installed: Arc::new(installed),
            pipeline,
            passes: Arc::default(),
            scanning: Arc::default(),
            consents_file,
            openapi: Arc::new(openapi),
            lists,
        })
    }
}
