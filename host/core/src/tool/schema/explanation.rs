//! The work of an explanation: how many steps it takes to find out why a value does not match.
//!
//! A validation stops at the first mismatch and visits each pair of value and schema once. An explanation follows every
//! path through the alternatives, and copies the value of each mismatch. So 600 alternatives make 600 copies of a text, and
//! a schema that refers to itself multiplies them by each level. [`takes_at_most`] walks these paths without validating
//! anything, and gives up where the work exceeds its bound.

use serde_json::Value;

use super::ValueSize;
use super::bounds::{find_anchor, is_reference};

/// Most steps of an explanation, of about ten nanoseconds each. They copy at most 50 MB.
pub(super) const MAX_STEPS: u64 = 5_000_000;
/// Steps of one application of a schema to a value.
const VISIT: u64 = 20;
/// Steps to copy a value inside of another.
const COPY_NODE: u64 = 5;
/// Bytes of a text that are copied in one step. Copying is faster, but the copies take memory.
const COPY_BYTES: u64 = 10;
/// Longest path through a schema and a value: both are nested less deeply.
const MAX_DEPTH: usize = 400;

/// Whether explaining why `value` does not match `root` takes at most `steps` steps. This function takes no more steps
/// itself.
pub(super) fn takes_at_most(steps: u64, root: &Value, value: &Value) -> bool {
    ExplanationWalk { root, left: steps }.visit(root, value, 0).is_some()
}

struct ExplanationWalk<'s> {
    root: &'s Value,
    left: u64,
}

impl<'s> ExplanationWalk<'s> {
    /// Counts the application of a schema to a value. `None` if no steps are left.
    fn visit(&mut self, schema: &'s Value, value: &Value, depth: usize) -> Option<()> {
        let Value::Object(keywords) = schema else { return self.spend(VISIT) };
        let ValueSize { nodes, bytes, .. } = ValueSize::measure(value);
        let copy = nodes.saturating_mul(COPY_NODE).saturating_add(bytes / COPY_BYTES);
        // Each keyword can find a mismatch of its own.
        let copies = copy.saturating_mul(keywords.len().max(1) as u64);
        self.spend(VISIT.saturating_add(copies))?;
        if depth > MAX_DEPTH {
            return None;
        }
        keywords.iter().try_for_each(|(keyword, inner)| self.follow(keyword, inner, value, depth + 1))
    }

    /// Counts what a keyword applies to a value or to its parts.
    fn follow(&mut self, keyword: &str, inner: &'s Value, value: &Value, depth: usize) -> Option<()> {
        let mut all = |schemas: &mut dyn Iterator<Item = &'s Value>, values: &[&Value]| {
            for schema in schemas {
                for value in values {
                    self.visit(schema, value, depth)?;
                }
            }
            Some(())
        };
        match (keyword, inner) {
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => all(&mut schemas.iter(), &[value]),
            ("not" | "if" | "then" | "else", schema) => all(&mut std::iter::once(schema), &[value]),
            ("dependentSchemas" | "dependencies", Value::Object(schemas)) => {
                all(&mut schemas.values(), &[value])
            }
            ("properties", Value::Object(schemas)) => schemas.iter().try_for_each(|(name, schema)| {
                value.get(name).map_or(Some(()), |member| self.visit(schema, member, depth))
            }),
            ("patternProperties", Value::Object(schemas)) => all(&mut schemas.values(), &members(value)),
            ("additionalProperties" | "unevaluatedProperties", schema) => {
                all(&mut std::iter::once(schema), &members(value))
            }
            ("propertyNames", schema) => {
                all(&mut std::iter::once(schema), &vec![&Value::Null; members(value).len()])
            }
            ("prefixItems" | "items", Value::Array(schemas)) => schemas
                .iter()
                .zip(items(value))
                .try_for_each(|(schema, item)| self.visit(schema, item, depth)),
            ("items" | "additionalItems" | "unevaluatedItems" | "contains", schema) => {
                all(&mut std::iter::once(schema), &items(value))
            }
            (_, Value::String(reference)) if is_reference(keyword) => {
                let target = self.resolve(reference);
                target.map_or(Some(()), |schema| self.visit(schema, value, depth))
            }
            _ => Some(()),
        }
    }

    /// The target of a reference. References that lead nowhere were refused with their schema.
    fn resolve(&self, reference: &str) -> Option<&'s Value> {
        match reference.strip_prefix('#')? {
            pointer if pointer.is_empty() || pointer.starts_with('/') => self.root.pointer(pointer),
            anchor => find_anchor(self.root, anchor),
        }
    }

    fn spend(&mut self, steps: u64) -> Option<()> {
        self.left = self.left.checked_sub(steps)?;
        Some(())
    }
}

fn members(value: &Value) -> Vec<&Value> {
    value.as_object().map(|map| map.values().collect()).unwrap_or_default()
}

fn items(value: &Value) -> Vec<&Value> {
    value.as_array().map(|items| items.iter().collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_through_alternatives_are_counted_until_they_are_too_many() {
        let alternatives = |count: usize| json!({"oneOf": vec![json!({"const": "x"}); count]});
        let fits = |steps, schema: &Value, value: &Value| takes_at_most(steps, schema, value);
        assert!(fits(100_000, &alternatives(600), &json!("short")));
        assert!(fits(MAX_STEPS, &alternatives(600), &json!("x".repeat(50_000))));
        assert!(!fits(MAX_STEPS, &alternatives(600), &json!("x".repeat(500_000))), "300 MB of copies");
        let tree = json!({"anyOf": vec![json!({"properties": {"a": {"$ref": "#"}}, "required": ["b"]}); 20]});
        let value = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({"a": inner}));
        assert!(fits(MAX_STEPS, &tree, &value(1)));
        assert!(!fits(MAX_STEPS, &tree, &value(8)), "20^8 paths");
    }
}
