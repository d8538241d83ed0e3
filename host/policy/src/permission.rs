//! Permissions: operator rules that decide about each call. Rules are matched from the top; the first match decides.
//!
//! Grants define what a tool can access. Permissions define whether a call runs at all: always, never, or after
//! approval. Without rules, every admitted call runs.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::name_list::list_all_names;
use crate::problem::{PolicyProblem, nest_under};
use crate::unchecked::UncheckedArguments;
use crate::wildcard::text_matches;

/// Longest argument that is compared, in bytes. A longer one matches rules that deny or ask, but not rules that
/// allow.
pub const MAX_ARGUMENT: usize = 64 << 10;
/// Default time to wait for an approval. A person may be away for some minutes, but an agent must not wait forever.
pub const DEFAULT_ASK_TIMEOUT: Duration = Duration::from_secs(300);
/// The predefined rules, by name.
const PRESETS: [(&str, &str, Action); 5] = [
    ("allow-read-only", "read_only", Action::Allow),
    ("ask-destructive", "destructive", Action::Ask),
    ("deny-privileged", "privileged", Action::Deny),
    ("ask-network", "network", Action::Ask),
    ("ask-file-system", "file_system", Action::Ask),
];

/// What happens to a call. A later variant is stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The call runs.
    Allow,
    /// A person is asked for approval. If nobody can be asked, the call is refused.
    Ask,
    /// The call is refused.
    Deny,
}

impl Action {
    /// The action as the policy writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// A permission rule (`[[rule]]`). All its conditions must match. An absent condition always matches.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "PermissionRuleSection")]
pub struct PermissionRule {
    /// The qualified name of the tool; `*` matches any run of characters.
    pub tool: Option<String>,
    /// A tag that the tool must have.
    pub tag: Option<String>,
    /// The source of the tool: `builtin`, `plugin`, `mcp`, `openapi`, or one with a name such as `plugin:ID`, where
    /// `*` is a wildcard.
    pub source: Option<String>,
    /// Patterns for arguments, by JSON pointer. A missing argument matches no pattern.
    pub args: BTreeMap<String, String>,
    /// What happens to the call.
    pub action: Action,
    /// The reason, shown to the model if the call is refused, and to the person who is asked.
    pub reason: Option<String>,
}

/// A permission rule. All its conditions must match. An absent condition always matches.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Rule")]
#[schemars(extend("oneOf" = [
    {"required": ["action"], "properties": {"preset": false}},
    {"required": ["preset"], "properties": {"action": false, "tool": false, "tag": false, "source": false}},
]))]
pub(crate) struct PermissionRuleSection {
    /// A predefined rule. Only `reason` can be set in addition.
    #[serde(default)]
    #[schemars(schema_with = "preset_names")]
    preset: Option<String>,
    /// Qualified name of the tool; `*` matches any run of characters.
    tool: Option<String>,
    /// A tag that the tool must have.
    tag: Option<String>,
    /// The source of the tool: `builtin`, `plugin`, `mcp`, `openapi`, or one of the last three with a name.
    #[schemars(regex(pattern = "^(builtin|plugin|mcp|openapi|(plugin|mcp|openapi):.+)$"))]
    source: Option<String>,
    /// Patterns for arguments, by JSON pointer.
    #[serde(default)]
    #[schemars(with = "BTreeMap<crate::schema::JsonPointer, String>")]
    args: BTreeMap<String, String>,
    /// What happens to the call.
    action: Option<Action>,
    /// The reason, shown to the model if the call is refused, and to the person who is asked.
    reason: Option<String>,
}

fn preset_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": PRESETS.map(|(name, ..)| name)})
}

impl TryFrom<PermissionRuleSection> for PermissionRule {
    type Error = PolicyProblem;

