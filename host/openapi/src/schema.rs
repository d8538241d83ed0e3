//! Converts schemas of a document to JSON Schema 2020-12: translates the dialect of 3.0, and collects references in
//! `$defs`.
//!
//! A converted schema may be weaker than the document's, never stricter: the service judges what the host does not.

mod context;
mod discriminator;
mod file;
mod losses;
mod negation;
mod nullable;
mod read_only;
mod text;
mod value;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolbay_policy::excerpt::one_line;

use crate::document::OpenApiDocument;
use crate::name;
use crate::scalar::scalar_text;
use context::{FormPart, SchemaContext};
use discriminator::BranchTags;
use file::{file_schema, is_file};
use losses::NamedLosses;
use negation::remove_negations;
use nullable::nullable;
use read_only::{ObjectFacts, ReadOnlyNames};
use text::keep_short;
pub(crate) use text::{keep_example, plain_text};
use value::DeclaredTypes;

/// The deepest nesting.
const MAX_DEPTH: usize = 60;
/// The most parts of all schemas of one operation.
const MAX_PARTS: usize = 20_000;
/// The most parts of all schemas of a document. A reference is one line for its author, and its whole target here.
const MAX_ALL_PARTS: usize = 1_000_000;
/// The longest enumeration, default or constant that is kept, in bytes. The service validates longer ones itself.
const MAX_VALUE: usize = 8 << 10;
/// The longest description in a schema, in characters.
pub(crate) const MAX_DESCRIPTION: usize = 1000;
/// The steps for compiling a pattern, which the host does when it reads the schema.
const PATTERN_STEPS: usize = 50;

/// Keywords whose value is a schema of another value.
const INNER_KEYWORDS: [&str; 5] =
    ["additionalProperties", "contains", "propertyNames", "unevaluatedProperties", "unevaluatedItems"];
/// Keywords with what an absent member would mean.
const UNEVALUATED_KEYWORDS: [&str; 2] = ["unevaluatedProperties", "unevaluatedItems"];
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
}

/// A referenced schema, to be converted.
#[derive(Debug)]
struct PendingDefinition {
    name: String,
    reference: String,
    context: SchemaContext,
    /// The depth of its first use.
    depth: usize,
}

/// Converts the schemas of one operation's arguments.
pub(crate) struct SchemaConverter<'a> {
    document: &'a OpenApiDocument,
    known: &'a mut SchemaTotals,
    /// Below this depth nothing is required.
    depth: usize,
    parts: usize,
    /// How often a demand of a schema was dropped.
    losses: usize,
    named: NamedLosses,
    /// Whether a schema below `not` or `if` lost a demand in a definition.
    has_weak_negation: bool,
    /// The fields of the form that are files by their encoding.
    binary_fields: BTreeSet<String>,
    /// Names under `$defs`.
    names: BTreeMap<(String, SchemaContext), String>,
    taken: HashSet<String>,
    /// How many definitions share a name.
    name_counts: HashMap<String, usize>,
    pending: VecDeque<PendingDefinition>,
    /// What is known of referenced objects.
    facts: HashMap<String, Rc<ObjectFacts>>,
}

impl<'a> SchemaConverter<'a> {
    /// A converter that cuts schemas at a depth.
    pub(crate) fn new(document: &'a OpenApiDocument, depth: usize, known: &'a mut SchemaTotals) -> Self {
        Self {
            document,
            known,
            depth: depth.min(MAX_DEPTH),
            parts: 0,
            losses: 0,
            named: NamedLosses::default(),
            has_weak_negation: false,
            binary_fields: BTreeSet::new(),
            names: BTreeMap::new(),
            taken: HashSet::new(),
            name_counts: HashMap::new(),
            pending: VecDeque::new(),
            facts: HashMap::new(),
        }
    }

    /// Converts the schema of an argument, and queues its references for [`SchemaConverter::add_definitions`].
    pub(crate) fn convert(&mut self, argument: &str, schema: &Value) -> Result<Value, String> {
        self.convert_named(argument, schema, 0, &SchemaContext::default())
    }

