//! The text of an answer, by its charset.
//!
//! The labels are those of the Encoding Standard (section 4.2). A byte order mark wins over a label, and JSON is UTF-8
//! (RFC 8259, section 8.1), whatever its field says. Bytes that are no text are never guessed at: the caller passes them
//! on as they are.

use encoding_rs::{DecoderResult, Encoding, UTF_8};
use toolbay_policy::excerpt::one_line;

use crate::document_text::UTF_32_LE_MARK;

/// The bytes in which a document names its own encoding (HTML Standard, section 13.2.3.2).
const MAX_PRESCAN: usize = 1024;
/// The longest label, in bytes. Those of the standard are shorter.
const MAX_LABEL: usize = 40;

/// The byte order mark of UTF-32 whose bytes are in the other order.
const UTF_32_BE_MARK: &[u8] = b"\0\0\xfe\xff";

/// A body and what its fields say about it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncodedText<'a> {
    pub(crate) body: &'a [u8],
    /// The media type in lower case.
    pub(crate) media: &'a str,
    /// The value of `Content-Type`.
    pub(crate) content_type: &'a str,
    /// Whether the end is missing.
    pub(crate) truncated: bool,
}

/// A decoded text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DecodedText {
    pub(crate) text: String,
    /// A label that is not known. The text has only characters that are the same in all charsets.
    pub(crate) unknown_charset: Option<String>,
}

/// The reason why bytes are no text. It names the charset.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UndecodableText(String);

impl EncodedText<'_> {
    /// Decodes the body.
    ///
    /// # Errors
    /// Fails if the charset is unknown, or the bytes are not text in it.
    pub(crate) fn decode(self) -> Result<DecodedText, UndecodableText> {
        let known = |text| Ok(DecodedText { text, unknown_charset: None });
        // Its mark begins like that of UTF-16. The standard has no UTF-32.
        if self.body.starts_with(UTF_32_LE_MARK) || self.body.starts_with(UTF_32_BE_MARK) {
            return Err(UndecodableText("its charset `utf-32` is not known".to_owned()));
        }
        if let Some((encoding, mark)) = Encoding::for_bom(self.body) {
            let body = self.body.get(mark..).unwrap_or_default();
            return Self { body, ..self }.decode_as(encoding, encoding.name()).and_then(known);
        }
        let label = charset_label(self.content_type);
        let Some(label) = label else { return self.decode_unlabelled().and_then(known) };
        match encoding_for(&label) {
            Some(encoding) if is_json(self.media) => {
                // Some services label UTF-8 wrongly, and some write JSON in another charset.
                let text = self.decode_as(UTF_8, &label).or_else(|_| self.decode_as(encoding, &label));
                text.and_then(known)
            }
            Some(encoding) => self.decode_as(encoding, &label).and_then(known),
            None => {
                // A NUL is part of a wider character.
                let is_same = |text: &&str| (text.is_ascii() || is_json(self.media)) && !text.contains('\0');
                let text = std::str::from_utf8(self.body).ok().filter(is_same);
                let text =
                    text.ok_or_else(|| UndecodableText(format!("its charset `{label}` is not known")))?;
                Ok(DecodedText { text: text.to_owned(), unknown_charset: Some(label) })
            }
        }
    }

    /// Decodes a body whose field names no charset: UTF-8, or what an XML or HTML document says of itself.
    fn decode_unlabelled(self) -> Result<String, UndecodableText> {
        let utf_8 = self.decode_as(UTF_8, "utf-8");
        if utf_8.is_ok() || !(self.media.ends_with("xml") || self.media == "text/html") {
            return utf_8;
        }
        let start = self.body.get(..MAX_PRESCAN.min(self.body.len())).unwrap_or_default();
        let start = String::from_utf8_lossy(start).to_ascii_lowercase();
        let name = if self.media == "text/html" { "charset=" } else { "encoding=" };
        let Some(label) = start.split_once(name).and_then(|(_, rest)| label(rest)) else { return utf_8 };
        match encoding_for(&label) {
            Some(encoding) => self.decode_as(encoding, &label),
            None => Err(UndecodableText(format!("its charset `{label}` is not known"))),
        }
    }

    fn decode_as(self, encoding: &'static Encoding, label: &str) -> Result<String, UndecodableText> {
        if let (Ok(text), true) = (std::str::from_utf8(self.body), encoding == UTF_8) {
            return Ok(text.to_owned());
        }
        let mut decoder = encoding.new_decoder_without_bom_handling();
        let room = decoder.max_utf8_buffer_length_without_replacement(self.body.len());
        let mut text = String::with_capacity(room.unwrap_or_default());
        // A body that was cut may end within a character.
        let last = !self.truncated;
        let (result, _) = decoder.decode_to_string_without_replacement(self.body, &mut text, last);
        text.shrink_to_fit();
        match result {
            DecoderResult::InputEmpty => Ok(text),
            DecoderResult::OutputFull | DecoderResult::Malformed(..) => {
                Err(UndecodableText(format!("they are not in the charset `{label}`")))
            }
        }
    }
}

/// The encoding of a label, with some labels that are not in the standard and leave no doubt.
fn encoding_for(label: &str) -> Option<&'static Encoding> {
    let plain = match label {
        "utf8mb4" | "utf_8" | "utf-8-sig" | "cp65001" => "utf-8",
        "latin-1" => "latin1",
        other => other,
    };
    Encoding::for_label(plain.as_bytes())
}

