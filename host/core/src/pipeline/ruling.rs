//! The outcome of the permission rules for a call.

use toolbay_policy::permission::{Action, PermissionRule, Permissions, RuleOutcome};

use super::batch::BatchContext;
use super::resolve::ResolvedTool;
use super::validate::ValidatedCall;
use crate::call::approval::Decision;
use crate::tool::ToolDef;

/// The outcome of the policy's rules, or of the profile's rules if they are stricter.
pub(super) struct Ruling<'a> {
    pub(super) tool: &'a ToolDef,
    outcome: RuleOutcome<'a>,
    /// The profile whose rules decided; `None` for the policy.
    pub(super) profile: Option<&'a str>,
}

impl<'a> Ruling<'a> {
    /// Evaluates both sets of rules. If they are equally strict, the policy's outcome counts.
    pub(super) fn decide(batch: &'a BatchContext, tool: ResolvedTool<'a>, call: &ValidatedCall) -> Self {
        let entry = tool.entry();
        let tags: Vec<&str> = entry.tags().iter().map(|tag| &**tag).collect();
        let decide =
            |permissions: &'a Permissions| permissions.decide(entry.def.subject(&tags), &call.parsed);
        let policy = decide(&batch.call_policy.permissions);
        match tool.profile().map(|profile| decide(&profile.permissions)) {
            Some(verdict) if verdict.action > policy.action => {
                let profile = tool.profile_name().map(|name| &**name);
                Ruling { tool: &entry.def, outcome: verdict, profile }
            }
            Some(_) | None => Ruling { tool: &entry.def, outcome: policy, profile: None },
        }
    }

    pub(super) fn action(&self) -> Action {
        self.outcome.action
    }

    /// The rule that decided, if one matched.
    pub(super) fn rule(&self) -> Option<&'a PermissionRule> {
        self.outcome.rule.map(|(_, rule)| rule)
    }

    /// The decision for the audit record.
    pub(super) fn decision(&self, allowed: bool, by: Option<&'static str>) -> Decision {
        Decision {
            action: self.outcome.action,
            rule: self.outcome.rule.map(|(place, _)| place).filter(|place| *place > 0),
            of_profile: self.profile.is_some(),
            allowed,
            by,
        }
    }

    /// The rule that decided and its reason, for messages.
    pub(super) fn reason(&self) -> String {
        let action = self.outcome.action.as_str();
        let table = self.profile.map_or_else(|| "the policy".to_owned(), |name| format!("[profile.{name}]"));
        match self.outcome.rule {
            Some((0, rule)) => {
                format!("{} is `{action}`", rule.reason.as_deref().unwrap_or("`permission` of its section"))
            }
            Some((place, rule)) => {
                let reason = rule.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
                format!("rule {place} of {table} says `{action}`{reason}")
            }
            None if self.outcome.by_author => {
                "its author wants every call approved (`needs_approval`)".to_owned()
            }
            None => format!("no rule of {table} fits, and its `default` is `{action}`"),
        }
    }

    /// The policy lines that would allow the call.
    pub(super) fn allowing_lines(&self) -> String {
        let name = self.tool.name.as_str();
        if let Some((0, rule)) = self.outcome.rule {
            let place = rule.reason.as_deref().unwrap_or("`permission` of its section");
            return format!("To allow it without asking, remove {place} from the policy.");
        }
        let table =
            self.profile.map_or_else(|| "rule".to_owned(), |profile| format!("profile.{profile}.rule"));
        let place = self.outcome.rule.map(|(place, _)| format!(" before rule {place}")).unwrap_or_default();
        format!(
            "To allow it without asking, write in the policy{place}:\n[[{table}]]\ntool = \"{name}\"\n\
             action = \"allow\""
        )
    }
}
