//! What the permission rules say of a call.

use toolbay_policy::permission::{Action, Permissions, Rule, Verdict};

use super::batch::BatchContext;
use super::resolve::ResolvedTool;
use super::validate::ValidatedCall;
use crate::call::approval::Decision;
use crate::tool::ToolDef;

/// The verdict of the policy's rules, or of the profile's where those are stricter.
pub(super) struct Ruling<'a> {
    pub(super) tool: &'a ToolDef,
    verdict: Verdict<'a>,
    /// The profile whose rules decided.
    pub(super) profile: Option<&'a str>,
}

impl<'a> Ruling<'a> {
    /// The stricter of the two verdicts; the policy's where they are equally strict.
    pub(super) fn of(batch: &'a BatchContext, tool: ResolvedTool<'a>, call: &ValidatedCall) -> Self {
        let entry = tool.entry();
        let tags: Vec<&str> = entry.tags().iter().map(|tag| &**tag).collect();
        let decide =
            |permissions: &'a Permissions| permissions.decide(entry.def.subject(&tags), &call.parsed);
        let policy = decide(&batch.gates.permissions);
        match tool.profile().map(|profile| decide(&profile.permissions)) {
            Some(verdict) if verdict.action > policy.action => {
                let profile = tool.profile_name().map(|name| &**name);
                Ruling { tool: &entry.def, verdict, profile }
            }
            Some(_) | None => Ruling { tool: &entry.def, verdict: policy, profile: None },
        }
    }

    pub(super) fn action(&self) -> Action {
        self.verdict.action
    }

    /// The rule that decided, if one fitted.
    pub(super) fn rule(&self) -> Option<&'a Rule> {
        self.verdict.rule.map(|(_, rule)| rule)
    }

    /// The decision for the audit record.
    pub(super) fn decision(&self, allowed: bool, by: Option<&'static str>) -> Decision {
        Decision {
            action: self.verdict.action,
            rule: self.verdict.rule.map(|(place, _)| place).filter(|place| *place > 0),
            of_profile: self.profile.is_some(),
            allowed,
            by,
        }
    }

    /// Which rule says what, and why.
    pub(super) fn because(&self) -> String {
        let action = self.verdict.action.as_str();
        let table = self.profile.map_or_else(|| "the policy".to_owned(), |name| format!("[profile.{name}]"));
        match self.verdict.rule {
            Some((0, rule)) => {
                format!("{} is `{action}`", rule.reason.as_deref().unwrap_or("`permission` of its section"))
            }
            Some((place, rule)) => {
                let reason = rule.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
                format!("rule {place} of {table} says `{action}`{reason}")
            }
            None if self.verdict.by_author => {
                "its author wants every call approved (`needs_approval`)".to_owned()
            }
            None => format!("no rule of {table} fits, and its `default` is `{action}`"),
        }
    }

    /// The policy lines that would allow the call.
    pub(super) fn allowing_lines(&self) -> String {
        let name = self.tool.name.as_str();
        if let Some((0, rule)) = self.verdict.rule {
            let place = rule.reason.as_deref().unwrap_or("`permission` of its section");
            return format!("To allow it without asking, take {place} out of the policy.");
        }
        let table =
            self.profile.map_or_else(|| "rule".to_owned(), |profile| format!("profile.{profile}.rule"));
        let place = self.verdict.rule.map(|(place, _)| format!(" before rule {place}")).unwrap_or_default();
        format!(
            "To allow it without asking, write in the policy{place}:\n[[{table}]]\ntool = \"{name}\"\naction = \"allow\""
        )
    }
}
