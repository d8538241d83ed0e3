//! Repairs the values of a JSON text that its grammar does not have (RFC 8259): half of a surrogate pair, a number
//! without a finite value, an unknown escape, a control character. Each costs itself, not the document.

use crate::document_notes::DocumentNotes;

/// The replacement of a character that is lost.
const REPLACEMENT: &str = "\\ufffd";

/// The same text with values that JSON has. `None` if there is nothing to repair. The work grows with the text.
pub(crate) fn repair_json(text: &str, notes: &mut DocumentNotes) -> Option<String> {
    let mut repair = Repair { text, out: String::new(), copied: 0, notes };
    let mut at = 0;
    while let Some(byte) = repair.byte(at) {
        at = match byte {
            b'"' => repair.string(at + 1),
            b'{' | b'}' | b'[' | b']' | b':' | b',' => at + 1,
            _ if byte.is_ascii_whitespace() => at + 1,
            _ => repair.token(at),
        };
    }
    repair.finish()
}

/// The same YAML text with its surrogate escapes as characters. `None` if it has none. Only a double-quoted text has
/// escapes, so this is for a text that could not be read.
pub(crate) fn repair_yaml(text: &str, notes: &mut DocumentNotes) -> Option<String> {
    let mut repair = Repair { text, out: String::new(), copied: 0, notes };
    let mut at = 0;
    while let Some(found) = repair.text.get(at..).and_then(|rest| rest.find('\\')) {
        at += found;
        let character = repair.surrogates(at).and_then(|pair| char::decode_utf16(pair).next()?.ok());
        at = match (character, repair.code_unit(at)) {
            (Some(character), _) => {
                repair.replace(at..at + 12, &character.to_string(), None);
                at + 12
            }
            (None, Some(0xd800..0xe000)) => repair.lone_surrogate(at),
            // Another escape, such as an escaped backslash.
            _ => {
                at + 1
                    + repair.text.get(at + 1..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8)
            }
        };
    }
    repair.finish()
}

struct Repair<'a> {
    text: &'a str,
    out: String,
    /// How much of the text `out` has.
    copied: usize,
    notes: &'a mut DocumentNotes,
}

