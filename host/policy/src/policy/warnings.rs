//! Warnings about a policy that is used, but does not do what it says: names that do not exist, lines without effect,
//! values that mean something else.
//!
//! A warning does not refuse a policy, because plugins and files come and go. But a grant for a misspelled plugin grants
//! nothing, and a rule for a misspelled tool refuses nothing. The caller provides what is known ([`KnownNames`]); this
//! module does no I/O. Loading a policy and `toolbay policy check` give the same warnings.
//!
//! [`CHECKS`] is the one list of checks. Each runs over what could be read, and none depends on another: what could not be
//! read costs only the comparisons with it, and [`PolicyReview::not_compared`] names it.

mod clear_text;
mod collisions;
mod contradictions;
mod environment;
mod fairness;
mod known;
mod names;
mod network_lines;
mod paths;
mod profiles;
mod quantities;
mod reach;
mod rule_arguments;
mod rule_order;
mod sandbox;
mod secrets;
mod sources;
mod unused;

use std::collections::BTreeSet;

pub use known::{
    FileContent, KnownNames, KnownPlugin, KnownService, KnownTool, Machine, PathKind, ProgramRefusal,
    ProgramSection,
};

#[cfg(test)]
pub(super) use known::CompleteMachine;

use super::Policy;
use super::check::{PolicyFinding, Severity};
use super::document::WrittenText;
use crate::problem::{PolicyProblem, suggest_name};

/// A check adds what it finds.
type Check = fn(&CheckInput<'_>, &mut CheckReport);

/// All checks.
const CHECKS: [Check; 28] = [
    paths::check_paths,
    paths::check_whole_machine,
    paths::check_grants,
    environment::check_secrets,
    environment::check_shared_key,
    sandbox::check_unconfined,
    clear_text::check_credentials,
    clear_text::check_placeholders,
    quantities::check_networks,
    quantities::check_whole_networks,
    quantities::check_memory,
    contradictions::check_pairs,
    contradictions::check_minimums,
    fairness::check_concurrency,
    collisions::check_ids,
    names::check_names,
    profiles::check_lists,
    secrets::check_origins,
    rule_order::check_order,
    rule_order::check_patterns,
    rule_arguments::check_arguments,
    sources::check_sources,
    reach::check_requested,
    reach::check_width,
    reach::check_addresses,
    network_lines::check_lines,
    network_lines::check_private,
    unused::check_duplicates,
];

/// What the checks read.
struct CheckInput<'a> {
    policy: &'a Policy,
    known: &'a KnownNames,
    machine: &'a dyn Machine,
    /// All texts of the file.
    texts: &'a [WrittenText],
}

/// What the checks found.
#[derive(Default)]
struct CheckReport {
    found: Vec<PolicyProblem>,
    not_compared: BTreeSet<String>,
}

impl CheckReport {
    fn push(&mut self, problem: PolicyProblem) {
        self.found.push(problem);
    }

    /// Adds a problem at a path of keys, with a help line.
    fn warn<'k>(
        &mut self,
        keys: impl IntoIterator<Item = &'k str>,
        message: String,
        help: impl Into<Option<String>>,
    ) {
        self.push(PolicyProblem { help: help.into(), ..PolicyProblem::at_keys(keys, message) });
    }

    /// Adds a problem at a text of the file, with a help line.
    fn warn_at_text(&mut self, written: &WrittenText, message: String, help: impl Into<Option<String>>) {
        let path = written.path.clone();
        self.push(PolicyProblem { path, help: help.into(), ..PolicyProblem::from(message) });
    }
}

/// The result of all checks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyReview {
    /// The warnings, sorted by line.
    pub findings: Vec<PolicyFinding>,
    /// The sources whose tools the policy names and that could not be read, as rules write them: `openapi:pets`.
    pub not_compared: BTreeSet<String>,
}

impl Policy {
    /// Runs all checks.
    #[must_use]
    pub fn review(&self, known: &KnownNames, machine: &dyn Machine) -> PolicyReview {
        let texts = self.source.texts();
        let input = CheckInput { policy: self, known, machine, texts: &texts };
        let mut report = CheckReport::default();
        CHECKS.iter().for_each(|check| check(&input, &mut report));
        let CheckReport { found, not_compared } = report;
        PolicyReview { findings: self.source.findings(Severity::Warning, found), not_compared }
    }

    /// Returns warnings about secrets and programs that nothing in the policy names; none if the policy has mistakes,
    /// because a line with a mistake may name them. It is not part of [`Policy::review`]: a policy in use may define them
    /// before the sections that name them.
    #[must_use]
    pub fn unused_sections(&self) -> Vec<PolicyFinding> {
        if self.source.has_mistakes() {
            return Vec::new();
        }
        self.source.findings(Severity::Warning, unused::unused_sections(self, &self.source.texts()))
    }

    /// Returns the first of these profiles that the policy does not have, with message and help. A credential for it
    /// grants less than it seems to. `*` is the endpoint without a profile.
    #[must_use]
    pub fn unknown_profile<'a>(
        &self,
        mut profiles: impl Iterator<Item = &'a str>,
    ) -> Option<(&'a str, String, Option<String>)> {
        let unknown = profiles.find(|name| *name != NO_PROFILE && self.profile(name).is_none())?;
        let message = format!("there is no profile `{unknown}` in the policy");
        Some((unknown, message, suggest_name(unknown, self.profile_names())))
    }
}

/// Stands for the endpoint without a profile, in credentials.
const NO_PROFILE: &str = "*";

#[cfg(test)]
mod tests;
