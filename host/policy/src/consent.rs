//! Consent: what an operator agreed to holds for the bytes it was given for. New bytes under the same id get no more
//! than the old ones had, until somebody agrees again; an update cannot turn a grant that was written for one
//! program into the authority of another.
//!
//! | the digest | what it would be granted | |
//! |---|---|---|
//! | any | nothing, and the policy has no lines for it | nothing to agree to |
//! | the one the policy pins | anything | the pin is the consent |
//! | first under this id | anything | recorded: the operator wrote the section |
//! | as recorded | anything | fine: the operator wrote the lines |
//! | another | no more than recorded | fine: the record follows |
//! | another | more than recorded | held |

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::capability::Capability;
use crate::name::{PluginId, ToolName};
use crate::policy::{Grants, Policy, uncovered_lines};

/// What a plugin may reach, as a policy would write it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authority {
    /// For each tool that gets something without a profile, the lines of each list.
    #[serde(default)]
    pub tools: ToolGrants,
    /// For each profile that gives more, by `from-profile`: what it gives beyond that. A profile only narrows the rest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub profiles: BTreeMap<String, ToolGrants>,
    /// Other plugins' tools whose results it may change.
    #[serde(default)]
    pub reduce: BTreeSet<String>,
}

/// For each tool, the lines of each list.
pub type ToolGrants = BTreeMap<String, GrantLines>;

/// Lines of the policy by their list (`fs_read`, `net`, …).
pub type GrantLines = BTreeMap<String, BTreeSet<String>>;

/// What was agreed to for a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Consent {
    /// SHA-256 of the plugin's bytes, in hex.
    pub digest: String,
    /// The version it claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What it was granted.
    pub granted: Authority,
    /// When.
    pub at: String,
    /// By whom: a person, or the rule that made the record.
    pub by: String,
}

/// Keeps consents. Only the host asks it, and the operator's command; nothing that a plugin or a model can call.
pub trait ConsentStore: Send + Sync + fmt::Debug {
    /// Shows the record of a plugin to `decide` and does as it says, in one step, whoever else writes. `decide` may be
    /// asked more than once. Returns whether a record was changed: a store may be there to be looked at alone.
    ///
    /// # Errors
    /// Why the records cannot be read or written: nothing is then agreed to.
    fn update(
        &self,
        plugin: &PluginId,
        decide: &mut dyn FnMut(Option<&Consent>) -> ConsentChange,
    ) -> Result<bool, String>;
}

/// What is to be done with a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsentChange {
    /// Nothing.
    Keep,
    /// Put this one in its place.
    Replace(Consent),
    /// Take it away.
    Remove,
}

/// What follows from a record for a plugin that is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsentDecision {
    /// It may have what it is granted, and the record says so.
    Unchanged,
    /// It may have what it is granted: the first record under this id is to be made.
    FirstConsent,
    /// It may have what it is granted, and the record is to say so from now on.
    UpdateRecord(Authority),
    /// It is held: each line is something that nobody agreed to.
    NeedsConsent(Vec<String>),
}

/// Judges a plugin by what was recorded.
#[must_use]
pub fn evaluate_consent(
    known: Option<&Consent>,
    digest: &str,
    pinned: bool,
    granted: &Authority,
    workspace: &Path,
) -> ConsentDecision {
    let Some(known) = known else { return ConsentDecision::FirstConsent };
    let beyond = granted.lines_not_in(&known.granted, workspace);
    match (known.digest == digest, beyond.is_empty()) {
        (true, true) => ConsentDecision::Unchanged,
        // The operator wrote more lines for the same bytes; under another policy it may be others.
        (true, false) => ConsentDecision::UpdateRecord(known.granted.clone().union(granted)),
        (false, false) if !pinned => ConsentDecision::NeedsConsent(beyond),
        (false, _) => ConsentDecision::UpdateRecord(granted.clone()),
    }
}

