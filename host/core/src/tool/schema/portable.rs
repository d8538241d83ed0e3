//! Writes a schema in the form that the most clients accept, without changing what it means.
//!
//! | written | becomes | because |
//! |---|---|---|
//! | `"type": ["string", "null"]` | `"anyOf": [{"type": "string"}, {"type": "null"}]` | Semantic Kernel loads no tool of the server, Gemini refuses it |
//! | `true`, `false` as a schema | `{}`, `{"not": {}}` | model APIs refuse it, and clients read members of it |
//! | an array without `items` | `"items": {}` | model APIs refuse it |
//! | `prefixItems` of one kind and of fixed length | `items` | clients that validate as draft-07 refuse it |
//! | `allOf` or `$ref` at the root | its members, if no keyword stands in both | model APIs refuse it |
//!
//! `additionalProperties: false` and `items: false` stay: every client knows them. [`crate::tool::client_compat`] finds
//! what cannot be written in such a form.

use serde_json::{Map, Value, json};
use toolbay_policy::excerpt::one_line;

use super::keyword::Content;

/// Longest description of an item in the note of a tuple, in characters.
const MAX_ITEM_NOTE: usize = 100;

/// Keywords that constrain values of one type only.
const KEYWORDS_BY_TYPE: [(&str, &[&str]); 4] = [
    (
        "string",
        &[
            "minLength",
            "maxLength",
            "pattern",
            "format",
            "contentEncoding",
            "contentMediaType",
            "contentSchema",
        ],
    ),
    ("number", &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]),
    (
        "array",
        &[
            "items",
            "prefixItems",
            "minItems",
            "maxItems",
            "uniqueItems",
            "contains",
            "minContains",
            "maxContains",
        ],
    ),
    (
        "object",
        &[
            "properties",
            "required",
            "additionalProperties",
            "patternProperties",
            "propertyNames",
            "minProperties",
            "maxProperties",
            "dependentRequired",
        ],
    ),
];
/// Keywords whose boolean value every client knows.
const BOOLEAN_KEYWORDS: [&str; 3] = ["additionalProperties", "unevaluatedItems", "unevaluatedProperties"];
/// Keywords that do not restrict values. The root keeps its own.
const NOTES: [&str; 4] = ["title", "description", "$comment", "$defs"];
/// Keywords that a merged part of the root may have.
const MERGED_KEYWORDS: [&str; 5] = ["type", "properties", "required", "title", "description"];

/// The schema in the form that the most clients accept. It means the same. A schema whose references lead elsewhere
/// than to the root or to a member of `$defs` is unchanged, since rewriting moves parts.
#[must_use]
pub fn to_portable_form(mut schema: Value) -> Value {
    if has_only_plain_references(&schema) {
        rewrite(&mut schema);
    }
    schema
}

/// The schema of all values but `null`, for a reader that shows one type: the only other alternative of `anyOf`, or else
/// the schema itself.
#[must_use]
pub fn without_null(schema: &Value) -> &Value {
    let is_null = |one: &&Value| one.get("type").is_some_and(|kind| kind == "null");
    let variants = schema.get("anyOf").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    match variants.iter().filter(|one| !is_null(one)).collect::<Vec<_>>()[..] {
        [only] if variants.len() == 2 => only,
        _ => schema,
    }
}

