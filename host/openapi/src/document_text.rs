//! Reads the text of a document: JSON, or YAML by the rules of YAML 1.2, by which `no` is a text and only `true` and
//! `false` are truth values.
//!
//! A key that an object has twice is no reason to refuse a document. The last value counts, as in most parsers, and the
//! key is named. Two entries for one path are merged, and an operation that is lost in this way is reported.
//!
//! A value that the format does not have, such as `1e400`, costs itself and is named.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

use encoding_rs::{Encoding, UTF_16BE, UTF_16LE};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::{DuplicateKeyPolicy, NonFiniteFloatPolicy};
use toolbay_core::tool::json;
use toolbay_policy::excerpt::one_line;

use crate::document_notes::{DocumentNote, DocumentNotes};
use crate::document_repair::{repair_json, repair_yaml};

/// The largest document, in bytes.
pub(crate) const MAX_BYTES: usize = 32 << 20;
/// The most parts of a document: values, lists and objects. The largest published documents have a few hundred
/// thousand.
pub(crate) const MAX_PARTS: usize = 2_000_000;
/// The most parts that aliases repeat. Few documents use aliases at all, and ten lines of them can repeat a billion.
const MAX_REPEATED_PARTS: usize = 100_000;
/// The most repeated operations that are reported. Further ones are not named.
const MAX_REPEATED: usize = 1000;

/// The longest path or key of a repeated operation, in characters.
const MAX_SHOWN: usize = 200;

/// The characters in which the kind of a text that is no document is looked for.
const MAX_PROLOGUE: usize = 1024;
/// The byte order mark of UTF-32, which begins like that of UTF-16.
pub(crate) const UTF_32_LE_MARK: &[u8] = b"\xff\xfe\0\0";

/// The reasons why a text is not a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DocumentError(pub(crate) String);

/// What the text of a document says.
#[derive(Debug)]
pub(crate) struct DocumentContent {
    pub(crate) root: Value,
    /// The operations that the text has more than once: path and key.
    pub(crate) repeated: Vec<(String, String)>,
    /// What else the text loses.
    pub(crate) notes: Vec<DocumentNote>,
    pub(crate) respelled: RespelledFloats,
}

/// The most spellings of floats that are kept.
const MAX_RESPELLED: usize = 10_000;

/// The floats that the text writes differently than this crate would: `1.10`, `1e3`. The text of any other float is
/// known. `None` if there are too many.
#[derive(Debug, Clone, Default)]
pub(crate) struct RespelledFloats(Option<HashSet<u64>>);

impl RespelledFloats {
    fn read(text: &str) -> Self {
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E');
        let mut found = HashSet::new();
        for token in
            text.split(|c: char| !is_part(c)).filter(|token| token.bytes().any(|b| b.is_ascii_digit()))
        {
            if token.parse::<i64>().is_ok() || token.parse::<u64>().is_ok() {
                continue;
            }
            let Ok(number) = token.parse::<f64>() else { continue };
            if shortest(number) != token {
                found.insert(number.to_bits());
            }
            if found.len() > MAX_RESPELLED {
                return Self(None);
            }
        }
        Self(Some(found))
    }

    /// The text of a float in the document, if it is known.
    pub(crate) fn text_of(&self, number: f64) -> Option<String> {
        let is_known = self.0.as_ref().is_some_and(|all| !all.contains(&number.to_bits()));
        is_known.then(|| shortest(number))
    }
}

/// The shortest text of a float.
fn shortest(number: f64) -> String {
    Value::from(number).to_string()
}

/// The text of a document in UTF-16, which begins with a byte order mark.
///
/// # Errors
/// Fails if the bytes are not UTF-16 with a byte order mark.
pub fn decode_utf_16(bytes: &[u8]) -> Result<String, DocumentError> {
    let other = || DocumentError("it is neither UTF-8 nor UTF-16".to_owned());
    if bytes.starts_with(UTF_32_LE_MARK) {
        return Err(other());
    }
    let (encoding, mark) = Encoding::for_bom(bytes).ok_or_else(other)?;
    if ![UTF_16LE, UTF_16BE].contains(&encoding) {
        return Err(other());
    }
    let text = encoding
        .decode_without_bom_handling_and_without_replacement(bytes.get(mark..).unwrap_or_default())
        .ok_or_else(other)?;
    Ok(text.into_owned())
}

