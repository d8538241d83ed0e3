//! Deserializes objects of a peer. An empty list stands for an object without members, because PHP has one type for
//! both and writes `[]`. A list with items is never an object, although serde would take its items as the members in
//! order. An error names the member.
//!
//! Only the places where an object is expected change: lists, raw JSON and values of any type are read as they are.

use std::fmt;

use serde::de::value::MapDeserializer;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error as _, IgnoredAny, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};

/// Deserializes a value, in which empty lists may stand for empty objects.
///
/// # Errors
/// The value does not fit. The message begins with the path of the member, if there is one.
pub(crate) fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> serde_json::Result<T> {
    let mut json = serde_json::Deserializer::from_str(text);
    let parsed = T::deserialize(PeerObjects(&mut json)).and_then(|value| json.end().map(|()| value));
    parsed.map_err(|error| locate::<T>(text).unwrap_or(error))
}

/// Parses once more and finds the member that does not fit.
fn locate<'a, T: Deserialize<'a>>(text: &'a str) -> Option<serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(text);
    let error = serde_path_to_error::deserialize::<_, T>(PeerObjects(&mut json)).err()?;
    let path = error.path().to_string();
    let inner = error.into_inner();
    // Only an error of the data has a member. The position of any other is that in the text.
    if !inner.is_data() {
        return Some(inner);
    }
    let what = message_of(&inner);
    let located = if path == "." { what } else { format!("`{path}`: {what}") };
    Some(serde_json::Error::custom(located))
}

/// The message of an error without its position, which means nothing to a peer. `serde_json` appends it to the text.
pub(crate) fn message_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or_else(|| text.clone(), |(what, _)| what.to_owned())
}

/// A deserializer that takes an empty list as an object.
struct PeerObjects<D>(D);

/// Forwards to the inner deserializer, with a visitor that keeps its nested values lenient.
macro_rules! forward {
    ($($method:ident($($argument:ident: $kind:ty),*)),* $(,)?) => {$(
        fn $method<V: Visitor<'de>>(self, $($argument: $kind,)* visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method($($argument,)* Nested(visitor))
        }
    )*};
}

