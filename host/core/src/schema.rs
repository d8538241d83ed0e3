//! JSON Schema 2020-12 of arguments and results: compiled once per tool, applied to each call.
//!
//! A schema is a guest's text that the host executes, so it is bounded before it is compiled: size, depth, no
//! remote references (MCP 2026-07-28: must not be fetched), no reference that leads back to itself on the same
//! value, and a bound on how far `$ref`s fan out (2 to the power of 40 checks fit in two kilobytes otherwise).
//! Patterns run on a linear-time regex engine.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

use crate::json;

/// Largest schema text, in bytes.
pub const MAX_SCHEMA_BYTES: usize = 256 << 10;
/// Deepest nesting of a schema.
const MAX_SCHEMA_DEPTH: usize = 64;
/// Most subschemas after following references.
const MAX_EXPANDED: u64 = 20_000;
/// Most findings that one refusal lists.
const MAX_FINDINGS: usize = 3;
/// Longest finding, in characters.
const MAX_FINDING_CHARS: usize = 240;

/// A schema that was found sound. Cheap to clone. Its validator is built at first use: listing thousands of tools
/// builds none.
#[derive(Clone)]
pub struct Schema {
    value: Arc<Value>,
    validator: Arc<OnceLock<Result<Validator, SchemaError>>>,
}

impl std::fmt::Debug for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Schema({})", self.value)
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

/// Why a schema was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SchemaError(String);

/// Where a value does not match, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// JSON pointer of the first place.
    pub pointer: String,
    /// All findings (three at most), readable by a model.
    pub message: String,
}

impl Schema {
    /// Compiles the schema of a tool's arguments; its root must be `"type": "object"`.
    ///
    /// # Errors
    /// Names what is wrong with the schema.
    pub fn input(text: &str) -> Result<Self, SchemaError> {
        let schema = Self::output(text)?;
        if schema.value.get("type").and_then(Value::as_str) != Some("object") {
            return Err(SchemaError("the root of an input schema must be `\"type\": \"object\"`".to_owned()));
        }
        Ok(schema)
    }

    /// Compiles any schema.
    ///
    /// # Errors
    /// Names what is wrong with the schema.
    pub fn output(text: &str) -> Result<Self, SchemaError> {
        if text.len() > MAX_SCHEMA_BYTES {
            return Err(SchemaError(format!(
                "schema of {} bytes; at most {MAX_SCHEMA_BYTES} are read",
                text.len()
            )));
        }
        let value = json::parse(text).map_err(|e| SchemaError(format!("schema is not JSON: {e}")))?;
        if !value.is_object() {
            return Err(SchemaError("schema is not a JSON object".to_owned()));
        }
        Bounds::check(&value)?;
        let validator = compile(&value)?;
        Ok(Self { value: Arc::new(value), validator: Arc::new(OnceLock::from(Ok(validator))) })
    }

    /// Takes a schema that [`Schema::input`] or [`Schema::output`] of this version accepted before, without going
    /// through it again.
    #[must_use]
    pub fn accepted_before(value: Value) -> Self {
        Self { value: Arc::new(value), validator: Arc::default() }
    }

    /// The schema as it was written.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Applies the schema.
    ///
    /// # Errors
    /// The first few places that do not match.
    pub fn check(&self, instance: &Value) -> Result<(), Mismatch> {
        let validator = match self.validator.get_or_init(|| compile(&self.value)) {
            Ok(validator) => validator,
            Err(error) => return Err(Mismatch { pointer: String::new(), message: error.to_string() }),
        };
        if validator.is_valid(instance) {
            return Ok(());
        }
        let mut pointer = String::new();
        let mut message = String::new();
        for (n, error) in validator.iter_errors(instance).take(MAX_FINDINGS).enumerate() {
            let place = error.instance_path().to_string();
            if n == 0 {
                pointer.clone_from(&place);
            } else {
                message.push_str("; ");
            }
            let shown = if place.is_empty() { "(root)" } else { &place };
            _ = write!(message, "{shown}: {}", cut(&error.to_string()));
        }
        Err(Mismatch { pointer, message })
    }
}

fn compile(schema: &Value) -> Result<Validator, SchemaError> {
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_pattern_options(PatternOptions::regex())
        .build(schema)
        .map_err(|e| SchemaError(format!("schema does not compile: {}", cut(&e.to_string()))))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_FINDING_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Walks a schema before it is compiled.
struct Bounds<'a> {
    root: &'a Value,
    cost: HashMap<*const Value, u64>,
    open: HashSet<*const Value>,
}

