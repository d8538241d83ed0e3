//! What a guest can ask of the host. One file for each interface of the contract; each is implemented on
//! [`Capabilities`], which holds what one guest entry was granted and nothing else.
//!
//! All interfaces are always linked (components built from JavaScript or Python import every one of them); what was
//! not granted answers `denied` with the reason.

pub(crate) mod services;
pub(crate) mod wasi_files;

pub(crate) mod attachments;
pub(crate) mod clock;
mod config;
pub(crate) mod context;
pub(crate) mod environment;
pub(crate) mod files;
pub(crate) mod http;
pub(crate) mod invoke;
pub(crate) mod kv;
pub(crate) mod log;
pub(crate) mod principal;
pub(crate) mod process;
mod rate;
pub(crate) mod secrets;
pub(crate) mod silent;
pub(crate) mod sockets;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use toolbay_core::output::redact::Redactor;
use toolbay_core::session::kv::KvStore;
use toolbay_policy::capability::reach;
use toolbay_policy::limits::Limits;
use toolbay_policy::name::{PluginId, ToolName};
use toolbay_policy::text::one_line;
use toolbay_policy::{self as policy, Advice, Grants, Key, Policy};
use wasmtime::component::{HasData, Linker};

use crate::engine::bindings::callers::toolbay::plugin as callers;
use crate::engine::bindings::imports::Imports;
use crate::engine::blocking::GuestThreads;
use files::FileGrants;
pub(crate) use principal::Principal;
use rate::Meter;

/// What stands behind the interfaces under one policy. When the policy is read again, the next one takes its place;
/// calls that run hold the one they began with.
#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) policy: Arc<Policy>,
    pub(crate) http: Arc<http::Client>,
    pub(crate) process: process::Broker,
    pub(crate) secrets: Arc<secrets::Vault>,
    /// The secrets of policies before this one, for as long as calls may use them.
    earlier: Vec<Weak<secrets::Vault>>,
    /// Where state is kept; without a folder it lives as long as the host.
    pub(crate) kv: Arc<dyn KvStore>,
    /// Where the files of guests are read and written.
    pub(crate) file_threads: GuestThreads,
    /// What the embedder put in place of the machine's time and chance.
    pub(crate) time_and_chance: clock::TimeAndChance,
    /// Takes the values of all secrets out of what leaves the host, the earlier ones included.
    pub(crate) redactor: Redactor,
}

impl Services {
    /// Makes what the policy asks for. `state_dir` is where things are kept that outlive the host; `state_wait` is how
    /// long its locks are waited for.
    ///
    /// # Errors
    /// When the values of the secrets cannot be searched for.
    pub(crate) fn new(
        policy: Arc<Policy>,
        state_dir: Option<&Path>,
        state_wait: Duration,
    ) -> Result<Self, String> {
        let secrets = Arc::new(secrets::Vault::new(&policy));
        Ok(Self {
            http: Arc::new(http::Client::new(&policy)),
            process: process::Broker::new(&policy),
            redactor: secrets::redactor(std::slice::from_ref(&secrets))?,
            secrets,
            earlier: Vec::new(),
            kv: Arc::new(kv::RedbStore::new(state_dir, state_wait)),
            file_threads: GuestThreads::default(),
            time_and_chance: clock::TimeAndChance::default(),
            policy,
        })
    }

    /// The same under another policy: its programs are found and its secrets read; connections, places and state stay.
    /// Blocks on files.
    ///
    /// # Errors
    /// As [`Services::new`].
    pub(crate) fn under(&self, policy: Arc<Policy>) -> Result<Self, String> {
        let secrets = Arc::new(secrets::Vault::new(&policy));
        let mut known = vec![Arc::clone(&secrets), Arc::clone(&self.secrets)];
        known.extend(self.earlier.iter().filter_map(Weak::upgrade));
        Ok(Self {
            http: Arc::clone(&self.http),
            process: self.process.under(&policy),
            redactor: secrets::redactor(&known)?,
            secrets,
            earlier: known.iter().skip(1).map(Arc::downgrade).collect(),
            kv: Arc::clone(&self.kv),
            file_threads: self.file_threads.clone(),
            time_and_chance: self.time_and_chance.clone(),
            policy,
        })
    }
}

/// What one tool was granted, joined with what it takes to use it.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) services: Arc<Services>,
    pub(crate) tool: ToolName,
    /// The profile under which it was granted.
    pub(crate) profile: Option<Arc<str>>,
    pub(crate) grants: Grants,
    /// The opened folders; `None` when no files were granted.
    pub(crate) files: Option<FileGrants>,
    /// Variables, wall clock, randomness.
    pub(crate) environment: environment::Environment,
    /// The service it belongs to, if that is no plugin.
    pub(crate) service: Option<Arc<http::service::Service>>,
    /// Whether the component does not know the contract, so that no interface tells it of a refusal.
    pub(crate) foreign: bool,
}

impl Granted {
    /// Without files, and for the tool of a plugin that knows the contract.
    pub(crate) fn new(services: &Arc<Services>, tool: ToolName, grants: Grants) -> Self {
        Self {
            services: Arc::clone(services),
            tool,
            profile: None,
            environment: environment::Environment::new(&grants, &services.time_and_chance),
            grants,
            files: None,
            service: None,
            foreign: false,
        }
    }

