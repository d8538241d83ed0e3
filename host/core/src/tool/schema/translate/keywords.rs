//! Each kind of keyword.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::super::keyword::{Dialect, Keyword, KeywordKind as Kind};
use super::super::pattern::PatternReader;
use super::{Extent, Node, Translator, empty};

/// The types of JSON Schema.
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];
/// Longest value of a keyword in an outline, in bytes.
const MAX_OUTLINE_VALUE: usize = 4 << 10;
const NO_SCHEMA: &str = "it is not a schema";
const DUPLICATE_NAME: &str = "its name occurs twice";

impl Translator<'_> {
    /// Translates a keyword; `pointer` leads to it.
    pub(super) fn keyword(&mut self, name: &str, keyword: Keyword, value: &Value, node: &mut Node<'_>) {
        let kind = keyword.kind;
        let (is_address, is_note) = (
            matches!(kind, Kind::Address | Kind::Definitions),
            matches!(kind, Kind::Note | Kind::Annotation | Kind::Value),
        );
        // A reference leads to the definitions that matter.
        if is_address && (value.is_string() || value.is_object() || value.is_array() || value.is_boolean()) {
            return;
        }
        let losses = self.losses;
        if self.is_ambiguous(kind) {
            self.lose(DUPLICATE_NAME);
        } else if !keyword.is_in(self.source.dialect) {
            return self.ignore("its dialect does not have this keyword");
        } else if value.is_null() && !is_note && !is_address {
            // It has no effect, so nothing is lost.
            return self.ignore("it is `null`");
        } else if self.extent == Extent::Outline && is_long(kind, value) {
            self.lose("");
        } else {
            self.translate_keyword(name, kind, value, node);
        }
        if self.losses > losses && !node.out.contains_key(name) {
            note_lost(name, value, node);
        }
    }

    fn translate_keyword(&mut self, name: &str, kind: Kind, value: &Value, node: &mut Node<'_>) {
        match kind {
            Kind::Address | Kind::Definitions => {}
            Kind::Schema => self.single_schema(name, value, node),
            Kind::Schemas => self.list_of_schemas(name, value, node),
            Kind::SchemasByName => self.schemas_by_name(name, value, node),
            Kind::SchemasByPattern => self.schemas_by_pattern(name, value, node),
            Kind::Items => self.items(name, value, node),
            Kind::AdditionalItems => self.additional_items(value, node),
            Kind::Reference => self.reference(value, node),
            Kind::Dependencies => self.dependencies(value, node),
            Kind::NamesByName => self.names_by_name(name, value, node),
            Kind::Names => match self.names(value) {
                Some(names) => node.set(name, names),
                None => self.lose("it is not a list of names"),
            },
            Kind::ExclusiveBound => self.exclusive_bound(name, value, node),
            Kind::Number if value.is_number() => {
                if !self.has_exclusive_switch(name, node.map) {
                    node.set(name, value.clone());
                }
            }
            Kind::Pattern => match value.as_str() {
                Some(pattern) if self.is_readable(pattern) => node.set(name, value.clone()),
                Some(_) => self.lose("this host cannot evaluate the pattern"),
                None => self.lose("it is not a text"),
            },
            Kind::Annotation => {
                if let Some(annotation) = self.annotation(name, value, node) {
                    node.set(name, annotation);
                }
            }
            // A note of another type is useless, and no loss for validation.
            Kind::Note if !value.is_string() => {}
            Kind::Note
            | Kind::Value
            | Kind::Types
            | Kind::Values
            | Kind::Count
            | Kind::Number
            | Kind::Factor
            | Kind::Switch => match plain_value(kind, value) {
                Ok(value) => node.set(name, value),
                Err(why) => self.lose(why),
            },
        }
    }

    /// Whether the keyword, or a part of its data, occurs twice.
    fn is_ambiguous(&self, kind: Kind) -> bool {
        let holds_schemas = matches!(
            kind,
            Kind::Schema
                | Kind::Schemas
                | Kind::SchemasByName
                | Kind::SchemasByPattern
                | Kind::Items
                | Kind::AdditionalItems
                | Kind::Dependencies
        );
        let any = !self.source.duplicates.is_empty();
        any && (self.is_duplicate() || (!holds_schemas && self.has_duplicate()))
    }

    fn is_duplicate(&self) -> bool {
        self.source.duplicates.contains(&self.at)
    }

    fn has_duplicate(&self) -> bool {
        let inside = format!("{}/", self.at);
        let next = self.source.duplicates.range(inside.clone()..).next();
        next.is_some_and(|pointer| pointer.starts_with(&inside))
    }

    fn is_readable(&mut self, pattern: &str) -> bool {
        let readable = self.patterns.are_readable(pattern, self.reader);
        if !readable && self.reader == PatternReader::Validator {
            self.lost_readable_pattern |= self.patterns.are_readable(pattern, PatternReader::Client);
        }
        readable
    }

    fn single_schema(&mut self, name: &str, value: &Value, node: &mut Node<'_>) {
        let same_value = matches!(name, "not" | "if" | "then" | "else");
        let place = node.place.inner(1, same_value);
        let found = match (name, value) {
            // PHP writes `{}` as `[]`, which would refuse every value.
            ("not", Value::Array(_)) => None,
            ("not" | "if", value) => {
                let before = (self.losses, self.references);
                let found = self.schema(value, &place);
                if found.is_some() && !self.is_exact_since(before) {
                    return self.lose("a part of it is not checked");
                }
                found
            }
            ("contains", value) => {
                let before = self.losses;
                let found = self.schema(value, &place);
                node.lost.contains |= self.losses > before;
                found
            }
            (_, value) => self.schema(value, &place),
        };
        match found {
            Some(schema) => node.set(name, schema),
            None => self.lose(NO_SCHEMA),
        }
    }

    /// Translates a list of schemas. In `allOf`, what is no schema is left out; elsewhere, it matches everything.
    fn list_of_schemas(&mut self, name: &str, value: &Value, node: &mut Node<'_>) {
        let Some(items) = value.as_array().filter(|items| !items.is_empty()) else {
            return self.lose("it is not a list of schemas");
        };
        let before = (self.losses, self.references);
        let place = node.place.inner(2, name != "prefixItems");
        let mut list = Vec::with_capacity(items.len());
        for (number, item) in items.iter().enumerate() {
            let found = self.step(&number.to_string(), |this| {
                this.schema(item, &place).or_else(|| {
                    this.lose(NO_SCHEMA);
                    (name != "allOf").then(empty)
                })
            });
            list.extend(found);
        }
        if name == "allOf" {
            list.into_iter().for_each(|schema| add_to_all_of(&mut node.out, schema));
        } else if name != "oneOf" || self.is_exact_since(before) {
            node.set(name, Value::Array(list));
        } else {
            // More than one may match now.
            self.lose("it is checked as `anyOf`, since a part of it is not checked");
            if node.map.contains_key("anyOf") {
                add_to_all_of(&mut node.out, json!({ "anyOf": list }));
            } else {
                node.set("anyOf", Value::Array(list));
            }
        }
    }

    fn schemas_by_name(&mut self, name: &str, value: &Value, node: &mut Node<'_>) {
        let place = node.place.inner(2, name == "dependentSchemas");
        let Some(members) = object_or_empty_list(value) else {
            return self.lose("it is not an object");
        };
        let mut schemas = Map::new();
        for (member, value) in members.into_iter().flatten() {
            let schema = self.step(member, |this| {
                let found =
                    if this.is_duplicate() { Err(DUPLICATE_NAME) } else { Ok(this.schema(value, &place)) };
                match found {
                    Ok(Some(schema)) => return schema,
                    Ok(None) => this.lose(NO_SCHEMA),
                    Err(why) => this.lose(why),
                }
                empty()
            });
            schemas.insert(member.clone(), schema);
        }
        merge(&mut node.out, name, schemas);
    }

    fn schemas_by_pattern(&mut self, name: &str, value: &Value, node: &mut Node<'_>) {
        let place = node.place.inner(2, false);
        let Some(members) = object_or_empty_list(value) else {
            return self.lose("it is not an object");
        };
        let mut schemas = Map::new();
        for (pattern, value) in members.into_iter().flatten() {
            let found = self.step(pattern, |this| {
                let why = if this.is_duplicate() {
                    DUPLICATE_NAME
                } else if !this.is_readable(pattern) {
                    "this host cannot evaluate the pattern"
                } else if let Some(schema) = this.schema(value, &place) {
                    return Some(schema);
                } else {
                    NO_SCHEMA
                };
                this.lose(why);
                None
            });
            node.lost.names |= found.is_none();
            schemas.extend(found.map(|schema| (pattern.clone(), schema)));
        }
        node.set(name, Value::Object(schemas));
    }

    fn items(&mut self, name: &str, value: &Value, node: &mut Node<'_>) {
        let Some(items) = value.as_array().filter(|items| !items.is_empty()) else {
            return self.single_schema(name, value, node);
        };
        let has_tuples = self.source.dialect.is_none_or(|dialect| dialect <= Dialect::Draft201909);
        if !has_tuples || node.map.contains_key("prefixItems") {
            return self.lose(NO_SCHEMA);
        }
        let place = node.place.inner(2, false);
        let list = items.iter().enumerate().map(|(number, item)| {
            self.step(&number.to_string(), |this| {
                this.schema(item, &place).unwrap_or_else(|| {
                    this.lose(NO_SCHEMA);
                    empty()
                })
            })
        });
        let list = list.collect();
        node.set("prefixItems", Value::Array(list));
    }

    /// `additionalItems` has an effect only together with a list of schemas.
    fn additional_items(&mut self, value: &Value, node: &mut Node<'_>) {
        let items = node.map.get("items").and_then(Value::as_array);
        if items.is_none_or(Vec::is_empty) || node.map.contains_key("prefixItems") {
            return;
        }
        match self.schema(value, &node.place.inner(1, false)) {
            Some(schema) => node.set("items", schema),
            None => self.lose(NO_SCHEMA),
        }
    }

    fn dependencies(&mut self, value: &Value, node: &mut Node<'_>) {
        let place = node.place.inner(2, true);
        let Some(members) = object_or_empty_list(value) else {
            return self.lose("it is not an object");
        };
        let (mut names, mut schemas) = (Map::new(), Map::new());
        for (member, value) in members.into_iter().flatten() {
            self.step(member, |this| {
                if this.is_duplicate() {
                    this.lose(DUPLICATE_NAME);
                } else if value.is_array() {
                    names.extend(this.names(value).map(|names| (member.clone(), names)));
                } else if let Some(schema) = this.schema(value, &place) {
                    schemas.insert(member.clone(), schema);
                } else {
                    this.lose(NO_SCHEMA);
                }
            });
        }
        for (name, members) in [("dependentRequired", names), ("dependentSchemas", schemas)] {
            if !members.is_empty() {
                merge(&mut node.out, name, members);
            }
        }
    }

    fn names_by_name(&mut self, name: &str, value: &Value, node: &mut Node<'_>) {
        let Some(members) = object_or_empty_list(value) else {
            return self.lose("it is not an object");
        };
        let mut all = Map::new();
        for (member, value) in members.into_iter().flatten() {
            self.step(member, |this| match this.names(value) {
                Some(names) => {
                    all.insert(member.clone(), names);
                }
                None => this.lose("it is not a list of names"),
            });
        }
        merge(&mut node.out, name, all);
    }

    /// A list of names without repetitions, and without what is no name.
    fn names(&mut self, value: &Value) -> Option<Value> {
        let mut seen = HashSet::new();
        let mut names = Vec::new();
        for (number, item) in value.as_array()?.iter().enumerate() {
            match item.as_str() {
                Some(name) if seen.insert(name) => names.push(item.clone()),
                Some(_) => self.step(&number.to_string(), |this| this.ignore(DUPLICATE_NAME)),
                None => self.step(&number.to_string(), |this| this.ignore("it is not a name")),
            }
        }
        Some(Value::Array(names))
    }

    /// A bound; in draft-04, whether `minimum` or `maximum` excludes its value.
    fn exclusive_bound(&mut self, name: &str, value: &Value, node: &mut Node<'_>) {
        let bound = if name == "exclusiveMinimum" { "minimum" } else { "maximum" };
        let draft4 = self.source.dialect == Some(Dialect::Draft4);
        match value {
            Value::Number(_) if !draft4 => node.set(name, value.clone()),
            Value::Bool(on) if draft4 || self.source.dialect.is_none() => {
                if let Some(bound) = node.map.get(bound).filter(|bound| *on && bound.is_number()) {
                    node.set(name, bound.clone());
                }
            }
            _ if draft4 => self.lose("it is neither true nor false"),
            _ => self.lose("it is not a number"),
        }
    }

    /// Whether a bound is written as exclusive, as draft-04 does.
    fn has_exclusive_switch(&self, bound: &str, map: &Map<String, Value>) -> bool {
        let exclusive = if bound == "minimum" { "exclusiveMinimum" } else { "exclusiveMaximum" };
        let switches = self.source.dialect.is_none_or(|dialect| dialect == Dialect::Draft4);
        switches && map.get(exclusive) == Some(&Value::Bool(true))
    }

    /// A keyword that validation ignores; `None` if it is invalid.
    fn annotation(&mut self, name: &str, value: &Value, node: &Node<'_>) -> Option<Value> {
        let is_valid = match name {
            "default" => true,
            "examples" => value.is_array(),
            "contentSchema" => return self.schema(value, &node.place.inner(1, false)),
            _ => value.is_boolean(),
        };
        is_valid.then(|| value.clone())
    }
}