impl<'a> Bounds<'a> {
    fn check(root: &'a Value) -> Result<(), SchemaError> {
        depth(root, 0)?;
        let mut bounds = Self { root, cost: HashMap::new(), open: HashSet::new() };
        let cost = bounds.expanded(root)?;
        if cost > MAX_EXPANDED {
            return Err(SchemaError(format!("schema fans out to more than {MAX_EXPANDED} subschemas")));
        }
        bounds.same_value_cycles()
    }

    /// Number of schema nodes under `node` when each reference is counted as its target; recursion counts once.
    fn expanded(&mut self, node: &'a Value) -> Result<u64, SchemaError> {
        let key = std::ptr::from_ref(node);
        if let Some(known) = self.cost.get(&key) {
            return Ok(*known);
        }
        if !self.open.insert(key) {
            return Ok(1);
        }
        let mut cost: u64 = 1;
        match node {
            Value::Object(map) => {
                for (name, child) in map {
                    let target = if is_reference(name) { child.as_str() } else { None };
                    let part = match target {
                        Some(text) => match self.resolve(text)? {
                            Some(target) => self.expanded(target)?,
                            None => 1,
                        },
                        None => self.expanded(child)?,
                    };
                    cost = cost.saturating_add(part);
                }
            }
            Value::Array(items) => {
                for child in items {
                    cost = cost.saturating_add(self.expanded(child)?);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => cost = 0,
        }
        self.open.remove(&key);
        self.cost.insert(key, cost);
        Ok(cost)
    }

    /// Refuses a reference that comes back to itself without stepping into the value.
    fn same_value_cycles(&self) -> Result<(), SchemaError> {
        let mut done = HashSet::new();
        let mut todo = vec![self.root];
        while let Some(node) = todo.pop() {
            self.in_place(node, &mut Vec::new(), &mut done)?;
            match node {
                Value::Object(map) => todo.extend(map.values()),
                Value::Array(items) => todo.extend(items),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        Ok(())
    }

    fn in_place(
        &self,
        node: &'a Value,
        path: &mut Vec<*const Value>,
        done: &mut HashSet<*const Value>,
    ) -> Result<(), SchemaError> {
        let key = std::ptr::from_ref(node);
        if path.contains(&key) {
            return Err(SchemaError("a `$ref` leads back to itself on the same value".to_owned()));
        }
        let Value::Object(map) = node else { return Ok(()) };
        if !done.insert(key) {
            return Ok(());
        }
        path.push(key);
        for (name, child) in map {
            match (name.as_str(), child) {
                (_, Value::String(text)) if is_reference(name) => {
                    if let Some(target) = self.resolve(text)? {
                        self.in_place(target, path, done)?;
                    }
                }
                ("allOf" | "anyOf" | "oneOf", Value::Array(parts)) => {
                    parts.iter().try_for_each(|part| self.in_place(part, path, done))?;
                }
                ("not" | "if" | "then" | "else", part) => self.in_place(part, path, done)?,
                ("dependentSchemas", Value::Object(parts)) => {
                    parts.values().try_for_each(|part| self.in_place(part, path, done))?;
                }
                _ => {}
            }
        }
        path.pop();
        Ok(())
    }

    /// The target of a reference inside this document.
    fn resolve(&self, reference: &str) -> Result<Option<&'a Value>, SchemaError> {
        let Some(fragment) = reference.strip_prefix('#') else {
            return Err(SchemaError(format!(
                "`$ref` to `{}` leaves the schema; only `#…` is followed",
                cut(reference)
            )));
        };
        if fragment.contains('%') {
            return Err(SchemaError("a `$ref` with percent escapes is not followed".to_owned()));
        }
        if fragment.is_empty() || fragment.starts_with('/') {
            return Ok(self.root.pointer(fragment));
        }
        Ok(find_anchor(self.root, fragment))
    }
}

fn is_reference(keyword: &str) -> bool {
    matches!(keyword, "$ref" | "$dynamicRef" | "$recursiveRef")
}

fn find_anchor<'a>(node: &'a Value, name: &str) -> Option<&'a Value> {
    match node {
        Value::Object(map) => {
            let named = |key| map.get(key).and_then(Value::as_str) == Some(name);
            if named("$anchor") || named("$dynamicAnchor") {
                return Some(node);
            }
            map.values().find_map(|child| find_anchor(child, name))
        }
        Value::Array(items) => items.iter().find_map(|child| find_anchor(child, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn depth(node: &Value, level: usize) -> Result<(), SchemaError> {
    if level > MAX_SCHEMA_DEPTH {
        return Err(SchemaError(format!("schema is nested deeper than {MAX_SCHEMA_DEPTH}")));
    }
    match node {
        Value::Object(map) => {
            if level > 0 && map.get("$id").is_some_and(Value::is_string) {
                return Err(SchemaError(
                    "an embedded `$id` changes what `$ref` means; use `$defs`".to_owned(),
                ));
            }
            map.values().try_for_each(|child| depth(child, level + 1))
        }
        Value::Array(items) => items.iter().try_for_each(|child| depth(child, level + 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const COUNT: &str = r#"{"type":"object","properties":{"text":{"type":"string"},"top":{"type":"integer","minimum":1}},
        "required":["text"],"additionalProperties":false}"#;

    #[test]
    fn arguments_are_checked_and_the_place_is_named() {
        let schema = Schema::input(COUNT).unwrap();
        assert_eq!(schema.check(&json!({"text": "a", "top": 3})), Ok(()));
        for (args, pointer, part) in [
            (json!({"text": 5}), "/text", "string"),
            (json!({}), "", "required"),
            (json!({"text": "a", "top": 0}), "/top", "minimum"),
            (json!({"text": "a", "x": 1}), "", "'x'"),
            (json!([]), "", "object"),
        ] {
            let mismatch = schema.check(&args).unwrap_err();
            assert_eq!(mismatch.pointer, pointer, "{mismatch:?}");
            assert!(mismatch.message.contains(part), "{mismatch:?}");
        }
    }

    #[test]
    fn a_finding_never_repeats_a_long_value() {
        let schema = Schema::input(COUNT).unwrap();
        let mismatch = schema.check(&json!({"text": vec!["x".repeat(1000); 100]})).unwrap_err();
        assert!(mismatch.message.chars().count() < 300, "{}", mismatch.message.len());
    }

    #[test]
    fn bad_schemas_are_refused_with_the_reason() {
        let fan: Vec<String> = (1..40)
            .map(|n| {
                format!(
                    r##""a{n}":{{"allOf":[{{"$ref":"#/$defs/a{0}"}},{{"$ref":"#/$defs/a{0}"}}]}}"##,
                    n - 1
                )
            })
            .collect();
        let fan =
            format!(r##"{{"type":"object","$ref":"#/$defs/a39","$defs":{{"a0":{{}},{}}}}}"##, fan.join(","));
        let deep =
            format!(r#"{{"type":"object","not":{}{{}}{}}}"#, r#"{"not":"#.repeat(100), "}".repeat(100));
        for (schema, part) in [
            ("", "not JSON"),
            ("[]", "not a JSON object"),
            ("true", "not a JSON object"),
            (r#"{"type":"string"}"#, "must be `\"type\": \"object\"`"),
            (
                r#"{"type":"object","properties":{"a":{"$ref":"https://example.com/s.json"}}}"#,
                "leaves the schema",
            ),
            (r#"{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}"#, "leaves the schema"),
            (r##"{"type":"object","allOf":[{"$ref":"#"}]}"##, "leads back to itself"),
            (
                r##"{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"$ref":"#/$defs/y"},"y":{"anyOf":[{"$ref":"#/$defs/x"}]}}}"##,
                "leads back to itself",
            ),
            (r#"{"type":"object","properties":{"a":{"type":"nonsense"}}}"#, "does not compile"),
            (r#"{"type":"object","properties":{"a":{"pattern":"("}}}"#, "does not compile"),
            (&fan, "fans out"),
            (&deep, "nested deeper"),
        ] {
            let error = Schema::input(schema).unwrap_err().to_string();
            assert!(error.contains(part), "{schema:.80}: {error}");
        }
    }

    #[test]
    fn a_tree_may_refer_to_itself() {
        let tree = r##"{"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#"}}},"additionalProperties":false}"##;
        let schema = Schema::input(tree).unwrap();
        assert!(schema.check(&json!({"children": [{"children": []}]})).is_ok());
        assert!(schema.check(&json!({"children": [{"child": []}]})).is_err());
    }
}
