//! The members of an object of a peer, each read for itself: an odd member costs only itself.

use std::fmt;

use serde::de::{
    Deserialize, Deserializer as _, Error as _, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde_json::value::RawValue;

use super::objects::message_of;

/// Members of an object, as raw JSON.
#[derive(Debug, Default)]
pub(crate) struct Members<'a>(Vec<(&'static str, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Reads the members with these names. No other is stored, however many there are. An empty list is an object without
    /// members, as [`super::objects`] describes.
    ///
    /// # Errors
    /// The value is not an object, or has two members with one of these names.
    pub(crate) fn parse(text: &'a str, names: &'static [&'static str]) -> serde_json::Result<Self> {
        let mut json = serde_json::Deserializer::from_str(text);
        json.deserialize_any(MembersVisitor(names)).map_err(|error| match error.is_data() {
            true => serde_json::Error::custom(message_of(&error)),
            false => error,
        })
    }

    /// Reads the members of a raw value, as [`Self::parse`] describes.
    pub(crate) fn read(raw: &'a RawValue, names: &'static [&'static str]) -> serde_json::Result<Self> {
        Self::parse(raw.get(), names)
    }

    /// Reads the members with these names. There are none in a value that [`Self::read`] refuses.
    pub(crate) fn read_any(raw: Option<&'a RawValue>, names: &'static [&'static str]) -> Self {
        raw.and_then(|raw| Self::read(raw, names).ok()).unwrap_or_default()
    }

    /// The member with a name, even if it is `null`.
    pub(crate) fn present(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, raw)| *raw)
    }

    /// The member with a name, unless it is `null`.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a RawValue> {
        self.present(name).filter(|raw| raw.get() != "null")
    }

    /// The member with a name, if it has this type.
    pub(crate) fn get<T: Deserialize<'a>>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.raw(name)?.get()).ok()
    }
}

struct MembersVisitor(&'static [&'static str]);

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut found: Vec<(&'static str, &'de RawValue)> = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            let Some(known) = self.0.iter().copied().find(|known| *known == name) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if found.iter().any(|(other, _)| *other == known) {
                return Err(A::Error::duplicate_field(known));
            }
            found.push((known, map.next_value()?));
        }
        Ok(Members(found))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Members<'de>, A::Error> {
        match list.next_element::<IgnoredAny>()? {
            Some(_) => Err(A::Error::invalid_type(Unexpected::Seq, &self)),
            None => Ok(Members::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_is_read_for_itself() {
        let read = |text: &str| {
            let raw = RawValue::from_string(text.to_owned()).unwrap();
            Members::read(&raw, &["a", "b"]).map(|members| {
                let present = ["a", "b", "c"].map(|name| members.present(name).is_some());
                (members.get::<u32>("a"), members.get::<String>("b"), present)
            })
        };
        for (text, expect) in [
            ("{}", (None, None, [false; 3])),
            ("[ ]", (None, None, [false; 3])),
            (r#"{"a":1,"b":"x","c":2}"#, (Some(1), Some("x".to_owned()), [true, true, false])),
            (r#"{"a":"x","\u0062":"y"}"#, (None, Some("y".to_owned()), [true, true, false])),
            (r#"{"c":1,"c":[],"a":null}"#, (None, None, [true, false, false])),
        ] {
            assert_eq!(read(text).unwrap(), expect, "{text}");
        }
        for (text, expect) in [
            ("7", "invalid type: integer `7`, expected an object"),
            ("null", "invalid type: null, expected an object"),
            ("[1]", "invalid type: sequence, expected an object"),
            (r#"{"a":1,"a":1}"#, "duplicate field `a`"),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), expect, "{text}");
        }
    }
}
