//! Strict parsing of untrusted JSON.
//!
//! The host validates the parsed value but passes on the *text*, so both must mean the same to every reader. An object
//! with a duplicate key is therefore refused: RFC 8259, section 4, leaves its meaning open, and a guest might use the
//! other value. The parser limits the depth to 128 and the number of values: a value of 2 bytes (`0,`) becomes a node
//! of 70 bytes, so 4 MiB of text would take 150 MiB of memory.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Most values of one text, including nested values and keys: a tree of 20 MiB.
pub const MAX_VALUES: u32 = 250_000;

/// Replaces a byte that is not UTF-8 in arguments that an edge passes on as text. JSON allows this character nowhere, so
/// such arguments are refused. At the beginning, it is followed by the reason why the edge could not write the arguments.
pub const INVALID_BYTE: char = '\0';

/// Parses a JSON text.
///
/// # Errors
/// The text has invalid syntax, a duplicate key, nesting deeper than 128, more than [`MAX_VALUES`] values, or trailing
/// characters.
pub fn parse(text: &str) -> Result<Value, serde_json::Error> {
    walk(text, ValueReader { left: &Cell::new(MAX_VALUES), builds: true, duplicates: None })
}

/// Checks a JSON text like [`parse`] without building a tree. It stores only the keys of open objects.
///
/// # Errors
/// The same as [`parse`].
pub fn check(text: &str) -> Result<(), serde_json::Error> {
    walk(text, ValueReader { left: &Cell::new(MAX_VALUES), builds: false, duplicates: None }).map(drop)
}

/// Parses a foreign JSON text, such as a schema. If an object has two members with the same name, the value has the first
/// one, and its JSON pointer is returned as well: the caller must ignore this member.
///
/// # Errors
/// The same as [`parse`], apart from duplicate keys.
pub fn parse_noting_duplicates(text: &str) -> Result<(Value, BTreeSet<String>), serde_json::Error> {
    let duplicates = RefCell::default();
    let reader = ValueReader { left: &Cell::new(MAX_VALUES), builds: true, duplicates: Some(&duplicates) };
    let value = walk(text, reader)?;
    Ok((value, duplicates.into_inner().found))
}

fn walk(text: &str, reader: ValueReader<'_>) -> Result<Value, serde_json::Error> {
    let mut parser = serde_json::Deserializer::from_str(text);
    let value = reader.deserialize(&mut parser)?;
    parser.end()?;
    Ok(value)
}

/// The duplicate members.
#[derive(Default)]
struct DuplicateLog {
    /// The JSON pointer of the value that is parsed.
    at: String,
    found: BTreeSet<String>,
}

/// A name as a step of a JSON pointer (RFC 6901).
pub(crate) fn pointer_step(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Extends a JSON pointer by a name. Returns its earlier length.
pub(crate) fn extend_pointer(pointer: &mut String, name: &str) -> usize {
    let end = pointer.len();
    pointer.push('/');
    pointer.push_str(&pointer_step(name));
    end
}

/// An upper bound of the number of values in a JSON text: one more than its separators and opening brackets. It scans
/// the text once without allocation, so use it before parsing.
#[must_use]
pub fn max_value_count(text: &str) -> usize {
    1 + bytes_outside_strings(text).filter(|byte| matches!(byte, b',' | b'[' | b'{')).count()
}

/// The bytes of a JSON text that are not in its strings.
pub(crate) fn bytes_outside_strings(text: &str) -> impl Iterator<Item = u8> {
    let (mut quoted, mut escaped) = (false, false);
    text.bytes().filter(move |byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => {}
        }
        !quoted
    })
}

