//! Converts schemas of a document to JSON Schema 2020-12: translates the dialect of 3.0, and collects references in
//! `$defs`.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use serde_json::{Map, Value, json};
use toolbay_core::tool::schema::Schema;
use toolbay_policy::text::remove_hidden;

use crate::document::{OpenApiDocument, OpenApiVersion};
use crate::name;

/// The deepest nesting.
const MAX_DEPTH: usize = 60;
/// The most parts of all schemas of one operation.
const MAX_PARTS: usize = 20_000;
/// The most parts of all schemas of a document. A reference is one line for its author, and its whole target here.
const MAX_ALL_PARTS: usize = 1_000_000;
/// The longest example that is kept, in bytes.
const MAX_EXAMPLE: usize = 200;
/// The longest enumeration, default or constant that is kept, in bytes. The service validates longer ones itself.
const MAX_VALUE: usize = 8 << 10;
/// The longest description in a schema, in characters.
pub(crate) const MAX_DESCRIPTION: usize = 1000;
/// The longest pattern that is kept, in bytes.
const MAX_PATTERN: usize = 1000;
/// The steps for compiling a pattern.
const PATTERN_STEPS: usize = 50;
/// The most different patterns of a document that are compiled.
const MAX_PATTERNS: usize = 10_000;

/// Keywords whose value is a schema, a list of schemas, or schemas by name.
const SCHEMA_KEYWORDS: [&str; 9] = [
    "items",
    "additionalProperties",
    "not",
    "contains",
    "propertyNames",
    "if",
    "then",
    "else",
    "unevaluatedProperties",
];
const SCHEMA_LIST_KEYWORDS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
const SCHEMA_MAP_KEYWORDS: [&str; 3] = ["properties", "patternProperties", "dependentSchemas"];
/// Keywords whose value is a list or an object, but not a schema.
const DATA_KEYWORDS: [&str; 4] = ["required", "type", "dependentRequired", "examples"];
/// Keywords that are meaningless for callers, or that name and fetch schemas.
const DROPPED_KEYWORDS: [&str; 13] = [
    "xml",
    "externalDocs",
    "discriminator",
    "$schema",
    "$id",
    "$anchor",
    "$dynamicRef",
    "$dynamicAnchor",
    "$defs",
    "definitions",
    "nullable",
    "readOnly",
    "example",
];

/// The totals over all schemas of a document.
#[derive(Debug, Default)]
pub(crate) struct SchemaTotals {
    parts: usize,
    /// Whether our regex engine accepts a pattern.
    patterns: HashMap<String, bool>,
}

impl SchemaTotals {
    fn supports_pattern(&mut self, pattern: &Value) -> bool {
        let Some(text) = pattern.as_str().filter(|text| text.len() <= MAX_PATTERN) else { return false };
        if let Some(known) = self.patterns.get(text) {
            return *known;
        }
        if self.patterns.len() == MAX_PATTERNS {
            return false;
        }
        let sound = Schema::output(&json!({ "pattern": text }).to_string()).is_ok();
        self.patterns.insert(text.to_owned(), sound);
        sound
    }
}

/// Converts the schemas of one operation's arguments.
pub(crate) struct SchemaConverter<'a> {
    document: &'a OpenApiDocument,
    known: &'a mut SchemaTotals,
    /// Below this depth nothing is required.
    depth: usize,
    parts: usize,
    /// Names under `$defs` by reference.
    names: BTreeMap<String, String>,
    taken: HashSet<String>,
    /// How many definitions share a name.
    name_counts: HashMap<String, usize>,
    /// References with the depth of their first use.
    pending: VecDeque<(String, usize)>,
}

impl<'a> SchemaConverter<'a> {
    /// A converter that cuts schemas at a depth.
    pub(crate) fn new(document: &'a OpenApiDocument, depth: usize, known: &'a mut SchemaTotals) -> Self {
        Self {
            document,
            known,
            depth: depth.min(MAX_DEPTH),
            parts: 0,
            names: BTreeMap::new(),
            taken: HashSet::new(),
            name_counts: HashMap::new(),
            pending: VecDeque::new(),
        }
    }

