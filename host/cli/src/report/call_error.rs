//! What a person reads of a call that failed: what happened, and the command and the policy lines that would change it.
//!
//! The texts of a result are for models, which must not read policy lines. The hints beside them are for the operator.

use std::path::Path;

use toolbay::{Host, Policy, View};
use toolbay_core::call::invoke::Failure;
use toolbay_core::pipeline::{self, CallResult};
use toolbay_policy::limits::LimitHit;
use toolbay_policy::{quantity, refusal};

use crate::grants;
use crate::output::format;
use crate::report::readiness::{ToolReadiness, join_keys};
use crate::setup::{PolicyFile, SetupArgs};

/// How a hint that allows something begins, and what stands before its policy lines.
const ALLOW: &str = "To allow it";
const POLICY_LINES: &str = ", write in the policy:\n";
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
    for help in help_texts(&delivered.hints.lines, limit(failure), tool, host, args) {
        // A hint may repeat the refusal, which stands above.
        let rest = ["; ", ". "].iter().find_map(|end| help.strip_prefix(&format!("{message}{end}")));
        args.printer.help(rest.unwrap_or(&help));
    }
}

/// The text of a `help:` line for each hint of a refusal: the command that allows it, and the policy lines.
pub(crate) fn help_texts(
    hints: &[String],
    limit: Option<&LimitHit>,
    tool: &str,
    host: &Host,
    args: &SetupArgs,
) -> Vec<String> {
    let file = policy_path(args);
    let mut lines: Vec<String> = Vec::new();
    for hint in hints {
        let help = if let Some((head, toml)) = hint.split_once(POLICY_LINES)
            && let Some((first, how)) = head.rsplit_once(ALLOW)
        {
            let command = grants::command_for_hint(args, host, tool, toml);
            let command = command.map_or_else(String::new, |command| format!("with `{command}`, or "));
            let first = first.trim_end_matches(['.', ' ']);
            let first = if first.is_empty() { String::new() } else { format!("{first}; ") };
            format!("{}allow it{how} {command}in {file}:\n{}", in_lower_case(&first), indented(toml))
        } else if let Some(setting) = hint.strip_prefix(&refusal::raise_hint("")) {
            raise_help(setting, limit, &file)
        } else {
            in_lower_case(hint)
        };
        if !lines.contains(&help) {
            lines.push(help);
        }
    }
    lines
}

/// A hint as a `help:` line. In the operator's message a hint is a sentence of its own: `REFUSAL. To allow it, …`.
fn in_lower_case(hint: &str) -> String {
    let mut chars = hint.chars();
    let (first, second) = (chars.next(), chars.clone().next());
    match first {
        // `MCP` stays.
        Some(first) if !second.is_some_and(char::is_uppercase) => {
            first.to_lowercase().chain(chars).collect::<String>().trim_end_matches('.').to_owned()
        }
        _ => hint.to_owned(),
    }
}

fn limit(failure: &Failure) -> Option<&LimitHit> {
    match failure {
        Failure::Fault(fault) => fault.limit.as_ref(),
        Failure::Refused(_) | Failure::Host(_) => None,
    }
}

/// The message without what only a model needs to be told.
fn message(delivered: &CallResult, failure: &Failure, host: &Host, view: &View) -> String {
    let tool = delivered.tool.as_str();
    if let Some(ToolReadiness::NeedsGrant(keys)) =
        view.get(tool).map(|entry| ToolReadiness::check(host, view, entry))
    {
        let keys = join_keys(&keys, "` and `");
        return format!("`{tool}` needs `{keys}`, which the policy does not grant");
    }
    let text = failure.to_string();
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

/// The lines that double a limit, if a policy may have them; otherwise its setting.
fn raise_help(setting: &str, limit: Option<&LimitHit>, file: &str) -> String {
    let Some((table, key)) = setting.split_once("] ") else {
        return format!("raise it in {file}: {setting}");
    };
    let key = key.split_once(" = ").map_or(key, |(key, _)| key);
    let value = limit.filter(|limit| limit.name == key).and_then(|limit| doubled(&limit.value));
    let lines = value.map(|value| format!("{table}]\n{key} = {value}"));
    let is_valid =
        |lines: &String| Policy::parse(&format!("version = 1\n{lines}\n"), Path::new("/"), None).is_ok();
    let lines = lines.filter(is_valid).unwrap_or_else(|| format!("{table}]\n{key} = …"));
    format!("raise it in {file}:\n{}", indented(&lines))
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

fn indented(lines: &str) -> String {
    lines.lines().map(|line| format!("{INDENT}{line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_have_the_expected_words() {
        assert_eq!(refusal::allow_hint("[a]"), format!("{ALLOW}{POLICY_LINES}[a]"));
    }

    #[test]
    fn a_hint_begins_in_lower_case() {
        for (hint, expected) in [
            ("Create the folder `/a`: `fs_read` grants it.", "create the folder `/a`: `fs_read` grants it"),
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
        let limit = |value: &str| LimitHit { name: "fuel", value: value.to_owned(), setting: String::new() };
        let help = raise_help("[plugins.p.limits] fuel = …", Some(&limit("500")), "t.toml");
        assert_eq!(help, "raise it in t.toml:\n        [plugins.p.limits]\n        fuel = 1_000");
        let help = raise_help("[plugins.p.limits] fuel = …", Some(&limit(&u64::MAX.to_string())), "t.toml");
        assert!(help.ends_with("fuel = …"), "{help}");
    }
}
