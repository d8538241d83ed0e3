//! Who may call what with which arguments: rules of the operator, read from the top, the first that fits decides.
//!
//! Grants say how far a tool reaches; permissions say whether this call of it happens at all: always, never, or after
//! a person was asked. Without rules every admitted call happens.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::wildcard::text_matches;

/// Longest argument that is compared, in bytes. A longer one fits what refuses or asks, and does not fit what allows.
const MAX_ARGUMENT: usize = 64 << 10;
/// How long a question waits for its answer, unless the policy says otherwise: a person may be at lunch, an agent that
/// waits for ever is lost.
pub const DEFAULT_ASK_TIMEOUT: Duration = Duration::from_secs(300);
/// The ready-made rules, by name.
const PRESETS: [(&str, &str, Action); 5] = [
    ("allow-read-only", "read_only", Action::Allow),
    ("ask-destructive", "destructive", Action::Ask),
    ("deny-privileged", "privileged", Action::Deny),
    ("ask-network", "network", Action::Ask),
    ("ask-file-system", "file_system", Action::Ask),
];

/// What becomes of a call; a later one is stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It runs.
    Allow,
    /// A person is asked; without anybody to ask it is refused.
    Ask,
    /// It is refused.
    Deny,
}

impl Action {
    /// The action as it stands in the policy.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// One rule (`[[rule]]`). Everything it names must fit; what it does not name fits always.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "PermissionRuleSection")]
pub struct PermissionRule {
    /// Qualified name of the tool; `*` stands for any run of characters.
    pub tool: Option<String>,
    /// A tag that the tool must have.
    pub tag: Option<String>,
    /// Where the tool comes from: `builtin`, `plugin`, `mcp`, `openapi`, or `plugin:ID` and the like, with `*` as above.
    pub source: Option<String>,
    /// Arguments by JSON pointer, each with a pattern for its text; an argument that is not there fits no pattern.
    pub args: BTreeMap<String, String>,
    /// What becomes of the call.
    pub action: Action,
    /// Told to the model when it is refused, to the person when they are asked.
    pub reason: Option<String>,
}

/// A rule: everything it names must fit, and what it does not name fits always.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Rule")]
#[schemars(extend("oneOf" = [
    {"required": ["action"], "properties": {"preset": false}},
    {"required": ["preset"], "properties": {"action": false, "tool": false, "tag": false, "source": false}},
]))]
pub(crate) struct PermissionRuleSection {
    /// A ready-made rule; it stands alone, at most with a `reason`.
    #[serde(default)]
    #[schemars(schema_with = "preset_names")]
    preset: Option<String>,
    /// Qualified name of the tool; `*` stands for any run of characters.
    tool: Option<String>,
    /// A tag that the tool must have.
    tag: Option<String>,
    /// Where the tool comes from: `builtin`, `plugin`, `mcp`, `openapi`, or one of the last three with a name.
    #[schemars(regex(pattern = "^(builtin|plugin|mcp|openapi|(plugin|mcp|openapi):.+)$"))]
    source: Option<String>,
    /// Arguments by JSON pointer, each with a pattern for its text.
    #[serde(default)]
    #[schemars(with = "BTreeMap<crate::schema::JsonPointer, String>")]
    args: BTreeMap<String, String>,
    /// What becomes of the call.
    action: Option<Action>,
    /// Told to the model when it is refused, to the person when they are asked.
    reason: Option<String>,
}

fn preset_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": PRESETS.map(|(name, ..)| name)})
}

impl TryFrom<PermissionRuleSection> for PermissionRule {
    type Error = String;

    /// What could fit nothing, or would not do what it looks like, is refused.
    fn try_from(written: PermissionRuleSection) -> Result<Self, String> {
        let PermissionRuleSection { preset, tool, tag, source, args, action, reason } = written;
        let names_something = tool.is_some() || tag.is_some() || source.is_some() || !args.is_empty();
        let rule = match (preset, action) {
            (Some(preset), None) if !names_something => Permissions::preset(&preset).ok_or_else(|| {
                let known = PRESETS.map(|(name, ..)| format!("`{name}`")).join(", ");
                format!("`preset`: there is no preset `{preset}`; there are {known}")
            })?,
            (Some(_), _) => return Err("`preset` stands alone, at most with a `reason`".to_owned()),
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

/// What rules compare of a tool.
#[derive(Debug, Clone, Copy)]
pub struct PermissionSubject<'a> {
    /// Its qualified name.
    pub name: &'a str,
    /// Where it comes from.
    pub source: SourceLabel<'a>,
    /// All its tags, those that the host derives included.
    pub tags: &'a [&'a str],
    /// Its author wants each call approved.
    pub needs_approval: bool,
}

/// Where a tool comes from: the kind of the source and, where there are several of it, the name. Shown as
/// `plugin:text`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceLabel<'a> {
    /// `builtin`, `plugin`, `mcp` or `openapi`.
    pub kind: &'static str,
    /// The name the operator gave it; empty for `builtin`.
    pub name: &'a str,
}

