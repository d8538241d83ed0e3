//! A cursor in a JSON text. The host sends valid JSON only. For any other text the reader returns an error and never panics.

use std::borrow::Cow;

use crate::{Error, Result};

/// Characters of a value that a message shows.
const SHOWN: usize = 40;

/// Reads JSON values, one after another.
#[derive(Debug, Clone)]
pub struct JsonReader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> JsonReader<'a> {
    /// Starts at the beginning of a text.
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the first byte of the next value; `None` at the end.
    pub fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.byte() {
            self.at += 1;
        }
        self.byte()
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Consumes a byte if it comes next.
    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        if there {
            self.at += 1;
        }
        there
    }

    /// Returns the error for a value of an unexpected type.
    pub fn expected(&self, what: &str) -> Error {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let value = Self::new(rest).value().unwrap_or(rest);
        let shown: String = value.chars().take(SHOWN).collect();
        let more = if shown.len() < value.len() { "…" } else { "" };
        Error::input(format!("invalid value: `{shown}{more}`, expected {what}"))
    }

    /// Returns the text of the next value of any type.
    pub fn value(&mut self) -> Result<&'a str> {
        self.peek();
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            match self.peek() {
                Some(b'"') => drop(self.skip_string()?),
                Some(b'{' | b'[') => {
                    depth += 1;
                    self.at += 1;
                    continue;
                }
                Some(b'}' | b']') if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                Some(b',' | b':') if depth > 0 => {
                    self.at += 1;
                    continue;
                }
                Some(_) => self.skip_word()?,
                None => return Err(self.broken()),
            }
            if depth == 0 {
                return self.text.get(start..self.at).ok_or_else(|| self.broken());
            }
        }
    }

    /// Consumes `null` if it comes next.
    pub fn null(&mut self) -> bool {
        let there = self.peek() == Some(b'n') && self.clone().value().is_ok_and(|value| value == "null");
        if there {
            self.at += "null".len();
        }
        there
    }

    /// Reads a number as it is written.
    pub fn number(&mut self, what: &str) -> Result<&'a str> {
        match self.peek() {
            Some(b'-' | b'0'..=b'9') => self.value(),
            _ => Err(self.expected(what)),
        }
    }

    /// Reads a string.
    pub fn string(&mut self) -> Result<String> {
        self.text().map(Cow::into_owned)
    }

    /// Reads a string, and copies it only if it contains an escape.
    fn text(&mut self) -> Result<Cow<'a, str>> {
        if self.peek() != Some(b'"') {
            return Err(self.expected("a string"));
        }
        let start = self.at + 1;
        let plain = self.skip_string()?;
        let inner = self.text.get(start..self.at - 1).unwrap_or_default();
        if plain {
            return Ok(Cow::Borrowed(inner));
        }
        unescaped(inner).map(Cow::Owned).ok_or_else(|| self.broken())
    }

    /// Reads an array, element by element.
    pub fn array(&mut self, element: &mut dyn FnMut(usize, &mut Self) -> Result<()>) -> Result<()> {
        if !self.take(b'[') {
            return Err(self.expected("an array"));
        }
        if self.take(b']') {
            return Ok(());
        }
        for index in 0.. {
            element(index, self).map_err(|error| error.below(&index.to_string()))?;
            if self.take(b']') {
                break;
            }
            if !self.take(b',') {
                return Err(self.broken());
            }
        }
        Ok(())
    }

    /// Reads an object, member by member: the function gets the key and reads the value.
    pub fn object(&mut self, member: &mut dyn FnMut(&str, &mut Self) -> Result<()>) -> Result<()> {
        if !self.take(b'{') {
            return Err(self.expected("an object"));
        }
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            let key = self.text()?;
            if !self.take(b':') {
                return Err(self.broken());
            }
            member(&key, self)?;
            if self.take(b'}') {
                return Ok(());
            }
            if !self.take(b',') {
                return Err(self.broken());
            }
        }
    }

    /// Whether a string contains no escape.
    fn skip_string(&mut self) -> Result<bool> {
        let (bytes, mut at, mut plain) = (self.text.as_bytes(), self.at + 1, true);
        while let Some(byte) = bytes.get(at) {
            at += 1;
            match byte {
                b'"' => {
                    self.at = at;
                    return Ok(plain);
                }
                b'\\' => (at, plain) = (at + 1, false),
                _ => {}
            }
        }
        Err(self.broken())
    }

    /// A number, `true`, `false` or `null`.
    fn skip_word(&mut self) -> Result<()> {
        let start = self.at;
        while let Some(b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'+' | b'.') = self.byte() {
            self.at += 1;
        }
        if self.at == start { Err(self.broken()) } else { Ok(()) }
    }

    fn broken(&self) -> Error {
        Error::input(format!("this is not JSON, at byte {}", self.at))
    }
}

