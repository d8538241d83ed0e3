//! Rules that never decide, because an earlier one matches every call that they match, and patterns that also match the tools
//! of other sources.

use super::super::Policy;
use super::{CheckInput, CheckReport};
use crate::name::{self, MCP_PREFIX, NAME_SEPARATOR};
use crate::permission::{Action, PermissionRule};
use crate::problem::PolicyProblem;
use crate::rule::GrantRule as _;
use crate::wildcard::text_matches;

/// Most rules of one list that are compared with each other.
const MAX_RULES: usize = 1000;

/// Adds a problem for each rule that never decides.
pub(super) fn check_order(input: &CheckInput<'_>, report: &mut CheckReport) {
    let is_service = |name: &str| input.policy.openapi_service(name).is_some();
    for (table, rules) in rule_lists(input.policy) {
        for (index, rule) in rules.iter().enumerate().take(MAX_RULES) {
            let rule = &with_implied(rule, is_service);
            let earlier = rules.iter().take(index).position(|earlier| covers(earlier, rule));
            let Some(earlier) = earlier else { continue };
            let message = format!(
                "this rule never decides: rule {} matches every call that it matches, and the first match decides",
                earlier + 1
            );
            let problem = PolicyProblem::at_list_entry("rule", index, message);
            let help = Some("move the narrower rule up, or remove it".to_owned());
            report.push(PolicyProblem { help, ..problem }.under_keys(table.into_iter().flatten()));
        }
    }
}

/// Adds a problem for each pattern that ends inside of the name of a source.
pub(super) fn check_patterns(input: &CheckInput<'_>, report: &mut CheckReport) {
    let policy = input.policy;
    let mut sources: Vec<String> = vec!["mcp".to_owned()];
    sources.extend(policy.mcp_servers().map(|server| format!("{MCP_PREFIX}{}", server.name)));
    sources.extend(policy.openapi_services().map(|service| service.name.to_string()));
    sources.extend(policy.plugins().map(|(id, _)| id.to_string()));
    sources.extend(input.known.plugins.iter().flatten().map(|(id, _)| id.clone()));
    let problem = |pattern: &str| {
        let (message, help) = wide_pattern(pattern, &sources)?;
        Some(PolicyProblem { help: Some(help), ..PolicyProblem::from(message) })
    };
    for (table, rules) in rule_lists(policy) {
        for (index, rule) in rules.iter().enumerate() {
            let Some(found) = rule.tool.as_deref().and_then(problem) else { continue };
            let at_tool = PolicyProblem::at_list_entry("rule", index, String::new()).in_key("tool");
            let found = PolicyProblem { path: at_tool.path, ..found };
            report.push(found.under_keys(table.into_iter().flatten()));
        }
    }
    for (table, rules) in policy.tables() {
        for rule in rules.invoke.iter().flatten() {
            let text = rule.show(policy.workspace());
            if let Some(found) = problem(&text) {
                report.push(found.under_keys(table.iter().copied().chain(["invoke"])).in_text(&text));
            }
        }
    }
}

/// The lists of rules with the tables that have them.
pub(super) fn rule_lists(policy: &Policy) -> impl Iterator<Item = (Option<[&str; 2]>, &[PermissionRule])> {
    let profiles = policy.profiles.iter();
    let profiles = profiles
        .map(|(name, profile)| (Some(["profile", name.as_str()]), profile.permissions.rules.as_slice()));
    std::iter::once((None, policy.permissions().rules.as_slice())).chain(profiles)
}

/// The rule with the source that its tool implies, or the tools that its source implies: names of tools begin with their
/// source.
fn with_implied(rule: &PermissionRule, is_service: impl Fn(&str) -> bool) -> PermissionRule {
    let mut rule = rule.clone();
    if rule.source.is_none() {
        rule.source = rule.tool.as_deref().and_then(|tool| implied_source(tool, is_service));
    } else if rule.tool.is_none() {
        rule.tool = rule.source.as_deref().and_then(implied_tools);
    }
    rule
}

