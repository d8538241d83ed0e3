//! Repairs the answer of a server that is not valid JSON in places where its meaning is clear. One odd value in one tool
//! of a list would otherwise cost the whole list.
//!
//! | in the answer | read as |
//! |---|---|
//! | a number that is not finite: `NaN`, `Infinity`, `-Infinity`, `nan`, `inf` | `null` |
//! | a raw control character in a string | the same character, escaped |
//! | bytes in a string that are not UTF-8 | U+FFFD |
//!
//! Only a whole object with the id of a request is repaired, and only if it is an answer before and after: never a request,
//! a notification, a batch, or an answer without an id. Brackets, quotes, commas and escapes stay as they are, so no text
//! becomes a member, and the strict parser that reads the repaired text refuses members that occur twice.

use std::fmt;

use super::bounds::MAX_MESSAGE_BYTES;
use super::message::{self, Envelope, ResponseId, RpcMessage, RpcResult};
use super::salvage;

/// Places of repairs that are remembered.
const MAX_PLACES: usize = 1_000;

/// What was repaired in an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Repair {
    /// Where, as positions in the text of the result.
    pub(crate) places: Vec<usize>,
    has_numbers: bool,
    has_controls: bool,
    has_bytes: bool,
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.has_numbers, "numbers such as NaN were read as null"),
            (self.has_controls, "raw control characters were escaped"),
            (self.has_bytes, "bytes that are not UTF-8 were replaced by U+FFFD"),
        ];
        let parts: Vec<_> = parts.iter().filter(|(is_there, _)| *is_there).map(|(_, what)| *what).collect();
        f.write_str(&parts.join(", "))
    }
}

/// The answer to a request, repaired.
#[derive(Debug)]
pub(crate) struct RepairedResponse {
    /// The id of the request.
    pub(crate) id: u64,
    pub(crate) result: RpcResult,
    pub(crate) repair: Repair,
}

impl RepairedResponse {
    /// Repairs text that is not a message. `None` if it is not an answer with the id of a request, or cannot be repaired.
    pub(crate) fn find(text: &[u8]) -> Option<Self> {
        let text = message::without_byte_order_mark(text).trim_ascii();
        let id = salvage::response_id(text)?.number()?;
        let (text, mut repair) = TextRepair::run(text)?;
        let envelope = Envelope::parse(&text)?;
        let start = envelope.result_text().map(|result| result.as_ptr().addr() - text.as_ptr().addr());
        let RpcMessage::Response { id: found, result } = envelope.into_message()? else { return None };
        repair.places = repair.places.iter().filter_map(|place| place.checked_sub(start?)).collect();
        (found == ResponseId::Number(id)).then_some(Self { id, result, repair })
    }
}

/// Writes the repaired text.
#[derive(Debug, Default)]
struct TextRepair {
    written: String,
    repair: Repair,
    is_quoted: bool,
    is_escaped: bool,
    /// Where the current number or word begins in the written text.
    word: Option<usize>,
}

impl TextRepair {
    /// Repairs a text. `None` if there is nothing to repair, or it cannot be repaired within the limit of a message.
    fn run(text: &[u8]) -> Option<(String, Repair)> {
        let mut state = Self::default();
        for chunk in text.utf8_chunks() {
            for character in chunk.valid().chars() {
                state.push(character)?;
            }
            if !chunk.invalid().is_empty() {
                if !state.is_quoted || state.is_escaped {
                    return None;
                }
                state.repair.has_bytes = true;
                state.note_place();
                state.written.push(char::REPLACEMENT_CHARACTER);
            }
            if state.written.len() > MAX_MESSAGE_BYTES {
                return None;
            }
        }
        let Repair { has_numbers, has_controls, has_bytes, .. } = state.repair;
        (has_numbers || has_controls || has_bytes).then_some((state.written, state.repair))
    }

    fn push(&mut self, character: char) -> Option<()> {
        if self.is_quoted {
            return self.push_quoted(character);
        }
        let ends_word = character.is_ascii_whitespace() || ",:{}[]\"".contains(character);
        match (ends_word, self.word) {
            (true, Some(start)) => {
                self.word = None;
                self.end_word(start);
            }
            (false, None) => self.word = Some(self.written.len()),
            (true, None) | (false, Some(_)) => {}
        }
        self.is_quoted = character == '"';
        self.written.push(character);
        Some(())
    }

    fn push_quoted(&mut self, character: char) -> Option<()> {
        let escaped = std::mem::take(&mut self.is_escaped);
        if character < ' ' {
            // Together with a backslash, the escape would mean something else.
            if escaped || self.written.len() > MAX_MESSAGE_BYTES {
                return None;
            }
            self.repair.has_controls = true;
            self.note_place();
            self.written.push_str(&format!("\\u{:04x}", u32::from(character)));
            return Some(());
        }
        match character {
            '\\' => self.is_escaped = !escaped,
            '"' => self.is_quoted = escaped,
            _ => {}
        }
        self.written.push(character);
        Some(())
    }