    /// Names what an argument lost apart from its schema.
    pub(crate) fn name_loss(&mut self, argument: &str, what: &str) {
        self.named.enter(argument);
        self.named.add(what);
        self.named.leave();
    }

    /// What the schemas lost, for the operator.
    pub(crate) fn into_losses(self) -> Vec<String> {
        self.named.into_lines()
    }

    /// Converts the schema of a multipart form, in which files are objects. `binary_fields` are files by their encoding.
    pub(crate) fn convert_form(
        &mut self,
        schema: &Value,
        binary_fields: BTreeSet<String>,
    ) -> Result<Value, String> {
        self.binary_fields = binary_fields;
        let context = SchemaContext { form: FormPart::Whole, ..SchemaContext::default() };
        self.convert_named("body", schema, 0, &context)
    }

    /// Adds all referenced schemas to the schema of the arguments.
    pub(crate) fn add_definitions(&mut self, arguments: &mut Map<String, Value>) -> Result<(), String> {
        let mut all = Map::new();
        while let Some(PendingDefinition { name, reference, context, depth }) = self.pending.pop_front() {
            let target = self.document.resolve_reference(&reference)?;
            let losses = self.losses;
            let converted = self.convert_named(&name, target, depth, &context)?;
            self.has_weak_negation |= context.exact && self.losses > losses;
            all.insert(name, converted);
        }
        if !all.is_empty() {
            arguments.insert("$defs".to_owned(), Value::Object(all));
        }
        if self.has_weak_negation {
            remove_negations(arguments);
        }
        Ok(())
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

    fn convert_named(
        &mut self,
        name: &str,
        schema: &Value,
        depth: usize,
        context: &SchemaContext,
    ) -> Result<Value, String> {
        self.named.enter(name);
        let converted = self.convert_node(schema, depth, context);
        self.named.leave();
        converted
    }

    fn convert_node(
        &mut self,
        schema: &Value,
        depth: usize,
        context: &SchemaContext,
    ) -> Result<Value, String> {
        self.count(1)?;
        let Some(map) = schema.as_object() else {
            return Ok(if schema.is_boolean() { schema.clone() } else { json!({}) });
        };
        self.document.work.spend_entries(map)?;
        if depth >= self.depth {
            self.losses += 1;
            return Ok(self.shallow_schema(map));
        }
        if is_file(map, context.form) {
            return Ok(file_schema(map));
        }
        let names = self.read_only_names(map, context)?;
        let same_value = context.same_value(names.clone());
        let mut out = Map::new();
        if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
            if let Err(why) = self.document.resolve_reference(reference) {
                self.document.work.spend(0)?;
                self.losses += 1;
                self.named.add(&format!("it may be anything, because its schema is {why}"));
            } else if depth + 1 >= self.depth {
                self.losses += 1;
                return Ok(self
                    .document
                    .resolve(schema)
                    .map_or_else(|_| json!({}), |map| self.shallow_schema(map)));
            } else {
                let context = SchemaContext { tag: context.tag.clone(), ..same_value.clone() };
                out.insert("$ref".to_owned(), Value::from(self.add_reference(reference, depth, context)?));
            }
            // In 3.0, keywords beside a reference are ignored.
            if self.document.version.has_own_schemas() {
                return Ok(Value::Object(out));
            }
        }
        let losses = self.losses;
        for (key, value) in map {
            if let Some(converted) = self.convert_keyword(key, value, map, depth, &same_value)? {
                out.insert(key.clone(), converted);
            }
        }
        self.convert_branches(map, depth, context, &same_value, &mut out)?;
        self.convert_conditions(map, depth, &same_value, &mut out)?;
        if self.losses > losses {
            // They would refuse what the lost part describes.
            out.retain(|key, _| !UNEVALUATED_KEYWORDS.contains(&key.as_str()));
        }
        value::add_example(&DeclaredTypes::of(self.document, map), map, &mut out);
        if let Some(names) = &names {
            names.remove_from(&mut out);
        }
        if let Some(tag) = &context.tag
            && !out.contains_key("$ref")
        {
            tag.apply(self.document, map, &mut out)?;
        }
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
        context: &SchemaContext,
    ) -> Result<Option<Value>, String> {
        Ok(match (key, value) {
            _ if key == "$ref" || DROPPED_KEYWORDS.contains(&key) || key.starts_with("x-") => None,
            // Converted by `convert_branches` and `convert_conditions`.
            ("allOf" | "anyOf" | "oneOf", Value::Array(_)) | ("if" | "then" | "else", _) => None,
            ("items" | "prefixItems", Value::Array(items)) => {
                Some(self.convert_items(items, depth, context)?)
            }
            ("items", _) => Some(self.convert_node(value, depth + 1, &context.inner(context.form.item()))?),
            ("properties" | "patternProperties", Value::Object(named)) => {
                Some(self.convert_properties(named, depth, context)?)
            }
            ("additionalProperties", _) => {
                let form = context.form.property("", &BTreeSet::new());
                Some(self.convert_node(value, depth + 1, &context.inner(form))?)
            }
            _ if INNER_KEYWORDS.contains(&key) => {
                Some(self.convert_node(value, depth + 1, &context.inner(FormPart::None))?)
            }
            ("not", schema) => self.convert_exactly(schema, depth)?,
            ("dependentSchemas", Value::Object(named)) => {
                let mut out = Map::new();
                for (name, schema) in named {
                    out.insert(name.clone(), self.convert_node(schema, depth + 1, context)?);
                }
                Some(Value::Object(out))
            }
            ("examples", value) => keep_example(value).filter(Value::is_array),
            ("exclusiveMinimum" | "exclusiveMaximum", Value::Bool(exclusive)) => {
                let bound = if key == "exclusiveMinimum" { "minimum" } else { "maximum" };
                map.get(bound).filter(|_| *exclusive).cloned().and_then(|value| value::bound(bound, value))
            }
            ("minimum", _) if map.get("exclusiveMinimum") == Some(&Value::Bool(true)) => None,
            ("maximum", _) if map.get("exclusiveMaximum") == Some(&Value::Bool(true)) => None,
            ("title" | "description", value) => {
                scalar_text(value).map(|text| Value::from(plain_text(&text, MAX_DESCRIPTION)))
            }
            _ => self.convert_demand(key, value, map)?,
        })
    }

