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

use crate::plugins::digest::Digest;
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
    fn update_all(
        &self,
        plugins: &[&PluginId],
        decide: &mut dyn FnMut(usize, Option<&Consent>) -> ConsentChange,
    ) -> Result<bool, String> {
        if plugins.is_empty() {
            return Ok(false);
        }
        // Most starts write nothing and need no lock, because the file is only ever replaced as a whole.
        if !self.load()?.apply(plugins, decide) || self.read_only {
            return Ok(false);
        }
        let _lock = self.file.lock()?;
        let mut stored = self.load()?;
        if !stored.apply(plugins, decide) {
            return Ok(false);
        }
        self.file.store(&stored).map(|()| true)
    }
}

impl StoredConsents {
    /// Applies the decision for each plugin. Returns whether a record changed.
    fn apply(
        &mut self,
        plugins: &[&PluginId],
        decide: &mut dyn FnMut(usize, Option<&Consent>) -> ConsentChange,
    ) -> bool {
        let mut changed = false;
        for (index, plugin) in plugins.iter().enumerate() {
            match decide(index, self.plugins.get(plugin.as_str())) {
                ConsentChange::Keep => continue,
                ConsentChange::Replace(consent) => {
                    drop(self.plugins.insert(plugin.as_str().to_owned(), consent));
                }
                ConsentChange::Remove => drop(self.plugins.remove(plugin.as_str())),
            }
            changed = true;
        }
        changed
    }
}

/// The facts of a new consent.
#[derive(Debug, Clone)]
pub struct Agreement<'a> {
    /// SHA-256 of the component, in hex.
    pub digest: &'a str,
    /// The version that the plugin claims.
    pub version: Option<&'a str>,
    /// The grants of the plugin.
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

/// A plugin that asks for what the policy grants it.
pub(crate) struct AskingPlugin<'a> {
    pub(crate) plugin: &'a Plugin,
    pub(crate) version: AskingVersion,
    /// The names of its tools, in the order of its descriptor.
    pub(crate) tools: &'a [ToolName],
}

/// Why a plugin is held, and what runs instead.
#[derive(Debug)]
pub(crate) struct HeldVersion {
    pub(crate) refusal: PolicyRefusal,
    /// The digest of the version that the operator agreed to.
    pub(crate) agreed_digest: Option<Digest>,
}

/// The decision about one plugin.
#[derive(Default)]
struct ConsentOutcome {
    held: Option<HoldReason>,
    /// The digest of the version that the operator agreed to, if this one is held.
    agreed: Option<Digest>,
    /// What changes in the record.
    event: Option<GrantEvent>,
}

impl ConsentGate {
    /// Admits plugins to what the policy grants them, with one look at the records. Says which are held.
    pub(crate) fn admit(&self, policy: &Policy, asking: &[AskingPlugin<'_>]) -> Vec<Option<HeldVersion>> {
        let authority = |one: &AskingPlugin<'_>| {
            let declared = one.plugin.descriptor.tools.iter().map(|tool| tool.capabilities.as_slice());
            Authority::from_policy(policy, &one.plugin.id, one.tools.iter().zip(declared))
        };
        let granted: Vec<Authority> = asking.iter().map(authority).collect();
        let outcomes = self.decide(policy, asking, &granted);
        let mut all_held = Vec::with_capacity(asking.len());
        for ((one, granted), outcome) in asking.iter().zip(granted).zip(outcomes) {
            let ConsentOutcome { held, agreed, event } = outcome;
            if let Some(event) = event {
                self.audit.record_grant(grant_record(event, one.plugin, granted.clone()));
            }
            let lines = held.as_ref().map_or(&[][..], HoldReason::lines);
            self.audit_load(policy, one.plugin, one.tools, granted, lines);
            all_held.push(
                held.map(|held| HeldVersion { refusal: held.refusal(&one.plugin.id), agreed_digest: agreed }),
            );
        }
        all_held
    }

    /// Decides which plugins are held, and why.
    fn decide(
        &self,
        policy: &Policy,
        asking: &[AskingPlugin<'_>],
        granted: &[Authority],
    ) -> Vec<ConsentOutcome> {
        let mut outcomes: Vec<ConsentOutcome> = asking.iter().map(|_| ConsentOutcome::default()).collect();
        let Some(store) = &self.store else { return outcomes };
        // If the policy has no lines for a plugin, there is nothing to agree to. Otherwise there is, even if this
        // version declares nothing, because the next version may.
        let needs_consent = |(one, granted): &(&AskingPlugin<'_>, &Authority)| {
            !granted.is_empty() || policy.grants_anything(&one.plugin.id)
        };
        let mut checked: Vec<_> = (asking.iter().zip(granted).zip(&mut outcomes))
            .filter(|(asked, _)| needs_consent(asked))
            .map(|((one, granted), outcome)| (one, granted, outcome))
            .collect();
        let plugins: Vec<&PluginId> = checked.iter().map(|(one, ..)| &one.plugin.id).collect();
        let is_pinned =
            |one: &AskingPlugin<'_>| policy.pinned_sha256(&one.plugin.id) == Some(one.plugin.digest.as_str());
        let result = store.update_all(&plugins, &mut |index, known| {
            let Some((one, granted, outcome)) = checked.get_mut(index) else { return ConsentChange::Keep };
            let change;
            (change, **outcome) = evaluate(policy, one, is_pinned(one), granted, known);
            change
        });
        for (one, _, outcome) in checked {
            match &result {
                Ok(true) => {}
                Ok(false) => outcome.event = None,
                Err(_) if is_pinned(one) => *outcome = ConsentOutcome::default(),
                Err(problem) => {
                    let held = Some(HoldReason::StoreUnavailable([problem.clone()]));
                    *outcome = ConsentOutcome { held, ..ConsentOutcome::default() };
                }
            }
        }
        outcomes
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

/// The decision about a plugin with this record, and the change of the record.
fn evaluate(
    policy: &Policy,
    asking: &AskingPlugin<'_>,
    pinned: bool,
    granted: &Authority,
    known: Option<&Consent>,
) -> (ConsentChange, ConsentOutcome) {
    let (digest, version) = (asking.plugin.digest.as_str(), asking.plugin.version());
    let agreed = |granted: &Authority, by: &str| {
        ConsentChange::Replace(Agreement { digest, version, granted: granted.clone(), by }.consent())
    };
    let recorded = |event| ConsentOutcome { event: Some(event), ..ConsentOutcome::default() };
    match consent::evaluate_consent(known, digest, asking.version, pinned, granted, policy.workspace()) {
        ConsentDecision::Unchanged => (ConsentChange::Keep, ConsentOutcome::default()),
        ConsentDecision::NeedsConsent(lines) => {
            let held = Some(HoldReason::NewAuthority(lines));
            let agreed = known.and_then(|known| Digest::parse(&known.digest));
            (ConsentChange::Keep, ConsentOutcome { held, agreed, event: None })
        }
        ConsentDecision::FirstConsent => {
            (agreed(granted, "the first load under this policy"), recorded(GrantEvent::Recorded))
        }
        ConsentDecision::UpdateRecord(now) => {
            let by = if pinned { "the pin in the policy" } else { "the policy" };
            (agreed(&now, by), recorded(GrantEvent::Followed))
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
