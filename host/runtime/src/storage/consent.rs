//! Consents on disk (`consents.json` in the host's folder of state), and what is done with them when a plugin is
//! loaded.
//!
//! While the file cannot be read, nothing counts as agreed to until a person has looked at it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use toolbay_core::audit::timestamp;
use toolbay_core::audit::{AuditSink, GrantEvent, GrantRecord};
use toolbay_policy::Policy;
use toolbay_policy::consent::{self, Authority, Change, Consent, ConsentStore, Verdict};
use toolbay_policy::name::{PluginId, ToolName};
use toolbay_policy::refusal::Refusal;

use crate::plugins::plugin::Plugin;
use crate::storage::private;
use crate::storage::state_file::StateFile;

/// Grows when what is stored changes its meaning.
const VERSION: u32 = 1;
/// Largest file that is read, in bytes: thousands of plugins.
const MAX_BYTES: u64 = 16 << 20;
/// New lines that a message shows; the rest is counted.
const MAX_SHOWN: usize = 8;

/// Consents in a folder.
#[derive(Debug, Clone)]
pub struct FileConsents {
    file: StateFile,
    read_only: bool,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    plugins: BTreeMap<String, Consent>,
}

impl FileConsents {
    /// Keeps consents in this folder, which is made when the first one is written.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let file = StateFile::new(dir.into(), "consents", VERSION, MAX_BYTES, "agree to each plugin anew");
        Self { file, read_only: false }
    }

    /// Waits up to `limit` for other processes that write.
    #[must_use]
    pub fn with_wait(self, limit: Duration) -> Self {
        Self { file: self.file.with_wait(limit), ..self }
    }

    /// Judges by the consents that are there and records none: for who only looks at plugins.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    /// What was agreed to for a plugin.
    ///
    /// # Errors
    /// Why the file cannot be read.
    pub fn get(&self, plugin: &PluginId) -> Result<Option<Consent>, String> {
        self.load().map(|mut stored| stored.plugins.remove(plugin.as_str()))
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.file.path()
    }

    fn load(&self) -> Result<Stored, String> {
        if self.file.dir().exists() {
            private::check_dir(self.file.dir())?;
        }
        let stored = self.file.load()?;
        Ok(stored.unwrap_or_else(|| Stored { version: VERSION, plugins: BTreeMap::new() }))
    }
}

impl ConsentStore for FileConsents {
    fn update(
        &self,
        plugin: &PluginId,
        decide: &mut dyn FnMut(Option<&Consent>) -> Change,
    ) -> Result<bool, String> {
        let id = plugin.as_str();
        // Nothing is written at most starts, and then no lock is needed: the file is only ever replaced whole.
        if decide(self.load()?.plugins.get(id)) == Change::Keep || self.read_only {
            return Ok(false);
        }
        let _lock = self.file.lock()?;
        let mut stored = self.load()?;
        match decide(stored.plugins.get(id)) {
            Change::Keep => return Ok(false),
            Change::Put(consent) => drop(stored.plugins.insert(id.to_owned(), consent)),
            Change::Forget => drop(stored.plugins.remove(id)),
        }
        self.file.store(&stored).map(|()| true)
    }
}

/// What a consent is made from.
#[derive(Debug, Clone)]
pub struct Agreement<'a> {
    /// SHA-256 of the plugin's bytes, in hex.
    pub digest: &'a str,
    /// The version it claims.
    pub version: Option<&'a str>,
    /// What it is granted.
    pub granted: Authority,
    /// By whom.
    pub by: &'a str,
}

impl Agreement<'_> {
    /// The consent, from now on.
    #[must_use]
    pub fn consent(&self) -> Consent {
        Consent {
            digest: self.digest.to_owned(),
            version: self.version.map(ToOwned::to_owned),
            granted: self.granted.clone(),
            at: now(),
            by: self.by.to_owned(),
        }
    }
}