/// The text between two quotes.
fn unescaped(inner: &str) -> Option<String> {
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some((plain, escaped)) = rest.split_once('\\') {
        text.push_str(plain);
        let mut chars = escaped.chars();
        text.push(match chars.next()? {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' => code_point(&mut chars)?,
            same @ ('"' | '\\' | '/') => same,
            _ => return None,
        });
        rest = chars.as_str();
    }
    text.push_str(rest);
    Some(text)
}

/// Reads what follows `\u`: four digits, or a surrogate pair. Half of a pair is not a character.
fn code_point(chars: &mut std::str::Chars<'_>) -> Option<char> {
    let first = four_digits(chars)?;
    if !(0xD800..0xDC00).contains(&first) {
        return Some(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    let mut ahead = chars.clone();
    let second = match (ahead.next(), ahead.next()) {
        (Some('\\'), Some('u')) => four_digits(&mut ahead)?,
        _ => 0,
    };
    if !(0xDC00..0xE000).contains(&second) {
        return Some(char::REPLACEMENT_CHARACTER);
    }
    *chars = ahead;
    char::from_u32(0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00))
}

fn four_digits(chars: &mut std::str::Chars<'_>) -> Option<u32> {
    let mut number = 0;
    for _ in 0..4 {
        number = number * 16 + chars.next()?.to_digit(16)?;
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_serde_reads_them() {
        let texts =
            ["", "a", "ü\u{1F600}", "\"\\/\n\r\t\u{8}\u{c}\u{0}\u{1f}", "a\\\\b", "\u{2028}", "\\u0041"];
        for text in texts {
            let json = serde_json::to_string(text).unwrap();
            assert_eq!(JsonReader::new(&json).string().unwrap(), text);
        }
        for (json, text) in [
            (r#""\u0041\u00fc\u20AC""#, "Aü€"),
            (r#""\ud83d\ude00\/""#, "\u{1F600}/"),
            (r#""\ud83d""#, "\u{fffd}"),
            (r#""\ud83dx\ude00""#, "\u{fffd}x\u{fffd}"),
        ] {
            assert_eq!(JsonReader::new(json).string().unwrap(), text, "{json}");
        }
    }

    #[test]
    fn a_value_ends_where_it_ends() {
        for (json, value) in [
            (
                " {\"a\": [1, {\"b\": \"}]\\\"\"}], \"c\": null} x",
                "{\"a\": [1, {\"b\": \"}]\\\"\"}], \"c\": null}",
            ),
            ("[[], {}]]", "[[], {}]"),
            ("-1.5e+3,", "-1.5e+3"),
            ("true}", "true"),
            ("\"a\" \"b\"", "\"a\""),
        ] {
            assert_eq!(JsonReader::new(json).value().unwrap(), value);
        }
    }

    #[test]
    fn nothing_but_an_error_comes_of_what_is_no_json() {
        for json in [
            "",
            " ",
            "{",
            "[1",
            "\"",
            "\"\\",
            "{\"a\"",
            "{\"a\":",
            "{1:2}",
            "]",
            ",",
            "\"\\x\"",
            "\"\\u12\"",
            "\"é\\",
        ] {
            let mut reader = JsonReader::new(json);
            let read = reader.object(&mut |_, json| json.value().map(drop));
            assert!(read.is_err(), "{json}");
            assert!(JsonReader::new(json).string().is_err(), "{json}");
            assert!(JsonReader::new(json).array(&mut |_, json| json.value().map(drop)).is_err(), "{json}");
        }
        let deep = "[".repeat(1_000_000);
        assert!(JsonReader::new(&deep).value().is_err());
    }
}