/// Reads a text.
///
/// # Errors
/// Returns the mistake in the text, as one line.
pub(crate) fn read(text: &str) -> Result<DocumentContent, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("it has {} bytes; at most {MAX_BYTES} are read", text.len()));
    }
    let text = text.trim_start_matches('\u{feff}');
    if let Some(other) = other_content(text) {
        return Err(other.to_owned());
    }
    let is_json = text.trim_start().starts_with('{');
    let (root, log) = if is_json { read_json(text) } else { read_yaml(text) }?;
    if !root.is_object() {
        return Err("it is not JSON or YAML with an object".to_owned());
    }
    let ReadLog { repeated, notes } = log;
    Ok(DocumentContent { root, repeated, notes: notes.into_lines(), respelled: RespelledFloats::read(text) })
}

/// The kind of a text that is no document.
fn other_content(text: &str) -> Option<&'static str> {
    let text = text.trim_start();
    let start: String = text.chars().take(MAX_PROLOGUE).collect::<String>().to_ascii_lowercase();
    let is_html = ["<!doctype html", "<html", "<head", "<body"].iter().any(|tag| start.contains(tag));
    // `<<` is a merge key of YAML.
    let is_markup = text
        .strip_prefix('<')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_alphabetic() || "!?".contains(c)));
    match text {
        "" => Some("it is empty"),
        _ if is_markup && is_html => Some("it is an HTML page, not JSON or YAML"),
        _ if is_markup => Some("it is XML, not JSON or YAML"),
        _ if text.starts_with("//") || text.starts_with("/*") => {
            Some("it is not JSON or YAML: it begins with a comment, which JSON does not have")
        }
        _ => None,
    }
}

/// What reading has found so far.
#[derive(Debug, Default)]
struct ReadLog {
    repeated: Vec<(String, String)>,
    notes: DocumentNotes,
}

fn read_json(text: &str) -> Result<(Value, ReadLog), String> {
    if json::max_value_count(text) > MAX_PARTS {
        return Err(format!("it has more than {MAX_PARTS} parts"));
    }
    parse_json(text).or_else(|error| {
        let mut notes = DocumentNotes::default();
        let repaired = repair_json(text, &mut notes).and_then(|text| parse_json(&text).ok());
        let (root, log) = repaired.ok_or_else(|| {
            let comment =
                if is_at_comment(text, &error) { "a comment, which JSON does not have: " } else { "" };
            format!("it is not JSON: {comment}{error}")
        })?;
        Ok((root, log.with_notes(notes)))
    })
}

fn parse_json(text: &str) -> Result<(Value, ReadLog), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let log = RefCell::default();
    let root = NodeSeed::root(KeyForm::Text, &log).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok((root, log.into_inner()))
}

/// Whether a mistake is where a comment begins.
fn is_at_comment(text: &str, error: &serde_json::Error) -> bool {
    let line = text.lines().nth(error.line().saturating_sub(1)).unwrap_or_default();
    let rest = line.get(error.column().saturating_sub(1)..).unwrap_or_default();
    rest.starts_with("//") || rest.starts_with("/*")
}

fn read_yaml(text: &str) -> Result<(Value, ReadLog), String> {
    parse_yaml(text, KeyForm::Text).or_else(|why| {
        let mut notes = DocumentNotes::default();
        let repaired = repair_yaml(text, &mut notes);
        let text = repaired.as_deref().unwrap_or(text);
        // Texts of keys are exact only as long as no key is a list or an object.
        let again = repaired.is_some().then(|| parse_yaml(text, KeyForm::Text).ok()).flatten();
        let (root, log) = again.map_or_else(|| parse_yaml(text, KeyForm::Any).map_err(|_| why), Ok)?;
        Ok((root, log.with_notes(notes)))
    })
}

fn parse_yaml(text: &str, keys: KeyForm) -> Result<(Value, ReadLog), String> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_nodes: MAX_PARTS, max_events: 3 * MAX_PARTS },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_REPEATED_PARTS },
        strict_booleans: true,
        underscored_numbers_as_strings: true,
        // An author who writes `007` means the text.
        leading_zero_numbers_as_strings: true,
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
    };
    let log = RefCell::default();
    let root = serde_saphyr::with_deserializer_from_str_with_options(text, options, |from| {
        NodeSeed::root(keys, &log).deserialize(from)
    });
    let root = root.map_err(|e| format!("it is not YAML: {}", one_line(&e.to_string(), 300)))?;
    Ok((root, log.into_inner()))
}