    /// Converts one schema, and queues its references for [`SchemaConverter::definitions`].
    pub(crate) fn convert(&mut self, schema: &Value) -> Result<Value, String> {
        self.convert_node(schema, 0)
    }

    /// All referenced schemas by name.
    pub(crate) fn definitions(&mut self) -> Result<Map<String, Value>, String> {
        let mut all = Map::new();
        while let Some((reference, depth)) = self.pending.pop_front() {
            let Some(name) = self.names.get(&reference).cloned() else { continue };
            let target = self.document.resolve_reference(&reference)?;
            let converted = self.convert_node(target, depth)?;
            all.insert(name, converted);
        }
        Ok(all)
    }

    fn count(&mut self, parts: usize) -> Result<(), String> {
        self.parts = self.parts.saturating_add(parts);
        self.known.parts = self.known.parts.saturating_add(parts);
        if self.parts > MAX_PARTS {
            return Err(format!("its schemas have more than {MAX_PARTS} parts"));
        }
        if self.known.parts > MAX_ALL_PARTS {
            return Err(format!(
                "the document's schemas have more than {MAX_ALL_PARTS} parts: choose some operations with `include`"
            ));
        }
        Ok(())
    }

    fn convert_node(&mut self, schema: &Value, depth: usize) -> Result<Value, String> {
        self.count(1)?;
        let Some(map) = schema.as_object() else {
            return Ok(if schema.is_boolean() { schema.clone() } else { json!({}) });
        };
        self.document.work.spend_entries(map)?;
        if depth >= self.depth {
            return Ok(shallow_schema(map));
        }
        let mut out = Map::new();
        if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
            if depth + 1 >= self.depth {
                return Ok(shallow_schema(self.document.resolve(schema)?));
            }
            out.insert("$ref".to_owned(), Value::from(self.add_reference(reference, depth)?));
            // In 3.0, keywords beside a reference are ignored.
            if self.document.version == OpenApiVersion::V30 {
                return Ok(Value::Object(out));
            }
        }
        for (key, value) in map {
            if let Some(converted) = self.convert_keyword(key, value, map, depth)? {
                out.insert(key.clone(), converted);
            }
        }
        if let Some(example) = map.get("example").and_then(keep_example)
            && !out.contains_key("examples")
        {
            out.insert("examples".to_owned(), json!([example]));
        }
        self.remove_read_only(map, &mut out);
        if map.get("nullable") == Some(&Value::Bool(true)) {
            out = nullable(out);
        }
        Ok(Value::Object(out))
    }

    fn convert_keyword(
        &mut self,
        key: &str,
        value: &Value,
        map: &Map<String, Value>,
        depth: usize,
    ) -> Result<Option<Value>, String> {
        Ok(match (key, value) {
            _ if key == "$ref" || DROPPED_KEYWORDS.contains(&key) || key.starts_with("x-") => None,
            ("items", Value::Array(items)) => Some(self.convert_list(items, depth)?),
            _ if SCHEMA_KEYWORDS.contains(&key) => Some(self.convert_node(value, depth + 1)?),
            (_, Value::Array(items)) if SCHEMA_LIST_KEYWORDS.contains(&key) => {
                Some(self.convert_list(items, depth)?)
            }
            (_, Value::Object(named)) if SCHEMA_MAP_KEYWORDS.contains(&key) => {
                let mut out = Map::new();
                for (name, schema) in named {
                    out.insert(name.clone(), self.convert_node(schema, depth + 1)?);
                }
                Some(Value::Object(out))
            }
            ("examples", value) => keep_example(value).filter(Value::is_array),
            ("exclusiveMinimum" | "exclusiveMaximum", Value::Bool(exclusive)) => {
                let bound = if key == "exclusiveMinimum" { "minimum" } else { "maximum" };
                map.get(bound).filter(|_| *exclusive).cloned()
            }
            ("minimum", _) if map.get("exclusiveMinimum") == Some(&Value::Bool(true)) => None,
            ("maximum", _) if map.get("exclusiveMaximum") == Some(&Value::Bool(true)) => None,
            // A pattern that our engine rejects would make the tool unusable.
            ("pattern", pattern) => {
                self.document.work.spend(PATTERN_STEPS)?;
                self.known.supports_pattern(pattern).then(|| pattern.clone())
            }
            ("title" | "description", Value::String(text)) => {
                Some(Value::from(plain_text(text, MAX_DESCRIPTION)))
            }
            ("enum", Value::Array(values)) => {
                self.count(values.len())?;
                keep_short(value, MAX_VALUE)
            }
            ("default" | "const", value) => keep_short(value, MAX_VALUE),
            // A schema of an unknown dialect may be anything.
            (_, Value::Array(_) | Value::Object(_)) if !DATA_KEYWORDS.contains(&key) => None,
            // Required properties are kept, so that the schema requires no unknown ones.
            ("required", Value::Array(names)) => {
                self.count(names.len())?;
                self.document.work.spend_value(value)?;
                Some(value.clone())
            }
            (_, value) => keep_short(value, MAX_VALUE),
        })
    }

    fn convert_list(&mut self, items: &[Value], depth: usize) -> Result<Value, String> {
        items
            .iter()
            .map(|item| self.convert_node(item, depth + 1))
            .collect::<Result<Vec<_>, _>>()
            .map(Value::Array)
    }

    /// Read-only properties are not arguments.
    fn remove_read_only(&self, map: &Map<String, Value>, out: &mut Map<String, Value>) {
        let Some(properties) = map.get("properties").and_then(Value::as_object) else { return };
        let is_read_only = |schema: &Value| {
            let own = schema.get("readOnly") == Some(&Value::Bool(true));
            own || self.document.resolve(schema).is_ok_and(|m| m.get("readOnly") == Some(&Value::Bool(true)))
        };
        let gone: HashSet<&str> = properties
            .iter()
            .filter(|(_, schema)| is_read_only(schema))
            .map(|(name, _)| name.as_str())
            .collect();
        if gone.is_empty() {
            return;
        }
        if let Some(Value::Object(properties)) = out.get_mut("properties") {
            properties.retain(|name, _| !gone.contains(name.as_str()));
        }
        if let Some(Value::Array(required)) = out.get_mut("required") {
            required.retain(|name| !name.as_str().is_some_and(|name| gone.contains(name)));
        }
    }

    /// The reference into `$defs`.
    fn add_reference(&mut self, reference: &str, depth: usize) -> Result<String, String> {
        if let Some(name) = self.names.get(reference) {
            return Ok(format!("#/$defs/{name}"));
        }
        self.document.resolve_reference(reference)?;
        let wanted = name::legal_name(reference.rsplit('/').next().unwrap_or_default(), 60);
        let wanted = if wanted.is_empty() { "schema".to_owned() } else { wanted };
        // Continues from the last number, because many definitions may share a name.
        let number = self.name_counts.entry(wanted.clone()).or_default();
        let name = loop {
            *number += 1;
            let name = if *number == 1 { wanted.clone() } else { format!("{wanted}_{number}") };
            if self.taken.insert(name.clone()) {
                break name;
            }
        };
        self.names.insert(reference.to_owned(), name.clone());
        self.pending.push_back((reference.to_owned(), depth));
        Ok(format!("#/$defs/{name}"))
    }
}