impl Repair<'_> {
    fn byte(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    /// Reads a text after its quote. Returns where it ends.
    fn string(&mut self, mut at: usize) -> usize {
        while let Some(byte) = self.byte(at) {
            at = match byte {
                b'"' => return at + 1,
                b'\\' => self.escape(at),
                0..0x20 => {
                    self.replace(at..at + 1, &format!("\\u{byte:04x}"), None);
                    at + 1
                }
                _ => at + 1,
            };
        }
        at
    }

    /// Reads an escape. Returns where it ends.
    fn escape(&mut self, at: usize) -> usize {
        match self.byte(at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => at + 2,
            Some(b'u') => match self.code_unit(at) {
                Some(0xd800..0xdc00) if self.surrogates(at).is_some() => at + 12,
                Some(0xd800..0xe000) => self.lone_surrogate(at),
                Some(_) => at + 6,
                None => self.backslash(at),
            },
            Some(_) => self.backslash(at),
            None => at + 1,
        }
    }

    fn lone_surrogate(&mut self, at: usize) -> usize {
        self.replace(at..at + 6, REPLACEMENT, Some("half of a character is replaced by U+FFFD"));
        at + 6
    }

    /// A backslash that begins no escape is a character.
    fn backslash(&mut self, at: usize) -> usize {
        self.replace(at..at + 1, "\\\\", Some("a backslash begins no escape and is read as a character"));
        at + 1
    }

    /// The code unit of an escape `\uXXXX`.
    fn code_unit(&self, at: usize) -> Option<u16> {
        let digits = self.text.get(at..at + 6)?.strip_prefix("\\u")?;
        digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u16::from_str_radix(digits, 16).ok()).flatten()
    }

    /// The code units of two escapes that are a surrogate pair.
    fn surrogates(&self, at: usize) -> Option<[u16; 2]> {
        let pair = [self.code_unit(at)?, self.code_unit(at + 6)?];
        matches!(pair, [0xd800..0xdc00, 0xdc00..0xe000]).then_some(pair)
    }

    /// Reads a number or a word. Returns where it ends.
    fn token(&mut self, at: usize) -> usize {
        let rest = self.text.get(at..).unwrap_or_default();
        let ends = |c: char| c.is_whitespace() || matches!(c, '{' | '}' | '[' | ']' | ':' | ',' | '"');
        let token = rest.split(ends).next().unwrap_or_default();
        // A character that ends a token and is none of JSON.
        let end = at + token.len().max(rest.chars().next().map_or(1, char::len_utf8));
        let is_word = matches!(token, "true" | "false" | "null");
        if !token.is_empty() && !is_word && serde_json::from_str::<serde_json::Number>(token).is_err() {
            let shown = toolbay_policy::excerpt::one_line(token, 40);
            self.replace(
                at..end,
                "null",
                Some(&format!("`{shown}` cannot be read as a value and is left out")),
            );
        }
        end
    }

    fn replace(&mut self, range: std::ops::Range<usize>, with: &str, why: Option<&str>) {
        if let Some(why) = why {
            let before = self.text.get(..range.start).unwrap_or_default();
            self.notes.add_with(why, || {
                let line = before.matches('\n').count() + 1;
                let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
                format!("line {line}, column {column}")
            });
        }
        self.out.push_str(self.text.get(self.copied..range.start).unwrap_or_default());
        self.out.push_str(with);
        self.copied = range.end;
    }

    fn finish(mut self) -> Option<String> {
        if self.copied == 0 {
            return None;
        }
        self.out.push_str(self.text.get(self.copied..).unwrap_or_default());
        Some(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repaired(text: &str) -> (Option<String>, Vec<String>) {
        let mut notes = DocumentNotes::default();
        let out = repair_json(text, &mut notes);
        (out, notes.into_lines().into_iter().map(|note| format!("{}: {}", note.place, note.text)).collect())
    }

    #[test]
    fn a_value_that_json_does_not_have_costs_itself() {
        for (text, out, notes) in [
            (r#"{"a": "x\ud83d"}"#, r#"{"a": "x\ufffd"}"#, 1),
            (r#"{"a": "\udc00\ud83d\ude00\ud83dx"}"#, r#"{"a": "\ufffd\ud83d\ude00\ufffdx"}"#, 2),
            (r#"{"a": "\ud83d\ud83d\ude00"}"#, r#"{"a": "\ufffd\ud83d\ude00"}"#, 1),
            (
                r#"{"a": [1e400, -1e400, NaN, -Infinity, 01, .5, 7]}"#,
                r#"{"a": [null, null, null, null, null, null, 7]}"#,
                6,
            ),
            (r#"{"a": "\d+\u12"}"#, r#"{"a": "\\d+\\u12"}"#, 2),
            ("{\"a\": \"x\ty\"}", r#"{"a": "x\u0009y"}"#, 0),
        ] {
            let (found, lines) = repaired(text);
            assert_eq!((found.as_deref(), lines.len()), (Some(out), notes), "{text}: {lines:?}");
            assert!(serde_json::from_str::<serde_json::Value>(out).is_ok(), "{out}");
        }
        assert_eq!(
            repaired("{\n \"é\": NaN}").1,
            ["line 2, column 7: `NaN` cannot be read as a value and is left out"]
        );
        // What is inside a text, and a text of JSON, stay.
        for text in
            [r#"{"a": "NaN \\ud83d \" 1e400", "b": [true, -1.5e3, null]}"#, "{", "\"", "\"\\", "{\"\\u", ""]
        {
            assert!(
                repaired(text).0.is_none_or(|out| out.starts_with("\"\\\\") || out.starts_with("{\"\\\\")),
                "{text}"
            );
        }
    }

    #[test]
    fn the_notes_are_bounded() {
        let text = format!("[{}1]", "NaN,".repeat(10_000));
        let (out, notes) = repaired(&text);
        assert!(out.unwrap().starts_with("[null,null") && notes.len() < 50, "{}", notes.len());
        assert!(notes.last().unwrap().contains("more"), "{notes:?}");
    }

    #[test]
    fn surrogates_of_yaml_are_characters() {
        let mut notes = DocumentNotes::default();
        let text = repair_yaml(r#"a: "\ud83d\ude00 \ud83d \\ud83d \n""#, &mut notes);
        assert_eq!(text.as_deref(), Some("a: \"\u{1f600} \\ufffd \\\\ud83d \\n\""));
        assert_eq!(notes.into_lines().len(), 1);
    }
}
