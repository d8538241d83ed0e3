//! The words of others in the definition of a tool: descriptions, titles, the texts of schemas, whether a plugin, another
//! MCP server or an OpenAPI document brings them. A model reads them beside what its operator tells it, so they are taken
//! as data: without the values of secrets, without what is not seen ([`toolbay_policy::text::hidden`]), without what chat templates obey,
//! and not without end.
//!
//! | text | what becomes of it |
//! |---|---|
//! | `title`, `description`, `$comment` | made neutral, and cut |
//! | `pattern` and the names under `patternProperties` | what is not seen is written as the escape that matches it |
//! | values: `enum`, `const`, `default`, `examples`, and every keyword that is not known | kept as they are, or the keyword is left out: another value would be a lie. Who runs the tool still checks it |
//! | names of arguments and definitions | kept as they are, or the schema is refused: an argument of another name is another argument |

use std::borrow::Cow;

use serde_json::{Map, Value};
use toolbay_policy::text::{first_hidden, hidden, one_line, seen};

use crate::output::untrusted;

/// Longest description or title in a schema, in characters.
pub const MAX_SCHEMA_TEXT: usize = 4_000;
/// Longest name that a refusal repeats, in characters.
const MAX_SHOWN: usize = 100;

/// Keywords that are read by people and models, and by no validator.
const SAID: [&str; 3] = ["title", "description", "$comment"];
/// Keywords with schemas by name.
const NAMED: [&str; 4] = ["properties", "dependentSchemas", "$defs", "definitions"];
/// Keywords with names of arguments in them.
const NAMES: [&str; 2] = ["required", "dependentRequired"];
/// Keywords with a schema, or a list of schemas.
const INNER: [&str; 16] = [
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

/// Takes the values of secrets out of a text.
pub type Redact<'a> = &'a dyn for<'t> Fn(&'t str) -> Cow<'t, str>;

/// Takes a closure for a [`Redact`]: what one borrows it hands on is not found out otherwise.
pub fn redacting<F: for<'t> Fn(&'t str) -> Cow<'t, str>>(redact: F) -> F {
    redact
}

/// A text of several lines, of at most `most` characters and a mark where it was cut.
#[must_use]
pub fn text(text: &str, most: usize, redact: Redact<'_>) -> String {
    let text = redact(text);
    let seen = seen(&text);
    let neutral = untrusted::neutral(&seen);
    let neutral = neutral.trim();
    let mut cut: String = neutral.chars().take(most).collect();
    if neutral.chars().nth(most).is_some() {
        cut.push('…');
    }
    cut
}

/// A text of one line, of at most `most` characters and a mark where it was cut; what is not seen is spelt out.
#[must_use]
pub fn label(text: &str, most: usize, redact: Redact<'_>) -> String {
    let line = one_line(&redact(text), most);
    untrusted::neutral(&line).into_owned()
}

/// Keeps everything: where the words are the operator's own plugin's, which knows no secret when it is asked for them.
#[must_use]
pub fn whole(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text)
}

/// Makes the texts of a schema data; see the table above. Returns how many keywords were left out.
///
/// # Errors
/// Which name of an argument or a definition cannot stand there.
pub fn schema(schema: &mut Value, redact: Redact<'_>) -> Result<usize, String> {
    let mut cleaner = Cleaner { redact, left_out: 0 };
    cleaner.node(schema)?;
    Ok(cleaner.left_out)
}

struct Cleaner<'a> {
    redact: Redact<'a>,
    left_out: usize,
}