fn implied_source(tool: &str, is_service: impl Fn(&str) -> bool) -> Option<String> {
    let source = name::split_qualified(tool).map(|(source, _)| source).filter(|source| !source.contains('*'));
    // The names of all servers begin with `mcp__`, so `mcp` is no source.
    match source.filter(|source| !MCP_PREFIX.starts_with(source)) {
        Some(source) => Some(match source.strip_prefix(MCP_PREFIX) {
            Some(server) => format!("mcp:{server}"),
            None if is_service(source) => format!("openapi:{source}"),
            None => format!("plugin:{source}"),
        }),
        None => tool.starts_with(MCP_PREFIX).then(|| "mcp".to_owned()),
    }
}

fn implied_tools(source: &str) -> Option<String> {
    match source.split_once(':') {
        None => (source == "mcp").then(|| format!("{MCP_PREFIX}*")),
        Some((_, name)) if name.contains('*') => None,
        Some((kind, name)) => {
            let prefix = if kind == "mcp" { MCP_PREFIX } else { "" };
            Some(format!("{prefix}{name}{NAME_SEPARATOR}*"))
        }
    }
}

/// Whether `outer` matches every call that `inner` matches.
fn covers(outer: &PermissionRule, inner: &PermissionRule) -> bool {
    // A rule without a name matches all names.
    let inner_tool = inner.tool.as_deref().unwrap_or("*");
    // A long argument matches rules that deny or ask, but no rule that allows.
    let lengths = outer.args.values().all(|pattern| pattern == "*")
        || outer.action != Action::Allow
        || inner.action == Action::Allow;
    lengths
        && outer.tool.as_ref().is_none_or(|outer| includes(outer, inner_tool))
        && outer.tag.as_ref().is_none_or(|tag| inner.tag.as_ref() == Some(tag))
        && outer
            .source
            .as_ref()
            .is_none_or(|outer| inner.source.as_ref().is_some_and(|inner| includes_source(outer, inner)))
        && outer
            .args
            .iter()
            .all(|(pointer, outer)| inner.args.get(pointer).is_some_and(|inner| includes(outer, inner)))
}

/// Whether a pattern matches every text that another one matches. A star of the inner pattern is a character that only a
/// star of the outer one matches.
fn includes(outer: &str, inner: &str) -> bool {
    text_matches(outer, inner)
}

fn includes_source(outer: &str, inner: &str) -> bool {
    match (outer.split_once(':'), inner.split_once(':')) {
        (Some((kind, outer)), Some((other, inner))) => kind == other && includes(outer, inner),
        (Some((kind, name)), None) => kind == inner && includes(name, "*"),
        (None, Some((kind, _))) => outer == kind,
        (None, None) => outer == inner,
    }
}

