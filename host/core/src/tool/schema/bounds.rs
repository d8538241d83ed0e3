//! The limits of a schema, checked before its compilation.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::keyword::Content;
use super::{SchemaError, cut};

/// Deepest nesting of a schema. A foreign schema is cut to less, since its rewritten form is deeper.
const MAX_SCHEMA_DEPTH: usize = 100;
/// Most subschemas after expansion of references.
const MAX_EXPANDED: u64 = 20_000;
/// Longest path through a schema, including references: compilation and validation are recursive.
const MAX_HEIGHT: usize = 128;
/// Most work to compile the patterns of a schema ([`pattern_work`]), in steps of about ten nanoseconds: half a second.
pub(super) const MAX_PATTERN_WORK: u64 = 50_000_000;
/// Steps to compile a character of a pattern, and a class of characters such as `\w`, which has hundreds of ranges.
const CHARACTER_STEPS: u64 = 20;
const CLASS_STEPS: u64 = 2000;

/// Steps of `multipleOf`, which divides exactly, and for each decimal place of its number.
const DIVISION_STEPS: u64 = 300;
const PLACE_STEPS: u64 = 8;

/// What a check with a schema costs.
pub(super) struct SchemaCost {
    /// Subschemas after expansion of references.
    pub(super) subschemas: u64,
    /// Steps of all exact divisions for one value.
    pub(super) divisions: u64,
    /// An upper bound of the states of all patterns.
    pub(super) patterns: u64,
}

impl SchemaCost {
    /// The most steps that the check of one value takes, of about ten nanoseconds each.
    pub(super) fn steps_per_value(&self) -> u64 {
        self.subschemas.saturating_add(self.divisions)
    }
}

/// Checks the limits of a schema.
///
/// # Errors
/// The schema exceeds a limit, or a reference leaves it or leads back to itself on the same value.
pub(super) fn check(root: &Value) -> Result<SchemaCost, SchemaError> {
    check_depth(root, 0, true)?;
    let (cost, open) = (HashMap::new(), HashSet::new());
    let mut walker = SchemaWalker { root, cost, open, patterns: 0, divisions: 0 };
    let (subschemas, _) = walker.expanded_cost(root, 0)?;
    if subschemas > MAX_EXPANDED {
        return Err(SchemaError(format!("the schema expands to more than {MAX_EXPANDED} subschemas")));
    }
    walker.check_same_value_cycles()?;
    if pattern_work(root) > MAX_PATTERN_WORK {
        return Err(SchemaError("its patterns are too large in all".to_owned()));
    }
    Ok(SchemaCost { subschemas, divisions: walker.divisions, patterns: walker.patterns })
}

struct SchemaWalker<'a> {
    root: &'a Value,
    /// The cost and height of visited nodes.
    cost: HashMap<*const Value, (u64, usize)>,
    open: HashSet<*const Value>,
    patterns: u64,
    divisions: u64,
}

impl<'a> SchemaWalker<'a> {
    /// The number of schema nodes below `node`, with each reference counted as its target. A recursive reference counts
    /// once.
    fn expanded_cost(&mut self, node: &'a Value, level: usize) -> Result<(u64, usize), SchemaError> {
        let key = std::ptr::from_ref(node);
        if let Some(known) = self.cost.get(&key) {
            return Ok(*known);
        }
        if !self.open.insert(key) {
            return Ok((1, 1));
        }
        let too_high = || {
            SchemaError(format!("the schema with its references is nested deeper than {MAX_HEIGHT} levels"))
        };
        if level > MAX_HEIGHT {
            return Err(too_high());
        }
        let (mut cost, mut height): (u64, usize) = (1, 0);
        if let Value::Object(map) = node {
            for (name, child) in map {
                self.count_patterns(name, child);
                self.count_divisions(name, child);
                let part = match (child, Content::of(name)) {
                    (Value::String(text), _) if is_reference(name) => match self.resolve(text)? {
                        Some(target) => self.expanded_cost(target, level + 1)?,
                        None => (1, 1),
                    },
                    (Value::Object(named), Content::SchemasByName) => {
                        self.cost_of_all(named.values(), level + 2)?
                    }
                    (Value::Array(items), Content::Schema | Content::Schemas) => {
                        self.cost_of_all(items.iter(), level + 2)?
                    }
                    (child, Content::Schema) => self.expanded_cost(child, level + 1)?,
                    // Items of `enum` cost a comparison each.
                    (data, _) => (count_items(data), 1),
                };
                cost = cost.saturating_add(part.0);
                height = height.max(part.1);
            }
        }
        self.open.remove(&key);
        height += 1;
        if height > MAX_HEIGHT {
            return Err(too_high());
        }
        self.cost.insert(key, (cost, height));
        Ok((cost, height))
    }