/// Whether a keyword with data is too long for an outline.
fn is_long(kind: Kind, value: &Value) -> bool {
    matches!(kind, Kind::Values | Kind::Value | Kind::Annotation | Kind::Note | Kind::Pattern)
        && value.to_string().len() > MAX_OUTLINE_VALUE
}

/// Notes which other keywords depend on a lost one.
fn note_lost(name: &str, value: &Value, node: &mut Node<'_>) {
    match name {
        "properties" | "patternProperties" => node.lost.names = true,
        "prefixItems" => node.lost.first_items = true,
        "items" if value.is_array() => node.lost.first_items |= !node.out.contains_key("prefixItems"),
        "minContains" => node.lost.min_contains = true,
        _ => {}
    }
}

/// The value of a keyword without schemas, in the form that most readers accept.
fn plain_value(kind: Kind, value: &Value) -> Result<Value, &'static str> {
    match kind {
        Kind::Types => types(value).ok_or("it names a type that JSON Schema does not have"),
        Kind::Values => match value.as_array() {
            Some(values) if !values.is_empty() => Ok(without_repetitions(values)),
            Some(_) => Err("it is empty"),
            None => Err("it is not a list of values"),
        },
        Kind::Count => count(value).map(Value::from).ok_or("it is not a whole number of 0 or more"),
        Kind::Factor if value.as_f64().is_some_and(|factor| factor > 0.0) => Ok(value.clone()),
        Kind::Factor => Err("it is not a number above 0"),
        Kind::Number => Err("it is not a number"),
        Kind::Switch if !value.is_boolean() => Err("it is neither true nor false"),
        _ => Ok(value.clone()),
    }
}

