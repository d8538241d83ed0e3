//! Converts bytes to text: UTF-8, and the web's Latin-1. The WHATWG encoding standard reads `iso-8859-1`, `ascii` and
//! similar labels as windows-1252.

/// The number of bytes that are searched for `<meta charset>`, as in browsers.
const PRESCAN_BYTES: usize = 1024;

/// The characters 0x80 to 0x9F.
const WINDOWS_1252: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', '\u{90}',
    '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

/// Returns the text of a body. In an unknown encoding, invalid UTF-8 is replaced.
pub(crate) fn decode(body: &[u8], content_type: &str) -> String {
    if let Some(body) = body.strip_prefix(b"\xef\xbb\xbf") {
        return String::from_utf8_lossy(body).into_owned();
    }
    let head = String::from_utf8_lossy(body.get(..PRESCAN_BYTES).unwrap_or(body));
    let label = label(content_type).or_else(|| label(&head)).unwrap_or_default();
    if is_latin(&label) {
        body.iter().map(|byte| latin(*byte)).collect()
    } else {
        String::from_utf8_lossy(body).into_owned()
    }
}

/// The value after `charset=`.
fn label(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let (_, rest) = lower.split_once("charset")?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start().trim_start_matches(['"', '\'']);
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "-_:.".contains(c))).unwrap_or(rest.len());
    rest.get(..end).map(str::to_owned)
}

fn is_latin(label: &str) -> bool {
    matches!(
        label,
        "iso-8859-1"
            | "iso8859-1"
            | "iso_8859-1"
            | "latin1"
            | "l1"
            | "ascii"
            | "us-ascii"
            | "windows-1252"
            | "cp1252"
    )
}

fn latin(byte: u8) -> char {
    match byte {
        0x80..=0x9f => WINDOWS_1252.get(usize::from(byte - 0x80)).copied().unwrap_or('\u{fffd}'),
        other => char::from(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_text() {
        for (body, content_type, text) in [
            ("ä€".as_bytes(), "text/html; charset=utf-8", "ä€"),
            ("ä€".as_bytes(), "text/html", "ä€"),
            (b"\xe4 \x80\x99", "text/html; charset=ISO-8859-1", "ä €™"),
            (b"\xe4", "text/plain;charset=\"windows-1252\"", "ä"),
            (b"<meta charset=latin1>\xe4", "text/html", "<meta charset=latin1>ä"),
            (b"<meta charset=latin1>\xc3\xa4", "text/html; charset=utf-8", "<meta charset=latin1>ä"),
            (b"\xef\xbb\xbf\xc3\xa4", "text/html; charset=latin1", "ä"),
            (b"a\xff", "text/plain; charset=koi8-r", "a\u{fffd}"),
            (b"", "", ""),
        ] {
            assert_eq!(decode(body, content_type), text, "{body:?} {content_type}");
        }
    }
}