    /// Refuses rules that can never match or that would not do what they suggest.
    fn try_from(written: PermissionRuleSection) -> Result<Self, PolicyProblem> {
        let PermissionRuleSection { preset, tool, tag, source, args, action, reason } = written;
        let names_something = tool.is_some() || tag.is_some() || source.is_some() || !args.is_empty();
        let rule = match (preset, action) {
            (Some(preset), None) if !names_something => Permissions::preset(&preset).ok_or_else(|| {
                let known = list_all_names(PRESETS.map(|(name, ..)| name));
                let message = format!("`preset`: there is no preset `{preset}`; use one of {known}");
                PolicyProblem::at_keys(["preset"], message)
            })?,
            (Some(_), _) => {
                let other = [("tool", tool.is_some()), ("tag", tag.is_some()), ("source", source.is_some())]
                    .into_iter()
                    .chain([("args", !args.is_empty())])
                    .find_map(|(key, is_written)| is_written.then_some(key));
                let key = other.unwrap_or("action");
                let message = format!("`{key}`: `preset` excludes all other keys except `reason`");
                return Err(PolicyProblem::at_keys([key], message));
            }
            (None, None) => {
                let message = "`action` is missing: `allow`, `ask` or `deny`";
                return Err(PolicyProblem::missing_key("action", message));
            }
            (None, Some(action)) => Self { tool, tag, source, args, action, reason: None },
        };
        if let Some(source) = &rule.source {
            SourceLabel::check_pattern(source).map_err(nest_under(["source"]))?;
        }
        if let Some(pointer) =
            rule.args.keys().find(|pointer| !pointer.is_empty() && !pointer.starts_with('/'))
        {
            let message = format!("`args` has `{pointer}`: write a JSON pointer, `/{pointer}`");
            return Err(PolicyProblem::at_keys(["args", pointer.as_str()], message));
        }
        Ok(Self { reason: reason.or(rule.reason), ..rule })
    }
}

/// The properties of a tool that rules compare.
#[derive(Debug, Clone, Copy)]
pub struct PermissionSubject<'a> {
    /// Its qualified name.
    pub name: &'a str,
    /// The qualified name that it would have without the operator's `name`. Rules match both, so that a new name escapes
    /// none.
    pub full_name: &'a str,
    /// The source of the tool.
    pub source: SourceLabel<'a>,
    /// All its tags, derived ones included.
    pub tags: &'a [&'a str],
    /// Whether its author wants each call approved.
    pub needs_approval: bool,
    /// The arguments that its schema does not check completely; `None` if it checks all.
    pub unchecked: Option<&'a UncheckedArguments>,
}

/// The source of a tool: its kind and, except for `builtin`, its name. Shown as `plugin:text`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceLabel<'a> {
    /// `builtin`, `plugin`, `mcp` or `openapi`.
    pub kind: &'static str,
    /// The operator's name for the source. Empty for `builtin`.
    pub name: &'a str,
}

impl SourceLabel<'_> {
    /// Whether a pattern matches: `plugin` matches every plugin, `plugin:text*` every plugin whose id starts with
    /// `text`. The same applies to `mcp` and `openapi`. `builtin` has no names.
    #[must_use]
    pub fn matches(&self, pattern: &str) -> bool {
        let (kind, id) = pattern.split_once(':').map_or((pattern, None), |(kind, id)| (kind, Some(id)));
        kind == self.kind
            && id.is_none_or(|pattern| !self.name.is_empty() && text_matches(pattern, self.name))
    }

    /// Refuses a pattern that can never match.
    ///
    /// # Errors
    /// Shows the valid forms.
    pub fn check_pattern(pattern: &str) -> Result<(), String> {
        let good = match pattern.split_once(':') {
            None => matches!(pattern, "builtin" | "plugin" | "mcp" | "openapi"),
            Some((kind, name)) => matches!(kind, "plugin" | "mcp" | "openapi") && !name.is_empty(),
        };
        let forms = "write `builtin`, `plugin`, `mcp`, `openapi`, or one of the last three with a name, `plugin:text`";
        if good { Ok(()) } else { Err(format!("`source` is `{pattern}`: {forms}")) }
    }
}

impl fmt::Display for SourceLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() { f.write_str(self.kind) } else { write!(f, "{}:{}", self.kind, self.name) }
    }
}

/// The permission rules of a policy or of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    /// The rules. The first match decides.
    pub rules: Vec<PermissionRule>,
    /// Rules from the sections of tools' sources. The first match applies if it is stricter than the outcome of
    /// `rules`.
    pub section_rules: Vec<PermissionRule>,
    /// What happens to a call that no rule matches.
    pub fallback: Action,
    /// What happens to a call of a tool with `needs_approval` that no rule matches. Never less strict than
    /// `fallback`.
    pub needs_approval: Action,
    /// How long an approval request waits for its reply.
    pub ask_timeout: Duration,
}

/// The outcome of the rules for one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleOutcome<'a> {
    /// What happens to the call.
    pub action: Action,
    /// The matching rule and its position, from 1; 0 for a section's rule. `None` if no rule matches.
    pub rule: Option<(usize, &'a PermissionRule)>,
    /// Whether no rule matches and the tool's author wants each call approved.
    pub by_author: bool,
    /// The argument that the rule could not compare.
    pub uncompared: Option<UncomparedArgument<'a>>,
}

