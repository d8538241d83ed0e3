//! Sanitizes the untrusted texts in tool definitions: descriptions, titles and texts of schemas, from plugins, MCP
//! servers and OpenAPI documents. A model reads these texts next to the operator's instructions. So the host removes
//! values of secrets, invisible characters ([`toolbay_policy::text::hidden_chars`]) and chat template tokens, and
//! limits the length.
//!
//! | text | treatment |
//! |---|---|
//! | `title`, `description`, `$comment` | neutralized and cut |
//! | `pattern` and the names under `patternProperties` | invisible characters become equivalent escapes |
//! | values: `enum`, `const`, `default`, `examples`, and all unknown keywords | unchanged, or the keyword is removed, since a changed value would be wrong. The source of the tool still validates them |
//! | names of arguments and definitions | unchanged, or the schema is refused, since a changed name would be a different argument |

use std::borrow::Cow;

use serde_json::{Map, Value};
use toolbay_policy::text::{first_hidden, hidden_chars, one_line, remove_hidden};

use crate::output::untrusted;

/// Longest description or title in a schema, in characters.
pub const MAX_SCHEMA_TEXT: usize = 4_000;
/// Longest name that a refusal repeats, in characters.
const MAX_SHOWN: usize = 100;

/// Keywords for people and models, which validators ignore.
const TEXT_KEYWORDS: [&str; 3] = ["title", "description", "$comment"];
/// Keywords that map names to schemas.
const NAMED_SCHEMA_KEYWORDS: [&str; 4] = ["properties", "dependentSchemas", "$defs", "definitions"];
/// Keywords that contain argument names.
const ARGUMENT_NAME_KEYWORDS: [&str; 2] = ["required", "dependentRequired"];
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
    let text = redact(text);
    let visible = remove_hidden(&text);
    let neutral = untrusted::neutralize(&visible);
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
    let line = one_line(&redact(text), most);
    untrusted::neutralize(&line).into_owned()
}

/// A [`Redact`] that changes nothing, for plugins: a plugin knows no secrets when the host queries its definitions.
#[must_use]
pub fn no_redaction(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text)
}

/// Sanitizes the texts of a schema as in the table above. Returns the number of removed keywords.
///
/// # Errors
/// The name of an argument or definition would have to change.
pub fn sanitize_schema(schema: &mut Value, redact: Redact<'_>) -> Result<usize, String> {
    let mut cleaner = SchemaSanitizer { redact, left_out: 0 };
    cleaner.sanitize_node(schema)?;
    Ok(cleaner.left_out)
}

struct SchemaSanitizer<'a> {
    redact: Redact<'a>,
    left_out: usize,
}

