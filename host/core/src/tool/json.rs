//! JSON texts from outside, read once and strictly.
//!
//! The host validates a parsed value but hands the *text* on, so the two must mean the same to every reader:
//! an object with a key twice is refused (RFC 8259 section 4 leaves its meaning open, and a guest might take the
//! other one than the validator did). Depth is bounded by the parser (128), and so is the number of values: a value of
//! two bytes (`0,`) becomes a tree's node of seventy, and four mebibytes of text a hundred and fifty of memory.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Most values of one text, the inner ones and the keys included: 20 MiB of tree.
pub const MAX_VALUES: u32 = 250_000;

/// Parses a JSON text.
///
/// # Errors
/// Says what is wrong and where: syntax, a duplicate key, nesting deeper than 128, more than [`MAX_VALUES`] values,
/// text behind the value.
pub fn parse(text: &str) -> Result<Value, serde_json::Error> {
    let mut parser = serde_json::Deserializer::from_str(text);
    let value = Strict(&Cell::new(MAX_VALUES)).deserialize(&mut parser)?;
    parser.end()?;
    Ok(value)
}

/// How many values a JSON text has at most, the inner ones included: one more than what separates and opens them. Goes
/// through the text once and keeps nothing, so it can be asked before a tree is made of it.
#[must_use]
pub fn values_at_most(text: &str) -> usize {
    let (mut count, mut quoted, mut escaped) = (1, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' | b'[' | b'{' if !quoted => count += 1,
            _ => {}
        }
    }
    count
}

/// Keys that `serde_json::Value` does not read as keys.
const PRIVATE: &str = "$serde_json::private::";

/// Counts one more value.
fn count<E: serde::de::Error>(left: &Cell<u32>) -> Result<(), E> {
    let Some(less) = left.get().checked_sub(1) else {
        return Err(E::custom(format_args!("more than {MAX_VALUES} values")));
    };
    left.set(less);
    Ok(())
}

/// Builds the tree; holds how many values may still come.
#[derive(Clone, Copy)]
struct Strict<'a>(&'a Cell<u32>);

/// Checks a JSON text as [`parse`] does, without keeping more of it than the keys of the objects that are open.
///
/// # Errors
/// As [`parse`].
pub fn check(text: &str) -> Result<(), serde_json::Error> {
    let mut parser = serde_json::Deserializer::from_str(text);
    Sound(&Cell::new(MAX_VALUES)).deserialize(&mut parser)?;
    parser.end()
}

/// As [`Strict`], without the tree.
#[derive(Clone, Copy)]
struct Sound<'a>(&'a Cell<u32>);

impl<'de> DeserializeSeed<'de> for Sound<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        count(self.0)?;
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Sound<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<(), E> {
        if v.is_finite() { Ok(()) } else { Err(E::custom("number out of range")) }
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(self)?.is_some() {}
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut keys = std::collections::HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            count(self.0)?;
            entries.next_value_seed(self)?;
            if key.starts_with(PRIVATE) {
                return Err(A::Error::custom("a key that begins with `$serde_json::private::`"));
            }
            if let Some(key) = keys.replace(key) {
                let shown: String = key.chars().take(64).collect();
                return Err(A::Error::custom(format_args!("duplicate key {shown:?}")));
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Value, D::Error> {
        count(self.0)?;
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
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
        Ok(Value::String(v.to_owned()))
    }
    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            count(self.0)?;
            let value = entries.next_value_seed(self)?;
            if key.starts_with(PRIVATE) {
                return Err(A::Error::custom("a key that begins with `$serde_json::private::`"));
            }
            if map.contains_key(&key) {
                let shown: String = key.chars().take(64).collect();
                return Err(A::Error::custom(format_args!("duplicate key {shown:?}")));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
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
    fn doubtful_texts_are_refused() {
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

    /// Both readers count the same, and neither builds what is too much.
    #[test]
    fn the_number_of_values_is_bounded() {
        let array = |values: usize| format!("[{}0]", "0,".repeat(values - 2));
        // A key counts as its value does.
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
            assert_eq!(values_at_most(text), expect, "{text}");
        }
    }

    #[test]
    fn a_duplicate_key_is_named() {
        assert!(parse(r#"{"path":1,"path":2}"#).unwrap_err().to_string().contains(r#"duplicate key "path""#));
    }
}
