//! Permissions: operator rules that decide about each call. Rules are matched from the top; the first match decides.
//!
//! Grants define what a tool can access. Permissions define whether a call runs at all: always, never, or after
//! approval. Without rules, every admitted call runs.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::wildcard::text_matches;

/// Longest argument that is compared, in bytes. A longer one matches rules that deny or ask, but not rules that
/// allow.
const MAX_ARGUMENT: usize = 64 << 10;
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
    type Error = String;

    /// Refuses rules that can never match or that would not do what they suggest.
    fn try_from(written: PermissionRuleSection) -> Result<Self, String> {
        let PermissionRuleSection { preset, tool, tag, source, args, action, reason } = written;
        let names_something = tool.is_some() || tag.is_some() || source.is_some() || !args.is_empty();
        let rule = match (preset, action) {
            (Some(preset), None) if !names_something => Permissions::preset(&preset).ok_or_else(|| {
                let known = PRESETS.map(|(name, ..)| format!("`{name}`")).join(", ");
                format!("`preset`: there is no preset `{preset}`; use one of {known}")
            })?,
            (Some(_), _) => return Err("`preset` excludes all other keys except `reason`".to_owned()),
            (None, None) => return Err("`action` is missing: `allow`, `ask` or `deny`".to_owned()),
            (None, Some(action)) => Self { tool, tag, source, args, action, reason: None },
        };
        if let Some(source) = &rule.source {
            SourceLabel::check_pattern(source)?;
        }
        if let Some(pointer) =
            rule.args.keys().find(|pointer| !pointer.is_empty() && !pointer.starts_with('/'))
        {
            return Err(format!("`args` has `{pointer}`: write a JSON pointer, `/{pointer}`"));
        }
        Ok(Self { reason: reason.or(rule.reason), ..rule })
    }
}

/// The properties of a tool that rules compare.
#[derive(Debug, Clone, Copy)]
pub struct PermissionSubject<'a> {
    /// Its qualified name.
    pub name: &'a str,
    /// The source of the tool.
    pub source: SourceLabel<'a>,
    /// All its tags, derived ones included.
    pub tags: &'a [&'a str],
    /// Whether its author wants each call approved.
    pub needs_approval: bool,
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
        let verdict = self.first_match(tool, args);
        let of_section = self.section_rules.iter().find(|rule| rule.matches(tool, args));
        match of_section {
            Some(rule) if rule.action > verdict.action => {
                RuleOutcome { action: rule.action, rule: Some((0, rule)), by_author: false }
            }
            Some(_) | None => verdict,
        }
    }

    fn first_match(&self, tool: PermissionSubject<'_>, args: &Value) -> RuleOutcome<'_> {
        let mut rules = self.rules.iter().zip(1..);
        if let Some((rule, place)) = rules.find(|(rule, _)| rule.matches(tool, args)) {
            return RuleOutcome { action: rule.action, rule: Some((place, rule)), by_author: false };
        }
        let (action, by_author) = self.fallback_for(tool);
        RuleOutcome { action, rule: None, by_author }
    }

    /// Returns the action for a call that no rule matches, and whether the tool's author caused it.
    fn fallback_for(&self, tool: PermissionSubject<'_>) -> (Action, bool) {
        let by_author = tool.needs_approval && self.needs_approval > self.fallback;
        (if by_author { self.needs_approval } else { self.fallback }, by_author)
    }
}