impl SchemaSanitizer<'_> {
    fn sanitize_node(&mut self, schema: &mut Value) -> Result<(), String> {
        let map = match schema {
            Value::Object(map) => map,
            Value::Array(all) => return all.iter_mut().try_for_each(|one| self.sanitize_node(one)),
            Value::String(text) => return self.check_name(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => return Ok(()),
        };
        let mut problem = None;
        map.retain(|key, value| match self.sanitize_keyword(key, value) {
            Ok(kept) => {
                self.left_out += usize::from(!kept);
                kept
            }
            Err(why) => {
                problem.get_or_insert(why);
                true
            }
        });
        problem.map_or(Ok(()), Err)
    }

    /// Sanitizes a keyword. Returns `false` if it must be removed.
    fn sanitize_keyword(&mut self, key: &str, value: &mut Value) -> Result<bool, String> {
        match (key, value) {
            (key, Value::String(said)) if TEXT_KEYWORDS.contains(&key) => {
                if !self.is_clean(said) || said.chars().nth(MAX_SCHEMA_TEXT).is_some() {
                    *said = sanitize_text(said, MAX_SCHEMA_TEXT, self.redact);
                }
                Ok(true)
            }
            ("pattern", Value::String(pattern)) if !self.is_clean(pattern) => {
                let shown = escape_pattern(pattern).filter(|shown| self.is_clean(shown));
                let kept = shown.is_some();
                *pattern = shown.unwrap_or_default();
                Ok(kept)
            }
            ("patternProperties", Value::Object(named)) => {
                self.escape_patterns(named)?;
                named.values_mut().try_for_each(|inner| self.sanitize_node(inner))?;
                Ok(true)
            }
            (key, Value::Object(named)) if NAMED_SCHEMA_KEYWORDS.contains(&key) => {
                named.keys().try_for_each(|name| self.check_name(name))?;
                named.values_mut().try_for_each(|inner| self.sanitize_node(inner))?;
                Ok(true)
            }
            (key, value) if ARGUMENT_NAME_KEYWORDS.contains(&key) => {
                let mut first = None;
                visit_strings(value, &mut |name| {
                    if first.is_none() {
                        first = self.check_name(name).err();
                    }
                });
                first.map_or(Ok(true), Err)
            }
            (key, value) if SUBSCHEMA_KEYWORDS.contains(&key) => self.sanitize_node(value).map(|()| true),
            (key, value) => {
                let mut fits = self.is_clean(key);
                visit_strings(value, &mut |text| fits = fits && self.is_clean(text));
                Ok(fits)
            }
        }
    }

    /// Escapes invisible characters in the names of `patternProperties`.
    fn escape_patterns(&self, named: &mut Map<String, Value>) -> Result<(), String> {
        if named.keys().all(|name| self.is_clean(name)) {
            return Ok(());
        }
        for (name, schema) in std::mem::take(named) {
            let shown = if self.is_clean(&name) { Some(name.clone()) } else { escape_pattern(&name) };
            let shown = shown.unwrap_or_else(|| name.clone());
            self.check_name(&shown)?;
            if named.insert(shown, schema).is_some() {
                let shown = sanitize_label(&name, MAX_SHOWN, self.redact);
                return Err(format!("the schema has two equivalent patterns `{shown}`"));
            }
        }
        Ok(())
    }

    fn check_name(&self, name: &str) -> Result<(), String> {
        if self.is_clean(name) {
            return Ok(());
        }
        let shown = sanitize_label(name, MAX_SHOWN, self.redact);
        Err(format!(
            "the name `{shown}` in the schema has a chat template token, an invisible character or a secret"
        ))
    }

    /// Whether a text needs no change.
    fn is_clean(&self, text: &str) -> bool {
        first_hidden(text).is_none()
            && matches!(untrusted::neutralize(text), Cow::Borrowed(_))
            && matches!((self.redact)(text), Cow::Borrowed(_))
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
        assert_eq!(sanitize_schema(&mut one, &redact), Ok(3));
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
    fn a_schema_with_an_unclean_name_is_refused() {
        for mut bad in [
            json!({"properties": {"<|im_start|>": {}}}),
            json!({"properties": {"a": {"properties": {"hunter22": true}}}}),
            json!({"required": ["a\u{200b}"]}),
            json!({"$defs": {"</untrusted>": {}}}),
        ] {
            let why = sanitize_schema(&mut bad, &redact).unwrap_err();
            assert!(!why.contains("hunter22") && !why.contains("<|") && !why.contains('\u{200b}'), "{why}");
        }
    }

    #[test]
    fn an_escaped_pattern_is_equivalent() {
        let mut one = json!({
            "pattern": "^[^\u{0}\u{e0041}]+$",
            "patternProperties": {"^\u{200b}": {"description": "a\u{e0041}"}, "^x": {}},
            "items": {"pattern": "\\\u{200b}", "type": "string"},
        });
        assert_eq!(sanitize_schema(&mut one, &no_redaction), Ok(1));
        let expected = json!({
            "pattern": "^[^\\u0000\\u{e0041}]+$",
            "patternProperties": {"^\\u200b": {"description": "a"}, "^x": {}},
            "items": {"type": "string"},
        });
        assert_eq!(one, expected);
        let long = "x".repeat(200);
        for mut bad in [
            json!({"allOf": ["a\u{e0041}"]}),
            json!({"patternProperties": {"\u{200b}": {}, "\\u200b": {}}}),
            json!({"properties": {long + "\u{e0041}": {}}}),
        ] {
            assert_eq!(
                sanitize_schema(&mut bad, &no_redaction)
                    .unwrap_err()
                    .chars()
                    .find(|c| toolbay_policy::text::is_hidden(*c)),
                None
            );
        }
    }

    #[test]
    fn a_label_is_one_line() {
        assert_eq!(sanitize_label("a\nb<|im_start|>", 100, &redact), "a\\nb[STRIPPED-TEMPLATE-TOKEN]");
        assert_eq!(sanitize_label("hunter22", 100, &redact), "[secret T]");
        assert_eq!(sanitize_text("  a\u{1b}b  ", 100, &redact), "ab");
    }
}
