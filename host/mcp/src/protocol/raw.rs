//! Large JSON texts of tools on their way through the library, which would make trees of them: a tree takes up to fifty
//! times the memory of its text. Such a text travels as one string that begins with a mark, and becomes JSON again where
//! messages leave as bytes.
//!
//! The mark is random and never leaves this process, so no tool can write it.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::LazyLock;

use serde_json::Value;
use tokio_util::bytes::Bytes;

/// Shortest text that is passed through, in bytes. Below, a tree is small, and most results are below.
pub(crate) const LEAST: usize = 4 << 10;

/// What a string begins with that is JSON.
static MARK: LazyLock<String> = LazyLock::new(|| {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
});

/// The same with the quotation mark that begins a string.
static QUOTED: LazyLock<String> = LazyLock::new(|| format!("\"{}", *MARK));

/// A JSON text as a value of the library; `None`: it is no JSON.
pub(crate) fn value(text: &str) -> Option<Value> {
    if text.len() < LEAST {
        return serde_json::from_str(text).ok();
    }
    let mut marked = String::with_capacity(MARK.len() + text.len());
    marked.push_str(&MARK);
    // A message is one line. In strings of JSON, ends of lines are escaped; those between values mean nothing.
    let mut rest = text;
    while let Some((line, more)) = rest.split_once(['\n', '\r']) {
        marked.push_str(line);
        marked.push(' ');
        rest = more;
    }
    marked.push_str(rest);
    Some(Value::String(marked))
}

/// A message with its texts as JSON.
pub(crate) fn restored(message: Bytes) -> Bytes {
    if message.len() < LEAST {
        return message;
    }
    let mut restored = Vec::new();
    let mut rest: &[u8] = &message;
    while let Some((before, string)) = split_at_mark(rest) {
        let mut strings = serde_json::Deserializer::from_slice(string).into_iter::<String>();
        let Some(Ok(text)) = strings.next() else { break };
        let Some((_, after)) = string.split_at_checked(strings.byte_offset()) else { break };
        if restored.capacity() == 0 {
            restored.reserve_exact(message.len());
        }
        restored.extend_from_slice(before);
        restored.extend_from_slice(text.as_bytes().get(MARK.len()..).unwrap_or_default());
        rest = after;
    }
    if restored.capacity() == 0 {
        return message;
    }
    restored.extend_from_slice(rest);
    restored.into()
}

fn split_at_mark(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    bytes.split_at_checked(memchr::memmem::find(bytes, QUOTED.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sent(message: &Value) -> Bytes {
        restored(serde_json::to_vec(message).unwrap().into())
    }

    #[test]
    fn what_goes_through_is_what_it_was() {
        let long = "x\"\\\n\u{1}é".repeat(LEAST);
        for text in [
            "{\"a\": 1}".to_owned(),
            json!({ "a": long, "b": [1.50, null, {}] }).to_string(),
            format!("[{}1]", "1.50,\r\n ".repeat(LEAST)),
            json!(long).to_string(),
        ] {
            let message = json!({ "id": 1, "one": value(&text), "two": [value(&text)], "rest": "é" });
            let bytes = sent(&message);
            assert!(!bytes.contains(&b'\n') && !bytes.contains(&b'\r'), "one line");
            let own: Value = serde_json::from_str(&text).unwrap();
            let read: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(read, json!({ "id": 1, "one": own, "two": [own], "rest": "é" }));
        }
        let digits = format!("[{}1.50]", "1e400,".repeat(LEAST));
        assert!(
            sent(&json!({ "n": value(&digits) })).ends_with(b"1.50]}"),
            "numbers stay as they were written"
        );
    }

    #[test]
    fn what_has_no_mark_stays_as_it_is() {
        let message: Bytes = serde_json::to_vec(&json!({ "text": "y".repeat(2 * LEAST) })).unwrap().into();
        assert_eq!(restored(message.clone()), message);
        let broken: Bytes = format!("{} \"{}never ends{}", "z".repeat(LEAST), *MARK, "z".repeat(9)).into();
        assert_eq!(restored(broken.clone()), broken);
    }

    #[test]
    fn a_tree_is_not_made_of_a_large_text() {
        let text = format!("[{}1]", "{\"\":1},".repeat(LEAST));
        assert!(value(&text).unwrap().is_string());
        assert!(value("[1]").unwrap().is_array());
        assert_eq!(value("[1"), None);
    }
}