impl Permissions {
    /// Describes the decisions for a tool's calls: the rules that can match, down to the first that always matches,
    /// or the default. `table` names the table of the rules: `the policy`.
    #[must_use]
    pub fn describe(&self, tool: PermissionSubject<'_>, table: &str) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(rule) = self.section_rules.iter().find(|rule| rule.matches_tool(tool)) {
            let reason = rule.reason.as_deref().unwrap_or_default();
            lines.push(format!("at least {} by {reason}", rule.action.as_str()));
        }
        for (rule, place) in self.rules.iter().zip(1..).filter(|(rule, _)| rule.matches_tool(tool)) {
            let reason = rule.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            let args: Vec<_> =
                rule.args.iter().map(|(at, pattern)| format!(" where {at} is {pattern}")).collect();
            let action = rule.action.as_str();
            lines.push(format!("{action}{} by rule {place} of {table}{reason}", args.join(" and")));
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

impl PermissionRule {
    fn matches(&self, tool: PermissionSubject<'_>, args: &Value) -> bool {
        self.matches_tool(tool)
            && self
                .args
                .iter()
                .all(|(pointer, pattern)| self.matches_argument(pattern, args.pointer(pointer)))
    }

    fn matches_tool(&self, tool: PermissionSubject<'_>) -> bool {
        self.tool.as_ref().is_none_or(|pattern| text_matches(pattern, tool.name))
            && self.tag.as_ref().is_none_or(|tag| tool.tags.contains(&tag.as_str()))
            && self.source.as_ref().is_none_or(|source| tool.source.matches(source))
    }

    /// A string is compared as it is, any other value as JSON.
    fn matches_argument(&self, pattern: &str, argument: Option<&Value>) -> bool {
        let compare = |text: &str| {
            if text.len() > MAX_ARGUMENT { self.action != Action::Allow } else { text_matches(pattern, text) }
        };
        match argument {
            None => false,
            Some(_) if pattern == "*" => true,
            Some(Value::String(text)) => compare(text),
            Some(other) => compare(&other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tool<'a>(source: &'a str, name: &'a str, tags: &'a [&'a str]) -> PermissionSubject<'a> {
        let source = match source {
            "" => SourceLabel { kind: "builtin", name: "" },
            plugin => SourceLabel { kind: "plugin", name: plugin },
        };
        PermissionSubject { name, source, tags, needs_approval: false }
    }

    fn rules(text: &str) -> Permissions {
        #[derive(Deserialize)]
        struct File {
            rule: Vec<PermissionRule>,
        }
        Permissions::new(toml::from_str::<File>(text).unwrap().rule, Action::Deny)
    }

    #[test]
    fn the_first_matching_rule_decides() {
        let permissions = rules(
            r#"
            [[rule]]
            tool = "files__write_*"
            args = { "/path" = "/etc/*" }
            action = "deny"
            reason = "not there"
            [[rule]]
            tool = "files__*"
            action = "allow"
            [[rule]]
            tag = "network"
            action = "ask"
            [[rule]]
            source = "builtin"
            action = "allow"
            [[rule]]
            source = "plugin:text*"
            action = "allow"
            "#,
        );
        let etc = json!({"path": "/etc/hosts"});
        for (tool, args, action, rule) in [
            (tool("files", "files__write_file", &[]), &etc, Action::Deny, Some(1)),
            (tool("files", "files__write_file", &[]), &json!({"path": "/tmp/x"}), Action::Allow, Some(2)),
            (tool("files", "files__write_file", &[]), &json!({}), Action::Allow, Some(2)),
            (tool("files", "files__read_file", &["network"]), &etc, Action::Allow, Some(2)),
            (tool("web", "web__fetch", &["network"]), &etc, Action::Ask, Some(3)),
            (tool("", "now", &[]), &etc, Action::Allow, Some(4)),
            (tool("text", "text__grep", &[]), &etc, Action::Allow, Some(5)),
            (tool("text2", "text2__grep", &[]), &etc, Action::Allow, Some(5)),
            (tool("other", "other__x", &[]), &etc, Action::Deny, None),
        ] {
            let verdict = permissions.decide(tool, args);
            let place = verdict.rule.map(|(place, _)| place);
            assert_eq!((verdict.action, place), (action, rule), "{} {args}", tool.name);
        }
        let refused = tool("files", "files__write_file", &[]);
        let verdict = permissions.decide(refused, &etc);
        assert_eq!(verdict.rule.unwrap().1.reason.as_deref(), Some("not there"));
    }

    #[test]
    fn without_a_matching_rule_the_fallback_applies() {
        let tool = tool("p", "p__t", &[]);
        assert_eq!(Permissions::default().decide(tool, &json!({})).action, Action::Allow);
        for action in [Action::Allow, Action::Deny, Action::Ask] {
            assert_eq!(Permissions::new(vec![], action).decide(tool, &json!({})).action, action);
        }
    }

    #[test]
    fn a_preset_matches_its_tag() {
        let tool = tool("p", "p__t", &[]);
        for (name, tag, action) in [
            ("allow-read-only", "read_only", Action::Allow),
            ("ask-destructive", "destructive", Action::Ask),
            ("deny-privileged", "privileged", Action::Deny),
            ("ask-network", "network", Action::Ask),
            ("ask-file-system", "file_system", Action::Ask),
        ] {
            let permissions = Permissions::new(vec![Permissions::preset(name).unwrap()], Action::Deny);
            assert_eq!(
                permissions.decide(PermissionSubject { tags: &[tag], ..tool }, &json!({})).action,
                action
            );
            assert_eq!(
                permissions.decide(PermissionSubject { tags: &["slow"], ..tool }, &json!({})).rule,
                None
            );
        }
        assert_eq!(Permissions::preset("allow-all"), None);
    }

    #[test]
    fn arguments_are_compared_as_text() {
        let rule = |action| PermissionRule { action, ..Permissions::preset("ask-network").unwrap() };
        let long = json!("x".repeat(MAX_ARGUMENT + 1));
        assert!(rule(Action::Allow).matches_argument("*", Some(&long)));
        assert!(!rule(Action::Allow).matches_argument("x*", Some(&long)));
        assert!(
            rule(Action::Deny).matches_argument("/etc/*", Some(&long)),
            "a long argument does not bypass a refusal"
        );
        assert!(rule(Action::Ask).matches_argument("7", Some(&json!(7))));
        assert!(rule(Action::Ask).matches_argument("[1,*", Some(&json!([1, 2]))));
    }

    #[test]
    fn needs_approval_asks_unless_a_rule_matches() {
        let mut tool = tool("p", "p__t", &[]);
        tool.needs_approval = true;
        let allowing = rules("[[rule]]\ntool = \"p__*\"\naction = \"allow\"");
        for (permissions, action, by_author) in [
            (Permissions::default(), Action::Ask, true),
            (Permissions { needs_approval: Action::Allow, ..Permissions::default() }, Action::Allow, false),
            (Permissions { needs_approval: Action::Deny, ..Permissions::default() }, Action::Deny, true),
            (Permissions::new(vec![], Action::Deny), Action::Deny, false),
            (allowing, Action::Allow, false),
        ] {
            let verdict = permissions.decide(tool, &json!({}));
            assert_eq!((verdict.action, verdict.by_author), (action, by_author));
        }
    }

    #[test]
    fn the_decisions_for_a_tool_are_described() {
        let permissions = rules(
            "[[rule]]\ntool = \"q__*\"\naction = \"deny\"\n\
             [[rule]]\nargs = { \"/a\" = \"x*\", \"/b\" = \"*\" }\naction = \"ask\"\nreason = \"why\"\n\
             [[rule]]\ntag = \"network\"\naction = \"allow\"",
        );
        let tool = tool("p", "p__t", &[]);
        let ask = "ask where /a is x* and where /b is * by rule 2 of the policy (why)";
        assert_eq!(
            permissions.describe(tool, "the policy"),
            [ask.to_owned(), "deny by `default` of the policy".to_owned()]
        );
        let last = permissions.describe(PermissionSubject { tags: &["network"], ..tool }, "the policy").pop();
        assert_eq!(last.as_deref(), Some("allow by rule 3 of the policy"));
    }

    #[test]
    fn an_invalid_rule_is_refused() {
        for (text, part) in [
            ("tool = \"a\"", "`action` is missing"),
            ("preset = \"ask-all\"", "there is no preset `ask-all`; use one of `allow-read-only`"),
            ("preset = \"ask-network\"\naction = \"deny\"", "excludes all other keys"),
            ("preset = \"ask-network\"\ntool = \"a\"", "excludes all other keys"),
            ("source = \"plugins:a\"\naction = \"deny\"", "`plugins:a`"),
            ("source = \"builtin:a\"\naction = \"deny\"", "`builtin:a`"),
            ("source = \"plugin:\"\naction = \"deny\"", "`plugin:`"),
            ("args = { path = \"a\" }\naction = \"deny\"", "`/path`"),
            ("tols = \"a\"\naction = \"deny\"", "unknown field `tols`"),
            ("action = \"never\"", "unknown variant"),
        ] {
            let error = toml::from_str::<PermissionRule>(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let rule: PermissionRule = toml::from_str("preset = \"ask-network\"\nreason = \"why\"").unwrap();
        assert_eq!((rule.action, rule.reason.as_deref()), (Action::Ask, Some("why")));
    }

    #[test]
    fn a_pattern_matches_one_source_or_several() {
        let label = |kind, name| SourceLabel { kind, name };
        let sources = [label("plugin", "text"), label("mcp", "gh"), label("builtin", "")];
        assert_eq!(sources.map(|source| source.to_string()), ["plugin:text", "mcp:gh", "builtin"]);
        for (pattern, fits) in [
            ("plugin", [true, false, false]),
            ("plugin:text", [true, false, false]),
            ("plugin:te*", [true, false, false]),
            ("plugin:other", [false, false, false]),
            ("mcp", [false, true, false]),
            ("mcp:gh", [false, true, false]),
            ("builtin", [false, false, true]),
            ("builtin:*", [false, false, false]),
            ("*", [false, false, false]),
            ("", [false, false, false]),
        ] {
            assert_eq!(sources.map(|source| source.matches(pattern)), fits, "{pattern}");
        }
    }
}
