//! The canonical form of JSON values (RFC 8785, JCS), so that equal arguments have equal digests: sorted members, no
//! white space, numbers as in ECMAScript. Unlike JCS, integers keep all their digits.

use std::cell::Cell;
use std::io::{self, Write};

use serde_json::{Map, Number, Value};
use sha2::{Digest as _, Sha256};
pub use toolbay_state::digest::Digest;

/// Bytes that are buffered before they are hashed.
const CHUNK: usize = 16 << 10;

thread_local! {
    /// A reusable buffer for one chunk.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The SHA-256 of a value in its canonical form.
#[must_use]
pub fn sha256(value: &Value) -> Digest {
    let mut digested = Sha256::new();
    write_chunks(|piece| digested.update(piece), |out| write(value, out));
    <[u8; 32]>::from(digested.finalize()).into()
}

/// The SHA-256 of a call, `{"args":…,"tool":…}` in canonical form, and that of its arguments. Equal calls have equal
/// digests, whatever the order of their arguments.
#[must_use]
pub fn sha256_of_call(tool: &str, args: &Value) -> (Digest, Digest) {
    let (mut call, mut alone) = (Sha256::new_with_prefix(b"{\"args\":"), Sha256::new());
    let both = |piece: &[u8]| {
        call.update(piece);
        alone.update(piece);
    };
    write_chunks(both, |out| write(args, out));
    let rest = |out: &mut ChunkWriter<_>| {
        out.extend(b",\"tool\":");
        write_text(tool, out);
        out.push(b'}');
    };
    write_chunks(|piece| call.update(piece), rest);
    (<[u8; 32]>::from(call.finalize()).into(), <[u8; 32]>::from(alone.finalize()).into())
}

/// Passes the output of `written` to `take` in chunks, since it can be long.
fn write_chunks<F: FnMut(&[u8])>(take: F, written: impl FnOnce(&mut ChunkWriter<F>)) {
    let mut out = ChunkWriter { buffer: BUFFER.take(), sink: take };
    written(&mut out);
    out.flush_chunk();
    BUFFER.set(out.buffer);
}

/// A writer that passes its output on in chunks.
struct ChunkWriter<F> {
    buffer: Vec<u8>,
    sink: F,
}

impl<F: FnMut(&[u8])> ChunkWriter<F> {
    fn push(&mut self, byte: u8) {
        self.extend(&[byte]);
    }

    fn extend(&mut self, bytes: &[u8]) {
        if bytes.len() > CHUNK.saturating_sub(self.buffer.len()) {
            self.flush_chunk();
            // Small chunks stay in the CPU cache while they are hashed.
            for piece in bytes.chunks(CHUNK) {
                (self.sink)(piece);
            }
        } else {
            self.buffer.extend_from_slice(bytes);
        }
    }

    fn flush_chunk(&mut self) {
        (self.sink)(&self.buffer);
        self.buffer.clear();
    }
}

impl<F: FnMut(&[u8])> Write for ChunkWriter<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a value in canonical form. The parser has limited its depth.
fn write<F: FnMut(&[u8])>(value: &Value, out: &mut ChunkWriter<F>) {
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

fn write_object<F: FnMut(&[u8])>(members: &Map<String, Value>, out: &mut ChunkWriter<F>) {
    // RFC 8785, section 3.2.3, sorts by UTF-16 code units. Most objects are sorted already.
    if members.keys().is_sorted_by(|a, b| a.encode_utf16().lt(b.encode_utf16())) {
        return write_members(members.iter(), out);
    }
    let mut sorted: Vec<_> = members.iter().collect();
    sorted.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    write_members(sorted.into_iter(), out);
}

fn write_members<'a, F: FnMut(&[u8])>(
    members: impl ExactSizeIterator<Item = (&'a String, &'a Value)>,
    out: &mut ChunkWriter<F>,
) {
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

/// Writes a string. serde_json escapes like ECMAScript's `JSON.stringify`.
fn write_text<F: FnMut(&[u8])>(text: &str, out: &mut ChunkWriter<F>) {
    if is_plain(text) {
        out.push(b'"');
        out.extend(text.as_bytes());
        return out.push(b'"');
    }
    // The writer accepts every byte and a string is always valid, so this cannot fail.
    drop(serde_json::to_writer(out, text));
}

/// Whether a text needs no escapes. The inner loop has no branches, so the compiler can vectorize it.
fn is_plain(text: &str) -> bool {
    let is_unescaped = |byte: &u8| *byte >= b' ' && *byte != b'"' && *byte != b'\\';
    text.as_bytes().chunks(64).all(|bytes| bytes.iter().fold(true, |plain, byte| plain & is_unescaped(byte)))
}

fn write_number(number: &Number, out: &mut impl Write) {
    match number.as_f64() {
        Some(float) if number.is_f64() => write_float(float, out),
        _ => drop(write!(out, "{number}")),
    }
}

/// Writes a number like ECMAScript's `Number::toString`: the shortest digits in one of four layouts.
fn write_float(float: f64, out: &mut impl Write) {
    if float == 0.0 {
        drop(out.write_all(b"0"));
        return;
    }
    if float < 0.0 {
        drop(out.write_all(b"-"));
    }
    let shortest = format!("{:e}", float.abs());
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let digits = digits.replace('.', "");
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    // The number of digits before the decimal point.
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
        let (mut canonical, value) = (Vec::new(), serde_json::from_str(text).unwrap());
        write_chunks(|piece| canonical.extend_from_slice(piece), |out| write(&value, out));
        String::from_utf8(canonical).unwrap()
    }

    #[test]
    fn long_texts_have_the_same_digest_in_chunks() {
        for length in [CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 7] {
            for text in [
                "x".repeat(length),
                format!("{}\n{}", "x".repeat(length), "y".repeat(length)),
                "\"".repeat(length),
            ] {
                let value = serde_json::json!({"a": text, "b": [text, 1], "c": "z"});
                let whole = serde_json::to_string(&value).unwrap();
                assert!(canonical(&whole) == whole, "{length}");
                assert_eq!(sha256(&value).to_string(), format!("{:x}", Sha256::digest(&whole)));
                let call = format!(r#"{{"args":{whole},"tool":"p__t"}}"#);
                let expect = Sha256::digest(&call);
                assert_eq!(sha256_of_call("p__t", &value).0.to_string(), format!("{expect:x}"));
                assert_eq!(sha256_of_call("p__t", &value).1, sha256(&value));
            }
        }
        assert!(BUFFER.take().capacity() <= 2 * CHUNK, "the buffer does not grow beyond a chunk");
    }

    #[test]
    fn the_examples_of_rfc_8785() {
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
    fn the_order_of_members_and_white_space_do_not_matter() {
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
