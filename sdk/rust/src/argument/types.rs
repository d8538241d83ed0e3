//! Types of the standard library, and JSON itself, as arguments.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, Hash};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use super::{Argument, JsonReader, read_by_serde};
use crate::{Error, Result};

/// A whole number without the zeros behind its point: `3.0` is an integer in JSON Schema.
fn whole<'a>(json: &mut JsonReader<'a>, what: &str) -> Result<&'a str> {
    let text = json.number(what)?;
    // String functions that can panic would pull in formatting code, which is several kilobytes of plugin.
    let Some(point) = text.bytes().position(|byte| byte == b'.') else { return Ok(text) };
    let is_whole = text.bytes().skip(point + 1).all(|digit| digit == b'0');
    Ok(if is_whole { text.get(..point).unwrap_or_default() } else { text })
}

macro_rules! numbers {
    ($($read:ident($what:literal): $($ty:ty)+;)*) => {
        $($(impl Argument for $ty {
            fn read(json: &mut JsonReader<'_>) -> Result<Self> {
                let what = concat!($what, " (", stringify!($ty), ")");
                let error = json.clone();
                $read(json, what)?.parse().map_err(|_| error.expected(what))
            }
        })+)*
    };
}

fn any<'a>(json: &mut JsonReader<'a>, what: &str) -> Result<&'a str> {
    json.number(what)
}

numbers! {
    whole("a whole number"): i8 i16 i32 i64 isize u8 u16 u32 u64 usize
        std::num::NonZeroU8 std::num::NonZeroU16 std::num::NonZeroU32 std::num::NonZeroU64 std::num::NonZeroUsize;
    any("a number"): f32 f64;
}

impl Argument for bool {
    fn read(json: &mut JsonReader<'_>) -> Result<Self> {
        let before = json.clone();
        match json.value()? {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(before.expected("true or false")),
        }
    }
}

impl Argument for () {
    fn read(json: &mut JsonReader<'_>) -> Result<Self> {
        if json.null() { Ok(()) } else { Err(json.expected("null")) }
    }
}

impl Argument for String {
    fn read(json: &mut JsonReader<'_>) -> Result<Self> {
        json.string()
    }
}

impl Argument for char {
    fn read(json: &mut JsonReader<'_>) -> Result<Self> {
        let before = json.clone();
        let text = json.string()?;
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (Some(only), None) => Ok(only),
            _ => Err(before.expected("one character")),
        }
    }
}

impl Argument for PathBuf {
    fn read(json: &mut JsonReader<'_>) -> Result<Self> {
        json.string().map(Self::from)
    }
}

impl Argument for Box<str> {
    fn read(json: &mut JsonReader<'_>) -> Result<Self> {
        json.string().map(Self::from)
    }
}

impl<T: Argument> Argument for Option<T> {
    fn read(json: &mut JsonReader<'_>) -> Result<Self> {
        if json.null() { Ok(None) } else { T::read(json).map(Some) }
    }

    fn left_out() -> Option<Self> {
        Some(None)
    }
}

impl<T: Argument> Argument for Box<T> {
    fn read(json: &mut JsonReader<'_>) -> Result<Self> {
        T::read(json).map(Self::new)
    }

    fn left_out() -> Option<Self> {
        T::left_out().map(Self::new)
    }
}

/// Reads an array into a collection.
fn elements<T: Argument, C: Default + Extend<T>>(json: &mut JsonReader<'_>) -> Result<C> {
    let mut all = C::default();
    json.array(&mut |_, json| {
        all.extend(Some(T::read(json)?));
        Ok(())
    })?;
    Ok(all)
}

impl<T: Argument> Argument for Vec<T> {
    fn read(json: &mut JsonReader<'_>) -> Result<Self> {
        elements(json)
    }
}

impl<T: Argument> Argument for VecDeque<T> {
    fn read(json: &mut JsonReader<'_>) -> Result<Self> {
        elements(json)
    }
}

impl<T: Argument + Ord> Argument for BTreeSet<T> {
    fn read(json: &mut JsonReader<'_>) -> Result<Self> {
        elements(json)
    }
}

impl<T: Argument + Eq + Hash, S: BuildHasher + Default> Argument for HashSet<T, S> {
    fn read(json: &mut JsonReader<'_>) -> Result<Self> {
        elements(json)
    }
}

impl<T: Argument, const N: usize> Argument for [T; N] {
    fn read(json: &mut JsonReader<'_>) -> Result<Self> {
        let all: Vec<T> = elements(json)?;
        let count = all.len();
        all.try_into().map_err(|_| Error::input(format!("{count} elements, expected {N}")))
    }
}

