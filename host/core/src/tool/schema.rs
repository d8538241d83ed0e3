//! JSON Schema 2020-12 for arguments and results. A schema is compiled when its tool is first called.
//!
//! The host executes schemas from guests, so it checks them before compilation. Size and depth are limited. Remote
//! references are refused, since MCP 2026-07-28 forbids fetching them. A reference must not lead back to itself on the
//! same value. The fan-out of references is limited, since 2 KB of schema could otherwise expand to 2^40 checks.
//! Patterns run on a linear-time regex engine.

mod variants;

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;
use toolbay_policy::text;

use crate::tool::json;

/// Largest schema text, in bytes.
pub const MAX_SCHEMA_BYTES: usize = 256 << 10;
/// Deepest nesting of a schema.
const MAX_SCHEMA_DEPTH: usize = 64;
/// Most subschemas after expansion of references.
const MAX_EXPANDED: u64 = 20_000;
/// Longest path through a schema, including references: compilation and validation are recursive.
const MAX_HEIGHT: usize = 128;
/// Most applications of a subschema to a value in one check, which take about 1 s.
const MAX_WORK: u64 = 100_000_000;
/// Most work for which findings are collected. With recursive references, collecting them follows every path.
const MAX_EXPLAINED: u64 = 100_000;
/// Most work for patterns in one check: bytes of text times an upper bound of the pattern states. It takes a few
/// seconds at worst.
const MAX_MATCHING: u64 = 1_000_000_000;
/// Most findings in one message.
const MAX_FINDINGS: usize = 3;
/// Longest message, in characters: nested variants have their own findings.
const MAX_MESSAGE_CHARS: usize = 1500;
/// Longest finding, in characters.
const MAX_FINDING_CHARS: usize = 240;

/// A checked schema, cheap to clone. Its validator is compiled at the first validation and then kept, so listing
/// thousands of tools compiles none.
#[derive(Clone)]
pub struct Schema {
    value: Arc<Value>,
    compiled: Arc<OnceLock<Result<CompiledSchema, SchemaError>>>,
}

struct CompiledSchema {
    validator: Validator,
    /// Subschemas after expansion of references.
    cost: u64,
    /// An upper bound of the states of all patterns.
    patterns: u64,
    recursive: bool,
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

/// The reason why a schema was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SchemaError(String);

/// A mismatch between a value and a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The JSON pointer of the first finding.
    pub pointer: String,
    /// Up to three findings, for a model.
    pub message: String,
}

impl Schema {
    /// Parses and checks an input schema, whose root must have `"type": "object"`.
    ///
    /// # Errors
    /// The schema is invalid or exceeds a limit.
    pub fn input(text: &str) -> Result<Self, SchemaError> {
        let schema = Self::output(text)?;
        if schema.value.get("type").and_then(Value::as_str) != Some("object") {
            return Err(SchemaError(
                "the root of an input schema must have `\"type\": \"object\"`".to_owned(),
            ));
        }
        Ok(schema)
    }

    /// Parses and checks an output schema, which can have any type.
    ///
    /// # Errors
    /// The schema is invalid or exceeds a limit.
    pub fn output(text: &str) -> Result<Self, SchemaError> {
        if text.len() > MAX_SCHEMA_BYTES {
            return Err(SchemaError(format!(
                "the schema has {} bytes; the limit is {MAX_SCHEMA_BYTES} bytes",
                text.len()
            )));
        }
        let value =
            json::parse(text).map_err(|e| SchemaError(format!("the schema is not valid JSON: {e}")))?;
        if !value.is_object() {
            return Err(SchemaError("the schema is not a JSON object".to_owned()));
        }
        // Compiled here only to check it, and again at the first call: most tools are only listed, and a validator
        // takes several times the memory of its schema.
        compile(&value)?;
        Ok(Self { value: Arc::new(value), compiled: Arc::default() })
    }

    /// Wraps a schema that [`Schema::input`] or [`Schema::output`] of this version has accepted before. The first
    /// validation checks it again.
    #[must_use]
    pub fn from_trusted(value: Value) -> Self {
        Self { value: Arc::new(value), compiled: Arc::default() }
    }

