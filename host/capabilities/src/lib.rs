//! What guests can import. Each capability is a folder with every interface through which guests reach it, its service and
//! its state; `capability` lists them. The interfaces are implemented on [`Capabilities`], which holds the grants of one
//! guest entry and nothing else.
//!
//! Every interface is always linked, because components built from JavaScript or Python import all of them. A call
//! without a grant returns `denied` with the reason. A build without the feature `net` lacks `wasi:http`, and denies every
//! request.

pub mod bindings;
mod capability;
mod event_quota;
mod grantee;
pub mod service_grants;
mod silent_refusal;
pub mod state;

mod attachments;
mod config;
mod context;
pub mod environment;
pub mod files;
#[cfg(feature = "net")]
pub mod http;
#[cfg(not(feature = "net"))]
#[path = "no_http.rs"]
pub mod http;
pub mod invoke;
pub mod kv;
mod log;
pub mod process;
pub mod secrets;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use toolbay_core::output::redact::Redactor;
use toolbay_core::session::kv::KvStore;
use toolbay_core::tool::fault::Fault;
use toolbay_policy::capability::path_rule;
use toolbay_policy::excerpt::one_line;
use toolbay_policy::limits::CallLimits;
use toolbay_policy::name::{PluginId, ToolName};
use toolbay_policy::{self as policy, Advice, GrantKey, Grants, Policy};
use toolbay_sandbox::blocking::GuestThreads;
use toolbay_sandbox::engine::AsyncSupport;
use wasmtime::component::{HasData, Linker};

use crate::bindings::types;
use crate::state::GuestState;
pub use capability::Capabilities;
use files::FileGrants;
pub use grantee::Grantee;
use service_grants::ServiceGrants;

/// The host services behind the interfaces, built from one policy. A policy reload builds new services; running calls
/// keep the ones they started with.
#[derive(Debug)]
pub struct Services {
    /// The policy.
    pub policy: Arc<Policy>,
    /// The HTTP client.
    pub http: Arc<http::HttpClient>,
    /// Starts programs.
    pub process: process::ProcessLauncher,
    /// The secrets of the policy.
    pub secrets: Arc<secrets::SecretStore>,
    /// The secrets of earlier policies, for as long as running calls hold them.
    earlier_secrets: Vec<Weak<secrets::SecretStore>>,
    /// The key-value store: in the state folder, or in memory without one.
    pub kv: Arc<dyn KvStore>,
    /// The threads for file operations of guests.
    pub(crate) file_threads: GuestThreads,
    /// The clock and the random source that the embedder set in place of the system's.
    pub environment_overrides: environment::clock::EnvironmentOverrides,
    /// Redacts the values of all secrets, earlier ones included, from everything that leaves the host.
    pub redactor: Redactor,
}

impl Services {
    /// Builds the services of a policy. `state_dir` holds persistent state; `state_wait` bounds the wait for its
    /// locks.
    ///
    /// # Errors
    /// When no search automaton can be built over the values of the secrets.
    pub fn new(policy: Arc<Policy>, state_dir: Option<&Path>, state_wait: Duration) -> Result<Self, String> {
        let secrets = Arc::new(secrets::SecretStore::new(&policy));
        Ok(Self {
            http: Arc::new(http::HttpClient::new(&policy)),
            process: process::ProcessLauncher::new(&policy),
            redactor: secrets::redactor(std::slice::from_ref(&secrets))?,
            secrets,
            earlier_secrets: Vec::new(),
            kv: Arc::new(kv::RedbStore::new(state_dir, state_wait)),
            file_threads: GuestThreads::default(),
            environment_overrides: environment::clock::EnvironmentOverrides::default(),
            policy,
        })
    }

    /// Builds the services of another policy. Finds its programs and reads its secrets; keeps connections, permits
    /// and state. Blocks on files.
    ///
    /// # Errors
    /// As [`Services::new`].
    pub fn with_policy(&self, policy: Arc<Policy>) -> Result<Self, String> {
        let secrets = Arc::new(secrets::SecretStore::new(&policy));
        let mut known = vec![Arc::clone(&secrets), Arc::clone(&self.secrets)];
        known.extend(self.earlier_secrets.iter().filter_map(Weak::upgrade));
        Ok(Self {
            http: Arc::clone(&self.http),
            process: self.process.with_policy(&policy),
            redactor: secrets::redactor(&known)?,
            secrets,
            earlier_secrets: known.iter().skip(1).map(Arc::downgrade).collect(),
            kv: Arc::clone(&self.kv),
            file_threads: self.file_threads.clone(),
            environment_overrides: self.environment_overrides.clone(),
            policy,
        })
    }
}

/// The grants of one tool, together with the services to use them.
#[derive(Debug)]
pub struct ResolvedGrants {
    /// The services that use the grants.
    pub services: Arc<Services>,
    /// The tool.
    pub tool: ToolName,
    /// What the policy grants.
    pub grants: Grants,
    /// The opened folders; `None` without file grants.
    pub files: Option<FileGrants>,
    /// Environment variables, wall clock and randomness.
    pub environment: environment::Environment,
    /// The OpenAPI service of the tool; `None` for the tool of a plugin.
    pub service: Option<Arc<ServiceGrants>>,
    /// Whether the tool belongs to a plain component, which does not import the contract: no interface can report a
    /// refusal.
    pub is_plain: bool,
}