/// Reads an object into a map.
fn entries<T: Argument, C: Default + Extend<(String, T)>>(json: &mut JsonReader<'_>) -> Result<C> {
    let mut all = C::default();
    json.object(&mut |key, json| {
        let value = T::read(json).map_err(|error| error.below(key))?;
        all.extend(Some((key.to_owned(), value)));
        Ok(())
    })?;
    Ok(all)
}

impl<T: Argument> Argument for BTreeMap<String, T> {
    fn read(json: &mut JsonReader<'_>) -> Result<Self> {
        entries(json)
    }
}

impl<T: Argument, S: BuildHasher + Default> Argument for HashMap<String, T, S> {
    fn read(json: &mut JsonReader<'_>) -> Result<Self> {
        entries(json)
    }
}

macro_rules! by_serde {
    ($($ty:ty),*) => {
        $(impl Argument for $ty {
            fn read(json: &mut JsonReader<'_>) -> Result<Self> {
                read_by_serde(json)
            }
        })*
    };
}

by_serde!(
    serde_json::Value,
    serde_json::Number,
    serde_json::Map<String, serde_json::Value>,
    Duration,
    IpAddr,
    Ipv4Addr,
    Ipv6Addr
);

macro_rules! tuples {
    ($($count:literal: $($place:literal $name:ident)+;)*) => {
        $(impl<$($name: Argument),+> Argument for ($($name,)+) {
            #[allow(non_snake_case, reason = "a variable for each type, of its name")]
            fn read(json: &mut JsonReader<'_>) -> Result<Self> {
                $(let mut $name = None;)+
                let mut count = 0;
                json.array(&mut |index, json| {
                    count = index + 1;
                    match index {
                        $($place => $name = Some($name::read(json)?),)+
                        _ => drop(json.value()?),
                    }
                    Ok(())
                })?;
                match ($($name,)+ count) {
                    ($(Some($name),)+ $count) => Ok(($($name,)+)),
                    _ => Err(Error::input(format!("{count} elements, expected {}", $count))),
                }
            }
        })*
    };
}

tuples! {
    1: 0 A;
    2: 0 A 1 B;
    3: 0 A 1 B 2 C;
    4: 0 A 1 B 2 C 3 D;
    5: 0 A 1 B 2 C 3 D 4 E;
    6: 0 A 1 B 2 C 3 D 4 E 5 F;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Argument>(json: &str) -> Result<T> {
        T::read(&mut JsonReader::new(json))
    }

    #[test]
    fn numbers_are_read_within_their_type() {
        assert_eq!(read::<u8>("255").unwrap(), 255);
        assert_eq!(read::<i64>("-9223372036854775808").unwrap(), i64::MIN);
        assert_eq!(read::<u64>(" 18446744073709551615 ").unwrap(), u64::MAX);
        assert_eq!(read::<u32>("3.0").unwrap(), 3);
        assert_eq!(read::<f64>("-1.5e3").unwrap().to_string(), "-1500");
        for json in ["256", "-1", "1.5", "\"1\"", "null", "1e2", "true"] {
            let error = read::<u8>(json).unwrap_err();
            assert_eq!(error.message(), format!("invalid value: `{json}`, expected a whole number (u8)"));
        }
        assert!(read::<std::num::NonZeroU8>("0").is_err());
    }

    #[test]
    fn an_error_says_where() {
        let error = read::<Vec<Vec<u8>>>("[[1], [2, \"x\"]]").unwrap_err();
        assert_eq!(error.subject(), Some("/1/1"));
        let error = read::<BTreeMap<String, Option<bool>>>(r#"{"a/b~": 1}"#).unwrap_err();
        assert_eq!(error.subject(), Some("/a~1b~0"));
    }

    #[test]
    fn collections_are_read() {
        assert_eq!(read::<(u8, String)>("[1, \"a\"]").unwrap(), (1, "a".to_owned()));
        assert_eq!(read::<(u8, String)>("[1]").unwrap_err().message(), "1 elements, expected 2");
        assert_eq!(read::<(u8,)>("[1, 2]").unwrap_err().message(), "2 elements, expected 1");
        assert_eq!(read::<[u8; 2]>("[1, 2]").unwrap(), [1, 2]);
        assert_eq!(read::<[u8; 2]>("[]").unwrap_err().message(), "0 elements, expected 2");
        assert_eq!(read::<BTreeSet<u8>>("[2, 1, 2]").unwrap(), BTreeSet::from([1, 2]));
        assert_eq!(read::<Option<Vec<char>>>("null").unwrap(), None);
        assert_eq!(read::<serde_json::Value>("{\"a\": [1]}").unwrap()["a"][0], 1);
    }
}
