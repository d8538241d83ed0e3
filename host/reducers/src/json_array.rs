//! `json_array`: the number of elements and the keys of a long JSON array, and its first and last elements.
//!
//! ```text
//! [{"id":1,"name":"a","tags":["x"]}, … 249 more]
//! ->
//! JSON array of 250 objects. Keys: id, name, tags (in 240). The first 8 and the last 2 follow, 240 are left out.
//! {"id":1,"name":"a","tags":["x"]}
//! …
//! {"id":250,"name":"z","tags":[]}
//! ```
//!
//! The result is plain text: an array without its middle that still parses would look complete. A program
//! reads `structured`, which no reducer changes. Each element stands on one line, without insignificant white space.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::cut::{chars, clip, count};
use crate::{ReducerInput, law};

/// Shorter texts are unchanged; about a thousand tokens.
const FEW_CHARS: usize = 4096;

/// The most characters of the result.
const MOST_CHARS: usize = 4096;

/// How many elements are shown from each end.
const FIRST: usize = 8;
const LAST: usize = 2;

/// How many keys are named.
const KEYS: usize = 30;

/// The most characters of an element, and of a key.
const ELEMENT_CHARS: usize = 600;
const KEY_CHARS: usize = 60;

/// Counts the elements and keys of a long array, and shows the first and last elements.
#[must_use]
pub fn json_array(text: &str, ctx: &ReducerInput<'_>) -> Option<String> {
    law::apply(text, ctx, |text, ctx| summarize(text, ctx.budget_chars))
}

fn summarize(text: &str, budget: usize) -> Option<String> {
    if chars(text) <= FEW_CHARS.min(budget) {
        return None;
    }
    let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    if items.len() <= FIRST + LAST {
        return None;
    }
    let (head, keys) = (kinds(&items), keys(&items));
    let show = |item: &&RawValue| clip(&compact(item.get()), ELEMENT_CHARS);
    let first: Vec<String> = items.iter().take(FIRST).map(show).collect();
    let last: Vec<String> = items.iter().rev().take(LAST).map(show).collect();
    let room = MOST_CHARS.min(budget);
    // Shows as many elements of each end as fit.
    (2..=FIRST).rev().map(|number| (number, LAST)).chain([(1, 1)]).find_map(|(front, back)| {
        let left_out = items.len() - front - back;
        let mut text = format!(
            "JSON array of {head}.{keys} The first {front} and the last {back} follow, {left_out} are left out.\n"
        );
        for line in first.iter().take(front).chain(last.iter().take(back).rev()) {
            text.push_str(line);
            text.push('\n');
        }
        (chars(&text) <= room).then_some(text)
    })
}

/// `250 objects`, or `250 elements (240 objects, 10 others)`.
fn kinds(items: &[&RawValue]) -> String {
    let objects = items.iter().filter(|item| item.get().starts_with('{')).count();
    match items.len() - objects {
        0 => count(objects, "object"),
        others if objects == 0 => count(others, "element"),
        others => format!(
            "{} ({}, {})",
            count(items.len(), "element"),
            count(objects, "object"),
            count(others, "other")
        ),
    }
}

/// The keys of the objects in order of appearance, with the number of objects for keys that some lack.
fn keys(items: &[&RawValue]) -> String {
    let objects: Vec<&&RawValue> = items.iter().filter(|item| item.get().starts_with('{')).collect();
    let mut order: Vec<String> = Vec::new();
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    for object in &objects {
        for key in keys_of(object) {
            match numbers.get_mut(&key) {
                Some(number) => *number += 1,
                None => {
                    numbers.insert(key.clone(), 1);
                    order.push(key);
                }
            }
        }
    }
    let mut shown: Vec<String> = order
        .iter()
        .take(KEYS)
        .map(|key| {
            let (number, key) = (numbers.get(key).copied().unwrap_or(0), clip(key, KEY_CHARS));
            if number == objects.len() { key } else { format!("{key} (in {number})") }
        })
        .collect();
    if order.len() > KEYS {
        shown.push(format!("{} more", order.len() - KEYS));
    }
    if shown.is_empty() { String::new() } else { format!(" Keys: {}.", shown.join(", ")) }
}

