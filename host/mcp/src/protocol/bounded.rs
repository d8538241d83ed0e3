//! What others wrote, of which no more is taken than may be: what is beyond is read past and not kept. A message has
//! megabytes, and a value of two bytes in it would become a tree's node of seventy.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use toolbay_core::tool::json;
use toolbay_policy::quantity;
use toolbay_policy::text::one_line;

use super::bounds::MAX_HEARD;

/// The first `N` items of a list, each as it stands there.
#[derive(Debug, Default)]
pub(crate) struct First<'a, const N: usize> {
    pub(crate) items: Vec<&'a RawValue>,
    /// There are others.
    pub(crate) more: bool,
}

/// The first `N` entries of an object.
#[derive(Debug, Default)]
pub(crate) struct Entries<'a, const N: usize> {
    pub(crate) entries: Vec<(String, &'a RawValue)>,
    /// There are others.
    pub(crate) more: bool,
}

impl<'de: 'a, 'a, const N: usize> Deserialize<'de> for First<'a, N> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_seq(Taking(PhantomData::<Self>))
    }
}

impl<'de: 'a, 'a, const N: usize> Deserialize<'de> for Entries<'a, N> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_map(Taking(PhantomData::<Self>))
    }
}

struct Taking<T>(PhantomData<T>);

impl<'de: 'a, 'a, const N: usize> Visitor<'de> for Taking<First<'a, N>> {
    type Value = First<'a, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while items.len() < N {
            let Some(item) = seq.next_element::<&'de RawValue>()? else {
                return Ok(First { items, more: false });
            };
            items.push(item);
        }
        let mut more = false;
        while seq.next_element::<IgnoredAny>()?.is_some() {
            more = true;
        }
        Ok(First { items, more })
    }
}

impl<'de: 'a, 'a, const N: usize> Visitor<'de> for Taking<Entries<'a, N>> {
    type Value = Entries<'a, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while entries.len() < N {
            let Some(entry) = map.next_entry::<String, &'de RawValue>()? else {
                return Ok(Entries { entries, more: false });
            };
            entries.push(entry);
        }
        let mut more = false;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            more = true;
        }
        Ok(Entries { entries, more })
    }
}

/// A text of JSON as a tree, if it has at most `most` bytes and is one that the host reads at all.
///
/// # Errors
/// Why it is not taken.
pub(crate) fn tree(raw: &RawValue, most: usize) -> Result<Value, String> {
    small(raw, most)?;
    json::parse(raw.get()).map_err(|error| one_line(&error.to_string(), MAX_HEARD))
}

/// Refuses what has more than `most` bytes.
///
/// # Errors
/// How much it is.
pub(crate) fn small(raw: &RawValue, most: usize) -> Result<(), String> {
    let bytes = raw.get().len();
    if bytes <= most {
        return Ok(());
    }
    Err(format!("it has {bytes} bytes; at most {} are read", quantity::show_bytes(most as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_is_read_past() {
        for (text, items, more) in
            [("[]", 0, false), ("[1]", 1, false), ("[1,[2]]", 2, false), ("[1,2,3,{\"a\":[4]}]", 2, true)]
        {
            let first: First<'_, 2> = serde_json::from_str(text).unwrap();
            assert_eq!((first.items.len(), first.more), (items, more), "{text}");
        }
        for (text, entries, more) in
            [("{}", 0, false), (r#"{"a":1,"b":2}"#, 2, false), (r#"{"a":1,"b":2,"c":[3]}"#, 2, true)]
        {
            let some: Entries<'_, 2> = serde_json::from_str(text).unwrap();
            assert_eq!((some.entries.len(), some.more), (entries, more), "{text}");
        }
        for broken in ["[1,2,3", "[1,2,3,x]", "{}", "7"] {
            assert!(serde_json::from_str::<First<'_, 2>>(broken).is_err(), "{broken}");
        }
        assert!(serde_json::from_str::<Entries<'_, 2>>("[]").is_err());
    }

    #[test]
    fn a_tree_is_bounded_before_it_is_made() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert_eq!(tree(&raw(r#"{"a":1}"#), 7), Ok(serde_json::json!({"a": 1})));
        assert!(tree(&raw(r#"{"a":1}"#), 6).unwrap_err().contains("7 bytes"));
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert!(tree(&raw(&deep), 1 << 20).is_err(), "too deep");
        let wide = format!("[{}0]", "0,".repeat(300_000));
        assert!(tree(&raw(&wide), 1 << 20).unwrap_err().contains("250000 values"));
        assert!(tree(&raw(r#"{"a":1,"a":2}"#), 99).is_err(), "a key twice");
    }
}