    /// Replaces the word from `start` if it is a number that is not finite.
    fn end_word(&mut self, start: usize) {
        let word = self.written.get(start..).unwrap_or_default();
        let name = word.strip_prefix(['-', '+']).unwrap_or(word);
        if ["nan", "inf", "infinity"].iter().any(|known| name.eq_ignore_ascii_case(known)) {
            self.written.truncate(start);
            self.repair.has_numbers = true;
            self.note_place();
            self.written.push_str("null");
        }
    }

    fn note_place(&mut self) {
        if self.repair.places.len() < MAX_PLACES {
            self.repair.places.push(self.written.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repaired(text: &[u8]) -> Option<(u64, String, Repair)> {
        let RepairedResponse { id, result, repair } = RepairedResponse::find(text)?;
        Some((id, result.map_or_else(|error| error.message, |raw| raw.get().to_owned()), repair))
    }

    #[test]
    fn odd_values_of_an_answer_are_repaired_in_place() {
        let around = |value: &[u8]| [br#"{"jsonrpc":"2.0","id":7,"result":{"a":"#, value, b"}}"].concat();
        for (value, read) in [
            (&b"NaN"[..], "null"),
            (b"[-Infinity, Infinity ,nan,-inf]", "[null, null ,null,null]"),
            (b"\"a\tb\x01\"", r#""a\u0009b\u0001""#),
            (b"\"caf\xe9\"", "\"caf\u{fffd}\""),
            (b"\"\xf0\x9f\"", "\"\u{fffd}\""),
            (b"[\"NaN \\\" NaN\",NaN]", r#"["NaN \" NaN",null]"#),
            (b"{\"NaN\":NaN}", r#"{"NaN":null}"#),
        ] {
            let (id, result, repair) = repaired(&around(value)).unwrap();
            assert_eq!((id, result), (7, format!(r#"{{"a":{read}}}"#)));
            assert!(!repair.to_string().is_empty() && repair.places.iter().all(|place| *place >= 5));
        }
        let (_, result, repair) = repaired(b"{\"id\":7,\"result\":[NaN,1,\"\xff\"]}").unwrap();
        assert_eq!((result.as_str(), repair.places), ("[null,1,\"\u{fffd}\"]", vec![1, 9]));
        let (_, message, _) =
            repaired(b"\xef\xbb\xbf{\"id\":7,\"error\":{\"code\":1,\"message\":\"a\tb\"}}\r").unwrap();
        assert_eq!(message, "a\tb");
    }

    #[test]
    fn only_an_answer_with_a_clear_id_is_repaired() {
        for text in [
            // Requests, notifications, batches, other texts.
            &br#"{"jsonrpc":"2.0","id":7,"method":"x","params":NaN}"#[..],
            br#"{"jsonrpc":"2.0","method":"x","params":NaN}"#,
            br#"{"id":7,"\u006dethod":"x","result":NaN}"#,
            br#"[{"id":7,"result":NaN}]"#,
            br#"{"level":"info","took":NaN,"id":7}"#,
            br#"{"id":7,"result":NaN} {"id":8,"result":1}"#,
            br#"{"id":7,"result":[NaN"#,
            // Ids that are unclear.
            br#"{"id":NaN,"result":NaN}"#,
            br#"{"result":NaN}"#,
            br#"{"id":7,"id":8,"result":NaN}"#,
            br#"{"id":7,"\u0069d":8,"result":NaN}"#,
            b"{\"id\":\"7\xff\",\"result\":1}",
            b"{\"id\":\"7\t\",\"result\":1}",
            // Members that occur twice.
            br#"{"id":7,"result":NaN,"result":1}"#,
            br#"{"id":7,"result":NaN,"r\u0065sult":1}"#,
            br#"{"id":7,"error":{"code":NaN,"code":2}}"#,
            // What a repair would have to guess.
            br#"{"id":7,"result":undefined}"#,
            br#"{"id":7,"result":NaNs}"#,
            br#"{"id":7,"result":1 NaN}"#,
            b"{\"id\":7,\"result\":\xff}",
            b"{\"id\":7,\"result\":\"\\\t\"}",
            b"{\"id\":7,\"result\":\"\\\xff\"}",
            br#"{"id":7,"result":1}"#,
        ] {
            assert!(repaired(text).is_none(), "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn a_repaired_answer_is_as_bounded_as_any_other() {
        let many = |count: usize| [br#"{"id":7,"result":""#, &vec![1; count][..], b"\"}"].concat();
        assert_eq!(repaired(&many(2_000)).unwrap().2.places.len(), MAX_PLACES);
        assert!(repaired(&many(MAX_MESSAGE_BYTES / 6)).is_none());
        let bytes = [br#"{"id":7,"result":""#, &vec![0xff; MAX_MESSAGE_BYTES / 3][..], b"\"}"].concat();
        assert!(repaired(&bytes).is_none());
    }
}