/// Forwards to the inner deserializer as it is: for values of any type, which have no place for an object, and scalars.
macro_rules! forward_unchanged {
    ($($method:ident),* $(,)?) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method(visitor)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for PeerObjects<D> {
    type Error = D::Error;

    forward_unchanged! {
        deserialize_any, deserialize_bool, deserialize_i8, deserialize_i16, deserialize_i32, deserialize_i64,
        deserialize_u8, deserialize_u16, deserialize_u32, deserialize_u64, deserialize_f32, deserialize_f64,
        deserialize_char, deserialize_str, deserialize_string, deserialize_bytes, deserialize_byte_buf,
        deserialize_unit, deserialize_identifier, deserialize_ignored_any,
    }

    forward! {
        deserialize_option(),
        deserialize_seq(),
        deserialize_tuple(len: usize),
        deserialize_tuple_struct(name: &'static str, len: usize),
        deserialize_enum(name: &'static str, variants: &'static [&'static str]),
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_unit_struct(name, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        // serde_json marks raw JSON by the name of a newtype.
        if name.starts_with("$serde_json::") {
            return self.0.deserialize_newtype_struct(name, visitor);
        }
        self.0.deserialize_newtype_struct(name, Nested(visitor))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(ObjectVisitor(visitor))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(ObjectVisitor(visitor))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

/// Visits an object, or an empty list as one.
struct ObjectVisitor<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for ObjectVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(PeerObjects(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<V::Value, A::Error> {
        if list.next_element::<IgnoredAny>()?.is_some() {
            return Err(A::Error::invalid_type(Unexpected::Seq, &self));
        }
        let none = std::iter::empty::<(&'static str, &'static str)>();
        self.0.visit_map(MapDeserializer::<'de, _, A::Error>::new(none))
    }
}

/// Visits a value, and keeps the values in it lenient.
struct Nested<V>(V);

/// Forwards a value without parts.
macro_rules! visit {
    ($($method:ident($kind:ty)),* $(,)?) => {$(
        fn $method<E: serde::de::Error>(self, value: $kind) -> Result<V::Value, E> {
            self.0.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Nested<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    visit! {
        visit_bool(bool), visit_i64(i64), visit_u64(u64), visit_f64(f64), visit_str(&str),
        visit_borrowed_str(&'de str), visit_string(String),
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(PeerObjects(value))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(PeerObjects(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(PeerObjects(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(PeerObjects(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, choice: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(PeerObjects(choice))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for PeerObjects<A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        self.0.next_element_seed(PeerObjects(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for PeerObjects<A> {
    type Error = A::Error;

    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        self.0.next_value_seed(PeerObjects(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for PeerObjects<A> {
    type Error = A::Error;
    type Variant = PeerObjects<A::Variant>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self::Variant), A::Error> {
        self.0.variant_seed(seed).map(|(value, variant)| (value, PeerObjects(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for PeerObjects<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, A::Error> {
        self.0.newtype_variant_seed(PeerObjects(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(len, Nested(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, Nested(visitor))
    }
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for PeerObjects<T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<T::Value, D::Error> {
        self.0.deserialize(PeerObjects(value))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rmcp::model::ClientCapabilities;
    use serde::Deserialize;
    use serde_json::Value;
    use serde_json::value::RawValue;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Sample<'a> {
        #[serde(default)]
        capabilities: ClientCapabilities,
        #[serde(borrow)]
        raw: Option<&'a RawValue>,
        list: Option<Vec<BTreeMap<String, i32>>>,
        any: Option<Value>,
        choice: Option<Choice>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Choice {
        One,
        Two { a: Inner },
    }

    #[derive(Debug, Deserialize, PartialEq, Default)]
    struct Inner {
        b: Option<i32>,
    }

    #[test]
    fn an_empty_list_is_an_empty_object_where_an_object_is_expected() {
        for capabilities in [
            "[]",
            r#"{"roots":[]}"#,
            r#"{"elicitation":[]}"#,
            r#"{"elicitation":{"form":[],"url":[]}}"#,
            r#"{"sampling":{"tools":[]},"experimental":[],"extensions":{"x":[]}}"#,
        ] {
            let text = format!(r#"{{"capabilities":{capabilities}}}"#);
            let sample: Sample<'_> = parse(&text).unwrap();
            let objects = text.replace("[]", "{}");
            let plain: Sample<'_> = serde_json::from_str(&objects).unwrap();
            assert_eq!(sample.capabilities, plain.capabilities, "{text}");
        }
        let sample: Sample<'_> =
            parse(r#"{"raw":[],"list":[[],{"a":1}],"any":[],"choice":{"two":{"a":[]}}}"#).unwrap();
        assert_eq!((sample.raw.unwrap().get(), sample.any), ("[]", Some(Value::Array(vec![]))));
        assert_eq!(sample.list.unwrap().len(), 2);
        assert_eq!(sample.choice, Some(Choice::Two { a: Inner::default() }));
        let empty: Sample<'_> = parse("[]").unwrap();
        assert!(empty.raw.is_none());
        assert_eq!(parse::<Choice>("\"one\"").unwrap(), Choice::One);
        let some: Sample<'_> = parse(r#"{"raw":{"a":[1, 2]},"any":{"b":[]}}"#).unwrap();
        assert_eq!(some.raw.unwrap().get(), r#"{"a":[1, 2]}"#);
    }

    #[test]
    fn errors_name_the_member() {
        for (text, expect) in [
            ("7", "invalid type: integer `7`, expected an object"),
            ("[1]", "invalid type: sequence, expected an object"),
            (r#"{"capabilities":5}"#, "`capabilities`: invalid type: integer `5`, expected an object"),
            (r#"{"capabilities":[1]}"#, "`capabilities`: invalid type: sequence, expected an object"),
            (
                r#"{"capabilities":{"roots":{"listChanged":"yes"}}}"#,
                r#"`capabilities.roots.listChanged`: invalid type: string "yes", expected a boolean"#,
            ),
            (r#"{"list":[{"a":1},{"a":"x"}]}"#, "`list[1].a`: invalid type: string \"x\", expected i32"),
            (r#"{"raw":1,"raw":2}"#, "duplicate field `raw`"),
        ] {
            assert_eq!(parse::<Sample<'_>>(text).unwrap_err().to_string(), expect, "{text}");
        }
        let broken = parse::<Sample<'_>>(r#"{"raw":1"#).unwrap_err().to_string();
        assert!(broken.contains("EOF while parsing"), "{broken}");
        assert!(parse::<Sample<'_>>("{} {}").is_err());
    }
}
