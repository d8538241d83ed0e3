//! Removes encoded data from texts. A model cannot read it, and it costs a token for every two or three characters. The
//! option is off by default.
//!
//! | data | recognized as |
//! |---|---|
//! | a data URI | `data:` followed by URI characters, at least [`MIN_CHARS`] in total |
//! | hexadecimal | a run of at least [`MIN_CHARS`] digits |
//! | base64, both alphabets | a run of at least [`MIN_CHARS`] with digits and letters of both cases |
//!
//! A run may be broken into lines of at least 60 characters, as in certificates.

use std::borrow::Cow;

/// The shortest run that is removed, in characters.
pub const MIN_CHARS: usize = 200;
/// The shortest line after which a run can continue on the next line.
const MIN_LINE: usize = 60;
/// The start of a data URI.
const DATA: &[u8] = b"data:";

/// Replaces each run of encoded data by a note.
#[must_use]
pub fn strip(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut out = String::new();
    let (mut done, mut at) = (0, 0);
    while let Some(byte) = bytes.get(at) {
        if !is_digit(*byte) {
            at += 1;
            continue;
        }
        let rest = bytes.get(at..).unwrap_or_default();
        let run = scan_run(rest);
        let (length, what) = match data_uri_length(rest) {
            // The content of a shorter URI is not examined.
            Some(length) => (length, (length >= MIN_CHARS).then_some("a data URI")),
            None => (length_before_data_uri(rest, run.length), run.kind()),
        };
        if let Some(what) = what.filter(|_| length >= MIN_CHARS) {
            out.push_str(text.get(done..at).unwrap_or_default());
            out.push_str(&format!("[{what} of {length} characters]"));
            done = at + length;
        }
        at += length.max(1);
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(done..).unwrap_or_default());
    Cow::Owned(out)
}

/// A run of characters that can be digits of an encoding.
#[derive(Default)]
struct EncodedRun {
    length: usize,
    lower: bool,
    upper: bool,
    figure: bool,
    beyond_hex: bool,
}

impl EncodedRun {
    fn kind(&self) -> Option<&'static str> {
        match self {
            Self { length, .. } if *length < MIN_CHARS => None,
            Self { beyond_hex: false, .. } => Some("hexadecimal"),
            Self { lower: true, upper: true, figure: true, .. } => Some("base64"),
            _ => None,
        }
    }
}

fn is_digit(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=')
}

fn scan_run(bytes: &[u8]) -> EncodedRun {
    let (mut run, mut line) = (EncodedRun::default(), 0);
    let mut rest = bytes;
    loop {
        match rest {
            [byte, after @ ..] if is_digit(*byte) => {
                run.lower |= byte.is_ascii_lowercase();
                run.upper |= byte.is_ascii_uppercase();
                run.figure |= byte.is_ascii_digit();
                run.beyond_hex |= !byte.is_ascii_hexdigit();
                (line, rest) = (line + 1, after);
            }
            [b'\n', next, ..] | [b'\r', b'\n', next, ..] if line >= MIN_LINE && is_digit(*next) => {
                let skip = if rest.first() == Some(&b'\r') { 2 } else { 1 };
                (line, rest) = (0, rest.get(skip..).unwrap_or_default());
            }
            _ => break,
        }
    }
    run.length = bytes.len() - rest.len();
    run
}

/// The length of a data URI at the start of `bytes`.
fn data_uri_length(bytes: &[u8]) -> Option<usize> {
    if !bytes.get(..DATA.len())?.eq_ignore_ascii_case(DATA) {
        return None;
    }
    let ends =
        |byte: &u8| !byte.is_ascii_graphic() || matches!(byte, b'"' | b'\'' | b'<' | b'>' | b')' | b'`');
    Some(bytes.iter().position(ends).unwrap_or(bytes.len()))
}

/// The length of a run before a data URI that starts at its end, such as `xdata:`.
fn length_before_data_uri(bytes: &[u8], length: usize) -> usize {
    let word = DATA.len() - 1;
    let begins = length
        .checked_sub(word)
        .filter(|at| *at > 0 && data_uri_length(bytes.get(*at..).unwrap_or_default()).is_some());
    begins.unwrap_or(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_of_encoded_data_become_notes() {
        let hex = "0123456789abcdef".repeat(20);
        let base64 = "Qm9uam91ciEgQ29tbWVudCA5".repeat(20);
        let wrapped = (base64.as_bytes().chunks(76))
            .map(|line| std::str::from_utf8(line).unwrap())
            .collect::<Vec<_>>()
            .join("\r\n");
        for (text, expect) in [
            (format!("sum {hex}."), "sum [hexadecimal of 320 characters].".to_owned()),
            (format!("<{base64}>"), "<[base64 of 480 characters]>".to_owned()),
            (
                format!("-----BEGIN-----\n{wrapped}\n-----END-----"),
                format!("-----BEGIN-----\n[base64 of {} characters]\n-----END-----", wrapped.len()),
            ),
            (
                format!("![x](data:image/png;base64,{base64}) and 🙂"),
                "![x]([a data URI of 502 characters]) and 🙂".to_owned(),
            ),
            (format!("xdata:text/plain,{base64}"), "x[a data URI of 496 characters]".to_owned()),
        ] {
            assert_eq!(strip(&text), expect);
            assert_eq!(strip(&expect), expect, "a second pass changes nothing");
        }
        for kept in [
            hex[..199].to_owned(),
            "word ".repeat(100),
            "usr/lib/".repeat(40),
            "data:image/png;base64,iVBORw0KGgo=".to_owned(),
            "é".repeat(300),
            "line\n".repeat(100),
        ] {
            assert!(matches!(strip(&kept), Cow::Borrowed(_)), "{kept}");
        }
        assert_eq!(strip(&hex[..200]), "[hexadecimal of 200 characters]", "at the limit");
    }

    proptest! {
        #[test]
        fn a_text_never_grows(text in "(?s)([a-fA-F0-9]{0,300}|data:[a-z]{0,300}|.{0,20}){0,5}") {
            let out = strip(&text);
            prop_assert!(out.chars().count() <= text.chars().count());
            prop_assert_eq!(&strip(&out), &out);
        }
    }
}