fn has_only_plain_references(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.iter().all(|(key, value)| match (key.as_str(), value) {
            ("$ref", Value::String(target)) => {
                let name = target.strip_prefix("#/$defs/");
                target == "#" || name.is_some_and(|name| !name.contains('/'))
            }
            ("$dynamicRef" | "$recursiveRef", Value::String(_)) => false,
            (_, value) => has_only_plain_references(value),
        }),
        Value::Array(items) => items.iter().all(has_only_plain_references),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Rewrites a schema whose references lead to the root or to members of `$defs`.
pub(super) fn rewrite(schema: &mut Value) {
    // These keywords see which parts other keywords have evaluated, so nothing may move.
    let exact = mentions(schema, &["unevaluatedItems", "unevaluatedProperties"]);
    if let Value::Object(root) = schema {
        if !exact {
            merge_reference(root);
            merge_all_of(root);
        }
        rewrite_object(root, exact);
        // A root has one type, which most clients demand.
        if !exact && root.get("type").is_some_and(Value::is_array) {
            split_types(root);
        }
    }
}

fn mentions(schema: &Value, keys: &[&str]) -> bool {
    match schema {
        Value::Object(map) => {
            map.iter().any(|(key, value)| keys.contains(&key.as_str()) || mentions(value, keys))
        }
        Value::Array(items) => items.iter().any(|item| mentions(item, keys)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn rewrite_schema(schema: &mut Value, exact: bool) {
    match schema {
        Value::Bool(true) => *schema = json!({}),
        Value::Bool(false) => *schema = json!({"not": {}}),
        Value::Object(map) => {
            rewrite_object(map, exact);
            if !exact && map.get("type").is_some_and(Value::is_array) {
                split_types(map);
            }
        }
        Value::Null | Value::Array(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn rewrite_object(map: &mut Map<String, Value>, exact: bool) {
    let has_first_items = map.contains_key("prefixItems");
    for (key, value) in map.iter_mut() {
        let is_known = BOOLEAN_KEYWORDS.contains(&key.as_str()) || (key == "items" && has_first_items);
        match (Content::of(key), value) {
            (Content::Schema, Value::Bool(_)) if is_known => {}
            (Content::Schema, value) => rewrite_schema(value, exact),
            (Content::Schemas, Value::Array(items)) => {
                items.iter_mut().for_each(|item| rewrite_schema(item, exact));
            }
            (Content::SchemasByName, Value::Object(named)) => {
                named.values_mut().for_each(|schema| rewrite_schema(schema, exact));
            }
            (Content::Schemas | Content::SchemasByName | Content::Data, _) => {}
        }
    }
    if exact {
        return;
    }
    unify_items(map);
    let is_array = match map.get("type") {
        Some(Value::Array(types)) => types.iter().any(|name| name == "array"),
        Some(name) => name == "array",
        None => false,
    };
    if is_array && !map.contains_key("items") && !map.contains_key("prefixItems") {
        map.insert("items".to_owned(), json!({}));
    }
}

/// Writes a list of fixed length whose items are of one kind with `items`.
fn unify_items(map: &mut Map<String, Value>) {
    let Some([first, rest @ ..]) = map.get("prefixItems").and_then(Value::as_array).map(Vec::as_slice) else {
        return;
    };
    let length = rest.len() as u64 + 1;
    let bound = |key: &str| map.get(key).and_then(Value::as_u64);
    let is_closed =
        map.get("items") == Some(&Value::Bool(false)) || bound("maxItems").is_some_and(|most| most <= length);
    if !is_closed || rest.iter().any(|item| item != first) {
        return;
    }
    let (items, most) = (first.clone(), bound("maxItems").unwrap_or(length).min(length));
    map.shift_remove("prefixItems");
    map.insert("items".to_owned(), items);
    map.insert("maxItems".to_owned(), most.into());
}

/// Writes several types as alternatives. Keywords that constrain one type move into its alternative.
fn split_types(map: &mut Map<String, Value>) {
    let Some(Value::Array(types)) = map.shift_remove("type") else { return };
    let mut variants: Vec<(String, Map<String, Value>)> = types
        .iter()
        .filter_map(Value::as_str)
        .map(|name| (name.to_owned(), Map::from_iter([("type".to_owned(), json!(name))])))
        .collect();
    for (of, keywords) in KEYWORDS_BY_TYPE {
        let takes = |name: &str| name == of || (of == "number" && name == "integer");
        for keyword in keywords {
            let Some(value) = map.shift_remove(*keyword) else { continue };
            let mut accepting = variants.iter_mut().filter(|(name, _)| takes(name)).peekable();
            // A format of numbers is only a note. It stays next to the alternatives.
            if accepting.peek().is_none() && *keyword == "format" {
                map.insert((*keyword).to_owned(), value.clone());
            }
            accepting.for_each(|(_, variant)| {
                variant.insert((*keyword).to_owned(), value.clone());
            });
        }
    }
    share_enum(map, &mut variants);
    let mut variants = variants.into_iter().map(|(_, variant)| variant);
    let variants: Vec<Value> = match (variants.len(), variants.next()) {
        (1, Some(only)) => {
            for (key, value) in only.into_iter().rev() {
                map.shift_insert(0, key, value);
            }
            return;
        }
        (_, first) => first.into_iter().chain(variants).map(Value::Object).collect(),
    };
    if map.contains_key("anyOf") {
        super::translate::add_to_all_of(map, json!({ "anyOf": variants }));
    } else {
        map.shift_insert(0, "anyOf".to_owned(), Value::Array(variants));
    }
}

/// Moves the values of `enum` into the alternatives of their types. Alternatives without a value are left out.
fn share_enum(map: &mut Map<String, Value>, variants: &mut Vec<(String, Map<String, Value>)>) {
    let Some(values) = map.get("enum").and_then(Value::as_array).cloned() else { return };
    let of = |kind: &str| -> Vec<Value> {
        values.iter().filter(|value| is_of_type(value, kind)).cloned().collect()
    };
    // A whole number is an integer and a number.
    let shared: usize = variants.iter().map(|(kind, _)| of(kind).len()).sum();
    if shared != values.len() {
        return;
    }
    map.shift_remove("enum");
    variants.retain_mut(|(kind, variant)| {
        let own = of(kind);
        if kind != "null" && !own.is_empty() {
            variant.insert("enum".to_owned(), Value::Array(own));
            return true;
        }
        !own.is_empty()
    });
}

fn is_of_type(value: &Value, kind: &str) -> bool {
    match value {
        Value::Null => kind == "null",
        Value::Bool(_) => kind == "boolean",
        Value::Number(number) => kind == "number" || (kind == "integer" && !number.is_f64()),
        Value::String(_) => kind == "string",
        Value::Array(_) => kind == "array",
        Value::Object(_) => kind == "object",
    }
}

/// Replaces a reference at the root by the definition that it leads to.
fn merge_reference(root: &mut Map<String, Value>) {
    let target = |root: &Map<String, Value>| {
        let name = root.get("$ref")?.as_str()?.strip_prefix("#/$defs/")?;
        root.get("$defs")?.get(name)?.as_object().cloned()
    };
    let Some(definition) = target(root) else { return };
    let mut keywords: Vec<&String> = root.keys().filter(|key| !NOTES.contains(&key.as_str())).collect();
    let same_type = definition.get("type").is_none_or(|kind| Some(kind) == root.get("type"));
    keywords.retain(|key| *key != "$ref" && !(*key == "type" && same_type));
    // `properties: {}` of the root says nothing.
    keywords.retain(|key| !(*key == "properties" && root.get(*key) == Some(&json!({}))));
    if !keywords.is_empty() || definition.contains_key("$ref") {
        return;
    }
    root.shift_remove("$ref");
    for (key, value) in definition {
        if !NOTES.contains(&key.as_str()) || !root.contains_key(&key) {
            root.insert(key, value);
        }
    }
    let definitions = root.shift_remove("$defs");
    root.extend(definitions.map(|definitions| ("$defs".to_owned(), definitions)));
}

/// Merges the parts of `allOf` at the root into it, if they only add members.
fn merge_all_of(root: &mut Map<String, Value>) {
    let Some(parts) = root.get("allOf").and_then(Value::as_array) else { return };
    let part = |part: &Value| {
        let part = part.as_object()?;
        let reference = part.get("$ref").filter(|_| part.len() == 1).and_then(Value::as_str);
        match reference.and_then(|target| target.strip_prefix("#/$defs/")) {
            Some(name) => root.get("$defs")?.get(name)?.as_object().cloned(),
            None => Some(part.clone()),
        }
    };
    let Some(parts) = parts.iter().map(part).collect::<Option<Vec<_>>>() else { return };
    let is_closed = |map: &Map<String, Value>| {
        ["additionalProperties", "patternProperties"].iter().any(|key| map.contains_key(*key))
    };
    if is_closed(root) {
        return;
    }
    let (mut properties, mut required) = (Map::new(), Vec::<Value>::new());
    for map in std::iter::once(&*root).chain(&parts) {
        if let Some(Value::Object(more)) = map.get("properties") {
            if more.keys().any(|name| properties.contains_key(name)) {
                return;
            }
            properties.extend(more.clone());
        }
        for name in map.get("required").and_then(Value::as_array).into_iter().flatten() {
            if !required.contains(name) {
                required.push(name.clone());
            }
        }
    }
    let is_plain = |map: &Map<String, Value>| {
        map.keys().all(|key| MERGED_KEYWORDS.contains(&key.as_str()))
            && map.get("type").is_none_or(|kind| kind == "object")
    };
    if !parts.iter().all(is_plain) || root.get("type").is_some_and(|kind| kind != "object") {
        return;
    }
    if parts.iter().any(|part| part.contains_key("type")) {
        root.insert("type".to_owned(), json!("object"));
    }
    root.shift_remove("allOf");
    root.insert("properties".to_owned(), Value::Object(properties));
    if !required.is_empty() {
        root.insert("required".to_owned(), Value::Array(required));
    }
}

/// Writes tuples whose items differ as lists of any of these items, with the order as a note. This accepts more, so it is
/// only for clients.
pub(super) fn loosen_tuples(schema: &mut Value) {
    if mentions(schema, &["prefixItems"]) {
        loosen(schema);
    }
}

fn loosen(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    for (key, value) in map.iter_mut() {
        match (Content::of(key), value) {
            (Content::Schema, value) => loosen(value),
            (Content::Schemas, Value::Array(items)) => items.iter_mut().for_each(loosen),
            (Content::SchemasByName, Value::Object(named)) => named.values_mut().for_each(loosen),
            (Content::Schemas | Content::SchemasByName | Content::Data, _) => {}
        }
    }
    let Some(Value::Array(items)) = map.shift_remove("prefixItems") else { return };
    let length = items.len() as u64;
    let most = map.get("maxItems").and_then(Value::as_u64).unwrap_or(u64::MAX);
    let rest = map.shift_remove("items");
    let order: Vec<String> = items.iter().map(describe_item).collect();
    let mut variants: Vec<Value> = Vec::new();
    for item in items {
        if !variants.contains(&item) {
            variants.push(item);
        }
    }
    match rest {
        Some(Value::Bool(false)) => _ = map.insert("maxItems".to_owned(), most.min(length).into()).is_some(),
        _ if most <= length => {}
        Some(rest) if !variants.contains(&rest) => variants.push(rest),
        Some(_) => {}
        None => variants = vec![json!({})],
    }
    let items = match variants.as_slice() {
        [only] => only.clone(),
        _ => json!({ "anyOf": variants }),
    };
    map.insert("items".to_owned(), items);
    let note = format!("Items in this order: {}.", order.join(", "));
    let description = map.get("description").and_then(Value::as_str);
    let description = description.map_or(note.clone(), |text| format!("{text} {note}"));
    map.insert("description".to_owned(), description.into());
}

/// The type of an item and its description, in a few words.
fn describe_item(item: &Value) -> String {
    let text = |key: &str| item.get(key).and_then(Value::as_str);
    let kind = text("type").unwrap_or("any");
    match text("description") {
        Some(about) => format!("{kind} ({})", one_line(about, MAX_ITEM_NOTE)),
        None => kind.to_owned(),
    }
}

#[cfg(test)]
mod tests;
