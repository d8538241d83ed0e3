//! Rules about arguments, or about values of them, that no tool has. Such a rule never matches, since a missing
//! argument matches no pattern.

use std::collections::BTreeSet;

use serde_json::Value;

use super::rule_order::rule_lists;
use super::{CheckInput, CheckReport, KnownTool};
use crate::permission::PermissionRule;
use crate::problem::{PolicyProblem, suggest_name};
use crate::wildcard::text_matches;

/// Adds a problem for each pointer of a rule that leads to no argument of the tools that the rule matches.
pub(super) fn check_arguments(input: &CheckInput<'_>, report: &mut CheckReport) {
    for (table, rules) in rule_lists(input.policy) {
        for (index, rule) in rules.iter().enumerate().filter(|(_, rule)| !rule.args.is_empty()) {
            let tools = input.known.tools.iter().filter(|(name, tool)| matches(rule, name, tool));
            let schemas: Option<Vec<&Value>> = tools.map(|(_, tool)| tool.arguments.as_ref()).collect();
            // A tool with an unknown schema may have any argument. Without tools, the name is wrong.
            let Some(schemas) = schemas.filter(|schemas| !schemas.is_empty()) else { continue };
            for (pointer, pattern) in &rule.args {
                let Some((message, help)) = problem(&schemas, pointer, pattern) else { continue };
                let problem =
                    PolicyProblem::at_list_entry("rule", index, message).in_key("args").in_key(pointer);
                report.push(PolicyProblem { help, ..problem }.under_keys(table.into_iter().flatten()));
            }
        }
    }
}

/// Whether the selectors of a rule match a tool.
pub(super) fn matches(rule: &PermissionRule, name: &str, tool: &KnownTool) -> bool {
    rule.tool.as_ref().is_none_or(|pattern| text_matches(pattern, name))
        && rule.tag.as_ref().is_none_or(|tag| tool.tags.contains(tag))
        && rule.source.as_ref().is_none_or(|source| tool.label().matches(source))
}

/// Why an argument of a rule matches no call of tools with these schemas.
fn problem(schemas: &[&Value], pointer: &str, pattern: &str) -> Option<(String, Option<String>)> {
    let mut names = BTreeSet::new();
    let leads: Vec<SchemaLead<'_>> =
        schemas.iter().map(|schema| follow(schema, pointer, &mut names)).collect();
    if leads.iter().all(|lead| matches!(lead, SchemaLead::Nowhere)) {
        let message = format!("no tool that the rule matches has the argument `{pointer}`");
        return Some((message, suggest_name(pointer, names.iter().map(String::as_str))));
    }
    let may_match = leads.iter().any(|lead| match lead {
        SchemaLead::Nowhere => false,
        SchemaLead::Unknown => true,
        SchemaLead::Value(schema) => may_match(pattern, schema),
    });
    (!may_match).then(|| (format!("no value of the argument `{pointer}` matches `{pattern}`"), None))
}

/// Whether a pattern may match a value with this schema.
fn may_match(pattern: &str, schema: &Value) -> bool {
    if is_open(schema) {
        return true;
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return values.iter().any(|value| PermissionRule::may_match_argument(pattern, Some(value)));
    }
    match schema.get("type").and_then(Value::as_str) {
        _ if pattern.contains('*') => true,
        Some("integer" | "number") => pattern.parse::<f64>().is_ok(),
        Some("boolean") => matches!(pattern, "true" | "false"),
        _ => true,
    }
}

/// Where a pointer leads in a schema.
#[derive(Debug)]
enum SchemaLead<'s> {
    /// No value can be there.
    Nowhere,
    /// The schema does not say.
    Unknown,
    /// The schema of the value.
    Value(&'s Value),
}

/// Follows a JSON pointer (RFC 6901) to a value of arguments with this schema. `names` gets the pointers that it could be
/// instead.
fn follow<'s>(schema: &'s Value, pointer: &str, names: &mut BTreeSet<String>) -> SchemaLead<'s> {
    let mut here = schema;
    let mut before = String::new();
    for part in pointer.split('/').skip(1) {
        let name = part.replace("~1", "/").replace("~0", "~");
        let is_index = name == "-" || name.parse::<usize>().is_ok();
        let next = match here.get("properties").and_then(Value::as_object) {
            Some(properties) => match properties.get(&name) {
                Some(next) => next,
                None if is_open(here) => return SchemaLead::Unknown,
                None => {
                    names.extend(properties.keys().map(|name| format!("{before}/{name}")));
                    return SchemaLead::Nowhere;
                }
            },
            None => match here.get("items") {
                Some(items) if is_index => items,
                Some(_) => return SchemaLead::Nowhere,
                // The schema describes nothing below, unless the value is a single one.
                None if here.get("type").and_then(Value::as_str).is_some_and(is_scalar) => {
                    return SchemaLead::Nowhere;
                }
                None => return SchemaLead::Unknown,
            },
        };
        before = format!("{before}/{part}");
        here = next;
    }
    SchemaLead::Value(here)
}

fn is_scalar(kind: &str) -> bool {
    matches!(kind, "string" | "number" | "integer" | "boolean" | "null")
}

/// Whether a schema may have properties that it does not list.
fn is_open(schema: &Value) -> bool {
    let describes = ["$ref", "allOf", "anyOf", "oneOf", "patternProperties", "if"];
    describes.iter().any(|keyword| schema.get(keyword).is_some())
        || schema.get("additionalProperties").is_some_and(|more| more.is_object() || more == true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pointer_leads_to_what_the_schema_describes() {
        let schema = json!({"type": "object", "properties": {
            "path": {"type": "string"},
            "edits": {"type": "array", "items": {"type": "object", "properties": {"old": {}}}},
            "a/b": {"type": "string"},
            "free": {"type": "object"},
            "more": {"type": "object", "properties": {}, "additionalProperties": true},
        }});
        for (pointer, found) in [
            ("", true),
            ("/path", true),
            ("/pth", false),
            ("/edits/0/old", true),
            ("/edits/0/new", false),
            ("/path/deeper", false),
            ("/a~1b", true),
            ("/free/any", true),
            ("/more/any", true),
        ] {
            let mut names = BTreeSet::new();
            let lead = follow(&schema, pointer, &mut names);
            assert_eq!(!matches!(lead, SchemaLead::Nowhere), found, "{pointer}: {lead:?}");
        }
    }

    #[test]
    fn a_pattern_matches_a_value_that_the_schema_allows() {
        let schema = json!({"type": "object", "properties": {
            "method": {"type": "string", "enum": ["GET", "DELETE"]},
            "start": {"type": "integer"},
            "deep": {"type": "boolean"},
            "any": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "kinds": {"type": ["integer", "string"]},
        }});
        for (pointer, pattern, expected) in [
            ("/method", "DELETE", true),
            ("/method", "D*", true),
            ("/method", "delete", false),
            ("/start", "7", true),
            ("/start", "*", true),
            ("/start", "abc", false),
            ("/deep", "true", true),
            ("/deep", "yes", false),
            ("/any", "abc", true),
            ("/kinds", "abc", true),
        ] {
            let found = problem(&[&schema], pointer, pattern);
            assert_eq!(found.is_none(), expected, "{pointer} {pattern}: {found:?}");
        }
    }
}
