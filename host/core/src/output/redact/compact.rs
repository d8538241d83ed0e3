//! Search for digits with separators: base64 in lines, hexadecimal in pairs, hex dumps. The text is reduced to its
//! digits, and matches are mapped back to the original.
//!
//! | view | removed characters |
//! |---|---|
//! | base64 | ASCII characters that are not digits of either alphabet: line breaks, spaces, quotes, comment markers |
//! | hexadecimal | spaces and punctuation, and `0x` and `\x` before a byte; case is ignored |
//! | dump | in lines with an offset, as printed by `xxd`, `hexdump -C` and `od`: the offset and the text column |

use std::ops::Range;

/// The kind of digits of a form or a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DigitKind {
    Base64,
    Hex,
}

/// A view of a text as digits.
pub(super) struct DigitView {
    pub(super) shows: DigitKind,
    walk: fn(&[u8], &mut dyn FnMut(usize, u8)),
}

/// Most digits in a line of a dump: after the digits of 16 bytes comes the text column.
const MAX_DUMP_DIGITS: usize = 32;
/// Most bytes between a quote and a `+`.
const MAX_GAP: usize = 200;

pub(super) const VIEWS: [DigitView; 3] = [
    DigitView { shows: DigitKind::Base64, walk: walk_base64 },
    DigitView { shows: DigitKind::Hex, walk: walk_hex },
    DigitView { shows: DigitKind::Hex, walk: walk_dump },
];

impl DigitView {
    /// The digits of a text.
    pub(super) fn digits(&self, text: &[u8]) -> Vec<u8> {
        let mut digits = Vec::with_capacity(text.len());
        (self.walk)(text, &mut |_, digit| digits.push(digit));
        digits
    }

    /// Maps ranges of the digits to ranges of the text.
    pub(super) fn original_ranges(&self, text: &[u8], ranges: &[Range<usize>]) -> Vec<Range<usize>> {
        let mut places = Vec::with_capacity(text.len());
        (self.walk)(text, &mut |at, _| places.push(at));
        let place = |at: usize| places.get(at).copied().unwrap_or(text.len());
        ranges.iter().map(|range| place(range.start)..place(range.end.saturating_sub(1)) + 1).collect()
    }
}

fn walk_base64(text: &[u8], take: &mut dyn FnMut(usize, u8)) {
    for (at, byte) in text.iter().enumerate() {
        let digit = byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_') || !byte.is_ascii();
        if digit || (*byte == b'+' && !joins_strings(text, at)) {
            take(at, *byte);
        }
    }
}

/// Whether a `+` joins two string literals, in which case it is not a digit.
fn joins_strings(text: &[u8], at: usize) -> bool {
    let quote = |byte: Option<&u8>| matches!(byte, Some(b'"' | b'\''));
    let (before, behind) = (text.get(..at).unwrap_or_default(), text.get(at + 1..).unwrap_or_default());
    quote(before.iter().rev().take(MAX_GAP).find(|byte| !byte.is_ascii_whitespace()))
        && quote(behind.iter().take(MAX_GAP).find(|byte| !byte.is_ascii_whitespace()))
}

fn walk_hex(text: &[u8], take: &mut dyn FnMut(usize, u8)) {
    let mut bytes = text.iter().enumerate().peekable();
    let mut last = b' ';
    while let Some((at, byte)) = bytes.next() {
        let before_x = matches!(bytes.peek(), Some((_, b'x' | b'X')));
        if before_x && (*byte == b'\\' || (*byte == b'0' && !last.is_ascii_alphanumeric())) {
            bytes.next();
        } else if byte.is_ascii_alphanumeric() || !byte.is_ascii() {
            take(at, byte.to_ascii_lowercase());
        }
        last = *byte;
    }
}

fn walk_dump(text: &[u8], take: &mut dyn FnMut(usize, u8)) {
    let mut start = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        walk_dump_line(line, |at, digit| take(start + at, digit));
        start += line.len();
    }
}

/// Visits the digits of a dump line. Words may precede its offset. A line without an offset has no digits.
fn walk_dump_line(line: &[u8], mut take: impl FnMut(usize, u8)) {
    let mut from = 0;
    while let Some(word) = line.get(from..).filter(|word| !word.is_empty()) {
        if walk_dump_columns(line, from, &mut take) {
            return;
        }
        from += word.iter().position(|byte| *byte == b' ').map_or(word.len(), |end| end + 1);
    }
}

/// Visits the digits after an offset at this position. Returns whether the position has an offset.
fn walk_dump_columns(line: &[u8], from: usize, take: &mut impl FnMut(usize, u8)) -> bool {
    let digits = |at: usize| {
        line.get(at..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_hexdigit()).count()
    };
    let blanks =
        |at: usize| line.get(at..).unwrap_or_default().iter().take_while(|byte| **byte == b' ').count();
    let offset = digits(from);
    let mut at = from + offset;
    if !(6..=16).contains(&offset) || !matches!(line.get(at), Some(b':' | b' ')) {
        return false;
    }
    at += usize::from(line.get(at) == Some(&b':'));
    let mut count = 0;
    loop {
        let (gap, run) = (blanks(at), digits(at + blanks(at)));
        if !(1..=3).contains(&gap) || run == 0 || !run.is_multiple_of(2) || count + run > MAX_DUMP_DIGITS {
            return count > 0;
        }
        for place in at + gap..at + gap + run {
            line.get(place).into_iter().for_each(|digit| take(place, digit.to_ascii_lowercase()));
        }
        count += run;
        at += gap + run;
    }
}
