//! The outcome of the permission rules for a call.

use toolbay_policy::hint::{Hint, LineValue, PolicyLine, Remedy};
use toolbay_policy::permission::{
    Action, MAX_ARGUMENT, PermissionRule, Permissions, RuleOutcome, UncomparedArgument,
};
use toolbay_policy::quantity;

use serde_json::Value;

use super::resolve::ResolvedTool;
use super::validate::ValidatedCall;
use crate::approval::Decision;
use crate::pipeline::context::batch::BatchContext;
use crate::tool::{ToolDef, ToolSource};

/// The outcome of the policy's rules, or of the profile's rules if they are stricter.
pub(super) struct Ruling<'a> {
    pub(super) tool: &'a ToolDef,
    subject: ResolvedTool<'a>,
    args: &'a Value,
    policy: &'a Permissions,
    outcome: RuleOutcome<'a>,
    /// The profile whose rules decided; `None` for the policy.
    pub(super) profile: Option<&'a str>,
}

impl<'a> Ruling<'a> {
    /// Evaluates both sets of rules. If they are equally strict, the policy's outcome counts.
    pub(super) fn decide(batch: &'a BatchContext, tool: ResolvedTool<'a>, call: &'a ValidatedCall) -> Self {
        let entry = tool.entry();
        let tags: Vec<&str> = entry.tags().iter().map(|tag| &**tag).collect();
        let decide =
            |permissions: &'a Permissions| permissions.decide(entry.def.subject(&tags), &call.parsed);
        let policy = decide(&batch.call_policy.permissions);
        let ruling = |outcome, profile| Ruling {
            tool: &entry.def,
            subject: tool,
            args: &call.parsed,
            policy: &batch.call_policy.permissions,
            outcome,
            profile,
        };
        match tool.found.profile().map(|profile| decide(&profile.permissions)) {
            Some(verdict) if verdict.action > policy.action => {
                let profile = tool.found.profile_name().map(|name| &**name);
                ruling(verdict, profile)
            }
            Some(_) | None => ruling(policy, None),
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
        if let (Some((place, _)), Some(UncomparedArgument::Open(argument))) =
            (self.outcome.rule, self.outcome.uncompared)
        {
            let rule = if place == 0 { "its section".to_owned() } else { format!("rule {place} of {table}") };
            return format!(
                "{rule} cannot be evaluated: its argument `{argument}` is no text, and the schema of the tool is not \
                 checked there"
            );
        }
        match self.outcome.rule {
            Some((0, rule)) => {
                format!("{} is `{action}`", rule.reason.as_deref().unwrap_or("`permission` of its section"))
            }
            Some((place, rule)) => {
                let reason = rule.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
                let uncompared = self.long_argument().map(|argument| {
                    let limit = quantity::show_bytes(MAX_ARGUMENT as u64);
                    format!(
                        " because the argument `{argument}` has more than {limit}, so that it is not compared"
                    )
                });
                format!("rule {place} of {table} says `{action}`{reason}{}", uncompared.unwrap_or_default())
            }
            None if self.outcome.by_author => match &*self.tool.source {
                // The documents of services have no such mark.
                ToolSource::OpenApi { document } => {
                    format!("`approve` of [openapi.{document}] in the policy wants its calls approved")
                }
                ToolSource::Builtin | ToolSource::Plugin { .. } | ToolSource::Mcp { .. } => {
                    "its author wants every call approved (`needs_approval`)".to_owned()
                }
            },
            None => format!("no rule of {table} fits, and its `default` is `{action}`"),
        }
    }

    /// The argument that was too long for the rule that decided. The rule may not match a shorter one.
    pub(super) fn long_argument(&self) -> Option<&'a str> {
        match self.outcome.uncompared {
            Some(UncomparedArgument::TooLong(argument)) => Some(argument),
            Some(UncomparedArgument::Open(_)) | None => None,
        }
    }

    /// What would allow the call, for every table of the policy that refuses it or asks for an approval.
    pub(super) fn hint(&self) -> Option<Hint> {
        let entry = self.subject.entry();
        let tags: Vec<&str> = entry.tags().iter().map(|tag| &**tag).collect();
        let of_profile = self.subject.found.profile_name().zip(self.subject.found.profile());
        let of_profile = of_profile.map(|(name, profile)| (Some(&**name), &profile.permissions));
        let tables = std::iter::once((None, self.policy)).chain(of_profile);
        let hints = tables.flat_map(|(profile, rules)| {
            let restrictions = rules.restrictions(entry.def.subject(&tags), self.args);
            restrictions.map(move |outcome| Hint::from(remedy(entry.def.name.as_str(), profile, &outcome)))
        });
        hints.reduce(|all, next| format!("{all}\n{next}").into())
    }
}

/// What would turn one outcome into `allow`.
fn remedy(tool: &str, profile: Option<&str>, outcome: &RuleOutcome<'_>) -> Remedy {
    if let Some((0, rule)) = outcome.rule {
        let place = rule.reason.as_deref().unwrap_or("`permission` of its section");
        return Remedy::Note(format!("To allow it without asking, remove {place} from the policy."));
    }
    let table =
        profile.map_or_else(|| "[[rule]]".to_owned(), |profile| format!("[[profile.{profile}.rule]]"));
    let line = |key, value: &str| PolicyLine::new(table.as_str(), key, LineValue::Text(value.to_owned()));
    Remedy::AllowUnasked {
        before_rule: outcome.rule.map(|(place, _)| place),
        lines: vec![line("tool", tool), line("action", "allow")],
    }
}