impl ResolvedGrants {
    /// Creates grants without files, for the tool of a plugin that imports the contract.
    pub fn new(services: &Arc<Services>, tool: ToolName, grants: Grants) -> Self {
        Self {
            services: Arc::clone(services),
            tool,
            environment: environment::Environment::new(&grants, &services.environment_overrides),
            grants,
            files: None,
            service: None,
            is_plain: false,
        }
    }

    /// The text of a refusal, without the policy line that would allow it.
    fn refusal_text(&self, plugin: &PluginId, key: GrantKey, entry: &str) -> String {
        let (key, shown) = (key.name(), path_rule::printable_path(entry));
        match &self.service {
            Some(_) => format!(
                "`{key}` of `{shown}` is not granted to the service `{plugin}`, which reaches its own included \
                 operations only"
            ),
            None => format!("`{key}` of `{shown}` is not granted to tool `{}`", self.tool),
        }
    }

    /// The policy lines that would grant `entry` under a profile, an entry as a policy list writes it.
    pub fn advice(&self, plugin: &PluginId, profile: Option<&str>, key: GrantKey, entry: &str) -> Advice {
        let policy = &self.services.policy;
        match &self.service {
            Some(service) => policy.advise_openapi(&service.section, None, key, entry),
            None => {
                let declared = self.grants.decisions.iter().map(|decision| &decision.capability);
                policy.advise(
                    policy::AccessQuery { plugin, tool: &self.tool, profile, key, line: entry },
                    declared,
                )
            }
        }
    }
}

/// The grants of one tool under each profile of the policy. Profiles that grant the same share one value.
#[derive(Debug)]
pub struct GrantsByProfile {
    /// The grants without a profile.
    pub no_profile: Arc<ResolvedGrants>,
    /// The grants under each profile.
    pub profiles: BTreeMap<Arc<str>, Arc<ResolvedGrants>>,
    /// The grants under a profile that the policy does not define: none.
    pub unknown_profile: Arc<ResolvedGrants>,
}

impl GrantsByProfile {
    /// The grants without a profile, then those of each profile.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ResolvedGrants>> {
        std::iter::once(&self.no_profile).chain(self.profiles.values())
    }

    /// The grants of a call under `profile`.
    pub fn for_profile(&self, profile: Option<&str>) -> &Arc<ResolvedGrants> {
        match profile {
            None => &self.no_profile,
            Some(name) => self.profiles.get(name).unwrap_or(&self.unknown_profile),
        }
    }
}

/// The start and the deadline of a call.
#[derive(Debug, Clone, Copy)]
pub struct CallTimes {
    /// When the call began.
    pub began: Instant,
    /// When it must have ended.
    pub deadline: Instant,
}

impl Capabilities {
    /// Creates a sealed entry: one without grants and without a call.
    pub fn sealed(plugin: PluginId, limits: Arc<CallLimits>) -> Self {
        Self::new(Grantee { plugin, granted: None, limits, ctx: None, hint: None })
    }

    /// Redacts secrets from a guest's text, for the log and everything that leaves the host. A sealed entry cannot
    /// hold secrets.
    pub fn redacted<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match &self.grantee.granted {
            Some(granted) => granted.services.redactor.redact_text(text),
            None => Cow::Borrowed(text),
        }
    }

    /// Redacts secrets from a guest's bytes.
    fn redacted_bytes(&self, bytes: Vec<u8>) -> impl Future<Output = Result<Vec<u8>, Fault>> + Send + use<> {
        let redactor = self.grantee.granted.as_ref().map(|granted| granted.services.redactor.clone());
        let ctx = self.grantee.ctx.clone();
        async move {
            let Some(redactor) = redactor else { return Ok(bytes) };
            let steps = redactor.steps(bytes.len());
            let redact = move || redactor.redact_bytes(bytes, |_| true);
            match ctx {
                Some(ctx) => ctx.compute(steps, redact).await,
                None => Ok(redact()),
            }
        }
    }

    /// Returns the first `max` characters of a guest's text as one line, with secrets redacted. A guest can pass
    /// megabytes, so only the kept part is searched.
    fn redacted_line(&self, text: &str, max: usize) -> String {
        let (clean, more) = match &self.grantee.granted {
            Some(granted) => granted.services.redactor.redact_prefix(text, max),
            None => (Cow::Borrowed(text), false),
        };
        let mut line = one_line(&clean, max);
        if more && !line.ends_with('…') {
            line.push('…');
        }
        line
    }
}

impl types::Host for Capabilities {}

/// Links every interface that guests can import: the rest of WASI, the types of the contract, and each capability.
pub fn link_all(linker: &mut Linker<GuestState>, async_support: AsyncSupport) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    if async_support == AsyncSupport::On {
        wasmtime_wasi::p3::cli::add_to_linker(linker)?;
    }
    types::add_to_linker::<_, HasCapabilities>(linker, state::capabilities_of)?;
    capability::link_each(linker, async_support)
}

/// Maps the store's data to [`Capabilities`] for the linker.
pub(crate) struct HasCapabilities;

impl HasData for HasCapabilities {
    type Data<'a> = &'a mut Capabilities;
}
