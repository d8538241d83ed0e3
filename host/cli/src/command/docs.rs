//! `toolbay docs`: a Markdown page for each tool of a plugin, from its definition.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use toolbay_core::registry::ToolEntry;
use toolbay_core::tool::schema::without_null;
use toolbay_policy::hidden_chars::escape_hidden;

use crate::output::{self, CommandStatus, count_noun};
use crate::setup::named_path::path_failure;
use crate::setup::{self, SetupArgs};

/// The name of the settings page. A tool's name has no dot, so it is free.
const SETTINGS: &str = "settings.config";

pub(crate) async fn run(args: &SetupArgs, plugin: &str, out: Option<&Path>) -> Result<CommandStatus> {
    let (host, info) = setup::require_plugin(args, setup::policy(args)?, plugin).await?;
    let id = info.id;
    let settings = info.about.and_then(|about| about.config_schema);
    let settings = settings.map(|schema| (SETTINGS.to_owned(), settings_page(id.as_str(), &schema)));
    let tools = setup::tools(&host, &id);
    let tools = tools.iter().map(|entry| (entry.def.bare().to_owned(), page(entry)));
    let pages = settings.into_iter().chain(tools);
    let Some(folder) = out else {
        if args.printer.is_json() {
            let pages: serde_json::Map<String, Value> =
                pages.map(|(name, page)| (name, Value::from(page))).collect();
            return Ok(output::print_json(&json!({"plugin": id.as_str(), "pages": pages}))?);
        }
        for (_, page) in pages {
            writeln!(output::stdout(), "{page}")?;
        }
        return Ok(CommandStatus::Success);
    };
    let mut files = Vec::new();
    for (name, page) in pages {
        let file = folder.join(format!("{name}.md"));
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&file, page))
            .with_context(|| format!("`{}` cannot be written", file.display()))
            .map_err(path_failure)?;
        files.push(file);
    }
    let pages = count_noun(files.len(), "page", "pages");
    let text = format!("wrote {pages} to `{}`", folder.display());
    Ok(args.printer.report(&json!({"plugin": id.as_str(), "files": files}), &text)?)
}

/// The page of a tool. Writing to a `String` cannot fail.
fn page(entry: &ToolEntry) -> String {
    let def = &entry.def;
    let mut page = format!("# {}\n\n", def.bare());
    if let Some(title) = &def.title {
        write!(page, "**{}**\n\n", line(title)).ok();
    }
    writeln!(page, "{}", escape_hidden(&def.description).trim()).ok();
    arguments(&mut page, def.input_schema.value());
    if let Some(schema) = &def.output_schema {
        let schema = serde_json::to_string_pretty(schema.value()).unwrap_or_default();
        write!(page, "\n## Result\n\nBeside the text, data of this schema:\n\n```json\n{schema}\n```\n").ok();
    }
    if !def.capabilities.is_empty() {
        page.push_str("\n## Asks for\n\n| what | of | why |\n|---|---|---|\n");
    }
    for capability in &def.capabilities {
        let need = if capability.optional { ", optional" } else { "" };
        let (kind, target) = (capability.kind.as_str(), line(&capability.target));
        let reason = capability.reason.as_deref().map(line).unwrap_or_default();
        writeln!(page, "| `{}`{need} | `{target}` | {reason} |", line(kind)).ok();
    }
    properties(&mut page, entry);
    examples(&mut page, entry);
    page
}

/// The page of the settings.
fn settings_page(plugin: &str, schema: &Value) -> String {
    let mut page = format!("# Settings\n\nIn the policy, under `[plugins.{}.config]`.\n", line(plugin));
    match members(schema) {
        Some(properties) => table(&mut page, schema, properties),
        None => page.push_str("\nAny names will do.\n"),
    }
    page
}

/// The members of an object's schema; `None`: it names none.
pub(super) fn members(schema: &Value) -> Option<&serde_json::Map<String, Value>> {
    schema.get("properties").and_then(Value::as_object).filter(|all| !all.is_empty())
}

fn arguments(page: &mut String, schema: &Value) {
    match members(schema) {
        Some(properties) => {
            page.push_str("\n## Arguments\n");
            table(page, schema, properties);
        }
        None => page.push_str("\nIt takes no arguments.\n"),
    }
}

