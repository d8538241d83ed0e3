//! Sanitizes the untrusted texts in tool definitions: descriptions, titles and texts of schemas, from plugins, MCP
//! servers and OpenAPI documents. A model reads these texts next to the operator's instructions. So the host removes
//! values of secrets, invisible characters ([`toolbay_policy::hidden_chars::hidden_chars`]) and chat template tokens, and
//! limits the length.
//!
//! | text | treatment |
//! |---|---|
//! | `title`, `description`, `$comment` | neutralized and cut |
//! | `pattern` and the names under `patternProperties` | invisible characters become equivalent escapes |
//! | values: `enum`, `const`, `default`, `examples`, and all unknown keywords | unchanged, or the keyword is removed, since a changed value would be wrong. The source of the tool still validates them |
//! | names of arguments and definitions | unchanged, or the argument or definition is removed, since a changed name would be a different one |

use std::borrow::Cow;

use serde_json::{Map, Value};
use toolbay_policy::excerpt::one_line;
use toolbay_policy::hidden_chars::{first_hidden, hidden_chars, remove_hidden};

use crate::neutral_text;
use crate::tool::json::extend_pointer;

/// Longest description or title in a schema, in characters.
pub const MAX_SCHEMA_TEXT: usize = 4_000;

/// Keywords for people and models, which validators ignore.
const TEXT_KEYWORDS: [&str; 3] = ["title", "description", "$comment"];
/// Keywords that map names to schemas or to lists of names.
const NAMED_SCHEMA_KEYWORDS: [&str; 6] =
    ["properties", "dependencies", "dependentRequired", "dependentSchemas", "$defs", "definitions"];
/// Keywords that contain a schema or a list of schemas.
const SUBSCHEMA_KEYWORDS: [&str; 16] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Removes the values of secrets from a text.
pub type Redact<'a> = &'a dyn for<'t> Fn(&'t str) -> Cow<'t, str>;

/// Returns the closure unchanged. The bound lets the compiler infer the higher-ranked lifetime that [`Redact`] needs.
pub fn redact_fn<F: for<'t> Fn(&'t str) -> Cow<'t, str>>(redact: F) -> F {
    redact
}

/// Sanitizes a text of several lines and cuts it to `most` characters, followed by `…` if it was longer.
#[must_use]
pub fn sanitize_text(text: &str, most: usize, redact: Redact<'_>) -> String {
    let visible = remove_hidden(head(text, most));
    // Redacted last: the other steps can join characters to the value of a secret.
    let visible = redact(&visible);
    let neutral = neutral_text::neutralize(&visible);
    let neutral = neutral.trim();
    let mut cut: String = neutral.chars().take(most).collect();
    if neutral.chars().nth(most).is_some() {
        cut.push('…');
    }
    cut
}

/// Sanitizes a text to one line, escapes invisible characters and cuts it to `most` characters.
#[must_use]
pub fn sanitize_label(text: &str, most: usize, redact: Redact<'_>) -> String {
    let line = one_line(&redact(head(text, most)), most);
    neutral_text::neutralize(&line).into_owned()
}

/// The beginning of a text: enough for `most` characters after cleaning. The work does not grow with the text.
fn head(text: &str, most: usize) -> &str {
    let end = text.char_indices().nth(most.saturating_mul(8)).map_or(text.len(), |(end, _)| end);
    text.get(..end).unwrap_or_default()
}

/// A [`Redact`] that changes nothing, for plugins: a plugin knows no secrets when the host queries its definitions.
#[must_use]
pub fn no_redaction(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text)
}

/// A part that was removed from a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovedPart<'a> {
    /// Its JSON pointer.
    pub pointer: &'a str,
    /// Whether it is a name with what belongs to it, such as an argument. Otherwise it is a keyword.
    pub is_name: bool,
}

/// Sanitizes the texts of a schema as in the table above. `removed` gets each removed part.
pub fn sanitize_schema(schema: &mut Value, redact: Redact<'_>, removed: &mut dyn FnMut(RemovedPart<'_>)) {
    SchemaSanitizer { redact, at: String::new(), removed }.sanitize_node(schema);
}

struct SchemaSanitizer<'a> {
    redact: Redact<'a>,
    /// The JSON pointer of the current part.
    at: String,
    removed: &'a mut dyn FnMut(RemovedPart<'_>),
}

