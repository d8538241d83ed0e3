//! Consent. An operator's consent applies to the plugin bytes it was given for. New bytes under the same id get no
//! more authority than the old bytes until the operator consents again. An update therefore cannot take over a grant
//! that was written for another program.
//!
//! | digest | grants | decision |
//! |---|---|---|
//! | any | none, and the policy has no lines for the plugin | no consent needed |
//! | pinned by the policy | any | the pin is the consent |
//! | first under this id | any | recorded: the operator wrote the section |
//! | as recorded | any | allowed: the operator wrote the lines; recorded, unless another version waits after a restart |
//! | another | within the record | allowed: the record is updated |
//! | another | beyond the record | held until the operator consents |

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::capability::Capability;
use crate::name::{PluginId, ToolName};
use crate::policy::{Grants, Policy, uncovered_lines};

/// The authority of a plugin, as policy lines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authority {
    /// For each tool with grants outside a profile, the lines of each list.
    #[serde(default)]
    pub tools: ToolGrants,
    /// For each profile that grants more by `from-profile`, the additional lines. Otherwise a profile only narrows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub profiles: BTreeMap<String, ToolGrants>,
    /// Tools of other plugins whose results the plugin may change.
    #[serde(default)]
    pub reduce: BTreeSet<String>,
}

/// The lines of each list, by tool.
pub type ToolGrants = BTreeMap<String, GrantLines>;

/// Policy lines by list (`fs_read`, `net`, …).
pub type GrantLines = BTreeMap<String, BTreeSet<String>>;

/// The record of a consent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Consent {
    /// SHA-256 of the plugin's bytes, in hex.
    pub digest: String,
    /// The version that the plugin declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The granted authority.
    pub granted: Authority,
    /// The time of the consent.
    pub at: String,
    /// Who consented: a person, or the rule that made the record.
    pub by: String,
}

/// Stores consents. Only the host and the operator's commands use it, never a plugin or a model.
pub trait ConsentStore: Send + Sync + fmt::Debug {
    /// Passes the record of each plugin to `decide`, with the index of the plugin, and applies the results in this order,
    /// in one atomic step: the records are read once and written at most once, however many plugins there are. A plugin may
    /// be there twice, and its second decision sees the first. `decide` may be called more than once for an index; its last
    /// result counts. Returns whether a record changed; a read-only store changes nothing.
    ///
    /// # Errors
    /// The records cannot be read or written. No consent applies then.
    fn update_all(
        &self,
        plugins: &[&PluginId],
        decide: &mut dyn FnMut(usize, Option<&Consent>) -> ConsentChange,
    ) -> Result<bool, String>;

    /// As [`ConsentStore::update_all`], for one plugin.
    ///
    /// # Errors
    /// As [`ConsentStore::update_all`].
    fn update(
        &self,
        plugin: &PluginId,
        decide: &mut dyn FnMut(Option<&Consent>) -> ConsentChange,
    ) -> Result<bool, String> {
        self.update_all(&[plugin], &mut |_, known| decide(known))
    }
}

/// A change of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsentChange {
    /// Keep the record.
    Keep,
    /// Replace the record.
    Replace(Consent),
    /// Remove the record.
    Remove,
}

/// The decision for a plugin that is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsentDecision {
    /// The record already covers the grants.
    Unchanged,
    /// The plugin has no record yet. The grants apply and are recorded.
    FirstConsent,
    /// The grants apply, and the record is updated to this authority.
    UpdateRecord(Authority),
    /// The plugin is held. Each line is a grant without consent.
    NeedsConsent(Vec<String>),
}

/// Which version of a plugin asks for its grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskingVersion {
    /// The version in the file.
    Newest,
    /// The version that runs. Another one may wait for consent, and the operator may have given it already: the record stays.
    Running,
    /// The version that ran before a restart, while the version in the file waits for consent. Lines that the operator added
    /// meanwhile apply to it and are not recorded: the record would admit the version that waits.
    Kept,
}

/// Decides whether a plugin's grants need a new consent.
#[must_use]
pub fn evaluate_consent(
    known: Option<&Consent>,
    digest: &str,
    asking: AskingVersion,
    pinned: bool,
    granted: &Authority,
    workspace: &Path,
) -> ConsentDecision {
    let Some(known) = known else { return ConsentDecision::FirstConsent };
    let beyond = granted.lines_not_in(&known.granted, workspace);
    match (known.digest == digest, beyond.is_empty()) {
        (true, true) => ConsentDecision::Unchanged,
        // The operator added lines for the same bytes. The record keeps lines of other policies, too.
        (true, false) if asking != AskingVersion::Kept => {
            ConsentDecision::UpdateRecord(known.granted.clone().union(granted))
        }
        (true, false) => ConsentDecision::Unchanged,
        (false, false) if !pinned => ConsentDecision::NeedsConsent(beyond),
        (false, _) if asking != AskingVersion::Newest => ConsentDecision::Unchanged,
        (false, _) => ConsentDecision::UpdateRecord(granted.clone()),
    }
}

impl Authority {
    /// Returns everything that the policy grants a plugin, with and without each profile.
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

    /// Whether it grants nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.profiles.is_empty() && self.reduce.is_empty()
    }

    /// Returns the union of both.
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

    /// Returns what `known` does not cover, one line each: `read_file: fs_read $workspace`. A consent for a profile
    /// covers that profile only. A consent without a profile covers all profiles.
    #[must_use]
    pub fn lines_not_in(&self, known: &Self, workspace: &Path) -> Vec<String> {
        let nothing = GrantLines::new();
        let known_lines = |tools: Option<&ToolGrants>, tool: &str| {
            tools.and_then(|tools| tools.get(tool)).unwrap_or(&nothing).clone()
        };
        let always = std::iter::once((None, &self.tools));
        let in_profiles = self.profiles.iter().map(|(profile, tools)| (Some(profile), tools));
        let mut found = Vec::new();
        for (profile, tools) in always.chain(in_profiles) {
            let shown = profile.map_or_else(String::new, |profile| format!(" in profile {profile}"));
            for (tool, lists) in tools {
                let of_profile = known_lines(profile.and_then(|profile| known.profiles.get(profile)), tool);
                let new =
                    uncovered_lists(lists, &[&known_lines(Some(&known.tools), tool), &of_profile], workspace);
                let new = new.iter().flat_map(|(key, lines)| lines.iter().map(move |line| (key, line)));
                found.extend(new.map(|(key, line)| format!("{tool}: {key} {line}{shown}")));
            }
        }
        found.extend(self.reduce.difference(&known.reduce).map(|name| format!("reduce {name}")));
        found
    }

    /// Removes all lines of the lists in `keys`, or all lines if `keys` is empty.
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

/// Returns the lines of each list that `known` does not cover.
fn uncovered_lists(lists: &GrantLines, known: &[&GrantLines], workspace: &Path) -> GrantLines {
    let new = lists.iter().map(|(key, lines)| {
        let known_lines = known.iter().filter_map(|known| known.get(key)).flatten().cloned().collect();
        (key.clone(), uncovered_lines(key, &known_lines, lines, workspace).into_iter().cloned().collect())
    });
    new.filter(|(_, lines): &(String, BTreeSet<String>)| !lines.is_empty()).collect()
}

/// Formats grants as policy lines.
fn lines(grants: &Grants, workspace: &Path) -> GrantLines {
    let lines = grants.lines(workspace).into_iter().filter(|(_, lines)| !lines.is_empty());
    lines.map(|(key, lines)| (key.name().to_owned(), lines.into_iter().collect())).collect()
}

#[cfg(test)]
#[path = "consent_tests.rs"]
mod tests;