/// The time, as records have it.
pub(crate) fn now() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    timestamp::rfc3339(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// Asks for consents when plugins are loaded, and tells the audit what came of it.
#[derive(Debug)]
pub(crate) struct Keeper {
    /// `None`: nothing is held.
    pub(crate) store: Option<Arc<dyn ConsentStore>>,
    pub(crate) audit: Arc<dyn AuditSink>,
}

impl Keeper {
    /// Whether a plugin may have what the policy grants it; if not, why.
    pub(crate) fn admit(&self, policy: &Policy, plugin: &Plugin, tools: &[ToolName]) -> Option<Refusal> {
        let declared = plugin.descriptor.tools.iter().map(|tool| tool.capabilities.as_slice());
        let granted = Authority::of(policy, &plugin.id, tools.iter().zip(declared));
        let held = self.judge(policy, plugin, &granted);
        self.tell_loaded(policy, plugin, tools, granted, held.as_ref().map_or(&[], Hold::lines));
        held.map(|held| held.refusal(&plugin.id))
    }

    /// What a plugin is held for; `None`: it is not held.
    fn judge(&self, policy: &Policy, plugin: &Plugin, granted: &Authority) -> Option<Hold> {
        let store = self.store.as_ref()?;
        // Without lines of the policy there is nothing to agree to. With lines there is, even if this digest declares
        // nothing: the next one may.
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
            match consent::judge(known, digest, pinned, granted, policy.workspace()) {
                Verdict::Agreed => Change::Keep,
                Verdict::Held(lines) => {
                    held = Some(lines);
                    Change::Keep
                }
                Verdict::First => {
                    event = Some(GrantEvent::Recorded);
                    Change::Put(agreed(granted, "the first load under this policy"))
                }
                Verdict::Follow(now) => {
                    event = Some(GrantEvent::Followed);
                    Change::Put(agreed(&now, if pinned { "the pin in the policy" } else { "the policy" }))
                }
            }
        });
        match result {
            Ok(written) => {
                if let Some(event) = event.filter(|_| written) {
                    self.audit.decided(record(event, plugin, granted.clone()));
                }
                held.map(Hold::NewAuthority)
            }
            Err(_) if pinned => None,
            Err(problem) => Some(Hold::NoConsents([problem])),
        }
    }

    fn tell_loaded(
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
        // What only computes is no news.
        if !granted.is_empty() || !refused.is_empty() || !held.is_empty() {
            let held = held.to_vec();
            self.audit.decided(GrantRecord { refused, held, ..record(GrantEvent::Loaded, plugin, granted) });
        }
    }
}

fn record(event: GrantEvent, plugin: &Plugin, granted: Authority) -> GrantRecord {
    GrantRecord {
        event,
        plugin: plugin.id.to_string(),
        version: plugin.version().map(ToOwned::to_owned),
        digest: Some(plugin.digest.to_string()),
        granted,
        refused: BTreeMap::new(),
        held: Vec::new(),
        by: None,
    }
}

/// Why a plugin is held.
#[derive(Debug)]
enum Hold {
    /// It would get what nobody agreed to: a line for each.
    NewAuthority(Vec<String>),
    /// The consents cannot be read or written, for this reason; nothing is wrong with the plugin.
    NoConsents([String; 1]),
}

impl Hold {
    fn lines(&self) -> &[String] {
        match self {
            Self::NewAuthority(lines) => lines,
            Self::NoConsents(problem) => problem,
        }
    }

    /// The refusal of every call to the plugin.
    fn refusal(&self, id: &PluginId) -> Refusal {
        match self {
            Self::NewAuthority(lines) => asks_for_more(id, lines),
            Self::NoConsents([problem]) => {
                let text = format!("plugin `{id}` is held because the host cannot use its file of consents");
                Refusal::new(text, problem.clone())
            }
        }
    }
}

fn asks_for_more(id: &PluginId, lines: &[String]) -> Refusal {
    let mut shown: Vec<String> = lines.iter().take(MAX_SHOWN).map(|line| format!("+ {line}")).collect();
    if lines.len() > MAX_SHOWN {
        shown.push(format!("and {} more", lines.len() - MAX_SHOWN));
    }
    Refusal::new(
        format!("plugin `{id}` is held until the operator agrees to what it would newly get"),
        format!("It would get: {}; look at it with `toolbay grant {id}`", shown.join(", ")),
    )
}