/// The charset of a `Content-Type`, in lower case.
fn charset_label(content_type: &str) -> Option<String> {
    let lower = content_type.to_ascii_lowercase();
    let parameters = lower.split(';').skip(1).filter_map(|part| part.split_once('='));
    parameters.into_iter().find(|(name, _)| name.trim() == "charset").and_then(|(_, value)| label(value))
}

/// The label at the beginning of a text, quoted or not.
fn label(text: &str) -> Option<String> {
    let text = text.trim_start().trim_start_matches(['"', '\'']);
    let end = text.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ';' | '>' | '?' | '/' | ','));
    let label = one_line(text.get(..end.unwrap_or(text.len())).unwrap_or_default(), MAX_LABEL);
    (!label.is_empty()).then_some(label)
}

/// Whether a media type is JSON.
pub(crate) fn is_json(media: &str) -> bool {
    media == "application/json" || media.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(body: &[u8], content_type: &str, truncated: bool) -> Result<String, String> {
        let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let encoded = EncodedText { body, media: &media, content_type, truncated };
        match encoded.decode() {
            Ok(DecodedText { text, unknown_charset: None }) => Ok(text),
            Ok(DecodedText { text, unknown_charset: Some(label) }) => Ok(format!("{text} ({label})")),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_text_is_decoded_by_its_charset() {
        let gbk = b"\xc4\xe3\xba\xc3";
        let xml = b"<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>\xfc</a>";
        for (body, content_type, text) in [
            (&gbk[..], "text/plain; charset=GBK", "你好"),
            (gbk, "text/plain;Charset=\"gb2312\"", "你好"),
            (b"\x82\xb1\x82\xf1", "text/html; charset=Shift_JIS", "こん"),
            (b"5 \x80", "text/csv; charset=windows-1252", "5 €"),
            (b"gr\xfcn", "text/html; a=b; charset = 'ISO-8859-1'", "grün"),
            (b"gr\xfcn", "text/html; charset=latin-1", "grün"),
            ("ü".as_bytes(), "text/plain; charset=utf8mb4", "ü"),
            (b"\xef\xbb\xbf\xc3\xbc", "text/plain; charset=iso-8859-1", "ü"),
            (b"\xff\xfea\0b\0", "text/plain", "ab"),
            (b"\xfe\xff\0a\0b", "application/json", "ab"),
            (b"\xc3\xbc", "application/json; charset=iso-8859-1", "ü"),
            (b"\xfc", "application/json; charset=iso-8859-1", "ü"),
            (b"\xc3\xbc", "application/json; charset=x-odd", "ü (x-odd)"),
            (xml, "application/xml", "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>ü</a>"),
            (b"<meta charset=windows-1252>\x80", "text/html", "<meta charset=windows-1252>€"),
            (b"plain", "text/plain; charset=x-odd", "plain (x-odd)"),
            (b"plain", "text/plain; charset=", "plain"),
            (b"", "text/plain; charset=gbk", ""),
        ] {
            assert_eq!(decode(body, content_type, false).as_deref(), Ok(text), "{content_type}");
        }
    }

    #[test]
    fn what_cannot_be_decoded_is_named() {
        for (body, content_type, part) in [
            (&b"a\xff"[..], "text/csv", "`utf-8`"),
            (b"a\xff", "text/csv; charset=utf-8", "`utf-8`"),
            (b"a\xff", "text/csv; charset=gbk", "`gbk`"),
            (b"\xc8\x85", "text/plain; charset=IBM037", "`ibm037` is not known"),
            (b"\xc3\xbc", "text/plain; charset=x-odd", "`x-odd` is not known"),
            // The standard decodes these never.
            (b"abc", "text/plain; charset=hz-gb-2312", "`hz-gb-2312`"),
            (b"<?xml encoding='x-odd'?>\xff", "text/xml", "`x-odd` is not known"),
            (b"\xff", "application/json", "`utf-8`"),
            (b"a\0\0\0b\0\0\0", "text/plain; charset=utf-32", "`utf-32` is not known"),
            (b"\0\0\0a", "text/plain; charset=UTF-32BE", "`utf-32be` is not known"),
            (b"\xff\xfe\0\0a\0\0\0", "text/plain; charset=utf-32", "`utf-32` is not known"),
            (b"\0\0\xfe\xff\0\0\0a", "text/plain", "`utf-32` is not known"),
            (b"{\0\0\0}\0\0\0", "application/json; charset=utf-32le", "`utf-32le` is not known"),
            (b"a\0", "text/plain; charset=ucs-2be", "`ucs-2be` is not known"),
        ] {
            let error = decode(body, content_type, false).unwrap_err();
            assert!(error.contains(part), "{content_type}: {error}");
        }
        let long = format!("text/plain; charset={}", "x".repeat(10_000));
        assert!(decode(b"\xff", &long, false).unwrap_err().len() < 200);
    }

    #[test]
    fn a_cut_body_may_end_within_a_character() {
        let text = "aü".as_bytes();
        assert_eq!(decode(&text[..2], "text/plain", true).as_deref(), Ok("a"));
        assert!(decode(&text[..2], "text/plain", false).is_err());
        assert_eq!(decode(b"\xc4\xe3\xba", "text/plain; charset=gbk", true).as_deref(), Ok("你"));
        assert!(decode(b"\xff\xc3", "text/plain", true).is_err());
    }
}
