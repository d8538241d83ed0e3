//! Reads foreign base64, in every form that stands for exactly one sequence of bytes.
//!
//! | form | source |
//! |---|---|
//! | both alphabets, with and without padding | RFC 4648, sections 4 and 5 |
//! | line breaks and blanks between the digits | RFC 2045, section 6.8 |
//! | a prefix `data:TYPE;base64,` | RFC 2397 |

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode_str;

const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);
const DATA: &str = "data:";

/// Decoded data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedData {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The media type of a data URI.
    pub mime_type: Option<String>,
}

/// Decodes a text. `None` if it is not clear which bytes it means.
#[must_use]
pub fn decode(text: &str) -> Option<DecodedData> {
    let text = text.trim();
    let is_uri = text.get(..DATA.len()).is_some_and(|start| start.eq_ignore_ascii_case(DATA));
    let Some(uri) = text.get(DATA.len()..).filter(|_| is_uri) else {
        return Some(DecodedData { bytes: decode_digits(text.as_bytes())?, mime_type: None });
    };
    let (head, data) = uri.split_once(',')?;
    let (mime_type, is_base64) = match head.rsplit_once(';') {
        Some((kind, word)) if word.trim().eq_ignore_ascii_case("base64") => (kind, true),
        _ => (head, head.eq_ignore_ascii_case("base64")),
    };
    let data: Vec<u8> = percent_decode_str(data).collect();
    let bytes = if is_base64 { decode_digits(&data)? } else { data };
    let mime_type = Some(mime_type.trim()).filter(|kind| kind.contains('/')).map(str::to_owned);
    Some(DecodedData { bytes, mime_type })
}

fn decode_digits(text: &[u8]) -> Option<Vec<u8>> {
    let standard = |byte: &u8| match byte {
        b'-' => b'+',
        b'_' => b'/',
        other => *other,
    };
    let digits: Vec<u8> = text.iter().filter(|byte| !byte.is_ascii_whitespace()).map(standard).collect();
    ENGINE.decode(digits).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_clear_form_is_decoded() {
        let png = [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a];
        for (text, bytes, mime_type) in [
            ("iVBORw0KGgo=", &png[..], None),
            ("iVBORw0KGgo", &png, None),
            ("iVBORw0K\nGgo=\n", &png, None),
            (" iVBO\r\n\tRw0KGgo= ", &png, None),
            ("data:image/png;base64,iVBORw0KGgo=", &png, Some("image/png")),
            ("DATA:image/png;charset=x;Base64,iVBORw0KGgo%3D", &png, Some("image/png;charset=x")),
            ("data:;base64,iVBORw0KGgo=", &png, None),
            ("data:image/svg+xml,%3Csvg%2F%3E", b"<svg/>", Some("image/svg+xml")),
            ("-_-_", &[0xfb, 0xff, 0xbf], None),
            ("+/+/", &[0xfb, 0xff, 0xbf], None),
            ("", &[], None),
        ] {
            let expect = DecodedData { bytes: bytes.to_vec(), mime_type: mime_type.map(str::to_owned) };
            assert_eq!(decode(text), Some(expect), "{text}");
        }
        for unclear in ["not base64!", "a", "data:image/png", "iVBO=Rw0K", "é"] {
            assert_eq!(decode(unclear), None, "{unclear}");
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
            for text in [STANDARD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)] {
                prop_assert_eq!(decode(&text).map(|data| data.bytes), Some(bytes.clone()));
            }
        }
    }
}
