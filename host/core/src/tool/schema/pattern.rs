//! Which regular expressions the validator can evaluate, and which are valid for clients.
//!
//! | in ECMA-262 | for the engine of the validator |
//! |---|---|
//! | `\b`, `\B`: boundaries of words of ASCII characters | `(?-u:\b)`, `(?-u:\B)` |
//! | `[\b]`: a backspace | `[\x08]` |

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use jsonschema::{Draft, Validator};
use serde_json::{Map, Value, json};

use super::bounds::{MAX_PATTERN_WORK, compile_work};
use super::keyword::Content;
use super::validation_options;

/// The regular expression engine that must support a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PatternReader {
    /// The validator of this host, which runs in linear time: it has no look-around and no back-references.
    Validator,
    /// A client, which reads ECMA-262 as JSON Schema recommends.
    Client,
}

/// The verdicts on the patterns of one schema, each found once. Patterns beyond [`MAX_PATTERN_WORK`] count as
/// unsupported by every engine.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    known: HashMap<String, Verdict>,
    work: u64,
}

#[derive(Debug, Clone, Copy)]
struct Verdict {
    by_validator: bool,
    by_client: bool,
}

impl Patterns {
    pub(super) fn are_readable(&mut self, pattern: &str, reader: PatternReader) -> bool {
        let verdict = match self.known.get(pattern) {
            Some(known) => *known,
            None => {
                self.work = self.work.saturating_add(compile_work(pattern));
                let within = self.work <= MAX_PATTERN_WORK;
                let by_validator = within
                    && validation_options().build(&json!({"pattern": pattern_for_engine(pattern)})).is_ok();
                let by_client = by_validator || (within && is_ecma(pattern));
                let verdict = Verdict { by_validator, by_client };
                self.known.insert(pattern.to_owned(), verdict);
                verdict
            }
        };
        match reader {
            PatternReader::Validator => verdict.by_validator,
            PatternReader::Client => verdict.by_client,
        }
    }
}

/// A schema whose patterns mean the same to the engine of the validator as in ECMA-262.
pub(super) fn for_engine(schema: &Value) -> Cow<'_, Value> {
    if !has_boundary(schema) {
        return Cow::Borrowed(schema);
    }
    let mut schema = schema.clone();
    rewrite_patterns(&mut schema);
    Cow::Owned(schema)
}

/// Replaces the patterns of [`for_engine`] in a message by the ones that the author wrote.
pub(super) fn as_written(message: &str) -> String {
    // A message may quote a pattern as JSON.
    [(r"(?-u:\b)", r"\b"), (r"(?-u:\B)", r"\B"), (r"(?-u:\\b)", r"\\b"), (r"(?-u:\\B)", r"\\B")]
        .into_iter()
        .fold(message.to_owned(), |text, (engine, written)| text.replace(engine, written))
}