/// The rest of a schema below the depth: its type and its descriptions.
fn shallow_schema(map: &Map<String, Value>) -> Value {
    let mut out = Map::new();
    for (key, value) in ["type", "enum"].iter().filter_map(|key| Some((*key, map.get(*key)?))) {
        if let Some(value) = keep_short(value, MAX_VALUE) {
            out.insert(key.to_owned(), value);
        }
    }
    if let Some(text) = map.get("description").and_then(Value::as_str) {
        out.insert("description".to_owned(), Value::from(plain_text(text, MAX_DESCRIPTION)));
    }
    Value::Object(out)
}

fn keep_example(value: &Value) -> Option<Value> {
    keep_short(value, MAX_EXAMPLE)
}

/// Returns a value if its JSON has at most `most` bytes. It visits no more of the value.
fn keep_short(value: &Value, most: usize) -> Option<Value> {
    fn room(value: &Value, left: usize) -> Option<usize> {
        match value {
            Value::Array(items) => items.iter().try_fold(left.checked_sub(2)?, |left, item| room(item, left)),
            Value::Object(map) => map.iter().try_fold(left.checked_sub(2)?, |left, (key, value)| {
                room(value, left.checked_sub(key.len() + 3)?)
            }),
            Value::String(text) => left.checked_sub(text.len() + 2),
            Value::Null | Value::Bool(_) | Value::Number(_) => left.checked_sub(1),
        }
    }
    room(value, most)?;
    (value.to_string().len() <= most).then(|| value.clone())
}