/// What is wrong with a pattern that ends after the name of a source, before the separator: `files_*` also matches
/// `files_old__read`.
fn wide_pattern(pattern: &str, sources: &[String]) -> Option<(String, String)> {
    let (head, _) = pattern.split_once('*')?;
    let source = head.strip_suffix('_').unwrap_or(head);
    if !sources.iter().any(|name| name == source) {
        return None;
    }
    let message = format!("`{pattern}` also matches tools of other sources whose names begin with `{head}`");
    Some((message, format!("did you mean `{source}{NAME_SEPARATOR}*`?")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn rule(tool: &str, tag: &str, source: &str, args: &[(&str, &str)], action: Action) -> PermissionRule {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let args: BTreeMap<String, String> =
            args.iter().map(|(pointer, pattern)| ((*pointer).to_owned(), (*pattern).to_owned())).collect();
        PermissionRule { tool: some(tool), tag: some(tag), source: some(source), args, action, reason: None }
    }

    #[test]
    fn a_rule_covers_those_that_match_no_other_call() {
        use Action::{Allow, Ask, Deny};
        let path = |pattern| [("/path", pattern)];
        for (outer, inner, expected) in [
            (rule("", "", "", &[], Allow), rule("a__b", "", "", &[], Deny), true),
            (rule("a__*", "", "", &[], Deny), rule("a__b", "", "", &[], Deny), true),
            (rule("a__*", "", "", &[], Deny), rule("a__b*", "network", "", &path("x"), Deny), true),
            (rule("a__b*", "", "", &[], Deny), rule("a__*", "", "", &[], Deny), false),
            (rule("a__*", "network", "", &[], Deny), rule("a__b", "", "", &[], Deny), false),
            (rule("", "network", "", &[], Deny), rule("a__b", "network", "", &[], Deny), true),
            (rule("", "", "plugin", &[], Deny), rule("", "", "plugin:a", &[], Deny), true),
            (rule("", "", "plugin:*", &[], Deny), rule("", "", "plugin:a*", &[], Deny), true),
            (rule("", "", "plugin:a", &[], Deny), rule("", "", "plugin", &[], Deny), false),
            (rule("", "", "mcp", &[], Deny), rule("", "", "plugin:a", &[], Deny), false),
            (rule("*", "", "", &[], Ask), rule("", "destructive", "", &[], Deny), true),
            (rule("**", "", "", &[], Ask), rule("", "", "mcp", &[], Deny), true),
            (rule("*", "network", "", &[], Ask), rule("", "destructive", "", &[], Deny), false),
            (rule("*_*", "", "", &[], Ask), rule("", "destructive", "", &[], Deny), false),
            (rule("", "", "plugin:*", &[], Ask), rule("", "", "plugin", &[], Deny), true),
            (rule("", "", "plugin:*", &[], Ask), rule("", "", "mcp", &[], Deny), false),
            (rule("a", "", "", &path("/etc/*"), Deny), rule("a", "", "", &path("/etc/x*"), Ask), true),
            (rule("a", "", "", &path("/etc/*"), Deny), rule("a", "", "", &[], Ask), false),
            // An argument of more than 64 KiB.
            (rule("a", "", "", &path("/etc/*"), Allow), rule("a", "", "", &path("/etc/*"), Deny), false),
            (rule("a", "", "", &path("*"), Allow), rule("a", "", "", &path("/etc/*"), Deny), true),
        ] {
            assert_eq!(covers(&outer, &inner), expected, "{outer:?} {inner:?}");
        }
    }

    #[test]
    fn a_name_implies_its_source_and_a_source_its_names() {
        let deny = |tool, source| rule(tool, "", source, &[], Action::Deny);
        for (outer, inner, expected) in [
            (deny("files__*", ""), deny("", "plugin:files"), true),
            (deny("", "plugin:files"), deny("files__read_file", ""), true),
            (deny("", "plugin"), deny("files__read_*", ""), true),
            (deny("", "mcp:gh"), deny("mcp__gh__get", ""), true),
            (deny("mcp__gh__*", ""), deny("", "mcp:gh"), true),
            (deny("", "mcp"), deny("mcp__*", ""), true),
            (deny("", "mcp"), deny("mcp__g*", ""), true),
            (deny("mcp__*", ""), deny("", "mcp"), true),
            (deny("mcp__*", ""), deny("", "mcp:g*"), false),
            (deny("", "mcp:gh"), deny("mcp__g*", ""), false),
            (deny("", "plugin"), deny("mcp__*", ""), false),
            (deny("", "openapi:pets"), deny("pets__list", ""), true),
            (deny("", "plugin:pets"), deny("pets__list", ""), false),
            (deny("files__*", ""), deny("", "plugin:fil*"), false),
            (deny("", "plugin:files"), deny("fil*__read", ""), false),
        ] {
            let implied = with_implied(&inner, |name| name == "pets");
            assert_eq!(covers(&outer, &implied), expected, "{outer:?} {inner:?}");
        }
    }

    #[test]
    fn a_pattern_that_ends_inside_of_a_source_is_wide() {
        let sources = ["mcp", "files", "mcp__github"].map(str::to_owned);
        for (pattern, better) in [
            ("files_*", Some("`files__*`")),
            ("files*", Some("`files__*`")),
            ("files_*read", Some("`files__*`")),
            ("mcp_*", Some("`mcp__*`")),
            ("mcp__github_*", Some("`mcp__github__*`")),
            ("files__*", None),
            ("file*", None),
            ("*", None),
            ("files__read_*", None),
            ("files", None),
        ] {
            let found = wide_pattern(pattern, &sources);
            assert_eq!(found.is_some(), better.is_some(), "{pattern}: {found:?}");
            assert!(found.is_none_or(|(_, help)| help.contains(better.unwrap_or("-"))), "{pattern}");
        }
    }
}