    /// Converts a keyword that demands something of a value.
    fn convert_demand(
        &mut self,
        key: &str,
        value: &Value,
        map: &Map<String, Value>,
    ) -> Result<Option<Value>, String> {
        let kept = match (key, value) {
            ("pattern", pattern) => {
                self.document.work.spend(PATTERN_STEPS)?;
                keep_short(pattern, MAX_VALUE)
            }
            ("enum", Value::Array(values)) => {
                self.count(values.len())?;
                keep_short(value, MAX_VALUE).and_then(|_| self.fitted_value(key, value, map))
            }
            ("default" | "const", value) => {
                keep_short(value, MAX_VALUE).and_then(|value| self.fitted_value(key, &value, map))
            }
            // A schema of an unknown dialect may be anything.
            (_, Value::Array(_) | Value::Object(_)) if !DATA_KEYWORDS.contains(&key) => None,
            // Required properties are kept, so that the schema requires no unknown ones.
            ("required", Value::Array(names)) => {
                self.count(names.len())?;
                self.document.work.spend_value(value)?;
                Some(
                    names
                        .iter()
                        .map(|name| scalar_text(name).map_or_else(|| name.clone(), Value::from))
                        .collect(),
                )
            }
            (_, value) => keep_short(value, MAX_VALUE).and_then(|value| self.fitted_value(key, &value, map)),
        };
        if kept.is_none() && key != "default" {
            self.losses += 1;
        }
        Ok(kept)
    }