/// A JSON text for people: without white space, with numbers as they were written, and with no more escapes in its strings
/// than they need.
pub(crate) fn compact(text: &str) -> String {
    let between = |text: &str| text.replace([' ', '\t', '\n', '\r'], "");
    let (mut compacted, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.find('"') {
        let (before, from) = rest.split_at(start);
        let mut strings = serde_json::Deserializer::from_str(from).into_iter::<String>();
        let Some(Ok(string)) = strings.next() else { break };
        compacted.push_str(&between(before));
        compacted.push_str(&Value::String(string).to_string());
        rest = from.get(strings.byte_offset()..).unwrap_or_default();
    }
    compacted + &between(rest)
}

/// Whether a value has a number that may be a rounded integer: one that is neither an `i64` nor a `u64`. Tools get the
/// original text, which has the exact number.
pub(crate) fn has_rounded_integer(value: &Value) -> bool {
    /// The least magnitude of an integer that is no `i64`.
    const LEAST: f64 = 9_223_372_036_854_775_808.0;
    match value {
        Value::Number(number) => {
            number.is_f64() && number.as_f64().is_some_and(|number| number.abs() >= LEAST)
        }
        Value::Array(items) => items.iter().any(has_rounded_integer),
        Value::Object(members) => members.values().any(has_rounded_integer),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// The prefix of keys that `serde_json` treats specially.
const PRIVATE_KEY_PREFIX: &str = "$serde_json::private::";

/// Whether a key is one that [`parse`] refuses, because `serde_json` treats it specially.
pub(crate) fn is_private_key(key: &str) -> bool {
    key.starts_with(PRIVATE_KEY_PREFIX)
}

/// Counts one value against the limit.
fn count_value<E: serde::de::Error>(left: &Cell<u32>) -> Result<(), E> {
    let Some(less) = left.get().checked_sub(1) else {
        return Err(E::custom(format_args!("more than {MAX_VALUES} values")));
    };
    left.set(less);
    Ok(())
}

/// Reads a value and those inside of it.
#[derive(Clone, Copy)]
struct ValueReader<'a> {
    /// The number of values that are still allowed.
    left: &'a Cell<u32>,
    /// Whether to build the tree. Otherwise texts, lists and objects are dropped once they are read.
    builds: bool,
    /// Where duplicate keys are noted. Without it, they are errors.
    duplicates: Option<&'a RefCell<DuplicateLog>>,
}

impl ValueReader<'_> {
    /// Runs `inner`, which parses the value of a member or an item.
    fn step<T>(&self, step: impl FnOnce() -> String, inner: impl FnOnce() -> T) -> T {
        let Some(log) = self.duplicates else { return inner() };
        let end = extend_pointer(&mut log.borrow_mut().at, &step());
        let done = inner();
        log.borrow_mut().at.truncate(end);
        done
    }
}

impl<'de> DeserializeSeed<'de> for ValueReader<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Value, D::Error> {
        count_value(self.left)?;
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueReader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::from(v))
    }
    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::from(v))
    }
    fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<Value, E> {
        Number::from_f64(v).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }
    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(if self.builds { Value::String(v.to_owned()) } else { Value::Null })
    }
    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = self.step(|| items.len().to_string(), || seq.next_element_seed(self))? {
            if self.builds {
                items.push(item);
            }
        }
        Ok(Value::Array(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            count_value(self.left)?;
            let value = self.step(|| key.clone(), || entries.next_value_seed(self))?;
            if is_private_key(&key) {
                return Err(A::Error::custom("a key that begins with `$serde_json::private::`"));
            }
            match self.duplicates {
                _ if !map.contains_key(&key) => {
                    map.insert(key, value);
                }
                Some(log) => {
                    let log = &mut *log.borrow_mut();
                    let end = extend_pointer(&mut log.at, &key);
                    log.found.insert(log.at.clone());
                    log.at.truncate(end);
                }
                None => {
                    let shown: String = key.chars().take(64).collect();
                    return Err(A::Error::custom(format_args!("duplicate key {shown:?}")));
                }
            }
        }
        Ok(if self.builds { Value::Object(map) } else { Value::Null })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_values_pass_unchanged() {
        for text in
            ["null", "true", "-5", "18446744073709551615", "1.5", "\"é\"", "[1,[2]]", r#"{"b":1,"a":{}}"#]
        {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn invalid_and_ambiguous_texts_are_refused() {
        let deep = "[".repeat(100_000);
        for text in [
            "",
            "{",
            "NaN",
            "{\"a\":1}x",
            "{\"a\":1,\"a\":2}",
            "{\"o\":{\"k\":1,\"k\":1}}",
            "\"\\ud800\"",
            "1e999",
            &deep,
        ] {
            assert!(parse(text).is_err(), "{text:.40}");
        }
    }

    /// Both functions apply the same limit.
    #[test]
    fn the_number_of_values_is_bounded() {
        let array = |values: usize| format!("[{}0]", "0,".repeat(values - 2));
        // A key counts like a value.
        let object = |n: usize| {
            let members: Vec<_> = (0..n).map(|n| format!("\"{n}\":{{}}")).collect();
            format!("{{{}}}", members.join(","))
        };
        let most = MAX_VALUES as usize;
        for (text, good) in [
            (array(most), true),
            (array(most + 1), false),
            (object((most - 1) / 2), true),
            (object(most / 2 + 1), false),
            (array(10_000_000), false),
        ] {
            assert_eq!((parse(&text).is_ok(), check(&text).is_ok()), (good, good), "{} bytes", text.len());
        }
        assert!(check(&array(most + 1)).unwrap_err().to_string().contains("more than 250000 values"));
    }

    #[test]
    fn values_are_counted_without_a_tree() {
        for (text, expect) in [("7", 1), ("[]", 2), ("[1,2]", 3), (r#"{"a":",[{\"","b":[1]}"#, 4), ("[[[", 4)]
        {
            assert_eq!(max_value_count(text), expect, "{text}");
        }
    }

    #[test]
    fn a_compact_text_has_numbers_as_they_were_written() {
        for (text, expect) in [
            (
                " {\n\"a\" : [ 1.50 , 18446744073709551617 ],\t\"b\": { } }",
                r#"{"a":[1.50,18446744073709551617],"b":{}}"#,
            ),
            (r#"{"\u0072m": " \" : \\", "": "\u00e9\n"}"#, r#"{"rm":" \" : \\","":"é\n"}"#),
            ("null ", "null"),
        ] {
            assert_eq!(compact(text), expect);
        }
    }

    #[test]
    fn integers_that_a_value_rounds_are_found() {
        for (text, expect) in [
            (r#"{"a":18446744073709551615,"b":[-9223372036854775808]}"#, false),
            (r#"{"a":18446744073709551616}"#, true),
            (r#"{"a":[{"b":-9223372036854775809}]}"#, true),
            (r#"["18446744073709551616",0.5]"#, false),
        ] {
            assert_eq!(has_rounded_integer(&serde_json::from_str(text).unwrap()), expect, "{text}");
        }
    }

    #[test]
    fn members_that_stand_twice_are_noted() {
        let text = r#"{"a":1,"a":{"b":2},"c/d":[{"e":1,"e":2}],"f":{"a":1}}"#;
        let (value, duplicates) = parse_noting_duplicates(text).unwrap();
        assert_eq!(value.to_string(), r#"{"a":1,"c/d":[{"e":1}],"f":{"a":1}}"#);
        assert_eq!(duplicates.into_iter().collect::<Vec<_>>(), ["/a", "/c~1d/0/e"]);
        assert!(parse_noting_duplicates(r#"{"a":1"#).is_err());
    }

    #[test]
    fn the_error_names_a_duplicate_key() {
        assert!(parse(r#"{"path":1,"path":2}"#).unwrap_err().to_string().contains(r#"duplicate key "path""#));
    }
}