/// Whether a text anywhere in a value contains `\b`. Most schemas have none, and are not copied.
fn has_boundary(value: &Value) -> bool {
    let is_in = |text: &str| text.contains(r"\b") || text.contains(r"\B");
    match value {
        Value::String(text) => is_in(text),
        Value::Array(items) => items.iter().any(has_boundary),
        Value::Object(map) => map.iter().any(|(key, value)| is_in(key) || has_boundary(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn rewrite_patterns(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    for (keyword, value) in map {
        match (keyword.as_str(), Content::of(keyword), &mut *value) {
            ("pattern", _, Value::String(pattern)) => {
                if let Cow::Owned(rewritten) = pattern_for_engine(pattern) {
                    *pattern = rewritten;
                }
            }
            ("patternProperties", _, Value::Object(named)) => {
                let renamed = std::mem::take(named).into_iter().map(|(pattern, mut schema)| {
                    rewrite_patterns(&mut schema);
                    (pattern_for_engine(&pattern).into_owned(), schema)
                });
                *named = renamed.collect::<Map<_, _>>();
            }
            (_, Content::SchemasByName, Value::Object(named)) => {
                named.values_mut().for_each(rewrite_patterns);
            }
            (_, Content::Schema | Content::Schemas, Value::Array(list)) => {
                list.iter_mut().for_each(rewrite_patterns);
            }
            (_, Content::Schema, value) => rewrite_patterns(value),
            _ => {}
        }
    }
}

fn pattern_for_engine(pattern: &str) -> Cow<'_, str> {
    if !pattern.contains(r"\b") && !pattern.contains(r"\B") {
        return Cow::Borrowed(pattern);
    }
    let (mut out, mut in_class, mut chars) =
        (String::with_capacity(pattern.len() + 16), false, pattern.chars());
    while let Some(one) = chars.next() {
        if one != '\\' {
            in_class = (in_class || one == '[') && one != ']';
            out.push(one);
            continue;
        }
        match (chars.next(), in_class) {
            (Some(kind @ ('b' | 'B')), false) => {
                out.push_str(r"(?-u:\");
                out.push(kind);
                out.push(')');
            }
            (Some('b'), true) => out.push_str(r"\x08"),
            (escaped, _) => {
                out.push('\\');
                out.extend(escaped);
            }
        }
    }
    Cow::Owned(out)
}

/// Whether a pattern is valid in ECMA-262.
fn is_ecma(pattern: &str) -> bool {
    static SYNTAX: LazyLock<Option<Validator>> = LazyLock::new(|| {
        let mut options = jsonschema::options();
        options = options.with_draft(Draft::Draft7).should_validate_formats(true);
        options.build(&json!({"format": "regex"})).ok()
    });
    SYNTAX.as_ref().is_some_and(|syntax| syntax.is_valid(&json!(pattern)))
}

#[cfg(test)]
mod tests {
    use super::super::Schema;
    use super::*;

    #[test]
    fn boundaries_are_those_of_ascii_words() {
        for (pattern, good, bad) in [
            (r"^caf\b", &["caf\u{e9}", "caf", "caf "][..], &["cafe"][..]),
            (r"a\Bb", &["ab"], &["a b"]),
            (r"^\u00e9\B", &["\u{e9}", "\u{e9} "], &["\u{e9}a"]),
            (r"^[\b]$", &["\u{8}"], &["b"]),
            (r"^\\b$", &[r"\b"], &["", "b"]),
            (r"^[\]\b]\b$", &[], &["]", "\u{8}"]),
            (r"\bx\b", &["x", "-x-", "\u{e9}x"], &["ax", "x_"]),
        ] {
            for schema in [
                json!({"type": "string", "pattern": pattern}),
                json!({"items": {"anyOf": [{"pattern": pattern}]}}),
                json!({"additionalProperties": false, "patternProperties": {pattern: true}}),
            ] {
                let schema = Schema::output(&schema.to_string()).unwrap();
                let value = |text: &str| match schema.value() {
                    Value::Object(map) if map.contains_key("items") => json!([text]),
                    Value::Object(map) if map.contains_key("type") => json!(text),
                    _ => json!({text: 1}),
                };
                for text in good {
                    assert_eq!(schema.check(&value(text)), Ok(()), "{pattern} {text:?}");
                }
                for text in bad {
                    let message = schema.check(&value(text)).unwrap_err().message;
                    assert!(!message.contains("(?-u"), "{message}");
                }
            }
        }
        // Data is no pattern.
        let data = json!({"const": {"pattern": r"\b"}, "properties": {"pattern": {"enum": [r"\b"]}}});
        assert_eq!(*for_engine(&data), data);
        let schema = Schema::output(r#"{"pattern":"^\\bx"}"#).unwrap();
        let message = schema.check(&json!("y")).unwrap_err().message;
        assert!(message.contains(r"\b") && !message.contains("(?-u"), "{message}");
    }

    #[test]
    fn patterns_are_read_by_the_validator_by_clients_or_by_nobody() {
        for (pattern, by_validator, by_client) in [
            (r"^[a-z]+$", true, true),
            (r"^\d{3}-\w+\/$", true, true),
            (r"^(?!admin)[a-z]+$", false, true),
            (r"^(a|b)\1$", false, true),
            (r"(?<=x)y", false, true),
            ("(", false, false),
            (r"(?P<name", false, false),
            ("a{99999999}", false, true),
        ] {
            let mut patterns = Patterns::default();
            assert_eq!(patterns.are_readable(pattern, PatternReader::Validator), by_validator, "{pattern}");
            assert_eq!(patterns.are_readable(pattern, PatternReader::Client), by_client, "{pattern}");
        }
    }
}