impl ReadLog {
    /// The log with the notes of a repair.
    fn with_notes(self, before: DocumentNotes) -> Self {
        Self { notes: before.followed_by(self.notes), ..self }
    }
}

/// The place of an object, as far as repeated keys in it matter.
#[derive(Debug, Clone, Copy)]
enum Place<'a> {
    Root,
    Paths,
    /// The entry of this path.
    Path(&'a str),
    Other,
}

impl<'a> Place<'a> {
    /// The place of a member.
    fn within(self, key: &'a str) -> Self {
        match self {
            Self::Root if key == "paths" => Self::Paths,
            Self::Paths => Self::Path(key),
            Self::Root | Self::Path(_) | Self::Other => Self::Other,
        }
    }
}

/// How keys are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyForm {
    /// The text of the key.
    Text,
    /// The text of its value, which may be a list or an object.
    Any,
}

/// A step from a value to a part of it.
#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Key(&'a str),
    Item(usize),
}

/// Reads a value, and logs what it repeats and loses.
#[derive(Debug, Clone, Copy)]
struct NodeSeed<'a> {
    place: Place<'a>,
    /// The value that has this one as a part.
    parent: Option<(&'a Self, Step<'a>)>,
    keys: KeyForm,
    log: &'a RefCell<ReadLog>,
}

impl<'a> NodeSeed<'a> {
    fn root(keys: KeyForm, log: &'a RefCell<ReadLog>) -> Self {
        Self { place: Place::Root, parent: None, keys, log }
    }

    fn member(&'a self, key: &'a str) -> Self {
        Self { place: self.place.within(key), parent: Some((self, Step::Key(key))), ..*self }
    }

    fn item(&'a self, n: usize) -> Self {
        Self { place: Place::Other, parent: Some((self, Step::Item(n))), ..*self }
    }

    /// The JSON Pointer of the value (RFC 6901).
    fn pointer(&self) -> String {
        let mut steps = Vec::new();
        let mut node = self;
        while let Some((parent, step)) = node.parent {
            steps.push(match step {
                Step::Key(key) => one_line(key, MAX_SHOWN).replace('~', "~0").replace('/', "~1"),
                Step::Item(n) => n.to_string(),
            });
            node = parent;
        }
        steps.iter().rev().map(|step| format!("/{step}")).collect()
    }

    fn note(&self, text: &str) {
        self.log.borrow_mut().notes.add_with(text, || self.pointer());
    }
}

impl<'de> DeserializeSeed<'de> for NodeSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

/// Reads a key as its text.
#[derive(Debug, Clone, Copy)]
struct KeySeed<'a>(&'a NodeSeed<'a>);

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<String, D::Error> {
        if self.0.keys == KeyForm::Text {
            // `null` is a text here, and YAML reads it as none.
            return Ok(Option::<String>::deserialize(from)?.unwrap_or_else(|| "null".to_owned()));
        }
        Ok(match Value::deserialize(from)? {
            Value::String(text) => text,
            value if value.is_array() || value.is_object() => {
                self.0.note("a key is a list or an object and is read as JSON");
                value.to_string()
            }
            scalar => scalar.to_string(),
        })
    }
}