    fn convert_items(
        &mut self,
        items: &[Value],
        depth: usize,
        context: &SchemaContext,
    ) -> Result<Value, String> {
        let context = context.inner(context.form.item());
        let items = items.iter().map(|item| self.convert_node(item, depth + 1, &context));
        items.collect::<Result<Vec<_>, _>>().map(Value::Array)
    }

    fn convert_properties(
        &mut self,
        named: &Map<String, Value>,
        depth: usize,
        context: &SchemaContext,
    ) -> Result<Value, String> {
        let mut out = Map::new();
        for (name, schema) in named {
            let inner = context.inner(context.form.property(name, &self.binary_fields));
            out.insert(name.clone(), self.convert_named(name, schema, depth + 1, &inner)?);
        }
        Ok(Value::Object(out))
    }

    /// The value of a keyword, converted to the type of the schema. A value that fits no type is named.
    fn fitted_value(&mut self, key: &str, value: &Value, map: &Map<String, Value>) -> Option<Value> {
        let types = DeclaredTypes::of(self.document, map);
        let fitted = match (key, value) {
            ("enum", Value::Array(values)) => types.enumeration(values),
            ("const", _) => types.constant(value),
            ("default", _) => types.value(value),
            _ => value::bound(key, value.clone()),
        };
        let count = |value: &Value| value.as_array().map_or(0, Vec::len);
        let shown = || one_line(&value.to_string(), 60);
        match &fitted {
            None => {
                self.named
                    .add(&format!("its `{key}` {} cannot be read as its type and is left out", shown()));
            }
            Some(kept) if key == "enum" && count(kept) < count(value) => {
                self.named.add(&format!("its `enum` {} has values that its type does not allow", shown()));
            }
            Some(_) => {}
        }
        fitted
    }

    /// The rest of a schema below the depth: its type and its descriptions.
    fn shallow_schema(&mut self, map: &Map<String, Value>) -> Value {
        let mut out = Map::new();
        for key in ["type", "enum"] {
            let value = map.get(key).and_then(|value| keep_short(value, MAX_VALUE));
            if let Some(value) = value.and_then(|value| self.fitted_value(key, &value, map)) {
                out.insert(key.to_owned(), value);
            }
        }
        if let Some(text) = map.get("description").and_then(scalar_text) {
            out.insert("description".to_owned(), Value::from(plain_text(&text, MAX_DESCRIPTION)));
        }
        Value::Object(out)
    }

    /// Converts the schema of `not` or `if`. A weaker one would refuse more, so it is dropped with a part of it.
    fn convert_exactly(&mut self, schema: &Value, depth: usize) -> Result<Option<Value>, String> {
        let losses = self.losses;
        let converted = self.convert_node(schema, depth + 1, &SchemaContext::negated())?;
        Ok((self.losses == losses).then_some(converted))
    }

    fn convert_conditions(
        &mut self,
        map: &Map<String, Value>,
        depth: usize,
        context: &SchemaContext,
        out: &mut Map<String, Value>,
    ) -> Result<(), String> {
        let Some(condition) = map.get("if") else { return Ok(()) };
        // Without its condition, a consequence says nothing.
        let Some(condition) = self.convert_exactly(condition, depth)? else { return Ok(()) };
        out.insert("if".to_owned(), condition);
        for key in ["then", "else"] {
            if let Some(consequence) = map.get(key) {
                out.insert(key.to_owned(), self.convert_node(consequence, depth + 1, context)?);
            }
        }
        Ok(())
    }

