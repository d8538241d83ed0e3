//! Reads a schema that is JSON but has a part that cannot be represented: a number out of range, half of a surrogate
//! pair, too deep nesting.
//!
//! | unreadable part | outcome |
//! |---|---|
//! | a keyword, or its data | the keyword is lost |
//! | a name, as in `properties` | the name is lost, with its schema |
//! | the schema of a name | any value matches it |
//! | a schema below the nesting limit | any value matches it |

use std::collections::{BTreeSet, HashSet};
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::keyword::{Content, Keyword};
use crate::tool::json::{self, MAX_VALUES};

/// Deepest nesting that is read, in steps of a JSON pointer.
const MAX_NESTING: usize = 100;
const TOO_DEEP: &str = "it is nested too deeply";

/// A schema without its unreadable parts.
#[derive(Debug, Default)]
pub(super) struct SalvagedSchema {
    pub(super) value: Value,
    /// The JSON pointers of the members that an object has twice.
    pub(super) duplicates: BTreeSet<String>,
    /// What was lost, in the order of the schema.
    pub(super) lost: Vec<LostPart>,
    /// The JSON pointers of the schemas that lost keywords, and of the keywords that lost names.
    pub(super) incomplete: HashSet<String>,
}

/// A part that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LostPart {
    pub(super) pointer: String,
    pub(super) why: String,
    /// Whether values were checked with it.
    pub(super) is_checked: bool,
}

/// Reads the parts of a schema that can be read. `None` if the text is not JSON, or has too many values.
pub(super) fn read(text: &str) -> Option<SalvagedSchema> {
    if json::max_value_count(text) > MAX_VALUES as usize {
        return None;
    }
    let raw: &RawValue = serde_json::from_str(text).ok()?;
    let mut salvage = Salvage::default();
    let value = salvage.schema(raw, 0).ok()?;
    Some(SalvagedSchema { value, ..salvage.found })
}

#[derive(Default)]
struct Salvage {
    found: SalvagedSchema,
    /// The JSON pointer of the current value.
    at: String,
}

/// Why a value cannot be read.
type Unreadable = String;

impl Salvage {
    /// Reads a schema, or a list of schemas. Any other value is data.
    fn schema(&mut self, raw: &RawValue, depth: usize) -> Result<Value, Unreadable> {
        match raw.get().as_bytes().first() {
            Some(b'{' | b'[') if depth >= MAX_NESTING => {
                self.lose(TOO_DEEP, true);
                self.found.incomplete.insert(self.at.clone());
                Ok(Value::Object(Map::new()))
            }
            Some(b'{') => self.object(raw, depth),
            Some(b'[') => self.list(raw, depth),
            _ => self.data(raw, depth),
        }
    }

    fn object(&mut self, raw: &RawValue, depth: usize) -> Result<Value, Unreadable> {
        let (mut map, schema) = (Map::new(), self.at.clone());
        for (key, raw) in members(raw)? {
            let Some(name) = self.name(key, false) else { continue };
            let end = json::extend_pointer(&mut self.at, &name);
            match self.keyword(&name, raw, depth + 1) {
                Ok(value) => self.insert(&mut map, name, value),
                Err(why) => {
                    let is_checked = Keyword::named(&name).is_some_and(|keyword| keyword.is_checked());
                    self.lose(&why, is_checked);
                    if is_checked {
                        self.found.incomplete.insert(schema.clone());
                    }
                }
            }
            self.at.truncate(end);
        }
        Ok(Value::Object(map))
    }

    fn keyword(&mut self, name: &str, raw: &RawValue, depth: usize) -> Result<Value, Unreadable> {
        match Content::of(name) {
            Content::SchemasByName if raw.get().starts_with('{') => self.named_schemas(raw, depth),
            Content::Schema | Content::Schemas => self.schema(raw, depth),
            Content::SchemasByName | Content::Data => self.data(raw, depth),
        }
    }