/// An argument that a rule could not compare with its pattern, as a JSON pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UncomparedArgument<'a> {
    /// The schema of the tool does not check it, and it has no text: the rule refuses the call.
    Open(&'a str),
    /// The argument is longer than [`MAX_ARGUMENT`]: the rule applies without it. A shorter one may not match.
    TooLong(&'a str),
}

impl<'a> RuleOutcome<'a> {
    /// The outcome of a rule that matches, or that cannot be evaluated on an argument.
    fn from_rule(
        position: usize,
        rule: &'a PermissionRule,
        uncompared: Option<UncomparedArgument<'a>>,
    ) -> Self {
        let is_open = matches!(uncompared, Some(UncomparedArgument::Open(_)));
        let action = if is_open { Action::Deny } else { rule.action };
        Self { action, rule: Some((position, rule)), by_author: false, uncompared }
    }
}

impl Default for Permissions {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            section_rules: Vec::new(),
            fallback: Action::Allow,
            needs_approval: Action::Ask,
            ask_timeout: DEFAULT_ASK_TIMEOUT,
        }
    }
}

impl Permissions {
    /// Creates permissions from rules and a fallback. With rules, the fallback is usually `Deny`.
    #[must_use]
    pub fn new(rules: Vec<PermissionRule>, fallback: Action) -> Self {
        Self { rules, fallback, ..Self::default() }
    }

    /// Whether every call is allowed except those with `needs_approval`, so that no rule has to be matched.
    #[must_use]
    pub fn allows_everything(&self) -> bool {
        self.rules.is_empty() && self.section_rules.is_empty() && self.fallback == Action::Allow
    }

    /// Returns a predefined rule for one tag: `allow-read-only`, `ask-destructive`, `deny-privileged`, `ask-network`,
    /// `ask-file-system`.
    #[must_use]
    pub fn preset(name: &str) -> Option<PermissionRule> {
        let (_, tag, action) = PRESETS.into_iter().find(|(known, ..)| *known == name)?;
        let tag = Some(tag.to_owned());
        Some(PermissionRule { tool: None, tag, source: None, args: BTreeMap::new(), action, reason: None })
    }

    /// Decides what happens to a call of `tool` with these arguments.
    #[must_use]
    pub fn decide(&self, tool: PermissionSubject<'_>, args: &Value) -> RuleOutcome<'_> {
        let outcome = self.first_match(tool, args);
        match first_of(self.section_rules.iter().map(|rule| (0, rule)), tool, args) {
            Some(of_section) if of_section.action > outcome.action => of_section,
            Some(_) | None => outcome,
        }
    }

    /// Decides about arguments with several equal spellings, such as a URI in different percent-encodings: the first rule
    /// that matches one of them applies. Without a spelling, the action is [`Action::Deny`].
    #[must_use]
    pub fn decide_spelled(&self, tool: PermissionSubject<'_>, spelled: &[Value]) -> Action {
        let outcomes = spelled.iter().map(|args| self.decide(tool, args));
        let first = outcomes.min_by_key(|outcome| outcome.rule.map_or(usize::MAX, |(position, _)| position));
        first.map_or(Action::Deny, |outcome| outcome.action)
    }

    /// The outcomes that do not allow a call: of the section rules, and of the rules or the fallback.
    pub fn restrictions<'a>(
        &'a self,
        tool: PermissionSubject<'_>,
        args: &Value,
    ) -> impl Iterator<Item = RuleOutcome<'a>> + use<'a> {
        let of_section = first_of(self.section_rules.iter().map(|rule| (0, rule)), tool, args);
        let outcomes = [of_section, Some(self.first_match(tool, args))];
        outcomes.into_iter().flatten().filter(|outcome| outcome.action != Action::Allow)
    }

    fn first_match(&self, tool: PermissionSubject<'_>, args: &Value) -> RuleOutcome<'_> {
        let matching = first_of((1..).zip(&self.rules), tool, args);
        matching.unwrap_or_else(|| {
            let (action, by_author) = self.fallback_for(tool);
            RuleOutcome { action, rule: None, by_author, uncompared: None }
        })
    }

    /// Returns the action for a call that no rule matches, and whether the tool's author caused it.
    fn fallback_for(&self, tool: PermissionSubject<'_>) -> (Action, bool) {
        let by_author = tool.needs_approval && self.needs_approval > self.fallback;
        (if by_author { self.needs_approval } else { self.fallback }, by_author)
    }

    /// Describes the decisions for a tool's calls: the rules that can match, down to the first that always matches,
    /// or the default. `table` names the table of the rules: `the policy`.
    #[must_use]
    pub fn describe(&self, tool: PermissionSubject<'_>, table: &str) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(rule) = self.section_rules.iter().find(|rule| rule.matches_tool(tool)) {
            let reason = rule.reason.as_deref().unwrap_or_default();
            lines.push(format!("at least {} by {reason}", rule.action.as_str()));
        }
        for (rule, position) in self.rules.iter().zip(1..).filter(|(rule, _)| rule.matches_tool(tool)) {
            let reason = rule.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            let args: Vec<_> =
                rule.args.iter().map(|(at, pattern)| format!(" where {at} is {pattern}")).collect();
            let action = rule.action.as_str();
            lines.push(format!("{action}{} by rule {position} of {table}{reason}", args.join(" and")));
            if rule.args.is_empty() {
                return lines;
            }
        }
        let (action, by_author) = self.fallback_for(tool);
        let key = if by_author { "`needs_approval`" } else { "`default`" };
        lines.push(format!("{} by {key} of {table}", action.as_str()));
        lines
    }
}