impl SchemaSanitizer<'_> {
    /// Sanitizes a part of the schema with `inner`, which returns whether it can stay. A removed part is reported.
    fn sanitize_part(&mut self, name: &str, is_name: bool, inner: impl FnOnce(&mut Self) -> bool) -> bool {
        let end = extend_pointer(&mut self.at, name);
        let is_kept = inner(self);
        if !is_kept {
            (self.removed)(RemovedPart { pointer: &self.at, is_name });
        }
        self.at.truncate(end);
        is_kept
    }

    /// Sanitizes a schema or a list of schemas. Returns `false` if it must be removed.
    fn sanitize_node(&mut self, schema: &mut Value) -> bool {
        match schema {
            Value::Object(map) => {
                map.retain(|key, value| {
                    self.sanitize_part(key, false, |this| this.sanitize_keyword(key, value))
                });
                true
            }
            // Without one item, the others would have another place or another meaning.
            Value::Array(all) => all.iter_mut().enumerate().fold(true, |clean, (n, one)| {
                let end = extend_pointer(&mut self.at, &n.to_string());
                let is_kept = self.sanitize_node(one);
                self.at.truncate(end);
                clean && is_kept
            }),
            Value::String(name) => self.is_clean(name),
            Value::Null | Value::Bool(_) | Value::Number(_) => true,
        }
    }

    /// Sanitizes schemas by name.
    fn sanitize_named(&mut self, named: &mut Map<String, Value>) {
        named.retain(|name, inner| {
            self.sanitize_part(name, true, |this| this.is_clean(name) && this.sanitize_node(inner))
        });
    }

    /// Sanitizes a keyword. Returns `false` if it must be removed.
    fn sanitize_keyword(&mut self, key: &str, value: &mut Value) -> bool {
        match (key, value) {
            (key, Value::String(text)) if TEXT_KEYWORDS.contains(&key) => {
                if !self.is_clean(text) || text.chars().nth(MAX_SCHEMA_TEXT).is_some() {
                    *text = sanitize_text(text, MAX_SCHEMA_TEXT, self.redact);
                }
                true
            }
            ("pattern", Value::String(pattern)) if !self.is_clean(pattern) => {
                let shown = escape_pattern(pattern).filter(|shown| self.is_clean(shown));
                let is_kept = shown.is_some();
                *pattern = shown.unwrap_or_default();
                is_kept
            }
            ("patternProperties", Value::Object(named)) => {
                self.escape_patterns(named);
                self.sanitize_named(named);
                true
            }
            (key, Value::Object(named)) if NAMED_SCHEMA_KEYWORDS.contains(&key) => {
                self.sanitize_named(named);
                true
            }
            ("required", Value::Array(names)) => {
                let mut number = 0;
                names.retain_mut(|name| {
                    let is_kept =
                        self.sanitize_part(&number.to_string(), true, |this| this.sanitize_node(name));
                    number += 1;
                    is_kept
                });
                true
            }
            (key, value) if SUBSCHEMA_KEYWORDS.contains(&key) => self.sanitize_node(value),
            (key, value) => {
                let mut fits = self.is_clean(key);
                visit_strings(value, &mut |text| fits = fits && self.is_clean(text));
                fits
            }
        }
    }

    /// Escapes invisible characters in the names of `patternProperties`. The first of two equivalent patterns stays.
    fn escape_patterns(&mut self, named: &mut Map<String, Value>) {
        if named.keys().all(|name| self.is_clean(name)) {
            return;
        }
        for (name, schema) in std::mem::take(named) {
            let shown = if self.is_clean(&name) { Some(name.clone()) } else { escape_pattern(&name) };
            let shown = shown.filter(|shown| self.is_clean(shown) && !named.contains_key(shown));
            if self.sanitize_part(&name, true, |_| shown.is_some()) {
                named.extend(shown.map(|shown| (shown, schema)));
            }
        }
    }

    /// Whether a text needs no change.
    fn is_clean(&self, text: &str) -> bool {
        first_hidden(text).is_none()
            && matches!(neutral_text::neutralize(text), Cow::Borrowed(_))
            && (self.redact)(text) == text
    }
}

/// An equivalent pattern with invisible characters as ECMA-262 escapes. `None` if a backslash precedes such a
/// character, since an escape would change the meaning.
fn escape_pattern(pattern: &str) -> Option<String> {
    let (mut out, mut done) = (String::new(), 0);
    for (at, c) in hidden_chars(pattern) {
        let before = pattern.get(done..at)?;
        let escapes = before.len() - before.trim_end_matches('\\').len();
        if escapes % 2 == 1 {
            return None;
        }
        out.push_str(before);
        match u32::from(c) {
            code @ ..=0xffff => out.push_str(&format!("\\u{code:04x}")),
            code => out.push_str(&format!("\\u{{{code:x}}}")),
        }
        done = at + c.len_utf8();
    }
    out.push_str(pattern.get(done..)?);
    Some(out)
}

