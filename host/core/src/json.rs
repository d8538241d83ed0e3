//! JSON texts from outside, read once and strictly.
//!
//! The host validates a parsed value but hands the *text* on, so the two must mean the same to every reader:
//! an object with a key twice is refused (RFC 8259 section 4 leaves its meaning open, and a guest might take the
//! other one than the validator did). Depth is bounded by the parser (128).

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Parses a JSON text.
///
/// # Errors
/// Says what is wrong and where: syntax, a duplicate key, nesting deeper than 128, text behind the value.
pub fn parse(text: &str) -> Result<Value, serde_json::Error> {
    let mut parser = serde_json::Deserializer::from_str(text);
    let value = Strict.deserialize(&mut parser)?;
    parser.end()?;
    Ok(value)
}

/// Keys that `serde_json::Value` does not read as keys.
const PRIVATE: &str = "$serde_json::private::";

struct Strict;

/// Checks a JSON text as [`parse`] does, without keeping more of it than the keys of the objects that are open.
///
/// # Errors
/// As [`parse`].
pub fn check(text: &str) -> Result<(), serde_json::Error> {
    let mut parser = serde_json::Deserializer::from_str(text);
    Sound.deserialize(&mut parser)?;
    parser.end()
}

struct Sound;

impl<'de> DeserializeSeed<'de> for Sound {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Sound {
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
        while seq.next_element_seed(Self)?.is_some() {}
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut keys = std::collections::HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            entries.next_value_seed(Self)?;
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

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Value, D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
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
        while let Some(item) = seq.next_element_seed(Self)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(Self)?;
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

    #[test]
    fn a_duplicate_key_is_named() {
        assert!(parse(r#"{"path":1,"path":2}"#).unwrap_err().to_string().contains(r#"duplicate key "path""#));
    }
}
