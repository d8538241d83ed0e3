//! A parsed OpenAPI document and its references.

use std::borrow::Cow;
use std::time::Instant;

use serde_json::{Map, Value};
use toolbay_policy::excerpt::one_line;

use crate::budget::{ParseBudget, TEXT_STEP};
use crate::document_notes::DocumentNote;
use crate::document_text::{self, DocumentContent, DocumentError, RespelledFloats};
use crate::scalar::{member_text, scalar_text};

/// The longest chain of references.
const MAX_REFERENCES: usize = 16;

/// The supported dialects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenApiVersion {
    /// OpenAPI 3.0, with its own schema dialect.
    V30,
    /// OpenAPI 3.1, with JSON Schema 2020-12.
    V31,
    /// OpenAPI 3.2, which is read as far as it equals 3.1.
    V32,
}

impl OpenApiVersion {
    /// Reads a version. `3` is what some converters make of the number `3.0`.
    fn parse(text: &str) -> Option<Self> {
        let is = |version: &str| {
            text.strip_prefix(version).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        match text {
            "3" => Some(Self::V30),
            _ if is("3.0") => Some(Self::V30),
            _ if is("3.1") => Some(Self::V31),
            _ if is("3.2") => Some(Self::V32),
            _ => None,
        }
    }

    /// Whether its schemas are those of 3.0, where keywords beside a reference are ignored.
    pub(crate) fn has_own_schemas(self) -> bool {
        self == Self::V30
    }
}

/// A parsed document.
#[derive(Debug, Clone)]
pub struct OpenApiDocument {
    root: Value,
    /// The operations that the text has more than once: path and key.
    pub(crate) repeated: Vec<(String, String)>,
    /// What else the text loses.
    pub(crate) notes: Vec<DocumentNote>,
    pub(crate) respelled: RespelledFloats,
    pub(crate) version: OpenApiVersion,
    pub(crate) work: ParseBudget,
}

impl OpenApiDocument {
    /// Parses a document in JSON or YAML.
    ///
    /// # Errors
    /// Fails if the text is not JSON or YAML, or its version is not supported.
    pub fn parse(text: &str) -> Result<Self, DocumentError> {
        let DocumentContent { root, repeated, notes, respelled } =
            document_text::read(text).map_err(DocumentError)?;
        let version = read_version(&root).map_err(DocumentError)?;
        if !root.get("paths").is_some_and(Value::is_object) {
            return Err(DocumentError("it has no `paths`".to_owned()));
        }
        Ok(Self { root, repeated, notes, respelled, version, work: ParseBudget::default() })
    }

    /// The same document with a deadline for its import. An import that takes longer fails.
    #[must_use]
    pub fn with_deadline(self, time: Instant) -> Self {
        Self { work: self.work.with_deadline(time), ..self }
    }

    /// The name of the service.
    #[must_use]
    pub fn title(&self) -> Option<Cow<'_, str>> {
        self.root.pointer("/info/title").and_then(scalar_text)
    }

    /// The base URL of operations that do not set their own. `from` is the URL of the document.
    ///
    /// # Errors
    /// Returns why the base URL is unknown.
    pub fn server(&self, from: Option<&str>) -> Result<String, String> {
        let none = std::collections::BTreeMap::new();
        let levels = [None, None, self.root.get("servers")];
        crate::server::server_url(None, from, &none, levels)
            .map(|server| server.url.base)
            .map_err(|why| why.for_operator())
    }

    pub(crate) fn root(&self) -> &Value {
        &self.root
    }

    /// All paths with their path items.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (&String, &Value)> + Clone {
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

/// The version of a document.
///
/// # Errors
/// The version is missing or not supported.
fn read_version(root: &Value) -> Result<OpenApiVersion, String> {
    let none = Map::new();
    let root = root.as_object().unwrap_or(&none);
    let (openapi, swagger) = (member_text(root, "openapi"), member_text(root, "swagger"));
    let (openapi, swagger) = (openapi.trim(), swagger.trim());
    if openapi.is_empty() && !swagger.is_empty() {
        // What some converters make of the number `2.0`.
        let swagger = if swagger == "2" { "2.0" } else { swagger };
        let shown = one_line(swagger, 20);
        return Err(format!("it is a Swagger {shown} document: convert it to OpenAPI 3 first"));
    }
    if openapi.is_empty() {
        return Err("it has no `openapi` version".to_owned());
    }
    OpenApiVersion::parse(openapi)
        .ok_or_else(|| format!("it has version {}; supported are 3.0 to 3.2", one_line(openapi, 20)))
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
            ("openapi: 3.0\npaths: {}\n", OpenApiVersion::V30),
            ("openapi: 3.1\ninfo: {title: T, version: 1.0}\npaths: {}\n", OpenApiVersion::V31),
            (r#"{"openapi": 3.1, "paths": {}}"#, OpenApiVersion::V31),
            (r#"{"openapi": 3, "paths": {}}"#, OpenApiVersion::V30),
            ("openapi: 3.2.0\npaths: {}\n", OpenApiVersion::V32),
        ] {
            assert_eq!(OpenApiDocument::parse(text).unwrap().version, version, "{text}");
        }
        let document = OpenApiDocument::parse("openapi: 3.1.0\ninfo: {title: Pets}\npaths: {}\n").unwrap();
        assert_eq!(document.title().as_deref(), Some("Pets"));
        let document = OpenApiDocument::parse("openapi: 3.1\ninfo: {title: 2024}\npaths: {}\n").unwrap();
        assert_eq!(document.title().as_deref(), Some("2024"));
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
        let wide = format!("{{\"a\": [{}1]}}", "1,".repeat(document_text::MAX_PARTS));
        for (text, part) in [
            ("", "is empty"),
            ("a: 1", "no `openapi`"),
            ("{", "not JSON"),
            ("a: [", "not YAML"),
            ("just words", "not JSON or YAML"),
            (r#"{"swagger": "2.0", "paths": {}}"#, "Swagger 2.0"),
            ("swagger: 2.0\npaths: {}", "Swagger 2.0"),
            (r#"{"swagger": 2, "paths": {}}"#, "Swagger 2.0"),
            ("openapi: 3.3\npaths: {}", "version 3.3"),
            ("openapi: 3.10.0\npaths: {}", "version 3.10.0"),
            (r#"{"openapi": "4.0.0", "paths": {}}"#, "version 4.0.0"),
            (r#"{"openapi": "3.1.0"}"#, "no `paths`"),
            (&bomb, "not YAML"),
            (&wide, "more than 2000000 parts"),
            (&"x".repeat(document_text::MAX_BYTES + 1), "at most 33554432 are read"),
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