/// Visits all strings of a value, including keys.
fn visit_strings(value: &Value, each: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => each(text),
        Value::Array(items) => items.iter().for_each(|item| visit_strings(item, each)),
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            each(key);
            visit_strings(value, each);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn redact(text: &str) -> Cow<'_, str> {
        if text.contains("hunter22") {
            Cow::Owned(text.replace("hunter22", "[secret T]"))
        } else {
            Cow::Borrowed(text)
        }
    }

    #[test]
    fn texts_are_neutralized_and_values_unchanged_or_removed() {
        let mut one = json!({
            "type": "object", "title": "<|im_start|>t", "description": "a\u{200b}b hunter22",
            "x-odd": {"deep": ["<|im_end|>"]}, "x-fine": {"deep": ["fine"]},
            "properties": {
                "plain": {"type": "string", "enum": ["a", "b"], "default": "a\r\n"},
                "obeyed": {"enum": ["a", "</untrusted>"], "const": "hunter22", "pattern": "^\u{202e}$", "minLength": 1},
                "description": {"description": "x".repeat(5_000), "anyOf": [{"title": "<|endoftext|>"}, true]},
            },
            "required": ["plain"],
            "$defs": {"d": {"items": {"$comment": "hunter22"}}},
        });
        let mut removed = Vec::new();
        sanitize_schema(&mut one, &redact, &mut |part| removed.push(part.pointer.to_owned()));
        removed.sort();
        assert_eq!(removed, ["/properties/obeyed/const", "/properties/obeyed/enum", "/x-odd"]);
        let all = one.to_string();
        for bad in ["<|", "</untrusted>", "hunter22", "\u{200b}", "\u{202e}", "x-odd"] {
            assert!(!all.contains(bad), "{bad}: {all}");
        }
        assert_eq!(
            one["properties"]["plain"],
            json!({"type": "string", "enum": ["a", "b"], "default": "a\r\n"})
        );
        assert_eq!(one["properties"]["obeyed"], json!({"minLength": 1, "pattern": "^\\u202e$"}));
        assert_eq!(one["x-fine"], json!({"deep": ["fine"]}));
        assert_eq!(one["description"], "ab [secret T]");
        let long = one["properties"]["description"]["description"].as_str().unwrap();
        assert_eq!(long.chars().count(), MAX_SCHEMA_TEXT + 1);
    }

    #[test]
    fn an_unclean_name_costs_only_what_belongs_to_it() {
        let mut one = json!({
            "properties": {
                "<|im_start|>": {"type": "string"}, "\u{feff}id": {}, "fine": {"properties": {"hunter22": true}}
            },
            "required": ["fine", "\u{200b}"],
            "dependentRequired": {"fine": ["a\u{200b}"], "other": ["fine"]},
            "$defs": {"</untrusted>": {}, "d": {}},
            "allOf": [{"type": "object"}, "a\u{e0041}"],
        });
        let mut removed = Vec::new();
        sanitize_schema(&mut one, &redact, &mut |part| removed.push((part.pointer.to_owned(), part.is_name)));
        let expected = json!({
            "properties": {"fine": {"properties": {}}},
            "required": ["fine"], "dependentRequired": {"other": ["fine"]}, "$defs": {"d": {}},
        });
        assert_eq!(one, expected);
        removed.sort();
        let pointers: Vec<_> = removed.iter().map(|(pointer, is_name)| (&**pointer, *is_name)).collect();
        let expected = [
            ("/$defs/<~1untrusted>", true),
            ("/allOf", false),
            ("/dependentRequired/fine", true),
            ("/properties/<|im_start|>", true),
            ("/properties/fine/properties/hunter22", true),
            ("/properties/\u{feff}id", true),
            ("/required/1", true),
        ];
        assert_eq!(pointers, expected);
    }

    #[test]
    fn an_escaped_pattern_is_equivalent() {
        let mut one = json!({
            "pattern": "^[^\u{0}\u{e0041}]+$",
            "patternProperties": {"^\u{200b}": {"description": "a\u{e0041}"}, "^x": {}},
            "items": {"pattern": "\\\u{200b}", "type": "string"},
        });
        let mut removed = 0;
        sanitize_schema(&mut one, &no_redaction, &mut |_| removed += 1);
        assert_eq!(removed, 1);
        let expected = json!({
            "pattern": "^[^\\u0000\\u{e0041}]+$",
            "patternProperties": {"^\\u200b": {"description": "a"}, "^x": {}},
            "items": {"type": "string"},
        });
        assert_eq!(one, expected);
        let mut twice =
            json!({"patternProperties": {"\u{200b}": {}, "\\u200b": {"type": "null"}, "\\\u{200b}": {}}});
        sanitize_schema(&mut twice, &no_redaction, &mut |_| {});
        assert_eq!(twice, json!({"patternProperties": {"\\u200b": {}}}));
    }

    #[test]
    fn a_label_is_one_line() {
        assert_eq!(sanitize_label("a\nb<|im_start|>", 100, &redact), "a\\nb[STRIPPED-TEMPLATE-TOKEN]");
        assert_eq!(sanitize_label("hunter22", 100, &redact), "[secret T]");
        assert_eq!(sanitize_text("  a\u{1b}b  ", 100, &redact), "ab");
    }
}
