//! JSON Schema 2020-12 of arguments and results: compiled for each tool that is called, applied to each call.
//!
//! A schema is a guest's text that the host executes, so it is bounded before it is compiled: size, depth, no
//! remote references (MCP 2026-07-28: must not be fetched), no reference that leads back to itself on the same
//! value, and a bound on how far `$ref`s fan out (2 to the power of 40 checks fit in two kilobytes otherwise).
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
/// Most subschemas after following references.
const MAX_EXPANDED: u64 = 20_000;
/// Longest way through a schema, references included: what compiles and applies it goes there by recursion.
const MAX_HEIGHT: usize = 128;
/// Most applications of a subschema to a value that one check may take; a second, about.
const MAX_WORK: u64 = 100_000_000;
/// Up to this much work all findings are collected; with recursive references that takes every way through them.
const MAX_EXPLAINED: u64 = 100_000;
/// Most work for patterns in one check: bytes of text times an upper bound of the patterns' states; seconds, at worst.
const MAX_MATCHING: u64 = 1_000_000_000;
/// Most findings that one refusal lists.
const MAX_FINDINGS: usize = 3;
/// Longest message, in characters: variants within variants have findings of their own.
const MAX_MESSAGE_CHARS: usize = 1500;
/// Longest finding, in characters.
const MAX_FINDING_CHARS: usize = 240;

/// A schema that was found sound. Cheap to clone. Its validator is kept from the first check on: listing thousands of
/// tools keeps none.
#[derive(Clone)]
pub struct Schema {
    value: Arc<Value>,
    compiled: Arc<OnceLock<Result<Compiled, SchemaError>>>,
}

struct Compiled {
    validator: Validator,
    /// Subschemas after following references.
    cost: u64,
    /// Upper bound of the states of all patterns.
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
        // Compiled to be sure of it, and again at the first call: most of a thousand tools are only listed, and a validator
        // takes several times what the schema takes.
        compile(&value)?;
        Ok(Self { value: Arc::new(value), compiled: Arc::default() })
    }

    /// Takes a schema that [`Schema::input`] or [`Schema::output`] of this version accepted before; it is gone
    /// through again at first use.
    #[must_use]
    pub fn accepted_before(value: Value) -> Self {
        Self { value: Arc::new(value), compiled: Arc::default() }
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
        let plain = |message: String| Err(Mismatch { pointer: String::new(), message });
        let Compiled { validator, cost, patterns, recursive } =
            match self.compiled.get_or_init(|| compile(&self.value)) {
                Ok(compiled) => compiled,
                Err(error) => return plain(error.to_string()),
            };
        let Extent { nodes, height, bytes } = Extent::of(instance);
        let work = nodes.saturating_mul(*cost);
        if work > MAX_WORK {
            return plain(format!("{nodes} values are too many for a schema of {cost} parts"));
        }
        if bytes.saturating_mul(*patterns) > MAX_MATCHING {
            return plain(format!("{bytes} bytes of text are too many for the patterns of the schema"));
        }
        if validator.is_valid(instance) {
            return Ok(());
        }
        // Finding out why takes every way through alternatives, and memory for each: only where that is little.
        if work > MAX_EXPLAINED || (*recursive && height > 6) {
            return plain("it does not match the schema (too large to say where)".to_owned());
        }
        let mut pointer = String::new();
        let mut message = String::new();
        for (n, error) in validator.iter_errors(instance).take(MAX_FINDINGS).enumerate() {
            let finding = variants::finding(&error, &self.value);
            if n == 0 {
                pointer = cut(&finding.pointer);
            } else {
                message.push_str("; ");
            }
            let place = variants::shown(error.instance_path().as_str());
            _ = write!(message, "{place}: {}", finding.text);
        }
        if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE_CHARS) {
            message.truncate(end);
            message.push('…');
        }
        Err(Mismatch { pointer, message })
    }
}

fn compile(schema: &Value) -> Result<Compiled, SchemaError> {
    let (cost, patterns, recursive) = Bounds::check(schema)?;
    let validator = jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_pattern_options(PatternOptions::regex().size_limit(1 << 20))
        .build(schema)
        .map_err(|e| SchemaError(format!("schema does not compile: {}", cut(&e.to_string()))))?;
    Ok(Compiled { validator, cost, patterns, recursive })
}

/// How much there is to check.
struct Extent {
    /// Values, the inner ones included.
    nodes: u64,
    /// Levels.
    height: usize,
    /// Bytes of all texts, keys included.
    bytes: u64,
}

impl Extent {
    fn of(value: &Value) -> Self {
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
        let inner = Self::of(child);
        self.nodes += inner.nodes;
        self.height = self.height.max(inner.height + 1);
        self.bytes += inner.bytes;
    }
}

/// An upper bound of a pattern's states: its length, times each counted repetition in it.
fn states(pattern: &str) -> u64 {
    let counts = pattern.split('{').skip(1).filter_map(|rest| {
        let inside = rest.split('}').next()?;
        inside.split(',').filter_map(|n| n.trim().parse::<u64>().ok()).max()
    });
    counts.fold(pattern.len() as u64, |product, count| product.saturating_mul(count.max(1)))
}

/// Cuts a text of others for a message.
fn cut(text: &str) -> String {
    text::one_line(text, MAX_FINDING_CHARS)
}

/// Walks a schema before it is compiled.
struct Bounds<'a> {
    root: &'a Value,
    /// Cost and height of what was gone through.
    cost: HashMap<*const Value, (u64, usize)>,
    open: HashSet<*const Value>,
    patterns: u64,
    recursive: bool,
}

impl<'a> Bounds<'a> {
    fn check(root: &'a Value) -> Result<(u64, u64, bool), SchemaError> {
        depth(root, 0)?;
        let (cost, open) = (HashMap::new(), HashSet::new());
        let mut bounds = Self { root, cost, open, patterns: 0, recursive: false };
        let (cost, _) = bounds.expanded(root, 0)?;
        if cost > MAX_EXPANDED {
            return Err(SchemaError(format!("schema fans out to more than {MAX_EXPANDED} subschemas")));
        }
        bounds.same_value_cycles()?;
        Ok((cost, bounds.patterns, bounds.recursive))
    }

    /// Number of schema nodes under `node` when each reference is counted as its target; recursion counts once.
    fn expanded(&mut self, node: &'a Value, level: usize) -> Result<(u64, usize), SchemaError> {
        let key = std::ptr::from_ref(node);
        if let Some(known) = self.cost.get(&key) {
            return Ok(*known);
        }
        if !self.open.insert(key) {
            self.recursive = true;
            return Ok((1, 1));
        }
        let too_high = || SchemaError(format!("schema with its references is deeper than {MAX_HEIGHT}"));
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
                            Some(target) => self.expanded(target, level + 1)?,
                            None => (1, 1),
                        },
                        None => self.expanded(child, level + 1)?,
                    };
                    cost = cost.saturating_add(part.0);
                    height = height.max(part.1);
                }
            }
            Value::Array(items) => {
                for child in items {
                    // An item of `enum` is compared, too.
                    let part = self.expanded(child, level + 1)?;
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
            ("pattern", Value::String(pattern)) => states(pattern),
            ("patternProperties", Value::Object(map)) => {
                map.keys().fold(0, |sum: u64, pattern| sum.saturating_add(states(pattern)))
            }
            _ => 0,
        };
        self.patterns = self.patterns.saturating_add(more);
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
mod tests;
