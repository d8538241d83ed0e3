//! A parsed OpenAPI document and its references.

use std::time::Instant;

use serde_json::{Map, Value};
use toolbay_core::tool::json;
use toolbay_policy::text::one_line;

use crate::budget::{ParseBudget, TEXT_STEP};

/// The largest document, in bytes.
const MAX_BYTES: usize = 32 << 20;
/// The most parts of a document: values, lists and objects. The largest published documents have a few hundred
/// thousand.
const MAX_PARTS: usize = 2_000_000;
/// The longest chain of references.
const MAX_REFERENCES: usize = 16;

/// The reasons why a text is not a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DocumentError(pub(crate) String);

/// The supported dialects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenApiVersion {
    /// OpenAPI 3.0, with its own schema dialect.
    V30,
    /// OpenAPI 3.1, with JSON Schema 2020-12.
    V31,
}

/// A parsed document.
#[derive(Debug, Clone)]
pub struct OpenApiDocument {
    root: Value,
    pub(crate) version: OpenApiVersion,
    pub(crate) work: ParseBudget,
}

impl OpenApiDocument {
    /// Parses a document in JSON or YAML.
    ///
    /// # Errors
    /// The mistake in the text, or its unsupported version.
    pub fn parse(text: &str) -> Result<Self, DocumentError> {
        let refuse = |problem: String| Err(DocumentError(problem));
        if text.len() > MAX_BYTES {
            return refuse(format!("it has {} bytes; at most {MAX_BYTES} are read", text.len()));
        }
        let text = text.trim_start_matches('\u{feff}');
        let root: Value = if text.trim_start().starts_with('{') {
            if json::max_value_count(text) > MAX_PARTS {
                return refuse(format!("it has more than {MAX_PARTS} parts"));
            }
            serde_json::from_str(text).map_err(|e| DocumentError(format!("it is not JSON: {e}")))?
        } else {
            let options = serde_saphyr::options! {
                budget: serde_saphyr::budget! { max_nodes: MAX_PARTS, max_events: 3 * MAX_PARTS },
            };
            let read: Result<Value, _> = serde_saphyr::from_str_with_options(text, options);
            read.map_err(|e| DocumentError(format!("it is not YAML: {}", one_line(&e.to_string(), 300))))?
        };
        let said = |key: &str| root.get(key).and_then(Value::as_str).unwrap_or_default();
        let version = match said("openapi") {
            "" if !said("swagger").is_empty() => {
                return refuse(format!(
                    "it is a Swagger {} document: convert it to OpenAPI 3 first",
                    one_line(said("swagger"), 20)
                ));
            }
            "" => return refuse("it has no `openapi` version".to_owned()),
            v if v.starts_with("3.0.") || v == "3.0" => OpenApiVersion::V30,
            v if v.starts_with("3.1.") || v == "3.1" => OpenApiVersion::V31,
            v => return refuse(format!("it has version {}; supported are 3.0 and 3.1", one_line(v, 20))),
        };
        if !root.get("paths").is_some_and(Value::is_object) {
            return refuse("it has no `paths`".to_owned());
        }
        Ok(Self { root, version, work: ParseBudget::default() })
    }

    /// The same document with a deadline for its import. An import that takes longer fails.
    #[must_use]
    pub fn with_deadline(self, time: Instant) -> Self {
        Self { work: self.work.with_deadline(time), ..self }
    }