/// The name of a type, or several.
fn types(value: &Value) -> Option<Value> {
    let is_known = |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
    match value {
        Value::Array(names) if !names.is_empty() && names.iter().all(is_known) => {
            match without_repetitions(names) {
                Value::Array(names) if names.len() == 1 => names.into_iter().next(),
                names => Some(names),
            }
        }
        name => is_known(name).then(|| name.clone()),
    }
}

fn without_repetitions(values: &[Value]) -> Value {
    let mut seen = HashSet::new();
    values.iter().filter(|value| seen.insert(value.to_string())).cloned().collect()
}

/// A whole number; `2.0` is one.
fn count(value: &Value) -> Option<u64> {
    /// The largest number up to which a float represents every whole number exactly.
    const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
    let is_whole = |number: &f64| number.fract() == 0.0 && (0.0..=MAX_EXACT).contains(number);
    value.as_u64().or_else(|| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number within the bounds"
        )]
        value.as_f64().filter(is_whole).map(|number| number as u64)
    })
}

/// The members of an object. PHP writes an empty one as `[]`.
fn object_or_empty_list(value: &Value) -> Option<Option<&Map<String, Value>>> {
    match value {
        Value::Object(members) => Some(Some(members)),
        Value::Array(items) if items.is_empty() => Some(None),
        _ => None,
    }
}

pub(in super::super) fn add_to_all_of(out: &mut Map<String, Value>, schema: Value) {
    if let Value::Array(list) = out.entry("allOf").or_insert_with(|| json!([])) {
        list.push(schema);
    }
}

/// Adds members to those that another keyword has brought.
fn merge(out: &mut Map<String, Value>, name: &str, members: Map<String, Value>) {
    if let Value::Object(all) = out.entry(name).or_insert_with(empty) {
        all.extend(members);
    }
}