/// The outcome of the first rule that matches a call or cannot be evaluated on it.
fn first_of<'a>(
    rules: impl Iterator<Item = (usize, &'a PermissionRule)>,
    tool: PermissionSubject<'_>,
    args: &Value,
) -> Option<RuleOutcome<'a>> {
    rules.into_iter().find_map(|(position, rule)| match rule.evaluate(tool, args) {
        RuleMatch::No => None,
        RuleMatch::Yes(uncompared) => Some(RuleOutcome::from_rule(position, rule, uncompared)),
    })
}

/// Whether a pattern matches an argument.
#[derive(Debug, PartialEq, Eq)]
enum ArgumentMatch {
    No,
    Yes,
    /// The argument is longer than [`MAX_ARGUMENT`] and was not compared.
    TooLong,
}

/// Whether a rule matches a call.
enum RuleMatch<'a> {
    No,
    /// The rule matches, or depends on an argument that it could not compare.
    Yes(Option<UncomparedArgument<'a>>),
}

impl PermissionRule {
    fn evaluate(&self, tool: PermissionSubject<'_>, args: &Value) -> RuleMatch<'_> {
        if !self.matches_tool(tool) {
            return RuleMatch::No;
        }
        let (mut open, mut too_long) = (None, None);
        for (pointer, pattern) in &self.args {
            let argument = args.pointer(pointer);
            let is_open = |unchecked: &UncheckedArguments| unchecked.is_open(pointer, argument);
            if tool.unchecked.is_some_and(is_open) && !(pattern == "*" && argument.is_some()) {
                open = open.or(Some(UncomparedArgument::Open(pointer)));
                continue;
            }
            match Self::match_argument(pattern, argument) {
                ArgumentMatch::Yes => {}
                ArgumentMatch::No => return RuleMatch::No,
                ArgumentMatch::TooLong if self.action == Action::Allow => return RuleMatch::No,
                ArgumentMatch::TooLong => too_long = too_long.or(Some(UncomparedArgument::TooLong(pointer))),
            }
        }
        RuleMatch::Yes(open.or(too_long))
    }

    fn matches_tool(&self, tool: PermissionSubject<'_>) -> bool {
        let names = [tool.name, tool.full_name];
        self.tool.as_ref().is_none_or(|pattern| names.iter().any(|name| text_matches(pattern, name)))
            && self.tag.as_ref().is_none_or(|tag| tool.tags.contains(&tag.as_str()))
            && self.source.as_ref().is_none_or(|source| tool.source.matches(source))
    }

    /// Whether an argument may match a pattern. One that is too long to be compared may.
    pub(crate) fn may_match_argument(pattern: &str, argument: Option<&Value>) -> bool {
        !matches!(Self::match_argument(pattern, argument), ArgumentMatch::No)
    }

    /// A string is compared as it is, any other value as JSON.
    fn match_argument(pattern: &str, argument: Option<&Value>) -> ArgumentMatch {
        let compare = |text: &str| match text.len() {
            length if length > MAX_ARGUMENT => ArgumentMatch::TooLong,
            _ if text_matches(pattern, text) => ArgumentMatch::Yes,
            _ => ArgumentMatch::No,
        };
        match argument {
            None => ArgumentMatch::No,
            Some(_) if pattern == "*" => ArgumentMatch::Yes,
            Some(Value::String(text)) => compare(text),
            Some(other) => short_json(other).map_or(ArgumentMatch::TooLong, |text| compare(&text)),
        }
    }
}

/// A value as JSON; `None` if it is longer than [`MAX_ARGUMENT`]. The work does not grow with a longer value.
fn short_json(value: &Value) -> Option<String> {
    struct ShortText(String);
    impl fmt::Write for ShortText {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            if self.0.len() + part.len() > MAX_ARGUMENT {
                return Err(fmt::Error);
            }
            self.0.push_str(part);
            Ok(())
        }
    }
    let mut text = ShortText(String::new());
    write!(text, "{value}").ok()?;
    Some(text.0)
}

#[cfg(test)]
#[path = "permission_tests.rs"]
mod tests;
