//! Bounded parsing of untrusted JSON. Items over a limit are skipped and not stored: a message may have megabytes, and
//! two bytes of text can become a tree node of about 70 bytes.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use toolbay_core::tool::json;
use toolbay_policy::excerpt::one_line;
use toolbay_policy::quantity;

use super::bounds::MAX_UNREDACTED_CHARS;

/// The first `N` items of a list, as raw JSON.
#[derive(Debug, Default)]
pub(crate) struct BoundedList<'a, const N: usize> {
    pub(crate) items: Vec<&'a RawValue>,
    /// Whether there are more items.
    pub(crate) truncated: bool,
}

/// The first `N` entries of an object.
#[derive(Debug, Default)]
pub(crate) struct BoundedMap<'a, const N: usize> {
    pub(crate) entries: Vec<(String, &'a RawValue)>,
    /// Whether there are more entries.
    pub(crate) truncated: bool,
}

impl<'de: 'a, 'a, const N: usize> Deserialize<'de> for BoundedList<'a, N> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_seq(BoundedVisitor(PhantomData::<Self>))
    }
}

impl<'de: 'a, 'a, const N: usize> Deserialize<'de> for BoundedMap<'a, N> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_map(BoundedVisitor(PhantomData::<Self>))
    }
}

impl<'a, const N: usize> BoundedList<'a, N> {
    /// Reads a value where the protocol has a list, in every form that servers write:
    ///
    /// | value | list |
    /// |---|---|
    /// | absent, `null`, `{}` | empty |
    /// | an object whose names are distinct numbers, as PHP writes a list that lacks items | its values |
    /// | anything else that is not a list | that value as the only item |
    ///
    /// # Errors
    /// The list is not valid JSON.
    pub(crate) fn read(raw: Option<&'a RawValue>) -> serde_json::Result<Self> {
        let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(Self::default()) };
        match raw.get().as_bytes().first() {
            Some(b'[') => serde_json::from_str(raw.get()),
            Some(b'{') => {
                let BoundedMap { entries, truncated } = serde_json::from_str::<BoundedMap<'a, N>>(raw.get())?;
                let mut numbers = HashSet::new();
                let is_numbered =
                    |(name, _): &(String, _)| name.parse::<u32>().is_ok_and(|number| numbers.insert(number));
                match entries.iter().all(is_numbered) {
                    true => Ok(Self { items: entries.into_iter().map(|(_, raw)| raw).collect(), truncated }),
                    false => Ok(Self { items: vec![raw], truncated: false }),
                }
            }
            _ => Ok(Self { items: vec![raw], truncated: false }),
        }
    }
}

struct BoundedVisitor<T>(PhantomData<T>);

impl<'de: 'a, 'a, const N: usize> Visitor<'de> for BoundedVisitor<BoundedList<'a, N>> {
    type Value = BoundedList<'a, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while items.len() < N {
            let Some(item) = seq.next_element::<&'de RawValue>()? else {
                return Ok(BoundedList { items, truncated: false });
            };
            items.push(item);
        }
        let mut more = false;
        while seq.next_element::<IgnoredAny>()?.is_some() {
            more = true;
        }
        Ok(BoundedList { items, truncated: more })
    }
}

impl<'de: 'a, 'a, const N: usize> Visitor<'de> for BoundedVisitor<BoundedMap<'a, N>> {
    type Value = BoundedMap<'a, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while entries.len() < N {
            let Some(entry) = map.next_entry::<String, &'de RawValue>()? else {
                return Ok(BoundedMap { entries, truncated: false });
            };
            entries.push(entry);
        }
        let mut more = false;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            more = true;
        }
        Ok(BoundedMap { entries, truncated: more })
    }
}

/// Parses JSON of at most `most` bytes, within the host's limits on depth and number of values.
///
/// # Errors
/// The value is too large or invalid.
pub(crate) fn parse_bounded(raw: &RawValue, most: usize) -> Result<Value, String> {
    check_size(raw, most)?;
    json::parse(raw.get()).map_err(|error| one_line(&error.to_string(), MAX_UNREDACTED_CHARS))
}

/// Checks that a value has at most `most` bytes.
///
/// # Errors
/// The value is larger. The message names both sizes.
pub(crate) fn check_size(raw: &RawValue, most: usize) -> Result<(), String> {
    let bytes = raw.get().len();
    if bytes <= most {
        return Ok(());
    }
    Err(format!("{bytes} bytes; at most {} are allowed", quantity::show_bytes(most as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_in_every_form_that_servers_write() {
        let read = |text: &str| {
            let raw = RawValue::from_string(text.to_owned()).unwrap();
            let list = BoundedList::<2>::read(Some(&raw)).unwrap();
            (list.items.iter().map(|raw| raw.get()).collect::<Vec<_>>().join(" "), list.truncated)
        };
        for (text, items, more) in [
            ("null", "", false),
            ("[]", "", false),
            ("{}", "", false),
            ("[1,2]", "1 2", false),
            ("[1,2,3]", "1 2", true),
            (r#"{"0":1,"5":2}"#, "1 2", false),
            (r#"{"0":1,"1":2,"2":3}"#, "1 2", true),
            (r#"{"a":1}"#, r#"{"a":1}"#, false),
            (r#"{"0":1,"a":2}"#, r#"{"0":1,"a":2}"#, false),
            (r#"{"0":1,"0":2}"#, r#"{"0":1,"0":2}"#, false),
            ("7", "7", false),
            ("\"a\"", "\"a\"", false),
        ] {
            assert_eq!(read(text), (items.to_owned(), more), "{text}");
        }
        assert!(BoundedList::<2>::read(None).unwrap().items.is_empty());
    }

    #[test]
    fn items_over_the_limit_are_skipped() {
        for (text, items, more) in
            [("[]", 0, false), ("[1]", 1, false), ("[1,[2]]", 2, false), ("[1,2,3,{\"a\":[4]}]", 2, true)]
        {
            let first: BoundedList<'_, 2> = serde_json::from_str(text).unwrap();
            assert_eq!((first.items.len(), first.truncated), (items, more), "{text}");
        }
        for (text, entries, more) in
            [("{}", 0, false), (r#"{"a":1,"b":2}"#, 2, false), (r#"{"a":1,"b":2,"c":[3]}"#, 2, true)]
        {
            let some: BoundedMap<'_, 2> = serde_json::from_str(text).unwrap();
            assert_eq!((some.entries.len(), some.truncated), (entries, more), "{text}");
        }
        for broken in ["[1,2,3", "[1,2,3,x]", "{}", "7"] {
            assert!(serde_json::from_str::<BoundedList<'_, 2>>(broken).is_err(), "{broken}");
        }
        assert!(serde_json::from_str::<BoundedMap<'_, 2>>("[]").is_err());
    }

    #[test]
    fn a_value_is_bounded_before_it_is_parsed() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert_eq!(parse_bounded(&raw(r#"{"a":1}"#), 7), Ok(serde_json::json!({"a": 1})));
        assert!(parse_bounded(&raw(r#"{"a":1}"#), 6).unwrap_err().contains("7 bytes"));
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert!(parse_bounded(&raw(&deep), 1 << 20).is_err(), "nested too deeply");
        let wide = format!("[{}0]", "0,".repeat(300_000));
        assert!(parse_bounded(&raw(&wide), 1 << 20).unwrap_err().contains("250000 values"));
        assert!(parse_bounded(&raw(r#"{"a":1,"a":2}"#), 99).is_err(), "duplicate key");
    }
}