impl Authority {
    /// All that a plugin is granted, with and without each profile.
    #[must_use]
    pub fn from_policy<'a>(
        policy: &Policy,
        plugin: &PluginId,
        tools: impl Iterator<Item = (&'a ToolName, &'a [Capability])>,
    ) -> Self {
        let mut all = Self {
            reduce: policy.reducer_bindings(plugin).iter().map(ToString::to_string).collect(),
            ..Self::default()
        };
        let workspace = policy.workspace();
        for (tool, declared) in tools {
            let granted = |profile| lines(&policy.grant(plugin, tool, declared, profile), workspace);
            let always = granted(None);
            for profile in policy.profile_names() {
                let more = uncovered_lists(&granted(Some(profile)), &[&always], workspace);
                if !more.is_empty() {
                    add(all.profiles.entry(profile.to_owned()).or_default(), tool.as_str(), more);
                }
            }
            add(&mut all.tools, tool.as_str(), always);
        }
        all
    }

    /// Whether it is nothing at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.profiles.is_empty() && self.reduce.is_empty()
    }

    /// Both together.
    #[must_use]
    pub fn union(mut self, other: &Self) -> Self {
        for (tool, lists) in &other.tools {
            add(&mut self.tools, tool, lists.clone());
        }
        for (profile, tools) in &other.profiles {
            let own = self.profiles.entry(profile.clone()).or_default();
            tools.iter().for_each(|(tool, lists)| add(own, tool, lists.clone()));
        }
        self.reduce.extend(other.reduce.iter().cloned());
        self
    }

    /// What of it does not lie in `known`, a line each: `read_file: fs_read $workspace`. What was agreed to for one
    /// profile holds in that profile; what was agreed to without one, in each.
    #[must_use]
    pub fn lines_not_in(&self, known: &Self, workspace: &Path) -> Vec<String> {
        let nothing = GrantLines::new();
        let had = |tools: Option<&ToolGrants>, tool: &str| {
            tools.and_then(|tools| tools.get(tool)).unwrap_or(&nothing).clone()
        };
        let always = std::iter::once((None, &self.tools));
        let in_profiles = self.profiles.iter().map(|(profile, tools)| (Some(profile), tools));
        let mut found = Vec::new();
        for (profile, tools) in always.chain(in_profiles) {
            let shown = profile.map_or_else(String::new, |profile| format!(" in profile {profile}"));
            for (tool, lists) in tools {
                let of_profile = had(profile.and_then(|profile| known.profiles.get(profile)), tool);
                let new = uncovered_lists(lists, &[&had(Some(&known.tools), tool), &of_profile], workspace);
                let new = new.iter().flat_map(|(key, lines)| lines.iter().map(move |line| (key, line)));
                found.extend(new.map(|(key, line)| format!("{tool}: {key} {line}{shown}")));
            }
        }
        found.extend(self.reduce.difference(&known.reduce).map(|name| format!("reduce {name}")));
        found
    }

    /// Takes out all lines of some lists; all of them if `keys` is empty.
    pub fn remove(&mut self, keys: &[String]) {
        for tools in std::iter::once(&mut self.tools).chain(self.profiles.values_mut()) {
            for lists in tools.values_mut() {
                lists.retain(|key, _| !keys.is_empty() && !keys.contains(key));
            }
            tools.retain(|_, lists| !lists.is_empty());
        }
        self.profiles.retain(|_, tools| !tools.is_empty());
        if keys.is_empty() || keys.iter().any(|key| key == "reduce") {
            self.reduce.clear();
        }
    }
}

fn add(tools: &mut ToolGrants, tool: &str, lists: GrantLines) {
    for (key, lines) in lists {
        tools.entry(tool.to_owned()).or_default().entry(key).or_default().extend(lines);
    }
}

/// The lines of each list that do not lie in one of `known`.
fn uncovered_lists(lists: &GrantLines, known: &[&GrantLines], workspace: &Path) -> GrantLines {
    let new = lists.iter().map(|(key, lines)| {
        let had = known.iter().filter_map(|known| known.get(key)).flatten().cloned().collect();
        (key.clone(), uncovered_lines(key, &had, lines, workspace).into_iter().cloned().collect())
    });
    new.filter(|(_, lines): &(String, BTreeSet<String>)| !lines.is_empty()).collect()
}

/// Grants as lines of a policy.
fn lines(grants: &Grants, workspace: &Path) -> GrantLines {
    let lines = grants.lines(workspace).into_iter().filter(|(_, lines)| !lines.is_empty());
    lines.map(|(key, lines)| (key.name().to_owned(), lines.into_iter().collect())).collect()
}

#[cfg(test)]
#[path = "consent_tests.rs"]
mod tests;
