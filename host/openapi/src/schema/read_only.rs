//! Read-only properties. `required` of such a property holds for answers only (OpenAPI 3.0.3, Schema Object; 3.1: JSON
//! Schema Validation, section 9.4), wherever it stands: one branch of `allOf` may declare the property, and another may
//! require it.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::MAX_DEPTH;
use crate::document::OpenApiDocument;
use crate::scalar::{member_flag, scalar_text};

/// The read-only properties of one object.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReadOnlyNames {
    /// Properties that are no arguments.
    pub(super) hidden: BTreeSet<String>,
    /// Properties that may be arguments and are not required: one of several alternatives declares them as read-only,
    /// or 3.0 ignores the declaration because it stands beside a reference.
    pub(super) optional: BTreeSet<String>,
}

impl ReadOnlyNames {
    /// Whether a property is not required.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.hidden.contains(name) || self.optional.contains(name)
    }

    pub(super) fn extend(&mut self, more: &Self) {
        self.hidden.extend(more.hidden.iter().cloned());
        self.optional.extend(more.optional.iter().cloned());
    }

    /// The same names, if there are any.
    pub(super) fn shared(self) -> Option<Arc<Self>> {
        (!self.hidden.is_empty() || !self.optional.is_empty()).then(|| Arc::new(self))
    }

    /// Removes the properties that are no arguments from a converted schema, and what requires any of the names.
    pub(super) fn remove_from(&self, schema: &mut Map<String, Value>) {
        let remove = |required: &mut Vec<Value>| {
            required.retain(|name| !name.as_str().is_some_and(|name| self.contains(name)));
        };
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            properties.retain(|name, _| !self.hidden.contains(name));
        }
        if let Some(Value::Array(required)) = schema.get_mut("required") {
            remove(required);
        }
        if let Some(Value::Object(dependent)) = schema.get_mut("dependentRequired") {
            dependent.values_mut().filter_map(Value::as_array_mut).for_each(remove);
        }
    }

    /// The names that a schema mentions and does not declare itself.
    pub(super) fn for_target(&self, facts: &ObjectFacts) -> Self {
        let keep = |names: &BTreeSet<String>, own: &BTreeSet<String>| {
            names
                .iter()
                .filter(|name| facts.mentioned.contains(*name) && !own.contains(*name))
                .cloned()
                .collect()
        };
        Self {
            hidden: keep(&self.hidden, &facts.read_only.hidden),
            optional: keep(&self.optional, &facts.read_only.optional),
        }
    }
}

/// What a schema and the schemas of the same value say about properties.
#[derive(Debug, Clone, Default)]
pub(super) struct ObjectFacts {
    pub(super) read_only: ReadOnlyNames,
    /// The names in `required`, `dependentRequired` and `properties`.
    pub(super) mentioned: BTreeSet<String>,
}

impl ObjectFacts {
    /// Collects the facts of a schema.
    ///
    /// # Errors
    /// The budget of the document is used up.
    pub(super) fn read(document: &OpenApiDocument, map: &Map<String, Value>) -> Result<Self, String> {
        let mut reader = FactReader { document, seen: HashSet::new(), facts: Self::default() };
        reader.read(map, true, 0)?;
        Ok(reader.facts)
    }
}

struct FactReader<'a> {
    document: &'a OpenApiDocument,
    /// References, each with whether it was read as certain.
    seen: HashSet<(&'a str, bool)>,
    facts: ObjectFacts,
}

impl<'a> FactReader<'a> {
    /// Reads a schema of the object. `certain`: it always applies.
    fn read(&mut self, map: &'a Map<String, Value>, certain: bool, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Ok(());
        }
        self.document.work.spend_entries(map)?;
        if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
            // A reference without a target is reported by the conversion.
            if self.seen.insert((reference, certain))
                && let Ok(Value::Object(target)) = self.document.resolve_reference(reference)
            {
                self.read(target, certain, depth + 1)?;
            }
            if self.document.version.has_own_schemas() {
                return Ok(());
            }
        }
        for (name, property) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
            self.facts.mentioned.insert(name.clone());
            let names = &mut self.facts.read_only;
            match declaration(self.document, property, 0)? {
                Declaration::ReadOnly if certain => names.hidden.insert(name.clone()),
                Declaration::ReadOnly | Declaration::BesideReference => names.optional.insert(name.clone()),
                Declaration::None => false,
            };
        }
        let dependent =
            map.get("dependentRequired").and_then(Value::as_object).into_iter().flat_map(Map::values);
        let required = map.get("required").into_iter().chain(dependent).filter_map(Value::as_array).flatten();
        self.facts.mentioned.extend(required.filter_map(|name| scalar_text(name).map(Cow::into_owned)));
        for (key, certain) in [("allOf", certain), ("anyOf", false), ("oneOf", false)] {
            for branch in map.get(key).and_then(Value::as_array).into_iter().flatten() {
                self.read_value(branch, certain, depth)?;
            }
        }
        for branch in ["then", "else"].iter().filter_map(|key| map.get(*key)) {
            self.read_value(branch, false, depth)?;
        }
        for branch in map.get("dependentSchemas").and_then(Value::as_object).into_iter().flat_map(Map::values)
        {
            self.read_value(branch, false, depth)?;
        }
        Ok(())
    }

    fn read_value(&mut self, branch: &'a Value, certain: bool, depth: usize) -> Result<(), String> {
        branch.as_object().map_or(Ok(()), |map| self.read(map, certain, depth + 1))
    }
}

/// What the schema of a property says about `readOnly`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Declaration {
    None,
    ReadOnly,
    /// The declaration stands beside a reference of 3.0, which ignores it, although its author meant it.
    BesideReference,
}

fn declaration(document: &OpenApiDocument, property: &Value, depth: usize) -> Result<Declaration, String> {
    let Some(map) = property.as_object().filter(|_| depth <= MAX_DEPTH) else { return Ok(Declaration::None) };
    document.work.spend(1)?;
    let own = member_flag(map, "readOnly") == Some(true);
    let reference = map.get("$ref").and_then(Value::as_str);
    let ignored = reference.is_some() && document.version.has_own_schemas();
    if own && !ignored {
        return Ok(Declaration::ReadOnly);
    }
    if let Some(Ok(target)) = reference.map(|reference| document.resolve_reference(reference))
        && declaration(document, target, depth + 1)? == Declaration::ReadOnly
    {
        return Ok(Declaration::ReadOnly);
    }
    if ignored {
        return Ok(if own { Declaration::BesideReference } else { Declaration::None });
    }
    for branch in map.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        if declaration(document, branch, depth + 1)? == Declaration::ReadOnly {
            return Ok(Declaration::ReadOnly);
        }
    }
    Ok(Declaration::None)
}