    fn named_schemas(&mut self, raw: &RawValue, depth: usize) -> Result<Value, Unreadable> {
        let mut map = Map::new();
        for (key, raw) in members(raw)? {
            let Some(name) = self.name(key, true) else {
                self.found.incomplete.insert(self.at.clone());
                continue;
            };
            let end = json::extend_pointer(&mut self.at, &name);
            let schema = self.schema(raw, depth + 1).unwrap_or_else(|why| {
                self.lose(&why, true);
                self.found.incomplete.insert(self.at.clone());
                Value::Object(Map::new())
            });
            self.insert(&mut map, name, schema);
            self.at.truncate(end);
        }
        Ok(Value::Object(map))
    }

    fn list(&mut self, raw: &RawValue, depth: usize) -> Result<Value, Unreadable> {
        let items: Vec<&RawValue> = serde_json::from_str(raw.get()).map_err(reason)?;
        let mut list = Vec::with_capacity(items.len());
        for (n, item) in items.into_iter().enumerate() {
            let end = json::extend_pointer(&mut self.at, &n.to_string());
            let schema = self.schema(item, depth + 1);
            self.at.truncate(end);
            list.push(schema?);
        }
        Ok(Value::Array(list))
    }

    /// Reads data, which would have another meaning without one of its parts.
    fn data(&mut self, raw: &RawValue, depth: usize) -> Result<Value, Unreadable> {
        if depth + nesting(raw.get()) > MAX_NESTING {
            return Err(TOO_DEEP.to_owned());
        }
        let (value, duplicates) = json::parse_noting_duplicates(raw.get()).map_err(reason)?;
        self.found.duplicates.extend(duplicates.into_iter().map(|pointer| format!("{}{pointer}", self.at)));
        Ok(value)
    }

    /// Reads the name of a member, or lists the member as lost.
    fn name(&mut self, raw: &RawValue, is_checked: bool) -> Option<String> {
        let (why, written) = match json::parse_noting_duplicates(raw.get()) {
            Ok((Value::String(name), _)) if !json::is_private_key(&name) => return Some(name),
            Ok(_) => ("its name has a meaning of its own".to_owned(), raw.get()),
            Err(error) => (reason(error), raw.get()),
        };
        let end = json::extend_pointer(&mut self.at, written.trim_matches('"'));
        self.lose(&why, is_checked);
        self.at.truncate(end);
        None
    }

    /// Adds the current member. The first of two with the same name stays.
    fn insert(&mut self, map: &mut Map<String, Value>, name: String, value: Value) {
        if map.contains_key(&name) {
            self.found.duplicates.insert(self.at.clone());
        } else {
            map.insert(name, value);
        }
    }

    fn lose(&mut self, why: &str, is_checked: bool) {
        self.found.lost.push(LostPart { pointer: self.at.clone(), why: why.to_owned(), is_checked });
    }
}

/// The message of an error without the position that `serde_json` appends: it counts from the start of a part of the
/// schema.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn reason(error: serde_json::Error) -> Unreadable {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    format!("it cannot be read: {what}")
}

/// How deep the brackets of a JSON text are nested.
fn nesting(text: &str) -> usize {
    let (mut open, mut deepest) = (0_usize, 0);
    for byte in json::bytes_outside_strings(text) {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(open);
    }
    deepest
}

