//! One way to write a JSON value down (RFC 8785, JCS): members in the order of their names, no white space, numbers
//! as ECMAScript writes them. Unlike there, an integer keeps all its digits. So that the same arguments have the same
//! digest, whoever wrote them and however.

use std::cell::Cell;
use std::fmt;
use std::io::Write;

use serde::{Serialize, Serializer};
use serde_json::{Map, Number, Value};
use sha2::{Digest as _, Sha256};

/// Longest text for which a thread keeps the room, in bytes.
const MAX_ROOM: usize = 64 << 10;

thread_local! {
    /// Room for the text of one call: it is written, digested and forgotten.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A SHA-256. Shown and serialised in lower-case hex.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

/// The SHA-256 of a value in its canonical form.
#[must_use]
pub fn sha256(value: &Value) -> Digest {
    let mut text = Vec::new();
    write(value, &mut text);
    Digest::of(&text)
}

/// The SHA-256 of a call, `{"args":…,"tool":…}` in its canonical form; and that of its arguments. The same call has the
/// same digest in whatever order its arguments are written.
#[must_use]
pub fn sha256_of_call(tool: &str, args: &Value) -> (Digest, Digest) {
    let mut whole = ROOM.take();
    whole.clear();
    whole.extend(b"{\"args\":");
    let start = whole.len();
    write(args, &mut whole);
    let args = Digest::of(whole.get(start..).unwrap_or_default());
    whole.extend(b",\"tool\":");
    write_text(tool, &mut whole);
    whole.push(b'}');
    let call = Digest::of(&whole);
    if whole.capacity() <= MAX_ROOM {
        ROOM.set(whole);
    }
    (call, args)
}

/// Writes a value in its canonical form. How deep a value can be is bounded where it is parsed.
fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend(b"null"),
        Value::Bool(true) => out.extend(b"true"),
        Value::Bool(false) => out.extend(b"false"),
        Value::String(text) => write_text(text, out),
        Value::Number(number) => write_number(number, out),
        Value::Array(items) => {
            let mut before = b'[';
            for item in items {
                out.push(before);
                write(item, out);
                before = b',';
            }
            out.extend(if items.is_empty() { b"[]".as_slice() } else { b"]" });
        }
        Value::Object(members) => write_object(members, out),
    }
}

fn write_object(members: &Map<String, Value>, out: &mut Vec<u8>) {
    // By UTF-16 code units, as RFC 8785, 3.2.3 has it. Most objects are in that order as they come.
    if members.keys().is_sorted_by(|a, b| a.encode_utf16().lt(b.encode_utf16())) {
        return write_members(members.iter(), out);
    }
    let mut sorted: Vec<_> = members.iter().collect();
    sorted.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    write_members(sorted.into_iter(), out);
}

fn write_members<'a>(members: impl ExactSizeIterator<Item = (&'a String, &'a Value)>, out: &mut Vec<u8>) {
    if members.len() == 0 {
        return out.extend(b"{}");
    }
    let mut before = b'{';
    for (name, value) in members {
        out.push(before);
        write_text(name, out);
        out.push(b':');
        write(value, out);
        before = b',';
    }
    out.push(b'}');
}

/// The escapes of serde_json are those of ECMAScript's `JSON.stringify`.
fn write_text(text: &str, out: &mut Vec<u8>) {
    // A vector takes every byte, and a text is JSON: it can not fail.
    drop(serde_json::to_writer(out, text));
}

fn write_number(number: &Number, out: &mut Vec<u8>) {
    match number.as_f64() {
        Some(float) if number.is_f64() => write_float(float, out),
        _ => drop(write!(out, "{number}")),
    }
}

/// ECMAScript's `Number::toString`: the shortest digits, in one of four layouts.
fn write_float(float: f64, out: &mut Vec<u8>) {
    if float == 0.0 {
        out.push(b'0');
        return;
    }
    if float < 0.0 {
        out.push(b'-');
    }
    let shortest = format!("{:e}", float.abs());
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let digits = digits.replace('.', "");
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    // The point stands after so many digits.
    let point = exponent.parse::<i32>().unwrap_or(0) + 1;
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
    if count <= point && point <= 21 {
        drop(write!(out, "{digits}{}", zeros(point - count)));
    } else if 0 < point && point <= 21 {
        let (whole, rest) = digits.split_at(usize::try_from(point).unwrap_or(0));
        drop(write!(out, "{whole}.{rest}"));
    } else if -6 < point && point <= 0 {
        drop(write!(out, "0.{}{digits}", zeros(-point)));
    } else {
        let (first, rest) = digits.split_at(1);
        let dot = if rest.is_empty() { "" } else { "." };
        let sign = if point > 0 { "+" } else { "-" };
        drop(write!(out, "{first}{dot}{rest}e{sign}{}", (point - 1).abs()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(text: &str) -> String {
        let mut canonical = Vec::new();
        write(&serde_json::from_str(text).unwrap(), &mut canonical);
        String::from_utf8(canonical).unwrap()
    }

    #[test]
    fn the_examples_of_the_rfc() {
        // RFC 8785, 3.2.2 and 3.2.3.
        for (text, expect) in [
            (
                r#"{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}"#,
                "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}",
            ),
            (
                r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#,
                "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\u{fb33}\":3}",
            ),
            (
                "[1.0,-0.0,1e21,1e20,123456789012345680000,1e-6,1e-7,-1.5e300,5e-324]",
                "[1,0,1e+21,100000000000000000000,123456789012345680000,0.000001,1e-7,-1.5e+300,5e-324]",
            ),
            (" { } ", "{}"),
            ("[[],{}]", "[[],{}]"),
            ("18446744073709551615", "18446744073709551615"),
        ] {
            assert_eq!(canonical(text), expect);
        }
    }

    #[test]
    fn the_order_of_members_and_white_space_do_not_count() {
        let one = serde_json::from_str(r#"{"b":[1,2],"a":{"d":1,"c":2}}"#).unwrap();
        let two = serde_json::from_str(r#" {"a" : {"c":2, "d":1.0}, "b":[1, 2]}"#).unwrap();
        assert_eq!(sha256(&one), sha256(&two));
        let of_call = |args: &Value| sha256_of_call("p__t", args);
        assert_eq!(of_call(&one), of_call(&two));
        let whole = serde_json::json!({"tool": "p__t", "args": one});
        assert_eq!(of_call(&one), (sha256(&whole), sha256(&one)));
        let empty = sha256(&serde_json::json!({}));
        assert_eq!(empty.to_string(), "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
    }

    proptest! {
        #[test]
        fn a_float_is_read_back(float in proptest::num::f64::NORMAL | proptest::num::f64::SUBNORMAL) {
            let mut out = Vec::new();
            write_float(float, &mut out);
            let out = String::from_utf8(out).unwrap();
            prop_assert_eq!(out.parse::<f64>().unwrap(), float, "{}", out);
        }

        #[test]
        fn a_canonical_text_is_its_own_canonical_form(texts in proptest::collection::vec(".{0,12}", 0..6)) {
            let value: Value = texts.iter().map(|text| (text.clone(), Value::from(text.as_str()))).collect::<Map<_, _>>().into();
            let once = canonical(&value.to_string());
            prop_assert_eq!(&canonical(&once), &once);
        }
    }
}