    /// The sum of the costs of these schemas, and the height of a list of them.
    fn cost_of_all(
        &mut self,
        schemas: impl Iterator<Item = &'a Value>,
        level: usize,
    ) -> Result<(u64, usize), SchemaError> {
        let (mut cost, mut height) = (1_u64, 0);
        for schema in schemas {
            let part = self.expanded_cost(schema, level)?;
            cost = cost.saturating_add(part.0);
            height = height.max(part.1);
        }
        Ok((cost, height + 1))
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

    fn count_divisions(&mut self, keyword: &str, value: &Value) {
        let Some(divisor) = value.as_f64().filter(|_| keyword == "multipleOf") else { return };
        let shown = format!("{divisor:e}");
        let exponent = shown.rsplit_once('e').and_then(|(_, exponent)| exponent.parse().ok());
        let places = exponent.map_or(0, i64::unsigned_abs);
        let steps = DIVISION_STEPS.saturating_add(places.saturating_mul(PLACE_STEPS));
        self.divisions = self.divisions.saturating_add(steps);
    }

    /// Refuses references that lead back to themselves without descending into the value.
    fn check_same_value_cycles(&self) -> Result<(), SchemaError> {
        let mut done = HashSet::new();
        let mut pending = vec![self.root];
        while let Some(node) = pending.pop() {
            self.visit_in_place(node, &mut Vec::new(), &mut done)?;
            match node {
                Value::Object(map) => pending.extend(map.values()),
                Value::Array(items) => pending.extend(items),
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
                // In data, such as that of `default`, a reference may lead anywhere.
                (_, Value::String(text)) if is_reference(name) => {
                    if let Some(target) = self.resolve(text).ok().flatten() {
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

pub(super) fn is_reference(keyword: &str) -> bool {
    matches!(keyword, "$ref" | "$dynamicRef" | "$recursiveRef")
}

/// The number of items in all lists of a value.
fn count_items(data: &Value) -> u64 {
    match data {
        Value::Array(items) => items.len() as u64 + items.iter().map(count_items).sum::<u64>(),
        Value::Object(members) => members.values().map(count_items).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// An upper bound of the states of a pattern: its length times each counted repetition.
fn pattern_states(pattern: &str) -> u64 {
    repetitions(pattern).saturating_mul(pattern.len() as u64)
}

/// The product of the counted repetitions of a pattern.
fn repetitions(pattern: &str) -> u64 {
    let counts = pattern.split('{').skip(1).filter_map(|rest| {
        let inside = rest.split('}').next()?;
        inside.split(',').filter_map(|n| n.trim().parse::<u64>().ok()).max()
    });
    counts.fold(1, |product, count| product.saturating_mul(count.max(1)))
}

/// An estimate of the work to compile all patterns of a schema, each as often as it stands there.
pub(super) fn pattern_work(schema: &Value) -> u64 {
    let Value::Object(map) = schema else {
        return schema
            .as_array()
            .map_or(0, |items| items.iter().map(pattern_work).fold(0, u64::saturating_add));
    };
    let of_keyword = |(keyword, value): (&String, &Value)| match (keyword.as_str(), value) {
        ("pattern", Value::String(pattern)) => compile_work(pattern),
        ("patternProperties", Value::Object(named)) => {
            let own = named.keys().map(|pattern| compile_work(pattern)).fold(0, u64::saturating_add);
            own.saturating_add(named.values().map(pattern_work).fold(0, u64::saturating_add))
        }
        (_, value) => pattern_work(value),
    };
    map.iter().map(of_keyword).fold(0, u64::saturating_add)
}

/// An estimate of the work to compile a pattern. The engine refuses one whose program is larger than a megabyte, which
/// takes it no more than a few milliseconds.
pub(super) fn compile_work(pattern: &str) -> u64 {
    const LARGEST: u64 = 500_000;
    let classes = pattern.matches(['\\', '.', '^']).count() as u64;
    let once = (pattern.len() as u64 * CHARACTER_STEPS).saturating_add(classes * CLASS_STEPS);
    once.saturating_mul(repetitions(pattern)).min(LARGEST.saturating_add(pattern.len() as u64))
}

pub(super) fn find_anchor<'a>(node: &'a Value, name: &str) -> Option<&'a Value> {
    match node {
        Value::Object(map) => {
            let is_named = |key| map.get(key).and_then(Value::as_str) == Some(name);
            if is_named("$anchor") || is_named("$dynamicAnchor") {
                return Some(node);
            }
            map.values().find_map(|child| find_anchor(child, name))
        }
        Value::Array(items) => items.iter().find_map(|child| find_anchor(child, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn check_depth(node: &Value, level: usize, is_schema: bool) -> Result<(), SchemaError> {
    if level > MAX_SCHEMA_DEPTH {
        return Err(SchemaError(format!("the schema is nested deeper than {MAX_SCHEMA_DEPTH} levels")));
    }
    match node {
        Value::Object(map) => {
            if level > 0 && is_schema && map.get("$id").is_some_and(Value::is_string) {
                return Err(SchemaError(
                    "an embedded `$id` changes what `$ref` means; use `$defs`".to_owned(),
                ));
            }
            map.iter().try_for_each(|(name, child)| match (child, Content::of(name)) {
                (Value::Object(named), Content::SchemasByName) if is_schema => {
                    named.values().try_for_each(|schema| check_depth(schema, level + 2, true))
                }
                (child, content) => check_depth(child, level + 1, is_schema && content != Content::Data),
            })
        }
        Value::Array(items) => items.iter().try_for_each(|child| check_depth(child, level + 1, is_schema)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}