impl Cleaner<'_> {
    fn node(&mut self, schema: &mut Value) -> Result<(), String> {
        let map = match schema {
            Value::Object(map) => map,
            Value::Array(all) => return all.iter_mut().try_for_each(|one| self.node(one)),
            Value::String(text) => return self.name(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => return Ok(()),
        };
        let mut problem = None;
        map.retain(|key, value| match self.keyword(key, value) {
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

    /// Whether a keyword is kept.
    fn keyword(&mut self, key: &str, value: &mut Value) -> Result<bool, String> {
        match (key, value) {
            (key, Value::String(said)) if SAID.contains(&key) => {
                if !self.fits(said) || said.chars().nth(MAX_SCHEMA_TEXT).is_some() {
                    *said = text(said, MAX_SCHEMA_TEXT, self.redact);
                }
                Ok(true)
            }
            ("pattern", Value::String(pattern)) if !self.fits(pattern) => {
                let shown = spelt(pattern).filter(|shown| self.fits(shown));
                let kept = shown.is_some();
                *pattern = shown.unwrap_or_default();
                Ok(kept)
            }
            ("patternProperties", Value::Object(named)) => {
                self.patterns(named)?;
                named.values_mut().try_for_each(|inner| self.node(inner))?;
                Ok(true)
            }
            (key, Value::Object(named)) if NAMED.contains(&key) => {
                named.keys().try_for_each(|name| self.name(name))?;
                named.values_mut().try_for_each(|inner| self.node(inner))?;
                Ok(true)
            }
            (key, value) if NAMES.contains(&key) => {
                let mut first = None;
                texts(value, &mut |name| {
                    if first.is_none() {
                        first = self.name(name).err();
                    }
                });
                first.map_or(Ok(true), Err)
            }
            (key, value) if INNER.contains(&key) => self.node(value).map(|()| true),
            (key, value) => {
                let mut fits = self.fits(key);
                texts(value, &mut |text| fits = fits && self.fits(text));
                Ok(fits)
            }
        }
    }

    /// Spells out what is not seen in patterns that stand for names.
    fn patterns(&self, named: &mut Map<String, Value>) -> Result<(), String> {
        if named.keys().all(|name| self.fits(name)) {
            return Ok(());
        }
        for (name, schema) in std::mem::take(named) {
            let shown = if self.fits(&name) { Some(name.clone()) } else { spelt(&name) };
            let shown = shown.unwrap_or_else(|| name.clone());
            self.name(&shown)?;
            if named.insert(shown, schema).is_some() {
                return Err(format!("two patterns in it read as `{}`", label(&name, MAX_SHOWN, self.redact)));
            }
        }
        Ok(())
    }

    fn name(&self, name: &str) -> Result<(), String> {
        if self.fits(name) {
            return Ok(());
        }
        let shown = label(name, MAX_SHOWN, self.redact);
        Err(format!("the name `{shown}` in it has what chat templates obey, what is not seen, or a secret"))
    }

    /// Whether a text can stand as it is.
    fn fits(&self, text: &str) -> bool {
        first_hidden(text).is_none()
            && matches!(untrusted::neutral(text), Cow::Borrowed(_))
            && matches!((self.redact)(text), Cow::Borrowed(_))
    }
}

/// A pattern that matches the same, with what is not seen written as an escape of ECMA-262; `None`: where a backslash
/// stands before such a character, it would mean something else.
fn spelt(pattern: &str) -> Option<String> {
    let (mut out, mut done) = (String::new(), 0);
    for (at, c) in hidden(pattern) {
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

/// Goes through all texts of a value, keys included.
fn texts(value: &Value, each: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => each(text),
        Value::Array(items) => items.iter().for_each(|item| texts(item, each)),
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            each(key);
            texts(value, each);
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
    fn texts_are_neutral_and_values_stay_or_go() {
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
        assert_eq!(schema(&mut one, &redact), Ok(3));
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
    fn a_name_that_would_have_to_change_is_refused() {
        for mut bad in [
            json!({"properties": {"<|im_start|>": {}}}),
            json!({"properties": {"a": {"properties": {"hunter22": true}}}}),
            json!({"required": ["a\u{200b}"]}),
            json!({"$defs": {"</untrusted>": {}}}),
        ] {
            let why = schema(&mut bad, &redact).unwrap_err();
            assert!(!why.contains("hunter22") && !why.contains("<|") && !why.contains('\u{200b}'), "{why}");
        }
    }

    #[test]
    fn a_pattern_matches_what_it_did() {
        let mut one = json!({
            "pattern": "^[^\u{0}\u{e0041}]+$",
            "patternProperties": {"^\u{200b}": {"description": "a\u{e0041}"}, "^x": {}},
            "items": {"pattern": "\\\u{200b}", "type": "string"},
        });
        assert_eq!(schema(&mut one, &whole), Ok(1));
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
                schema(&mut bad, &whole).unwrap_err().chars().find(|c| toolbay_policy::text::is_hidden(*c)),
                None
            );
        }
    }

    #[test]
    fn a_label_is_one_line() {
        assert_eq!(label("a\nb<|im_start|>", 100, &redact), "a\\nb[STRIPPED-TEMPLATE-TOKEN]");
        assert_eq!(label("hunter22", 100, &redact), "[secret T]");
        assert_eq!(text("  a\u{1b}b  ", 100, &redact), "ab");
    }
}
