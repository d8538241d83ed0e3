//! Encodings in which the writer chooses what to encode. The text is decoded and searched, and matches are mapped back
//! to the original. The mapping decodes the text again, so texts without matches need no map.

use std::ops::Range;

/// An encoding.
pub(super) struct Encoding {
    /// The bytes that start an escape. All other bytes are literal.
    marks: &'static [u8],
    /// Decodes an escape at the start of a text.
    decode_piece: fn(&[u8]) -> Option<DecodedPiece>,
}

/// A decoded escape: the number of consumed bytes, and the result.
struct DecodedPiece {
    used: usize,
    bytes: [u8; 4],
    len: usize,
}

impl DecodedPiece {
    fn byte(used: usize, byte: u8) -> Self {
        Self { used, bytes: [byte, 0, 0, 0], len: 1 }
    }

    fn char(used: usize, c: char) -> Self {
        let mut bytes = [0; 4];
        let len = c.encode_utf8(&mut bytes).len();
        Self { used, bytes, len }
    }
}

pub(super) const ENCODINGS: [Encoding; 3] = [
    // RFC 3986, and `+` of form encoding.
    Encoding { marks: b"%+", decode_piece: decode_percent },
    // RFC 8259, section 7.
    Encoding { marks: b"\\", decode_piece: decode_json },
    // The HTML character references that escaping functions produce.
    Encoding { marks: b"&", decode_piece: decode_html },
];

impl Encoding {
    /// The decoded text; `None` if it cannot contain an escape.
    pub(super) fn decode(&self, text: &[u8]) -> Option<Vec<u8>> {
        if !text.iter().any(|byte| self.marks.contains(byte)) {
            return None;
        }
        let mut decoded = Vec::with_capacity(text.len());
        self.walk(text, |_, bytes| decoded.extend_from_slice(bytes));
        Some(decoded)
    }

    /// Maps ranges of the decoded text to ranges of the text. The ranges must be sorted and must not overlap.
    pub(super) fn original_ranges(&self, text: &[u8], ranges: &[Range<usize>]) -> Vec<Range<usize>> {
        let mut found = Vec::with_capacity(ranges.len());
        let mut wanted = ranges.iter();
        let mut next = wanted.next();
        let (mut at, mut start) = (0, 0);
        self.walk(text, |here, bytes| {
            let end = at + bytes.len();
            // Literal bytes have the same length in both texts.
            let inside = |position: usize| {
                if here.len() == bytes.len() { here.start + (position - at) } else { here.start }
            };
            while let Some(range) = next {
                if (at..end).contains(&range.start) {
                    start = inside(range.start);
                }
                if !(at..end).contains(&(range.end - 1)) {
                    break;
                }
                let last = if here.len() == bytes.len() { inside(range.end - 1) + 1 } else { here.end };
                found.push(start..last);
                next = wanted.next();
            }
            at = end;
        });
        found
    }

    /// Visits each literal run and each escape with its range.
    fn walk(&self, text: &[u8], mut take: impl FnMut(Range<usize>, &[u8])) {
        let mut at = 0;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let run = rest.iter().position(|byte| self.marks.contains(byte)).unwrap_or(rest.len());
            if let Some(plain) = rest.get(..run).filter(|plain| !plain.is_empty()) {
                take(at..at + run, plain);
                at += run;
                continue;
            }
            match (self.decode_piece)(rest) {
                Some(DecodedPiece { used, bytes, len }) => {
                    take(at..at + used, bytes.get(..len).unwrap_or_default());
                    at += used;
                }
                None => {
                    take(at..at + 1, rest.get(..1).unwrap_or_default());
                    at += 1;
                }
            }
        }
    }
}

fn decode_percent(text: &[u8]) -> Option<DecodedPiece> {
    match text {
        [b'%', high, low, ..] => Some(DecodedPiece::byte(3, hex_digit(*high)? << 4 | hex_digit(*low)?)),
        [b'+', ..] => Some(DecodedPiece::byte(1, b' ')),
        _ => None,
    }
}

fn decode_json(text: &[u8]) -> Option<DecodedPiece> {
    match text {
        [b'\\', b'u', digits @ ..] => decode_unicode(digits).map(|(c, used)| DecodedPiece::char(used + 2, c)),
        [b'\\', letter, ..] => {
            let byte = match letter {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'b' => 8,
                b'f' => 12,
                b'"' | b'\\' | b'/' | b'\'' => *letter,
                _ => return None,
            };
            Some(DecodedPiece::byte(2, byte))
        }
        _ => None,
    }
}

/// The character after `\u`, and the number of consumed bytes: 4, or 10 for a surrogate pair.
fn decode_unicode(text: &[u8]) -> Option<(char, usize)> {
    let unit = |text: &[u8]| {
        let digits: &[u8; 4] = text.first_chunk()?;
        digits.iter().try_fold(0_u32, |sum, c| Some(sum << 4 | u32::from(hex_digit(*c)?)))
    };
    let high = unit(text)?;
    if let Some(c) = char::from_u32(high) {
        return Some((c, 4));
    }
    let low = unit(text.get(4..)?.strip_prefix(b"\\u")?)?;
    let pair = char::decode_utf16([u16::try_from(high).ok()?, u16::try_from(low).ok()?]).next()?.ok()?;
    Some((pair, 10))
}

fn decode_html(text: &[u8]) -> Option<DecodedPiece> {
    const NAMED: [(&[u8], u8); 5] =
        [(b"&amp;", b'&'), (b"&lt;", b'<'), (b"&gt;", b'>'), (b"&quot;", b'"'), (b"&apos;", b'\'')];
    if let Some((name, byte)) = NAMED.iter().find(|(name, _)| text.starts_with(name)) {
        return Some(DecodedPiece::byte(name.len(), *byte));
    }
    let digits = text.strip_prefix(b"&#")?;
    let end = digits.iter().take(10).position(|byte| *byte == b';')?;
    let number = std::str::from_utf8(digits.get(..end)?).ok()?;
    let code = match number.strip_prefix(['x', 'X']) {
        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
        None => number.parse().ok()?,
    };
    Some(DecodedPiece::char(end + 3, char::from_u32(code)?))
}

fn hex_digit(c: u8) -> Option<u8> {
    char::from(c).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}