    /// Converts `allOf`, `anyOf` and `oneOf`. `oneOf` becomes `anyOf`, because the service judges a value that fits several
    /// branches, and a discriminator chooses one of them.
    fn convert_branches(
        &mut self,
        map: &Map<String, Value>,
        depth: usize,
        context: &SchemaContext,
        same_value: &SchemaContext,
        out: &mut Map<String, Value>,
    ) -> Result<(), String> {
        let list = |key: &str| map.get(key).and_then(Value::as_array).filter(|list| !list.is_empty());
        let mut all = Vec::new();
        for branch in list("allOf").into_iter().flatten() {
            all.push(self.convert_node(branch, depth + 1, same_value)?);
        }
        // What another branch declares as read-only may be required in this one.
        let optional = context.read_only.as_ref().map(|names| names.optional.clone()).unwrap_or_default();
        let hidden = same_value.read_only.as_ref().map(|names| names.hidden.clone()).unwrap_or_default();
        let of_branch = same_value.same_value(ReadOnlyNames { hidden, optional }.shared());
        for key in ["anyOf", "oneOf"] {
            let Some(branches) = list(key) else { continue };
            let mut converted = Vec::new();
            let BranchTags { tags, broken } = match context.exact {
                true => BranchTags::none(branches),
                false => BranchTags::of_union(self.document, map, branches)?,
            };
            for value in broken {
                let shown = one_line(&value, 60);
                self.named.add(&format!("its discriminator has no schema for `{shown}`"));
            }
            for (branch, tag) in branches.iter().zip(tags) {
                let context = SchemaContext { tag, ..of_branch.clone() };
                converted.push(self.convert_node(branch, depth + 1, &context)?);
            }
            match (key, out.contains_key("anyOf")) {
                ("oneOf", _) if context.exact => out.insert("oneOf".to_owned(), Value::Array(converted)),
                ("oneOf", true) => {
                    all.push(json!({ "anyOf": converted }));
                    None
                }
                _ => out.insert("anyOf".to_owned(), Value::Array(converted)),
            };
        }
        if !all.is_empty() {
            out.insert("allOf".to_owned(), Value::Array(all));
        }
        Ok(())
    }

    /// The read-only properties of the value of a schema.
    fn read_only_names(
        &mut self,
        map: &Map<String, Value>,
        context: &SchemaContext,
    ) -> Result<Option<Arc<ReadOnlyNames>>, String> {
        const OF_OBJECTS: [&str; 10] = [
            "properties",
            "required",
            "dependentRequired",
            "dependentSchemas",
            "then",
            "else",
            "allOf",
            "anyOf",
            "oneOf",
            "$ref",
        ];
        if context.exact || !OF_OBJECTS.iter().any(|key| map.contains_key(*key)) {
            return Ok(None);
        }
        if map.contains_key("$ref") && self.document.version.has_own_schemas() {
            return Ok(context.read_only.clone());
        }
        let mut names = ObjectFacts::read(self.document, map)?.read_only;
        context.read_only.iter().for_each(|more| names.extend(more));
        // Each node has its own set.
        self.document.work.spend(names.hidden.len() + names.optional.len())?;
        Ok(names.shared())
    }

    /// What is known of a referenced object.
    fn facts(&mut self, reference: &str) -> Result<Rc<ObjectFacts>, String> {
        if let Some(known) = self.facts.get(reference) {
            return Ok(Rc::clone(known));
        }
        let target = self.document.resolve_reference(reference)?.as_object();
        let facts =
            target.map_or_else(|| Ok(ObjectFacts::default()), |map| ObjectFacts::read(self.document, map))?;
        let facts = Rc::new(facts);
        self.facts.insert(reference.to_owned(), Rc::clone(&facts));
        Ok(facts)
    }

    /// The reference into `$defs`.
    fn add_reference(
        &mut self,
        reference: &str,
        depth: usize,
        mut context: SchemaContext,
    ) -> Result<String, String> {
        if let Some(names) = context.read_only.take() {
            let facts = self.facts(reference)?;
            self.document.work.spend(names.hidden.len() + names.optional.len())?;
            context.read_only = names.for_target(&facts).shared();
        }
        let key = (reference.to_owned(), context);
        if let Some(name) = self.names.get(&key) {
            return Ok(format!("#/$defs/{name}"));
        }
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
        let (reference, context) = key.clone();
        self.names.insert(key, name.clone());
        let written = format!("#/$defs/{name}");
        self.pending.push_back(PendingDefinition { name, reference, context, depth });
        Ok(written)
    }
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
