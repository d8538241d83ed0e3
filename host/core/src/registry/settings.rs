//! What the operator said of tools, by their names: off, hidden, told of in other words. It outlives the tools, so
//! that a plugin that is loaded again comes back as it was.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toolbay_policy::text::one_line;

use super::entry::Entry;

/// Longest reason that is kept, in characters.
pub const MAX_REASON: usize = 500;
/// What stands for a reason where none is given.
const NO_REASON: &str = "no reason was given";

/// What is told of a tool in other words than its source's. What is `None`, or empty, stays as the source has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metadata {
    /// A name for people.
    pub title: Option<String>,
    /// What the model reads to decide.
    pub description: Option<String>,
    /// Further labels, besides those of the source.
    pub tags: Vec<String>,
    /// Words by which a search finds it, besides those of the definition.
    pub search_hint: Option<String>,
    /// Whether it stays out of the first list.
    pub deferred: Option<bool>,
}

/// What is switched off, by name: what a program keeps to have it so the next time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Switches {
    /// Qualified names of tools, each with the reason.
    pub tools: BTreeMap<String, String>,
    /// Namespaces, each with the reason.
    pub namespaces: BTreeMap<String, String>,
}

/// All that is said of tools, by their qualified names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    pub(super) tools: BTreeMap<Arc<str>, Setting>,
    pub(super) namespaces: BTreeMap<Arc<str>, Arc<str>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) disabled: Option<Arc<str>>,
    pub(super) hidden: bool,
    pub(super) metadata: Option<Arc<Metadata>>,
}

impl Settings {
    /// What is switched off.
    #[must_use]
    pub fn switches(&self) -> Switches {
        let off = |(name, setting): (&Arc<str>, &Setting)| {
            Some((name.to_string(), setting.disabled.as_ref()?.to_string()))
        };
        let namespaces = self.namespaces.iter().map(|(name, reason)| (name.to_string(), reason.to_string()));
        Switches { tools: self.tools.iter().filter_map(off).collect(), namespaces: namespaces.collect() }
    }

    /// What is told of a tool in other words, if it is.
    #[must_use]
    pub fn metadata(&self, tool: &str) -> Option<&Metadata> {
        self.tools.get(tool)?.metadata.as_deref()
    }

    /// Makes a tool what its source and the settings together say it is.
    pub(crate) fn apply(&self, entry: &mut Entry) {
        let setting = self.tools.get(entry.def.name.as_str());
        let own = setting.and_then(|setting| setting.disabled.as_ref());
        let of_namespace = entry.def.namespace().and_then(|namespace| self.namespaces.get(namespace));
        // The nearest reason first.
        entry.availability.disabled = own.or(of_namespace).or(entry.derived.by_hook.as_ref()).cloned();
        let hidden = setting.is_some_and(|setting| setting.hidden);
        entry.show(hidden, setting.and_then(|setting| setting.metadata.as_deref()));
    }

    pub(super) fn of(&mut self, tool: &str) -> &mut Setting {
        self.tools.entry(tool.into()).or_default()
    }

    /// Forgets what says nothing.
    pub(super) fn tidy(&mut self) {
        let nothing = Setting::default();
        self.tools.retain(|_, setting| *setting != nothing);
    }
}

/// A reason as it is kept: one line, not too long, and never empty.
pub(super) fn reason(text: &str) -> Arc<str> {
    match text.trim() {
        "" => NO_REASON.into(),
        text => one_line(text, MAX_REASON).into(),
    }
}