/// The keys of one object, without duplicates.
fn keys_of(object: &RawValue) -> Vec<String> {
    struct Keys;
    impl<'de> Visitor<'de> for Keys {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut keys = Vec::new();
            while let Some((key, _)) = map.next_entry::<Cow<'de, str>, IgnoredAny>()? {
                keys.push(key.split_whitespace().collect::<Vec<_>>().join(" "));
            }
            keys.dedup();
            Ok(keys)
        }
    }
    serde_json::Deserializer::from_str(object.get()).deserialize_map(Keys).unwrap_or_default()
}

/// A JSON text without the white space between its tokens.
fn compact(json: &str) -> String {
    let (mut text, mut inside, mut escaped) = (String::with_capacity(json.len()), false, false);
    for c in json.chars() {
        if inside {
            inside = c != '"' || escaped;
            escaped = c == '\\' && !escaped;
        } else if c.is_ascii_whitespace() {
            continue;
        } else {
            inside = c == '"';
        }
        text.push(c);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const CTX: ReducerInput<'_> = ReducerInput { args: "{}", turn: 0, budget_chars: 80_000 };

    fn issues(number: usize) -> String {
        let items: Vec<String> = (1..=number)
            .map(|n| {
                let labels = if n % 2 == 0 { ",\n    \"labels\": [\"a b\"]" } else { "" };
                format!("  {{\n    \"title\": \"Issue \\\"{n}\\\"\",\n    \"id\": {n}{labels}\n  }}")
            })
            .collect();
        format!("[\n{}\n]\n", items.join(",\n"))
    }

    #[test]
    fn counts_keys_and_both_ends() {
        let reduced = json_array(&issues(250), &CTX).unwrap();
        let lines: Vec<&str> = reduced.lines().collect();
        assert_eq!(
            lines[0],
            "JSON array of 250 objects. Keys: title, id, labels (in 125). The first 8 and the last 2 follow, 240 are left out."
        );
        assert_eq!(lines[1], r#"{"title":"Issue \"1\"","id":1}"#);
        assert_eq!(lines[10], r#"{"title":"Issue \"250\"","id":250,"labels":["a b"]}"#);
        assert_eq!(lines.len(), 11);
    }

    #[test]
    fn what_is_short_few_or_no_array_is_left_alone() {
        assert_eq!(json_array(&issues(20), &CTX), None, "short");
        let few = format!("[{}]", vec![format!("\"{}\"", "x".repeat(1000)); 10].join(","));
        assert_eq!(json_array(&few, &CTX), None, "few");
        for text in ["{}", "[", "text", "null", "[1]"] {
            assert_eq!(json_array(&text.repeat(5000), &CTX), None, "{text}");
        }
        let deep = format!("[{}{}]", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(json_array(&deep, &CTX), None);
    }

    #[test]
    fn others_than_objects_and_long_ones() {
        let mixed = format!("[{}, null, {{\"a\": 1}}]", vec!["1.50"; 5000].join(", "));
        let reduced = json_array(&mixed, &CTX).unwrap();
        assert!(
            reduced.starts_with("JSON array of 5002 elements (1 object, 5001 others). Keys: a. "),
            "{reduced}"
        );
        assert!(reduced.contains("\n1.50\n") && reduced.ends_with("null\n{\"a\":1}\n"), "{reduced}");
        let long = format!("[{}]", vec![format!("\"{}\"", "é".repeat(100_000)); 20].join(","));
        let reduced = json_array(&long, &CTX).unwrap();
        assert!(chars(&reduced) <= 4096 && reduced.contains("é…\n"), "{reduced}");
    }

    #[test]
    fn the_budget_is_kept_to() {
        let text = issues(250);
        for budget in [150, 200, 300, 500, 1000] {
            if let Some(reduced) = json_array(&text, &ReducerInput { budget_chars: budget, ..CTX }) {
                assert!(chars(&reduced) <= budget, "{budget}: {reduced}");
            }
        }
        assert!(json_array(&text, &ReducerInput { budget_chars: 500, ..CTX }).is_some());
    }
}