/// Text for people and models: without hidden characters, and truncated.
pub(crate) fn plain_text(text: &str, most: usize) -> String {
    // Hidden characters count as well, so that the function reads a bounded part of the text.
    let end = text.char_indices().nth(most + 1).map_or(text.len(), |(at, _)| at);
    let mut out = remove_hidden(text.get(..end).unwrap_or_default()).into_owned();
    if let Some((end, _)) = out.char_indices().nth(most) {
        out.truncate(end);
        out.push('…');
    }
    out
}

/// The same schema, which also allows `null`.
fn nullable(mut schema: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::Array(values)) = schema.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    match schema.get_mut("type") {
        Some(Value::Array(types)) => {
            types.push(Value::from("null"));
            schema
        }
        Some(one) => {
            *one = json!([one.take(), "null"]);
            schema
        }
        None => {
            let mut outer = Map::new();
            if let Some(description) = schema.remove("description") {
                outer.insert("description".to_owned(), description);
            }
            outer.insert("anyOf".to_owned(), json!([schema, {"type": "null"}]));
            outer
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(version: &str, schemas: &Value) -> OpenApiDocument {
        let text = json!({"openapi": version, "paths": {}, "components": {"schemas": schemas}}).to_string();
        OpenApiDocument::parse(&text).unwrap()
    }

    fn converted(version: &str, schema: &Value) -> Value {
        let document = document(version, &json!({}));
        SchemaConverter::new(&document, MAX_DEPTH, &mut SchemaTotals::default()).convert(schema).unwrap()
    }

    #[test]
    fn the_dialect_of_3_0_is_translated() {
        for (schema, expected) in [
            (json!({"type": "string", "nullable": true}), json!({"type": ["string", "null"]})),
            (
                json!({"type": "string", "nullable": true, "enum": ["a"]}),
                json!({"type": ["string", "null"], "enum": ["a", null]}),
            ),
            (
                json!({"nullable": true, "description": "d", "allOf": [{"type": "object"}]}),
                json!({"description": "d", "anyOf": [{"allOf": [{"type": "object"}]}, {"type": "null"}]}),
            ),
            (
                json!({"type": "integer", "minimum": 3, "exclusiveMinimum": true, "maximum": 9, "exclusiveMaximum": false}),
                json!({"type": "integer", "exclusiveMinimum": 3, "maximum": 9}),
            ),
            (
                json!({"type": "string", "example": "cat", "xml": {"name": "x"}, "x-y": 1, "format": "date"}),
                json!({"type": "string", "format": "date", "examples": ["cat"]}),
            ),
            (json!({"type": "string", "pattern": "(?=a)b"}), json!({"type": "string"})),
            (json!({"type": "string", "pattern": "^a+$"}), json!({"type": "string", "pattern": "^a+$"})),
            (
                json!({"type": "object", "required": ["id", "name"], "properties": {
                    "id": {"type": "integer", "readOnly": true}, "name": {"type": "string"}}}),
                json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}),
            ),
            (json!({"exclusiveMinimum": 3}), json!({"exclusiveMinimum": 3})),
            (json!(true), json!(true)),
        ] {
            assert_eq!(converted("3.0.3", &schema), expected, "{schema}");
        }
    }

    #[test]
    fn references_become_definitions_and_stay_recursive() {
        let document = document(
            "3.1.0",
            &json!({
                "Node": {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"},
                    "other": {"$ref": "#/components/schemas/a~1b"}}},
                "a/b": {"type": "string"}, "b": {"type": "integer"}}),
        );
        let mut known = SchemaTotals::default();
        let mut schemas = SchemaConverter::new(&document, MAX_DEPTH, &mut known);
        let root = schemas
            .convert(&json!({"type": "object", "properties": {
                "n": {"$ref": "#/components/schemas/Node", "description": "kept"},
                "b": {"$ref": "#/components/schemas/b"}}}))
            .unwrap();
        assert_eq!(root.pointer("/properties/n/$ref"), Some(&json!("#/$defs/Node")));
        assert_eq!(root.pointer("/properties/n/description"), Some(&json!("kept")));
        let definitions = schemas.definitions().unwrap();
        assert_eq!(definitions.keys().collect::<Vec<_>>(), ["Node", "b", "a_1b"]);
        let whole = json!({"type": "object", "properties": root.get("properties"), "$defs": definitions});
        let schema = Schema::input(&whole.to_string()).unwrap();
        assert!(schema.check(&json!({"n": {"next": {"other": "x"}}})).is_ok());
        assert!(schema.check(&json!({"n": {"next": {"other": 7}}})).is_err());
    }

    #[test]
    fn a_hostile_schema_is_converted_cheaply() {
        // Many references with the same last segment: each gets a unique name without a search.
        let many = 15_000;
        let schemas: Map<String, Value> =
            (0..many).map(|n| (n.to_string(), json!({"x": {"type": "string"}}))).collect();
        let hostile = document("3.1.0", &Value::Object(schemas));
        let fields: Map<String, Value> = (0..many)
            .map(|n| (format!("f{n}"), json!({"$ref": format!("#/components/schemas/{n}/x")})))
            .collect();
        let mut known = SchemaTotals::default();
        let started = std::time::Instant::now();
        let mut schemas = SchemaConverter::new(&hostile, MAX_DEPTH, &mut known);
        schemas.convert(&json!({"properties": fields})).unwrap();
        assert!(schemas.definitions().is_err(), "it is more than one operation may have");
        assert!(started.elapsed() < std::time::Duration::from_secs(60));
        let long = "x".repeat(100_000);
        let values: Vec<String> = (0..5000).map(|n| format!("value {n}")).collect();
        let kept = converted(
            "3.1.0",
            &json!({"type": "string", "enum": values, "default": long, "description": long,
                "const": long, "pattern": long, "unknown": {"a": [1]}, "title": "a\u{202e}b"}),
        );
        assert_eq!(kept["description"].as_str().unwrap().chars().count(), MAX_DESCRIPTION + 1);
        assert_eq!(kept["title"], "ab");
        assert_eq!(kept.as_object().unwrap().len(), 3, "{kept}");
        // A schema with many parts that is referenced repeatedly.
        let big: Map<String, Value> =
            (0..10_000).map(|n| (format!("f{n}"), json!({"type": "string"}))).collect();
        let again = document("3.1.0", &json!({"Big": {"properties": big}}));
        let mut known = SchemaTotals::default();
        let mut refused = None;
        for _ in 0..200 {
            let mut schemas = SchemaConverter::new(&again, MAX_DEPTH, &mut known);
            let converted = schemas.convert(&json!({"$ref": "#/components/schemas/Big"}));
            refused = refused.or(converted.err()).or(schemas.definitions().err());
        }
        assert!(refused.unwrap().contains("choose some operations"));
    }

    #[test]
    fn a_deep_schema_is_cut_and_a_large_one_refused() {
        let deep =
            (0..100).fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
        let document = document("3.1.0", &json!({}));
        let cut = SchemaConverter::new(&document, 3, &mut SchemaTotals::default()).convert(&deep).unwrap();
        assert_eq!(
            cut,
            json!({"type": "array", "items": {"type": "array", "items": {"type": "array", "items": {"type": "array"}}}})
        );
        let many: Map<String, Value> =
            (0..=MAX_PARTS).map(|n| (n.to_string(), json!({"type": "string"}))).collect();
        let error = SchemaConverter::new(&document, 9, &mut SchemaTotals::default())
            .convert(&json!({"properties": many}))
            .unwrap_err();
        assert!(error.contains("more than 20000 parts"), "{error}");
        let error = SchemaConverter::new(&document, 9, &mut SchemaTotals::default())
            .convert(&json!({"$ref": "x.yaml"}))
            .unwrap_err();
        assert!(error.contains("not fetched"), "{error}");
    }
}