impl<'de> Visitor<'de> for NodeSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = map.next_key_seed(KeySeed(&self))? {
            let value = map.next_value_seed(self.member(&key))?;
            self.insert(&mut out, key, value);
        }
        Ok(Value::Object(out))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        while let Some(item) = list.next_element_seed(self.item(out.len()))? {
            out.push(item);
        }
        Ok(Value::Array(out))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::from(truth))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        if !number.is_finite() {
            self.note("a number without a finite value is left out");
        }
        Ok(Value::from(number))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl NodeSeed<'_> {
    /// Puts a member into an object that may already have it.
    fn insert(self, out: &mut Map<String, Value>, key: String, value: Value) {
        let Some(before) = out.get_mut(&key) else {
            out.insert(key, value);
            return;
        };
        let member = self.member(&key);
        match (member.place, before, value) {
            (Place::Paths | Place::Path(_), Value::Object(before), Value::Object(more)) => {
                more.into_iter().for_each(|(name, value)| member.insert(before, name, value));
            }
            (_, before, value) => {
                *before = value;
                match self.place {
                    Place::Path(path) => {
                        let repeated = &mut self.log.borrow_mut().repeated;
                        if repeated.len() < MAX_REPEATED {
                            repeated.push((one_line(path, MAX_SHOWN), one_line(&key, MAX_SHOWN)));
                        }
                    }
                    Place::Root | Place::Paths | Place::Other => {
                        member.note("the document has it twice; the last one is read");
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn yaml_is_read_by_the_rules_of_version_1_2() {
        for (text, value) in [
            (
                "[y, n, yes, no, on, off, Y, NO, On]",
                json!(["y", "n", "yes", "no", "on", "off", "Y", "NO", "On"]),
            ),
            ("[true, False, TRUE]", json!([true, false, true])),
            ("[1_000, 0o17, 010, 1:30, 0x1F]", json!(["1_000", 15, "010", "1:30", 31])),
            ("[2024-01-01, ~, null, .inf]", json!(["2024-01-01", null, null, null])),
            (
                "{on: 1, y: 2, 200: 3, true: 4, 1.10: 5}",
                json!({"on": 1, "y": 2, "200": 3, "true": 4, "1.10": 5}),
            ),
            ("{null: 1, false: 2, 0x1F: 3, '~': 4}", json!({"null": 1, "false": 2, "0x1F": 3, "~": 4})),
            (
                "\n  a: &x {b: 1, d: 1}\n  c: {<<: *x, d: 2}",
                json!({"a": {"b": 1, "d": 1}, "c": {"b": 1, "d": 2}}),
            ),
        ] {
            let read = read(&format!("v: {text}")).unwrap();
            assert_eq!(read.root["v"], value, "{text}");
            assert_eq!(read.notes.len(), usize::from(text.contains(".inf")), "{text}: {:?}", read.notes);
        }
    }

    #[test]
    fn the_text_of_a_float_is_known_unless_the_document_spells_it_differently() {
        let of = |text: &str, number: f64| read(text).unwrap().respelled.text_of(number);
        for text in ["a: [1.5, 1.10, 1e3, 3.0, 2.50]", r#"{"a": [1.5, 1.10, 1e3, 3.0, 2.50]}"#] {
            assert_eq!([1.5, 3.0].map(|number| of(text, number).unwrap()), ["1.5", "3.0"], "{text}");
            assert_eq!([1.1, 1000.0, 2.5].map(|number| of(text, number)), [None, None, None], "{text}");
        }
        let many: String = (0..=MAX_RESPELLED).map(|n| format!("- {n}.10\n")).collect();
        assert_eq!(of(&format!("a:\n{many}"), 0.5), None);
    }

    #[test]
    fn aliases_that_multiply_are_refused() {
        let lines =
            (1..12).map(|n| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(", ")));
        let bomb = format!("a0: &a0 [x]\n{}", lines.collect::<String>());
        assert!(read(&bomb).unwrap_err().contains("alias"));
    }

    #[test]
    fn a_value_that_cannot_be_read_costs_itself() {
        let notes = |text: &str| {
            let content = read(text).unwrap();
            let lines = content.notes.iter().map(|note| format!("{}: {}", note.place, note.text));
            (content.root, lines.collect::<Vec<_>>())
        };
        let (root, lines) = notes(r#"{"a": {"b": [1e400, NaN]}, "c": "x\ud83d"}"#);
        assert_eq!(root, json!({"a": {"b": [null, null]}, "c": "x\u{fffd}"}));
        assert_eq!(lines.len(), 3, "{lines:?}");
        let (root, lines) = notes("a: {b: [1, 1e400]}\nc: \"x\\ud83d \\ud83d\\ude00\"\n");
        assert_eq!(root, json!({"a": {"b": [1, null]}, "c": "x\u{fffd} \u{1f600}"}));
        assert!(lines.len() == 2 && lines.iter().any(|line| line.starts_with("/a/b/1: ")), "{lines:?}");
        let (root, lines) = notes("a: {? [x, y] : 1, b: 2, null: 3}\n");
        assert_eq!(root, json!({"a": {"[\"x\",\"y\"]": 1, "b": 2, "null": 3}}));
        assert_eq!(lines, ["/a: a key is a list or an object and is read as JSON"]);
    }

    #[test]
    fn a_repeated_key_is_named_once_with_its_place() {
        let json = r#"{"paths": {"/a": {"get": {"tags": 1, "tags": 2, "tags": 3}}}, "s": {"x/y": [{"A": 1, "A": 2}]}}"#;
        let yaml =
            "paths:\n  /a:\n    get: {tags: 1, tags: 2, tags: 3}\ns:\n  x/y:\n    - A: 1\n      A: 2\n";
        for text in [json, yaml] {
            let content = read(text).unwrap();
            assert_eq!(content.root["paths"]["/a"]["get"]["tags"], 3);
            let places: Vec<&str> = content.notes.iter().map(|note| note.place.as_str()).collect();
            assert_eq!(places, ["/paths/~1a/get/tags", "/s/x~1y/0/A"]);
        }
        let many: String = (0..10_000).map(|n| format!("k{n}: 1\nk{n}: 2\n")).collect();
        let notes = read(&many).unwrap().notes;
        assert!(notes.len() < 50 && notes.last().unwrap().text.contains("more"), "{}", notes.len());
    }

    #[test]
    fn what_is_no_document_is_named() {
        for (text, part) in [
            ("", "is empty"),
            (" \n", "is empty"),
            ("<!DOCTYPE html><html><body>Sign in: now</body></html>", "an HTML page"),
            ("<?xml version=\"1.0\"?>\n<html xmlns='x'>", "an HTML page"),
            ("<?xml version=\"1.0\"?><a>b: c</a>", "is XML"),
            ("// hi\n{\"openapi\": \"3.0.0\"}", "comment"),
            ("/* hi */ {\"openapi\":\"3.0.0\"}", "comment"),
            ("{\n  // hi\n  \"openapi\": \"3.0.0\"}", "a comment"),
            ("{\"openapi\": \"3.0.0\", /* hi */ \"paths\": {}}", "a comment"),
            ("just words", "not JSON or YAML"),
            ("- a\n- b", "not JSON or YAML"),
            ("\"{}\"", "not JSON or YAML"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(read("<<: {a: 1}\nb: 2\n").unwrap().root, json!({"a": 1, "b": 2}));
    }

    #[test]
    fn utf_16_is_read_by_its_byte_order_mark() {
        let units: Vec<u16> = "\u{feff}é: 1\n".encode_utf16().collect();
        let little: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let big: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
        for bytes in [&little, &big] {
            assert_eq!(read(&decode_utf_16(bytes).unwrap()).unwrap().root, json!({"é": 1}));
        }
        for bytes in [&little[2..], &little[..5], b"\xff\xfe\0\0a\0\0\0", b"gr\xfcn", b"\xff\xfe\0\xd8a\0"] {
            assert!(decode_utf_16(bytes).unwrap_err().to_string().contains("neither UTF-8 nor UTF-16"));
        }
    }

    #[test]
    fn a_repeated_path_is_merged_and_a_repeated_operation_is_named() {
        let json = r#"{"paths": {"/a": {"get": 1, "put": 2}, "/a": {"post": 3, "get": 4}}, "x": 1, "x": 2,
            "paths": {"/b": {"get": 5, "get": 6}}}"#;
        let yaml = "x: 1\nx: 2\npaths:\n  /a: {get: 1, put: 2}\n  /a: {post: 3, get: 4}\npaths: {/b: {get: 5, get: 6}}";
        for text in [json, yaml] {
            let DocumentContent { root, repeated, .. } = read(text).unwrap();
            assert_eq!(root["paths"], json!({"/a": {"get": 4, "put": 2, "post": 3}, "/b": {"get": 6}}));
            assert_eq!(root["x"], 2);
            let expected =
                [("/a", "get"), ("/b", "get")].map(|(path, key)| (path.to_owned(), key.to_owned()));
            let mut repeated = repeated;
            repeated.sort();
            assert_eq!(repeated, expected);
        }
        let long = format!(r#"{{"paths": {{"/{0}": {{"get": 1, "get": 2}}}}}}"#, "x".repeat(1_000_000));
        assert!(read(&long).unwrap().repeated[0].0.len() < 1000);
        let many = format!(r#"{{"paths": {{"/a": {{{}"get": 1}}}}}}"#, r#""get": 1, "#.repeat(10_000));
        assert_eq!(read(&many).unwrap().repeated.len(), MAX_REPEATED);
    }
}
