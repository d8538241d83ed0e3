//! Reads the schemas of plugins, MCP servers and OpenAPI documents. A mistake in a schema costs the keyword that has it,
//! never the tool.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Map, Value, json};

use super::dropped::DroppedKeywords;
use super::keyword::Keyword;
use super::pattern::{PatternReader, Patterns};
use super::portable::{loosen_tuples, rewrite};
use super::salvage::{self, LostPart, SalvagedSchema};
use super::translate::{Extent, SourceSchema, Translation};
use super::{MAX_SCHEMA_BYTES, Schema, SchemaError, compile};
use crate::tool::definition_text::{self, Redact, RemovedPart};
use crate::tool::json;

/// Reads schemas of one author.
///
/// A schema is read in the dialect that it declares, and becomes one of 2020-12 in the form that the most clients accept
/// ([`to_portable_form`](super::to_portable_form)). Keywords that are invalid, or that the host cannot evaluate, are not
/// checked; [`Schema::dropped`] lists them. A schema that exceeds a limit keeps the outline of its members.
pub struct SchemaReader<'a> {
    redact: Redact<'a>,
    /// Whether values must match the parts that clients do not see, because their texts are not clean.
    checks_unclean: bool,
}

impl std::fmt::Debug for SchemaReader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SchemaReader").field("checks_unclean", &self.checks_unclean).finish_non_exhaustive()
    }
}

/// What a schema describes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    /// Arguments, which are an object.
    Arguments,
    Result,
}

impl<'a> SchemaReader<'a> {
    /// A reader for the schemas of MCP servers and services. They check their arguments themselves, so the host does not
    /// check the parts that clients do not see.
    #[must_use]
    pub fn for_servers(redact: Redact<'a>) -> Self {
        Self { redact, checks_unclean: false }
    }

    /// A reader for the schemas of plugins, which rely on the checks of the host. Clients see tuples in a form that does
    /// not fix which item has which schema, since many refuse `prefixItems`.
    #[must_use]
    pub fn for_plugins() -> Self {
        Self { redact: &definition_text::no_redaction, checks_unclean: true }
    }

    /// Reads the schema of arguments. Without one, any object matches.
    #[must_use]
    pub fn input(&self, text: Option<&str>) -> Schema {
        self.read(text.unwrap_or("null"), Subject::Arguments)
    }

    /// Reads the schema of results. `None` if it says nothing: it is `null`, empty or has only notes. A result then needs no
    /// structured data.
    ///
    /// # Errors
    /// Nothing is left of the schema; the error lists the dropped keywords.
    pub fn output(&self, text: &str) -> Result<Option<Schema>, DroppedKeywords> {
        let schema = self.read(text, Subject::Result);
        match accepts_everything(schema.checked_value()) && accepts_everything(schema.value()) {
            true => schema.dropped().cloned().map_or(Ok(None), Err),
            false => Ok(Some(schema)),
        }
    }

    fn read(&self, text: &str, subject: Subject) -> Schema {
        let parsed = match json::parse_noting_duplicates(text) {
            Ok((value, duplicates)) => SalvagedSchema { value, duplicates, ..SalvagedSchema::default() },
            Err(error) => match salvage::read(text) {
                Some(salvaged) => salvaged,
                None => return self.unrestricted(subject, &format!("the schema is not valid JSON: {error}")),
            },
        };
        let SalvagedSchema { value, duplicates, lost, incomplete } = parsed;
        let value = match value {
            Value::Object(_) => value,
            // What PHP and others write for a schema without keywords.
            Value::Null | Value::Bool(true) => json!({}),
            Value::Array(items) if items.is_empty() => json!({}),
            _ => return self.unrestricted(subject, "the schema is not an object"),
        };
        let mut clean = self.sanitize(&value);
        clean.incomplete.extend(incomplete.iter().cloned());
        let shown =
            ParsedSchema { value: &clean.value, duplicates: &duplicates, incomplete: &clean.incomplete };
        let written = match self.checks_unclean {
            true => ParsedSchema { value: &value, incomplete: &incomplete, ..shown },
            false => shown,
        };
        let mut readings = Readings { reader: self, subject, patterns: Patterns::default() };
        let (mut checked, extent) = match readings.compile_within_limits(written, text.len()) {
            Ok(compiled) => compiled,
            Err(error) => return self.unrestricted(subject, &error.to_string()),
        };
        let label = |text: &str, most: usize| self.clean(text, most);
        for LostPart { pointer, why, is_checked } in lost {
            match is_checked {
                true => checked.dropped.add(&pointer, &why, &label),
                false => checked.dropped.list(&pointer, &why, &label),
            }
        }
        checked.dropped.append(clean.removed);
        // The schema that values must match has all texts, the one that clients see only clean ones.
        let mut shown = match checked.lost_readable_pattern || *shown.value != *written.value {
            true => readings.translate(shown, extent, PatternReader::Client).value,
            false => checked.value.clone(),
        };
        if self.checks_unclean {
            loosen_tuples(&mut shown);
        }
        let dropped = checked.dropped.finish(&checked.value);
        Schema::from_parts(shown, checked.value, dropped)
    }

