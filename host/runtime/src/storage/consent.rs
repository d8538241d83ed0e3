//! Consents on disk (`consents.json` in the state folder), and the decision about them when a plugin is loaded.
//!
//! While the file cannot be read, no plugin counts as agreed to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use toolbay_core::audit::timestamp;
use toolbay_core::audit::{AuditSink, GrantEvent, GrantRecord};
use toolbay_policy::Policy;
use toolbay_policy::consent::{
    self, AskingVersion, Authority, Consent, ConsentChange, ConsentDecision, ConsentStore,
};
use toolbay_policy::name::{PluginId, ToolName};
use toolbay_policy::refusal::PolicyRefusal;

use crate::plugins::plugin::Plugin;
use crate::storage::private;
use crate::storage::state_file::StateFile;

/// Increased when the meaning of the stored data changes.
const VERSION: u32 = 1;
/// Maximum size of the file, in bytes: enough for thousands of plugins.
const MAX_BYTES: u64 = 16 << 20;
/// Maximum number of new lines in a message; the rest are counted.
const MAX_SHOWN: usize = 8;

/// A consent store in a folder.
#[derive(Debug, Clone)]
pub struct FileConsents {
    file: StateFile,
    read_only: bool,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredConsents {
    version: u32,
    plugins: BTreeMap<String, Consent>,
}

impl FileConsents {
    /// Stores consents in this folder, which is created when the first consent is written.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let file = StateFile::new(dir.into(), "consents", VERSION, MAX_BYTES, "agree to each plugin again");
        Self { file, read_only: false }
    }

    /// Waits up to `limit` for other writers.
    #[must_use]
    pub fn with_wait(self, limit: Duration) -> Self {
        Self { file: self.file.with_wait(limit), ..self }
    }

    /// Uses the existing consents and records none, for commands that only inspect plugins.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    /// The consent for a plugin.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn get(&self, plugin: &PluginId) -> Result<Option<Consent>, String> {
        self.load().map(|mut stored| stored.plugins.remove(plugin.as_str()))
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.file.path()
    }

    fn load(&self) -> Result<StoredConsents, String> {
        if self.file.dir().exists() {
            private::check_dir(self.file.dir())?;
        }
        let stored = self.file.load()?;
        Ok(stored.unwrap_or_else(|| StoredConsents { version: VERSION, plugins: BTreeMap::new() }))
    }
}

impl ConsentStore for FileConsents {
    fn update(
        &self,
        plugin: &PluginId,
        decide: &mut dyn FnMut(Option<&Consent>) -> ConsentChange,
    ) -> Result<bool, String> {
        let id = plugin.as_str();
        // Most starts write nothing and need no lock, because the file is only ever replaced as a whole.
        if decide(self.load()?.plugins.get(id)) == ConsentChange::Keep || self.read_only {
            return Ok(false);
        }
        let _lock = self.file.lock()?;
        let mut stored = self.load()?;
        match decide(stored.plugins.get(id)) {
            ConsentChange::Keep => return Ok(false),
            ConsentChange::Replace(consent) => drop(stored.plugins.insert(id.to_owned(), consent)),
            ConsentChange::Remove => drop(stored.plugins.remove(id)),
        }
        self.file.store(&stored).map(|()| true)
    }
}

/// The facts of a new consent.
#[derive(Debug, Clone)]
pub struct Agreement<'a> {
    /// SHA-256 of the component, in hex.
    pub digest: &'a str,
    /// The version that the plugin claims.
    pub version: Option<&'a str>,
    /// What the plugin is granted.
    pub granted: Authority,
    /// Who agrees.
    pub by: &'a str,
}

impl Agreement<'_> {
    /// Creates the consent, dated now.
    #[must_use]
    pub fn consent(&self) -> Consent {
        Consent {
            digest: self.digest.to_owned(),
            version: self.version.map(ToOwned::to_owned),
            granted: self.granted.clone(),
            at: timestamp_now(),
            by: self.by.to_owned(),
        }
    }
}

