//! What a person reads of a call that failed: what happened, and the command and the policy lines that would change it.
//!
//! The texts of a result are for models, which must not read policy lines. The hints beside them are for the operator.

use std::path::Path;

use toolbay::{Host, Policy, View};
use toolbay_core::call::invoke::Failure;
use toolbay_core::pipeline::{self, CallResult};
use toolbay_policy::hint::{Hint, PolicyLine, PolicyLines, Remedy};
use toolbay_policy::{quantity, refusal};

use crate::grants;
use crate::output::format;
use crate::report::readiness::{ToolReadiness, join_keys};
use crate::setup::{PolicyFile, SetupArgs};

/// Spaces before a policy line, so that it stands out and can be copied.
const INDENT: &str = "        ";

/// Prints the error of a failed call with its help.
pub(crate) fn print(delivered: &CallResult, failure: &Failure, host: &Host, view: &View, args: &SetupArgs) {
    let tool = delivered.tool.as_str();
    if view.get(tool).is_none() {
        return super::unknown_tool(view, tool).print(args.printer);
    }
    let message = message(delivered, failure, host, view);
    args.printer.error(&format!("{message} ({})", pipeline::outcome(&delivered.result)));
    for help in help_texts(&delivered.hints.lines, Some(&message), tool, host, args) {
        args.printer.help(&help);
    }
}

/// The text of a `help:` line for each hint of a refusal: the command that allows it, and the policy lines. The refusal
/// itself is not repeated if it is the `message` above.
pub(crate) fn help_texts(
    hints: &[Hint],
    message: Option<&str>,
    tool: &str,
    host: &Host,
    args: &SetupArgs,
) -> Vec<String> {
    let file = policy_path(args);
    let mut texts: Vec<String> = Vec::new();
    for hint in hints {
        let about = hint.about.as_deref().filter(|about| message != Some(*about));
        let (first, remedy) = match &*hint.remedy {
            Remedy::Allow { first, lines } => {
                let command = grants::command_for_hint(args, host, tool, lines);
                let command = command.map_or_else(String::new, |command| format!("with `{command}`, or "));
                (first.as_deref(), format!("allow it {command}in {file}:\n{}", indented(lines)))
            }
            Remedy::AllowUnasked { before_rule, lines } => {
                let position = before_rule.map(|rule| format!(", before rule {rule}")).unwrap_or_default();
                (None, format!("allow it without asking in {file}{position}:\n{}", indented(lines)))
            }
            Remedy::Raise { table, key, value } => (None, raise_help(table, key, value.as_deref(), &file)),
            remedy @ (Remedy::Set { .. } | Remedy::Note(_)) => {
                (None, remedy.to_string().trim_end_matches('.').to_owned())
            }
        };
        let parts = about.into_iter().chain(first).map(|part| part.trim_end_matches('.'));
        let text = parts.chain([remedy.as_str()]).collect::<Vec<_>>().join("; ");
        let text = in_lower_case(&text);
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts
}

/// A sentence as a `help:` line.
fn in_lower_case(text: &str) -> String {
    let mut chars = text.chars();
    let (first, second) = (chars.next(), chars.clone().next());
    match first {
        // `MCP` stays.
        Some(first) if !second.is_some_and(char::is_uppercase) => first.to_lowercase().chain(chars).collect(),
        _ => text.to_owned(),
    }
}

/// The message without the parts that only a model needs.
fn message(delivered: &CallResult, failure: &Failure, host: &Host, view: &View) -> String {
    let tool = delivered.tool.as_str();
    if let Some(ToolReadiness::NeedsGrant(keys)) =
        view.get(tool).map(|entry| ToolReadiness::check(host, view, entry))
    {
        let keys = join_keys(&keys, "` and `");
        return format!("`{tool}` needs `{keys}`, which the policy does not grant");
    }
    let text = failure.to_string();
    // A guest passes the text of a refusal on in its own words, so the notice has no type here.
    // On stderr nothing takes the text for more than words.
    let text = delivered.shaping.mark.as_ref().map_or(text.as_str(), |mark| mark.strip_mark(&text));
    let for_models =
        [format!(": {}", refusal::not_permitted_notice(tool)), format!("; {}", refusal::limit_notice(tool))];

    for_models.iter().fold(text.to_owned(), |text, part| text.replace(part.as_str(), ""))
}

/// The policy file as a person reads it.
fn policy_path(args: &SetupArgs) -> String {
    PolicyFile::locate(args).map_or_else(|_| "the policy".to_owned(), |file| format::path(&file))
}

/// The line that doubles a limit, if a policy may have it; otherwise its key.
fn raise_help(table: &str, key: &str, value: Option<&str>, file: &str) -> String {
    let is_valid = |value: &String| {
        Policy::parse(&format!("version = 1\n{table}\n{key} = {value}\n"), Path::new("/"), None).is_ok()
    };
    let value = value.and_then(doubled).filter(is_valid).unwrap_or_else(|| "…".to_owned());
    format!("raise it in {file}:\n{INDENT}{table}\n{INDENT}{key} = {value}")
}

/// Twice a number, a size or a time, as the policy writes it.
fn doubled(value: &str) -> Option<String> {
    if let Ok(number) = value.replace('_', "").parse::<u64>() {
        return Some(format::grouped(number.checked_mul(2)?).replace(',', "_"));
    }
    if let Ok(duration) = quantity::parse_duration(value) {
        return Some(format!("\"{}\"", quantity::show_duration(duration.checked_mul(2)?)));
    }
    let bytes = quantity::parse_bytes(value).ok()?.checked_mul(2)?;
    Some(format!("\"{}\"", quantity::show_bytes(bytes)))
}

fn indented(lines: &[PolicyLine]) -> String {
    let lines = PolicyLines(lines).to_string();
    lines.lines().map(|line| format!("{INDENT}{line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_begins_in_lower_case() {
        for (hint, expected) in [
            ("Create the folder `/a`: `fs_read` grants it", "create the folder `/a`: `fs_read` grants it"),
            ("`net` is empty", "`net` is empty"),
            ("MCP servers have their own lines", "MCP servers have their own lines"),
            ("it is held", "it is held"),
            ("", ""),
        ] {
            assert_eq!(in_lower_case(hint), expected);
        }
    }

    #[test]
    fn a_limit_is_doubled_in_its_own_unit() {
        for (value, expected) in
            [("20000", "40_000"), ("64MiB", "\"128MiB\""), ("30s", "\"60s\""), ("none", "")]
        {
            assert_eq!(doubled(value).unwrap_or_default(), expected, "{value}");
        }
    }

    #[test]
    fn a_limit_that_cannot_be_doubled_keeps_its_setting() {
        let help = raise_help("[plugins.p.limits]", "fuel", Some("500"), "t.toml");
        assert_eq!(help, "raise it in t.toml:\n        [plugins.p.limits]\n        fuel = 1_000");
        let help = raise_help("[plugins.p.limits]", "fuel", Some(&u64::MAX.to_string()), "t.toml");
        assert!(help.ends_with("fuel = …"), "{help}");
    }
}