    /// Says that something is not granted, without a line of the policy.
    fn refused(&self, plugin: &PluginId, key: Key, wish: &str) -> String {
        let (key, shown) = (key.name(), reach::shown(wish));
        match &self.service {
            Some(_) => format!(
                "`{key}` of `{shown}` is not granted to the service `{plugin}`, which reaches its own included \
                 operations only"
            ),
            None => format!("`{key}` of `{shown}` is not granted to tool `{}`", self.tool),
        }
    }

    /// What would grant a wish, which is a line as a list of the policy has it.
    pub(crate) fn advice(&self, plugin: &PluginId, key: Key, wish: &str) -> Advice {
        let (policy, profile) = (&self.services.policy, self.profile.as_deref());
        match &self.service {
            Some(service) => policy.advise_openapi(&service.about, profile, key, wish),
            None => {
                let declared = self.grants.decisions.iter().map(|decision| &decision.capability);
                policy.advise(policy::Use { plugin, tool: &self.tool, profile, key, wish }, declared)
            }
        }
    }
}

/// What one tool was granted, under each profile of the policy.
#[derive(Debug)]
pub(crate) struct GrantedUnder {
    pub(crate) no_profile: Arc<Granted>,
    pub(crate) profiles: BTreeMap<Arc<str>, Arc<Granted>>,
    /// What a profile gets that the policy does not have.
    pub(crate) nothing: Arc<Granted>,
}

impl GrantedUnder {
    /// What it was granted without a profile, and under each.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Granted>> {
        std::iter::once(&self.no_profile).chain(self.profiles.values())
    }

    /// What it was granted for a call under this profile.
    pub(crate) fn under(&self, profile: Option<&str>) -> &Arc<Granted> {
        match profile {
            None => &self.no_profile,
            Some(name) => self.profiles.get(name).unwrap_or(&self.nothing),
        }
    }
}

/// The grants of one guest entry.
#[derive(Debug)]
pub(crate) struct Capabilities {
    pub(crate) who: Principal,
    /// When the running call began and when it ends at the latest; `None` for sealed entries.
    pub(crate) times: Option<CallTimes>,
    /// Files; `None` when nothing was granted.
    pub(crate) files: Option<FileGrants>,
    /// The operator's settings.
    pub(crate) config: Arc<BTreeMap<String, String>>,
    /// Log lines that may still be written. What is not in the log is at least counted there, when the guest has ended.
    pub(crate) log: Meter,
    /// Progress events that may still be passed on.
    pub(crate) progress: Meter,
    /// What was used so far.
    pub(crate) http: http::Meter,
    pub(crate) programs: u32,
    pub(crate) attachments: attachments::Meter,
    /// The way to other tools, if any were granted.
    pub(crate) caller: Option<invoke::Caller>,
    /// The stand-ins for secrets that the guest was given.
    pub(crate) tokens: secrets::Tokens,
}

/// When a call began, and when it ends at the latest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallTimes {
    pub(crate) began: Instant,
    pub(crate) deadline: Instant,
}

impl Capabilities {
    /// No authority at all.
    pub(crate) fn sealed(plugin: PluginId, limits: Arc<Limits>) -> Self {
        Self::of(Principal { plugin, granted: None, limits, ctx: None })
    }

    /// What is granted and not used yet, without files, settings and the way to other tools.
    pub(crate) fn of(who: Principal) -> Self {
        let limits = &who.limits;
        Self {
            log: Meter::new(limits.log_lines, limits.log_rate),
            progress: Meter::new(limits.progress_events, limits.progress_rate),
            who,
            times: None,
            files: None,
            config: Arc::default(),
            http: http::Meter::default(),
            programs: 0,
            attachments: attachments::Meter::default(),
            caller: None,
            tokens: secrets::Tokens::default(),
        }
    }

    /// A guest's text without the values of secrets, for the log and what leaves the host. A sealed entry can have none.
    pub(crate) fn redacted<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match &self.who.granted {
            Some(granted) => granted.services.redactor.text(text),
            None => Cow::Borrowed(text),
        }
    }

    /// A guest's bytes without the values of secrets.
    fn redacted_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        match &self.who.granted {
            Some(granted) => granted.services.redactor.bytes(bytes, |_| true),
            None => bytes,
        }
    }

    /// The beginning of a guest's text as one line without the values of secrets. The guest may have handed over
    /// megabytes: no more of it is searched than is kept.
    fn line(&self, text: &str, most: usize) -> String {
        let (clean, more) = match &self.who.granted {
            Some(granted) => granted.services.redactor.start(text, most),
            None => (Cow::Borrowed(text), false),
        };
        let mut line = one_line(&clean, most);
        if more && !line.ends_with('…') {
            line.push('…');
        }
        line
    }
}

impl crate::engine::bindings::host::types::Host for Capabilities {}

/// Tells wasmtime how an interface finds its state in the store's.
pub(crate) struct HasCapabilities;

impl HasData for HasCapabilities {
    type Data<'a> = &'a mut Capabilities;
}

/// Links every interface of the contract.
pub(crate) fn link<T: Send + 'static>(
    linker: &mut Linker<T>,
    project: fn(&mut T) -> &mut Capabilities,
) -> wasmtime::Result<()> {
    Imports::add_to_linker::<T, HasCapabilities>(linker, project)?;
    // Behind a feature of the contract until the next version of it is released.
    let mut options = callers::tool_invoke::LinkOptions::default();
    options.tool_invoke(true);
    callers::tool_invoke::add_to_linker::<T, HasCapabilities>(linker, &options, project)
}