    /// The original schema.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Validates a value.
    ///
    /// # Errors
    /// The value does not match; the error has the first few findings.
    pub fn check(&self, instance: &Value) -> Result<(), Mismatch> {
        let plain = |message: String| Err(Mismatch { pointer: String::new(), message });
        let CompiledSchema { validator, cost, patterns, recursive } =
            match self.compiled.get_or_init(|| compile(&self.value)) {
                Ok(compiled) => compiled,
                Err(error) => return plain(error.to_string()),
            };
        let Extent { nodes, height, bytes } = Extent::measure(instance);
        let work = nodes.saturating_mul(*cost);
        if work > MAX_WORK {
            return plain(format!("it has {nodes} values, too many for a schema with {cost} subschemas"));
        }
        if bytes.saturating_mul(*patterns) > MAX_MATCHING {
            return plain(format!("it has {bytes} bytes of text, too many for the patterns of the schema"));
        }
        if validator.is_valid(instance) {
            return Ok(());
        }
        // Collecting findings follows every path through the alternatives and takes memory for each, so only small
        // cases do it.
        if work > MAX_EXPLAINED || (*recursive && height > 6) {
            return plain("it does not match the schema (it is too large to find the place)".to_owned());
        }
        let mut pointer = String::new();
        let mut message = String::new();
        for (n, error) in validator.iter_errors(instance).take(MAX_FINDINGS).enumerate() {
            let finding = variants::describe_error(&error, &self.value);
            if n == 0 {
                pointer = cut(&finding.pointer);
            } else {
                message.push_str("; ");
            }
            let place = variants::shown_pointer(error.instance_path().as_str());
            _ = write!(message, "{place}: {}", finding.text);
        }
        if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE_CHARS) {
            message.truncate(end);
            message.push('…');
        }
        Err(Mismatch { pointer, message })
    }
}

fn compile(schema: &Value) -> Result<CompiledSchema, SchemaError> {
    let (cost, patterns, recursive) = SchemaWalker::check(schema)?;
    let validator = jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_pattern_options(PatternOptions::regex().size_limit(1 << 20))
        .build(schema)
        .map_err(|e| SchemaError(format!("the schema is invalid: {}", cut(&e.to_string()))))?;
    Ok(CompiledSchema { validator, cost, patterns, recursive })
}

/// The size of a value to validate.
struct Extent {
    /// The number of values, including nested ones.
    nodes: u64,
    /// The number of levels.
    height: usize,
    /// The bytes of all strings, including keys.
    bytes: u64,
}

impl Extent {
    fn measure(value: &Value) -> Self {
        let mut extent = Self { nodes: 1, height: 1, bytes: 0 };
        match value {
            Value::Object(map) => {
                for (key, child) in map {
                    extent.bytes += key.len() as u64;
                    extent.add(child);
                }
            }
            Value::Array(items) => items.iter().for_each(|child| extent.add(child)),
            Value::String(text) => extent.bytes = text.len() as u64,
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        extent
    }

    fn add(&mut self, child: &Value) {
        let inner = Self::measure(child);
        self.nodes += inner.nodes;
        self.height = self.height.max(inner.height + 1);
        self.bytes += inner.bytes;
    }
}

/// An upper bound of the states of a pattern: its length times each counted repetition.
fn pattern_states(pattern: &str) -> u64 {
    let counts = pattern.split('{').skip(1).filter_map(|rest| {
        let inside = rest.split('}').next()?;
        inside.split(',').filter_map(|n| n.trim().parse::<u64>().ok()).max()
    });
    counts.fold(pattern.len() as u64, |product, count| product.saturating_mul(count.max(1)))
}

/// Cuts an untrusted text for a message.
fn cut(text: &str) -> String {
    text::one_line(text, MAX_FINDING_CHARS)
}

/// Checks the limits of a schema before compilation.
struct SchemaWalker<'a> {
    root: &'a Value,
    /// The cost and height of visited nodes.
    cost: HashMap<*const Value, (u64, usize)>,
    open: HashSet<*const Value>,
    patterns: u64,
    recursive: bool,
}

impl<'a> SchemaWalker<'a> {
    fn check(root: &'a Value) -> Result<(u64, u64, bool), SchemaError> {
        check_depth(root, 0)?;
        let (cost, open) = (HashMap::new(), HashSet::new());
        let mut bounds = Self { root, cost, open, patterns: 0, recursive: false };
        let (cost, _) = bounds.expanded_cost(root, 0)?;
        if cost > MAX_EXPANDED {
            return Err(SchemaError(format!("the schema expands to more than {MAX_EXPANDED} subschemas")));
        }
        bounds.check_same_value_cycles()?;
        Ok((cost, bounds.patterns, bounds.recursive))
    }