/// The names of the members that an object must have.
pub(super) fn required_members(schema: &Value) -> Vec<&str> {
    let required = schema.get("required").and_then(Value::as_array);
    required.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Adds a row for each member of an object.
fn table(page: &mut String, schema: &Value, properties: &serde_json::Map<String, Value>) {
    let required = required_members(schema);
    page.push_str("\n| name | type | | |\n|---|---|---|---|\n");
    for (name, schema) in properties {
        let need = match schema.get("default") {
            Some(default) => format!("default `{}`", line(&default.to_string())),
            None if required.contains(&name.as_str()) => "required".to_owned(),
            None => "optional".to_owned(),
        };
        let about = schema.get("description").and_then(Value::as_str).map(line).unwrap_or_default();
        let about =
            [about, limits(schema)].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
        writeln!(page, "| `{}` | {} | {need} | {about} |", line(name), kind(schema)).ok();
    }
}

/// The type of a value, in a few words.
pub(super) fn kind(schema: &Value) -> String {
    let of = |value: &Value| value.as_str().map(line).unwrap_or_default();
    let other = without_null(schema);
    if !std::ptr::eq(other, schema) {
        return format!("{} or null", kind(other));
    }
    match schema.get("type") {
        Some(Value::Array(types)) => types.iter().map(of).collect::<Vec<_>>().join(" or "),
        Some(name) if name == "array" => match schema.get("items").map(kind) {
            Some(items) => format!("array of {items}"),
            None => "array".to_owned(),
        },
        Some(name) => of(name),
        None if schema.get("oneOf").or_else(|| schema.get("anyOf")).is_some() => "one of several".to_owned(),
        None => "any".to_owned(),
    }
}

/// The constraints of a value in its schema.
fn limits(schema: &Value) -> String {
    const SHOWN: [(&str, &str); 8] = [
        ("enum", "one of"),
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("minLength", "characters at least"),
        ("maxLength", "characters at most"),
        ("minItems", "elements at least"),
        ("maxItems", "elements at most"),
        ("pattern", "matches"),
    ];
    let other = without_null(schema);
    let shown = SHOWN.iter().filter_map(|(key, words)| {
        let value = schema.get(key).or_else(|| other.get(key))?;
        Some(format!("{words} `{}`", line(&value.to_string())))
    });
    let shown: Vec<_> = shown.collect();
    if shown.is_empty() { String::new() } else { format!("({})", shown.join(", ")) }
}

fn properties(page: &mut String, entry: &ToolEntry) {
    let def = &entry.def;
    let traits = serde_json::to_value(def.traits).unwrap_or_default();
    let mut names: Vec<String> = match &traits {
        Value::Object(traits) => {
            traits.iter().filter(|(_, on)| **on == Value::Bool(true)).map(|(name, _)| name.clone()).collect()
        }
        Value::Array(traits) => traits.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    names.extend(def.keywords.toolset.iter().map(|name| format!("toolset {}", line(name))));
    names.extend(def.max_result_chars.iter().map(|most| format!("at most {most} characters")));
    if !names.is_empty() {
        write!(page, "\n## Properties\n\n{}\n", names.join(", ")).ok();
    }
}

fn examples(page: &mut String, entry: &ToolEntry) {
    let meta = entry.def.meta.as_deref().and_then(|meta| serde_json::from_str::<Value>(meta.get()).ok());
    let examples = meta.as_ref().and_then(|meta| meta.get("examples")).and_then(Value::as_array);
    for (index, example) in examples.into_iter().flatten().enumerate() {
        if index == 0 {
            page.push_str("\n## Examples\n");
        }
        let args = example.get("args").map(Value::to_string).unwrap_or_default();
        write!(page, "\n```json\n{}\n```\n", escape_hidden(&args)).ok();
        let text = |key: &str| example.get(key).and_then(Value::as_str);
        match (text("value"), text("contains"), text("error")) {
            (Some(value), ..) => write!(page, "\n```text\n{}\n```\n", escape_hidden(value)),
            (_, Some(part), None) => write!(page, "\nThe result contains `{}`.\n", line(part)),
            (.., Some(code)) => write!(page, "\nThe error `{}`.\n", line(code)),
            _ => Ok(()),
        }
        .ok();
    }
}

/// A text for a table cell: one line, without characters that end the cell.
fn line(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    escape_hidden(&text).replace('|', "\\|").replace('`', "'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_escaped() {
        assert_eq!(line("a|b\n c `d`\u{1b}"), "a\\|b c 'd'\\u{1b}");
    }

    #[test]
    fn settings_have_a_page() {
        let schema = json!({"type": "object", "properties": {"days": {"type": "integer", "description": "How long."}}});
        let page = settings_page("p", &schema);
        assert!(
            page.contains("[plugins.p.config]")
                && page.contains("| `days` | integer | optional | How long. |"),
            "{page}"
        );
        assert!(settings_page("p", &json!({"type": "object"})).contains("Any names"));
    }

    #[test]
    fn arguments_show_their_types_and_constraints() {
        let mut page = String::new();
        arguments(
            &mut page,
            &json!({"type": "object", "required": ["a"], "properties": {
                "a": {"type": "string", "description": "Where.", "maxLength": 5},
                "b": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "default": []},
                "c": {"oneOf": []},
            }}),
        );
        assert!(page.contains("| `a` | string | required | Where. (characters at most `5`) |"), "{page}");
        assert!(page.contains("| `b` | array of integer or null | default `[]` |  |"), "{page}");
        assert!(page.contains("| `c` | one of several | optional |  |"), "{page}");
        let mut page = String::new();
        arguments(&mut page, &json!({"type": "object", "properties": {}}));
        assert!(page.contains("no arguments"), "{page}");
    }
}