    /// The name of the service.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.root.pointer("/info/title").and_then(Value::as_str)
    }

    /// The base URL of operations that do not set their own. `from` is the URL of the document.
    ///
    /// # Errors
    /// The reason why the base URL is unknown.
    pub fn server(&self, from: Option<&str>) -> Result<String, String> {
        let none = std::collections::BTreeMap::new();
        crate::server::base_url(None, from, &none, [None, None, self.root.get("servers")])
    }

    pub(crate) fn root(&self) -> &Value {
        &self.root
    }

    /// All paths with their path items.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.root.get("paths").and_then(Value::as_object).into_iter().flatten()
    }

    /// An object, or the object that it refers to.
    pub(crate) fn resolve<'a>(&'a self, node: &'a Value) -> Result<&'a Map<String, Value>, String> {
        let mut node = node;
        for _ in 0..MAX_REFERENCES {
            match node.get("$ref").and_then(Value::as_str) {
                Some(reference) => node = self.resolve_reference(reference)?,
                None => {
                    let map = node.as_object().ok_or_else(|| "a value that is not an object".to_owned())?;
                    return self.work.spend_entries(map).map(|()| map);
                }
            }
        }
        Err(format!("a chain of more than {MAX_REFERENCES} references"))
    }

    /// The target of a reference into this document.
    pub(crate) fn resolve_reference(&self, reference: &str) -> Result<&Value, String> {
        self.work.spend(1 + reference.len() / TEXT_STEP)?;
        let shown = || one_line(reference, 100);
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err(format!("a reference to another document, `{}`, which is not fetched", shown()));
        };
        let pointer = percent_encoding::percent_decode_str(pointer).decode_utf8_lossy();
        self.root.pointer(&pointer).ok_or_else(|| format!("a reference without a target, `{}`", shown()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_yaml_of_both_versions_are_parsed() {
        for (text, version) in [
            (r#"{"openapi": "3.0.3", "paths": {}}"#, OpenApiVersion::V30),
            ("openapi: 3.1.0\ninfo: {title: Pets, version: 1}\npaths: {}\n", OpenApiVersion::V31),
            ("\u{feff}openapi: \"3.0.0\"\npaths: {}\n", OpenApiVersion::V30),
        ] {
            assert_eq!(OpenApiDocument::parse(text).unwrap().version, version, "{text}");
        }
        let document = OpenApiDocument::parse("openapi: 3.1.0\ninfo: {title: Pets}\npaths: {}\n").unwrap();
        assert_eq!(document.title(), Some("Pets"));
    }

    #[test]
    fn numeric_keys_and_anchors_are_supported() {
        let document = OpenApiDocument::parse(
            "openapi: 3.1.0\npaths:\n  /a: &a\n    get:\n      responses:\n        200:\n          description: ok\n  /b: *a\n",
        )
        .unwrap();
        for path in ["/a", "/b"] {
            let (_, item) = document.paths().find(|(name, _)| *name == path).unwrap();
            assert_eq!(item.pointer("/get/responses/200/description"), Some(&Value::from("ok")), "{path}");
        }
    }

    #[test]
    fn an_invalid_document_is_refused_with_the_reason() {
        let bomb = (0..40).fold("a0: &a0 [x, x]\n".to_owned(), |all, n| {
            format!("{all}a{}: &a{} [*a{n}, *a{n}]\n", n + 1, n + 1)
        });
        let deep = "[".repeat(100_000);
        let wide = format!("{{\"a\": [{}1]}}", "1,".repeat(MAX_PARTS));
        for (text, part) in [
            ("", "no `openapi`"),
            ("{", "not JSON"),
            ("a: [", "not YAML"),
            ("just words", "no `openapi`"),
            (r#"{"swagger": "2.0", "paths": {}}"#, "Swagger 2.0"),
            (r#"{"openapi": "4.0.0", "paths": {}}"#, "version 4.0.0"),
            (r#"{"openapi": "3.1.0"}"#, "no `paths`"),
            (&bomb, "not YAML"),
            (&wide, "more than 2000000 parts"),
            (&"x".repeat(MAX_BYTES + 1), "at most 33554432 are read"),
            (&deep, "not YAML"),
            (&format!("{{\"a\": {deep}"), "not JSON"),
        ] {
            let error = OpenApiDocument::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text:.40}: {error}");
            assert!(error.len() < 500);
        }
    }

    #[test]
    fn references_resolve_inside_the_document_only() {
        let document = OpenApiDocument::parse(
            r##"{"openapi": "3.1.0", "paths": {}, "components": {"parameters": {
                "a/b": {"name": "x"}, "again": {"$ref": "#/components/parameters/a~1b"},
                "loop": {"$ref": "#/components/parameters/loop"}, "word": 7}}}"##,
        )
        .unwrap();
        let resolve = |reference: &str| {
            let node = serde_json::json!({ "$ref": reference });
            document.resolve(&node).map(|map| map.get("name").cloned())
        };
        assert_eq!(resolve("#/components/parameters/again"), Ok(Some(Value::from("x"))));
        for (reference, part) in [
            ("#/components/parameters/loop", "16 references"),
            ("#/nothing", "without a target"),
            ("other.yaml#/a", "not fetched"),
            ("https://example.com/a", "not fetched"),
            ("#/components/parameters/word", "not an object"),
        ] {
            assert!(resolve(reference).unwrap_err().contains(part), "{reference}");
        }
    }
}