    /// The number of schema nodes below `node`, with each reference counted as its target. A recursive reference counts
    /// once.
    fn expanded_cost(&mut self, node: &'a Value, level: usize) -> Result<(u64, usize), SchemaError> {
        let key = std::ptr::from_ref(node);
        if let Some(known) = self.cost.get(&key) {
            return Ok(*known);
        }
        if !self.open.insert(key) {
            self.recursive = true;
            return Ok((1, 1));
        }
        let too_high = || {
            SchemaError(format!("the schema with its references is nested deeper than {MAX_HEIGHT} levels"))
        };
        if level > MAX_HEIGHT {
            return Err(too_high());
        }
        let (mut cost, mut height): (u64, usize) = (1, 0);
        match node {
            Value::Object(map) => {
                for (name, child) in map {
                    self.count_patterns(name, child);
                    let target = if is_reference(name) { child.as_str() } else { None };
                    let part = match target {
                        Some(text) => match self.resolve(text)? {
                            Some(target) => self.expanded_cost(target, level + 1)?,
                            None => (1, 1),
                        },
                        None => self.expanded_cost(child, level + 1)?,
                    };
                    cost = cost.saturating_add(part.0);
                    height = height.max(part.1);
                }
            }
            Value::Array(items) => {
                for child in items {
                    // Items of `enum` cost a comparison each.
                    let part = self.expanded_cost(child, level + 1)?;
                    cost = cost.saturating_add(part.0.max(1));
                    height = height.max(part.1);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => cost = 0,
        }
        self.open.remove(&key);
        height += 1;
        if height > MAX_HEIGHT {
            return Err(too_high());
        }
        self.cost.insert(key, (cost, height));
        Ok((cost, height))
    }

    fn count_patterns(&mut self, keyword: &str, value: &Value) {
        let more = match (keyword, value) {
            ("pattern", Value::String(pattern)) => pattern_states(pattern),
            ("patternProperties", Value::Object(map)) => {
                map.keys().fold(0, |sum: u64, pattern| sum.saturating_add(pattern_states(pattern)))
            }
            _ => 0,
        };
        self.patterns = self.patterns.saturating_add(more);
    }

    /// Refuses references that lead back to themselves without descending into the value.
    fn check_same_value_cycles(&self) -> Result<(), SchemaError> {
        let mut done = HashSet::new();
        let mut todo = vec![self.root];
        while let Some(node) = todo.pop() {
            self.visit_in_place(node, &mut Vec::new(), &mut done)?;
            match node {
                Value::Object(map) => todo.extend(map.values()),
                Value::Array(items) => todo.extend(items),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        Ok(())
    }

    fn visit_in_place(
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
                        self.visit_in_place(target, path, done)?;
                    }
                }
                ("allOf" | "anyOf" | "oneOf", Value::Array(parts)) => {
                    parts.iter().try_for_each(|part| self.visit_in_place(part, path, done))?;
                }
                ("not" | "if" | "then" | "else", part) => self.visit_in_place(part, path, done)?,
                ("dependentSchemas", Value::Object(parts)) => {
                    parts.values().try_for_each(|part| self.visit_in_place(part, path, done))?;
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
                "the `$ref` to `{}` leaves the schema; use a local reference `#…`",
                cut(reference)
            )));
        };
        if fragment.contains('%') {
            return Err(SchemaError("a `$ref` with percent escapes is not supported".to_owned()));
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

fn check_depth(node: &Value, level: usize) -> Result<(), SchemaError> {
    if level > MAX_SCHEMA_DEPTH {
        return Err(SchemaError(format!("the schema is nested deeper than {MAX_SCHEMA_DEPTH} levels")));
    }
    match node {
        Value::Object(map) => {
            if level > 0 && map.get("$id").is_some_and(Value::is_string) {
                return Err(SchemaError(
                    "an embedded `$id` changes what `$ref` means; use `$defs`".to_owned(),
                ));
            }
            map.values().try_for_each(|child| check_depth(child, level + 1))
        }
        Value::Array(items) => items.iter().try_for_each(|child| check_depth(child, level + 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