/// The current time in the format of records.
pub(crate) fn timestamp_now() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    timestamp::rfc3339(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// Decides about consents when plugins are loaded, and records the decision in the audit.
#[derive(Debug)]
pub(crate) struct ConsentGate {
    /// `None`: no plugin is held.
    pub(crate) store: Option<Arc<dyn ConsentStore>>,
    pub(crate) audit: Arc<dyn AuditSink>,
}

impl ConsentGate {
    /// Admits a plugin to what the policy grants it. Returns the refusal if the plugin is held.
    pub(crate) fn admit(
        &self,
        policy: &Policy,
        plugin: &Plugin,
        version: AskingVersion,
        tools: &[ToolName],
    ) -> Option<PolicyRefusal> {
        let declared = plugin.descriptor.tools.iter().map(|tool| tool.capabilities.as_slice());
        let granted = Authority::from_policy(policy, &plugin.id, tools.iter().zip(declared));
        let held = self.decide(policy, plugin, version, &granted);
        self.audit_load(policy, plugin, tools, granted, held.as_ref().map_or(&[], HoldReason::lines));
        held.map(|held| held.refusal(&plugin.id))
    }

    /// Decides whether a plugin is held, and why.
    fn decide(
        &self,
        policy: &Policy,
        plugin: &Plugin,
        asking: AskingVersion,
        granted: &Authority,
    ) -> Option<HoldReason> {
        let store = self.store.as_ref()?;
        // If the policy has no lines for the plugin, there is nothing to agree to. Otherwise there is, even if this
        // version declares nothing, because the next version may.
        if granted.is_empty() && !policy.grants_anything(&plugin.id) {
            return None;
        }
        let digest = plugin.digest.as_str();
        let pinned = policy.pinned_sha256(&plugin.id) == Some(digest);
        let version = plugin.version();
        let agreed = |granted: &Authority, by: &str| {
            Agreement { digest, version, granted: granted.clone(), by }.consent()
        };
        let (mut held, mut event) = (None, None);
        let result = store.update(&plugin.id, &mut |known| {
            (held, event) = (None, None);
            match consent::evaluate_consent(known, digest, asking, pinned, granted, policy.workspace()) {
                ConsentDecision::Unchanged => ConsentChange::Keep,
                ConsentDecision::NeedsConsent(lines) => {
                    held = Some(lines);
                    ConsentChange::Keep
                }
                ConsentDecision::FirstConsent => {
                    event = Some(GrantEvent::Recorded);
                    ConsentChange::Replace(agreed(granted, "the first load under this policy"))
                }
                ConsentDecision::UpdateRecord(now) => {
                    event = Some(GrantEvent::Followed);
                    ConsentChange::Replace(agreed(
                        &now,
                        if pinned { "the pin in the policy" } else { "the policy" },
                    ))
                }
            }
        });
        match result {
            Ok(written) => {
                if let Some(event) = event.filter(|_| written) {
                    self.audit.record_grant(grant_record(event, plugin, granted.clone()));
                }
                held.map(HoldReason::NewAuthority)
            }
            Err(_) if pinned => None,
            Err(problem) => Some(HoldReason::StoreUnavailable([problem])),
        }
    }

    fn audit_load(
        &self,
        policy: &Policy,
        plugin: &Plugin,
        tools: &[ToolName],
        granted: Authority,
        held: &[String],
    ) {
        let mut refused = BTreeMap::new();
        for (name, tool) in tools.iter().zip(&plugin.descriptor.tools) {
            let grants = policy.grant(&plugin.id, name, &tool.capabilities, None);
            let missing: BTreeSet<String> = grants
                .missing()
                .map(|d| format!("{} {}", d.capability.kind.as_str(), d.capability.target))
                .collect();
            if !missing.is_empty() {
                refused.insert(name.to_string(), missing);
            }
        }
        // A plugin that only computes needs no record.
        if !granted.is_empty() || !refused.is_empty() || !held.is_empty() {
            let held = held.to_vec();
            self.audit.record_grant(GrantRecord {
                refused,
                held,
                ..grant_record(GrantEvent::Loaded, plugin, granted)
            });
        }
    }
}

fn grant_record(event: GrantEvent, plugin: &Plugin, granted: Authority) -> GrantRecord {
    GrantRecord {
        event,
        plugin: plugin.id.to_string(),
        version: plugin.version().map(ToOwned::to_owned),
        digest: Some(plugin.digest.to_string()),
        origin: plugin.origin.clone(),
        granted,
        refused: BTreeMap::new(),
        held: Vec::new(),
        by: None,
    }
}

/// Why a plugin is held.
#[derive(Debug)]
enum HoldReason {
    /// The plugin would get authority that the operator has not agreed to, one line each.
    NewAuthority(Vec<String>),
    /// The consents cannot be read or written, for this reason. The plugin is not at fault.
    StoreUnavailable([String; 1]),
}

impl HoldReason {
    fn lines(&self) -> &[String] {
        match self {
            Self::NewAuthority(lines) => lines,
            Self::StoreUnavailable(problem) => problem,
        }
    }

    /// The refusal for every call to the plugin.
    fn refusal(&self, id: &PluginId) -> PolicyRefusal {
        match self {
            Self::NewAuthority(lines) => new_authority_refusal(id, lines),
            Self::StoreUnavailable([problem]) => {
                let text = format!("plugin `{id}` is held because the host cannot use the consents file");
                PolicyRefusal::new(text, problem.clone())
            }
        }
    }
}

fn new_authority_refusal(id: &PluginId, lines: &[String]) -> PolicyRefusal {
    let mut shown: Vec<String> = lines.iter().take(MAX_SHOWN).map(|line| format!("+ {line}")).collect();
    if lines.len() > MAX_SHOWN {
        shown.push(format!("and {} more", lines.len() - MAX_SHOWN));
    }
    PolicyRefusal::new(
        format!("plugin `{id}` is held until the operator agrees to its new capabilities"),
        format!("It would get: {}; review it with `toolbay grant {id}`", shown.join(", ")),
    )
}
