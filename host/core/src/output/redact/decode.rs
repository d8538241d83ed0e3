//! Encodings in which the writer chooses what to encode. The text is decoded and searched, and matches are mapped back
//! to the original. The mapping decodes the text again, so texts without matches need no map.
//!
//! Characters that a later stage removes are an encoding as well: between the characters of a value, they hide the value
//! from an earlier search, and their removal restores it.

use std::ops::Range;

use toolbay_policy::hidden_chars;

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

    fn removed(used: usize) -> Self {
        Self { used, bytes: [0; 4], len: 0 }
    }

    /// A character. A hidden one between the characters of a value does not hide it.
    fn char(used: usize, c: char) -> Self {
        if is_hidden(c) {
            return Self::removed(used);
        }
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

/// The controls, and the first bytes of hidden characters in UTF-8.
const HIDDEN_MARKS: &[u8] =
    b"\0\x01\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\
\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f\xc2\xcd\xd8\xe1\xe2\xe3\xef\xf0\xf3";

/// What is removed from texts.
pub(super) const REMOVALS: [Encoding; 2] = [
    // A cleaner removes hidden characters ([`hidden_chars::hidden_chars`]), apart from line breaks and tabs.
    Encoding { marks: HIDDEN_MARKS, decode_piece: remove_hidden },
    // A terminal, and the reducer for its output, also removes the control sequences of ECMA-48, such as colours.
    Encoding { marks: HIDDEN_MARKS, decode_piece: remove_sequence },
];

/// Longest control sequence, in bytes.
const MAX_SEQUENCE: usize = 256;

impl Encoding {
    /// Whether a text can contain an escape.
    pub(super) fn is_marked(&self, text: &[u8]) -> bool {
        text.iter().any(|byte| self.marks.contains(byte))
    }

    /// The decoded text; `None` if it cannot contain an escape.
    pub(super) fn decode(&self, text: &[u8]) -> Option<Vec<u8>> {
        if !self.is_marked(text) {
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

/// The named character references of HTML for ASCII characters (HTML, section 13.5), and for a hyphen that reads like one.
const NAMED_REFERENCES: [(&[u8], u8); 45] = [
    (b"&amp;", b'&'),
    (b"&lt;", b'<'),
    (b"&gt;", b'>'),
    (b"&quot;", b'"'),
    (b"&apos;", b'\''),
    (b"&excl;", b'!'),
    (b"&num;", b'#'),
    (b"&dollar;", b'$'),
    (b"&percnt;", b'%'),
    (b"&lpar;", b'('),
    (b"&rpar;", b')'),
    (b"&ast;", b'*'),
    (b"&midast;", b'*'),
    (b"&plus;", b'+'),
    (b"&comma;", b','),
    (b"&period;", b'.'),
    (b"&sol;", b'/'),
    (b"&colon;", b':'),
    (b"&semi;", b';'),
    (b"&equals;", b'='),
    (b"&quest;", b'?'),
    (b"&commat;", b'@'),
    (b"&lsqb;", b'['),
    (b"&lbrack;", b'['),
    (b"&bsol;", b'\\'),
    (b"&rsqb;", b']'),
    (b"&rbrack;", b']'),
    (b"&Hat;", b'^'),
    (b"&lowbar;", b'_'),
    (b"&grave;", b'`'),
    (b"&lcub;", b'{'),
    (b"&lbrace;", b'{'),
    (b"&verbar;", b'|'),
    (b"&vert;", b'|'),
    (b"&rcub;", b'}'),
    (b"&rbrace;", b'}'),
    (b"&AMP;", b'&'),
    (b"&LT;", b'<'),
    (b"&GT;", b'>'),
    (b"&QUOT;", b'"'),
    (b"&DiacriticalGrave;", b'`'),
    (b"&UnderBar;", b'_'),
    (b"&VerticalLine;", b'|'),
    (b"&hyphen;", b'-'),
    (b"&dash;", b'-'),
];
/// The named character references for hidden characters.
const HIDDEN_REFERENCES: [&[u8]; 17] = [
    b"&shy;",
    b"&ZeroWidthSpace;",
    b"&NegativeVeryThinSpace;",
    b"&NegativeThinSpace;",
    b"&NegativeMediumSpace;",
    b"&NegativeThickSpace;",
    b"&zwnj;",
    b"&zwj;",
    b"&lrm;",
    b"&rlm;",
    b"&NoBreak;",
    b"&ApplyFunction;",
    b"&af;",
    b"&InvisibleTimes;",
    b"&it;",
    b"&InvisibleComma;",
    b"&ic;",
];
/// Most digits of a numeric character reference, leading zeros included.
const MAX_REFERENCE_DIGITS: usize = 16;

fn decode_html(text: &[u8]) -> Option<DecodedPiece> {
    let Some(number) = text.strip_prefix(b"&#") else {
        if let Some(name) = HIDDEN_REFERENCES.iter().find(|name| text.starts_with(name)) {
            return Some(DecodedPiece::removed(name.len()));
        }
        let (name, byte) = NAMED_REFERENCES.iter().find(|(name, _)| text.starts_with(name))?;
        return Some(DecodedPiece::byte(name.len(), *byte));
    };
    let (radix, prefix, digits) = match number {
        [b'x' | b'X', digits @ ..] => (16, 3, digits),
        digits => (10, 2, digits),
    };
    let is_digit = |byte: &&u8| char::from(**byte).is_digit(radix);
    let count = digits.iter().take(MAX_REFERENCE_DIGITS).take_while(is_digit).count();
    let number = std::str::from_utf8(digits.get(..count)?).ok()?;
    let decoded = char::from_u32(u32::from_str_radix(number, radix).ok()?)?;
    // Browsers also read a reference without its semicolon.
    let end = usize::from(digits.get(count) == Some(&b';'));
    Some(DecodedPiece::char(prefix + count + end, decoded))
}

/// Removes a control sequence or a hidden character.
fn remove_sequence(text: &[u8]) -> Option<DecodedPiece> {
    sequence_length(text).map(DecodedPiece::removed).or_else(|| remove_hidden(text))
}

/// Removes a hidden character.
fn remove_hidden(text: &[u8]) -> Option<DecodedPiece> {
    let head = text.get(..text.len().min(4))?;
    let first = match std::str::from_utf8(head) {
        Ok(all) => all.chars().next()?,
        Err(error) => std::str::from_utf8(head.get(..error.valid_up_to())?).ok()?.chars().next()?,
    };
    is_hidden(first).then(|| DecodedPiece::removed(first.len_utf8()))
}

/// Whether a cleaner removes a character.
fn is_hidden(c: char) -> bool {
    !matches!(c, '\n' | '\t')
        && (hidden_chars::is_hidden(c)
            || hidden_chars::hidden_chars(c.encode_utf8(&mut [0; 4])).next().is_some())
}

/// The length of a control sequence of ECMA-48 at the start of a text: CSI with its parameters, a string such as OSC up to
/// its end, or another escape sequence.
fn sequence_length(text: &[u8]) -> Option<usize> {
    let (start, kind) = match text {
        [0x1b, kind, ..] => (2, *kind),
        // CSI and OSC as one character of C1.
        [0xc2, 0x9b, ..] => (2, b'['),
        [0xc2, 0x9d, ..] => (2, b']'),
        _ => return None,
    };
    let rest = text.get(start..)?.iter().take(MAX_SEQUENCE);
    match kind {
        b'[' => {
            let parameters = rest.take_while(|byte| (0x20..0x40).contains(*byte)).count();
            let last = text.get(start + parameters)?;
            (0x40..0x7f).contains(last).then_some(start + parameters + 1)
        }
        b']' | b'P' | b'X' | b'^' | b'_' => {
            let end = rest.clone().position(|byte| matches!(byte, 0x07 | 0x1b | 0x9c))?;
            let closing = if text.get(start + end) == Some(&0x1b) { 2 } else { 1 };
            Some(start + end + closing)
        }
        0x20..0x30 => {
            let more = rest.take_while(|byte| (0x20..0x30).contains(*byte)).count();
            text.get(start + more).map(|_| start + more + 1)
        }
        0x30..0x7f => Some(start),
        _ => None,
    }
}

fn hex_digit(c: u8) -> Option<u8> {
    char::from(c).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}