    fn sanitize(&self, value: &Value) -> CleanSchema {
        let (mut removed, mut incomplete) = (DroppedKeywords::default(), HashSet::new());
        let mut value = value.clone();
        definition_text::sanitize_schema(&mut value, self.redact, &mut |RemovedPart { pointer, is_name }| {
            let why = "it contains a template token, a hidden character or a secret";
            let split = |pointer: &str| {
                let (parent, step) = pointer.rsplit_once('/').unwrap_or_default();
                (parent.to_owned(), step.to_owned())
            };
            let (mut schema, mut keyword) = split(pointer);
            if is_name {
                incomplete.insert(schema.clone());
                (schema, keyword) = split(&schema);
            }
            let clean = |text: &str, most: usize| self.clean(text, most);
            let is_checked = Keyword::named(&keyword).is_some_and(|keyword| keyword.is_checked());
            match is_checked && !self.checks_unclean {
                true => removed.add(pointer, why, &clean),
                // For a plugin, the host checks what clients do not see.
                false if is_name || !self.checks_unclean => removed.list(pointer, why, &clean),
                false => {}
            }
            if is_checked {
                incomplete.insert(schema);
            }
        });
        CleanSchema { value, removed, incomplete }
    }

    /// A schema that accepts every value, in place of one that cannot be read.
    fn unrestricted(&self, subject: Subject, why: &str) -> Schema {
        let value = match subject {
            Subject::Arguments => json!({"type": "object", "properties": {}}),
            Subject::Result => json!({}),
        };
        let mut dropped = DroppedKeywords::default();
        dropped.add("", why, &|text, most| self.clean(text, most));
        Schema::from_parts(value.clone(), value, Some(dropped))
    }

    /// Makes a text of the author safe to show.
    fn clean(&self, text: &str, most: usize) -> String {
        definition_text::sanitize_label(text, most, self.redact)
    }
}

/// A schema whose texts are clean.
struct CleanSchema {
    value: Value,
    removed: DroppedKeywords,
    /// The JSON pointers of the schemas from which keywords were removed, and of the keywords that lost names.
    incomplete: HashSet<String>,
}

/// A parsed schema.
#[derive(Clone, Copy)]
struct ParsedSchema<'a> {
    value: &'a Value,
    /// The JSON pointers of duplicate members.
    duplicates: &'a BTreeSet<String>,
    /// The JSON pointers of the schemas from which keywords were removed, and of the keywords that lost names.
    incomplete: &'a HashSet<String>,
}

/// Translates one schema several times: for the validator and for clients.
struct Readings<'r, 'a> {
    reader: &'r SchemaReader<'a>,
    subject: Subject,
    patterns: Patterns,
}

impl Readings<'_, '_> {
    /// Translates a schema for the validator as far as the limits allow.
    fn compile_within_limits(
        &mut self,
        written: ParsedSchema<'_>,
        bytes: usize,
    ) -> Result<(Translation, Extent), SchemaError> {
        let translated = match bytes > MAX_SCHEMA_BYTES {
            true => Err(SchemaError(format!(
                "the schema has {bytes} bytes; the limit is {MAX_SCHEMA_BYTES} bytes"
            ))),
            false => self.compile(written, Extent::Whole),
        };
        let error = match translated {
            Ok(translated) => return Ok((translated, Extent::Whole)),
            Err(error) => error,
        };
        let mut outline = self.compile(written, Extent::Outline)?;
        outline.dropped.add("", &error.to_string(), &|text, most| self.reader.clean(text, most));
        Ok((outline, Extent::Outline))
    }

    /// Translates a schema for the validator, and compiles it once as a check.
    fn compile(&mut self, written: ParsedSchema<'_>, extent: Extent) -> Result<Translation, SchemaError> {
        let translation = self.translate(written, extent, PatternReader::Validator);
        let bytes = translation.value.to_string().len();
        // References can be longer than in the text, and the outline of a long schema can be long.
        if bytes > 2 * MAX_SCHEMA_BYTES {
            return Err(SchemaError(format!("the schema has {bytes} bytes without its abbreviations")));
        }
        compile(&translation.value)?;
        Ok(translation)
    }

    fn translate(&mut self, written: ParsedSchema<'_>, extent: Extent, reader: PatternReader) -> Translation {
        let source = SourceSchema::new(written.value, written.duplicates, written.incomplete);
        let clean = |text: &str, most: usize| self.reader.clean(text, most);
        let mut translation = source.translate(extent, reader, &mut self.patterns, &clean);
        if let (Subject::Arguments, Value::Object(root)) = (self.subject, &mut translation.value) {
            let is_object = |kind: &Value| match kind {
                Value::Array(kinds) => kinds.iter().any(|kind| kind == "object"),
                kind => kind == "object",
            };
            if written.value.get("type").is_some() && root.get("type").is_some_and(|kind| !is_object(kind)) {
                translation.dropped.add("/type", "arguments are an object", &clean);
            }
            describe_object(root);
        }
        rewrite(&mut translation.value);
        translation
    }
}

/// Whether every value matches a schema, because it has no keyword that restricts values.
fn accepts_everything(schema: &Value) -> bool {
    let is_open = |name: &str, value: &Value| match name {
        "properties" | "patternProperties" | "additionalProperties" | "items" | "dependentSchemas" => {
            matches!(value, Value::Bool(true)) || value.as_object().is_some_and(Map::is_empty)
        }
        "required" => value.as_array().is_some_and(Vec::is_empty),
        _ => !Keyword::named(name).is_some_and(|keyword| keyword.is_checked()),
    };
    schema.as_object().is_none_or(|map| map.iter().all(|(name, value)| is_open(name, value)))
}

/// Gives a schema the type `object`, and its members a place.
fn describe_object(root: &mut Map<String, Value>) {
    match root.get_mut("type") {
        Some(kind) => *kind = json!("object"),
        None => {
            root.shift_insert(0, "type".to_owned(), json!("object"));
        }
    }
    root.entry("properties").or_insert_with(|| json!({}));
}

#[cfg(test)]
mod tests;