impl SourceLabel<'_> {
    /// Whether a pattern means it: `plugin` every plugin, `plugin:text*` those of such ids, where `*` stands for any run
    /// of characters; the same for `mcp` and `openapi`; `builtin`.
    #[must_use]
    pub fn matches(&self, pattern: &str) -> bool {
        let (kind, id) = pattern.split_once(':').map_or((pattern, None), |(kind, id)| (kind, Some(id)));
        kind == self.kind
            && id.is_none_or(|pattern| !self.name.is_empty() && text_matches(pattern, self.name))
    }

    /// Refuses a pattern that fits nothing.
    ///
    /// # Errors
    /// Says how one is written.
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

/// The rules of a policy, or of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    /// The rules; the first that fits decides.
    pub rules: Vec<PermissionRule>,
    /// What sections of the policy say of calls of their own tools; the first that fits counts where it is stricter than
    /// what the rules say.
    pub section_rules: Vec<PermissionRule>,
    /// What becomes of a call that no rule fits.
    pub fallback: Action,
    /// What becomes, without a rule that fits, of a tool that declares `needs_approval`; never less strict than
    /// `fallback`.
    pub needs_approval: Action,
    /// How long a question waits for its answer.
    pub ask_timeout: Duration,
}

/// What the rules say of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleOutcome<'a> {
    /// What becomes of it.
    pub action: Action,
    /// The place of the rule in the list, from 1, and the rule; 0 for one of a section; `None`: no rule fits.
    pub rule: Option<(usize, &'a PermissionRule)>,
    /// No rule fits, and the tool's author wants each call of it approved.
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
    /// Rules with what holds when none fits. Who writes rules usually means `Deny`.
    #[must_use]
    pub fn new(rules: Vec<PermissionRule>, fallback: Action) -> Self {
        Self { rules, fallback, ..Self::default() }
    }

    /// Whether every call happens that does not want to be approved, so that nothing needs to be looked at.
    #[must_use]
    pub fn allows_everything(&self) -> bool {
        self.rules.is_empty() && self.section_rules.is_empty() && self.fallback == Action::Allow
    }

    /// A ready-made rule by name, each over one tag: `allow-read-only`, `ask-destructive`, `deny-privileged`,
    /// `ask-network`, `ask-file-system`.
    #[must_use]
    pub fn preset(name: &str) -> Option<PermissionRule> {
        let (_, tag, action) = PRESETS.into_iter().find(|(known, ..)| *known == name)?;
        let tag = Some(tag.to_owned());
        Some(PermissionRule { tool: None, tag, source: None, args: BTreeMap::new(), action, reason: None })
    }

    /// What becomes of a call of `tool` with these arguments.
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

    /// What becomes of a call that no rule fits, and whether that is because the tool's author wants it.
    fn fallback_for(&self, tool: PermissionSubject<'_>) -> (Action, bool) {
        let by_author = tool.needs_approval && self.needs_approval > self.fallback;
        (if by_author { self.needs_approval } else { self.fallback }, by_author)
    }
}

impl Permissions {
    /// What becomes of calls of a tool, for people: the rules that can fit them, down to the
    /// first that always does, or the default. `table` is where the rules stand: `the policy`.
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

    /// A text is compared as it is, everything else as its JSON.
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
    fn the_first_rule_that_fits_decides() {
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
    fn without_rules_everything_happens_and_with_none_that_fits_the_fallback() {
        let tool = tool("p", "p__t", &[]);
        assert_eq!(Permissions::default().decide(tool, &json!({})).action, Action::Allow);
        for action in [Action::Allow, Action::Deny, Action::Ask] {
            assert_eq!(Permissions::new(vec![], action).decide(tool, &json!({})).action, action);
        }
    }

    #[test]
    fn presets_fit_their_tag() {
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
            "length is no way around a refusal"
        );
        assert!(rule(Action::Ask).matches_argument("7", Some(&json!(7))));
        assert!(rule(Action::Ask).matches_argument("[1,*", Some(&json!([1, 2]))));
    }

    #[test]
    fn what_the_author_wants_approved_is_asked_unless_a_rule_fits() {
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
    fn what_becomes_of_a_tools_calls_can_be_told() {
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
    fn a_rule_that_could_not_mean_what_it_says_is_refused() {
        for (text, part) in [
            ("tool = \"a\"", "`action` is missing"),
            ("preset = \"ask-all\"", "there is no preset `ask-all`; there are `allow-read-only`"),
            ("preset = \"ask-network\"\naction = \"deny\"", "stands alone"),
            ("preset = \"ask-network\"\ntool = \"a\"", "stands alone"),
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
    fn a_pattern_means_a_source_or_several() {
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