/// The members of an object, with their names as written.
fn members(raw: &RawValue) -> Result<Vec<(&RawValue, &RawValue)>, Unreadable> {
    struct Members<'a>(Vec<(&'a RawValue, &'a RawValue)>);
    struct MembersVisitor;

    impl<'de> Visitor<'de> for MembersVisitor {
        type Value = Members<'de>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
            let mut members = Vec::new();
            while let Some(member) = map.next_entry()? {
                members.push(member);
            }
            Ok(Members(members))
        }
    }

    impl<'de> Deserialize<'de> for Members<'de> {
        fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
            input.deserialize_map(MembersVisitor)
        }
    }

    serde_json::from_str::<Members<'_>>(raw.get()).map(|members| members.0).map_err(reason)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pointers(found: &SalvagedSchema) -> Vec<(&str, bool)> {
        found.lost.iter().map(|lost| (lost.pointer.as_str(), lost.is_checked)).collect()
    }

    #[test]
    fn an_unreadable_part_costs_only_itself() {
        for (text, value, lost) in [
            (
                r#"{"type":"object","properties":{"a":{"type":"number","maximum":1e400,"minimum":0}}}"#,
                json!({"type": "object", "properties": {"a": {"type": "number", "minimum": 0}}}),
                &[("/properties/a/maximum", true)][..],
            ),
            (
                r#"{"properties":{"a":{"description":"cut \ud83d","enum":[1,-1e999]},"b":{}}}"#,
                json!({"properties": {"a": {}, "b": {}}}),
                &[("/properties/a/description", false), ("/properties/a/enum", true)],
            ),
            (
                r#"{"properties":{"\ud83d":{"type":"string"},"b/c":{"default":{"x":1e400}}}}"#,
                json!({"properties": {"b/c": {}}}),
                &[("/properties/\\ud83d", true), ("/properties/b~1c/default", false)],
            ),
            (
                r#"{"anyOf":[{"const":1e400},{"items":[{"pattern":"\udc00"},true]}],"$defs":{"x":1e400}}"#,
                json!({"anyOf": [{}, {"items": [{}, true]}], "$defs": {"x": {}}}),
                &[("/anyOf/0/const", true), ("/anyOf/1/items/0/pattern", true), ("/$defs/x", true)],
            ),
            (
                r#"{"allOf":[{},1e400],"x-own":1e400,"\ud83d":1,"$serde_json::private::Number":"1"}"#,
                json!({}),
                &[
                    ("/allOf", true),
                    ("/x-own", false),
                    ("/\\ud83d", false),
                    ("/$serde_json::private::Number", false),
                ],
            ),
        ] {
            let found = read(text).unwrap();
            assert_eq!((&found.value, &pointers(&found)[..]), (&value, lost), "{text}");
        }
        let twice = read(r#"{"type":"a","type":"b","default":{"c":1,"c":2},"maximum":1e400}"#).unwrap();
        assert_eq!(twice.duplicates.into_iter().collect::<Vec<_>>(), ["/default/c", "/type"]);
        for none in ["", "{", "1e400", r#"{"a":NaN}"#, "{} {}", &format!("[{}0]", "0,".repeat(300_000))] {
            assert!(read(none).is_none(), "{none:.40}");
        }
    }

    #[test]
    fn what_is_nested_too_deeply_is_cut() {
        let deep = |open: &str, close: &str, levels: usize| {
            format!(
                r#"{{"type":"object","properties":{{"a":{}{{}}{},"b":{{"type":"string"}}}}}}"#,
                open.repeat(levels),
                close.repeat(levels)
            )
        };
        let found = read(&deep(r#"{"items":"#, "}", 5000)).unwrap();
        assert_eq!(found.lost.len(), 1);
        let lost = &found.lost[0];
        assert_eq!((lost.pointer.matches("/items").count(), lost.why.as_str()), (MAX_NESTING - 2, TOO_DEEP));
        assert!(found.incomplete.contains(&lost.pointer));
        assert_eq!(found.value["properties"]["b"], json!({"type": "string"}));
        assert!(nesting(&found.value.to_string()) <= MAX_NESTING + 1);
        let found =
            read(&format!(r#"{{"default":{}{},"type":"object"}}"#, "[".repeat(5000), "]".repeat(5000)));
        let found = found.unwrap();
        assert_eq!((found.value, found.lost[0].pointer.as_str()), (json!({"type": "object"}), "/default"));
    }
}
