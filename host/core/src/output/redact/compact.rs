//! Digits with something between them: base64 in lines, hexadecimal in pairs, dumps. The text is reduced to its digits and
//! searched, and what is found is mapped back to where it stood.
//!
//! | view | what is left out |
//! |---|---|
//! | base64 | all ASCII that is no digit of either alphabet: line breaks, blanks, quotes, marks of comments and quotations |
//! | hexadecimal | blanks and punctuation, and the `0x` and `\x` before a byte; both cases are one |
//! | dump | of lines with an offset, as those of `xxd`, `hexdump -C` and `od`: the offset and the column of characters |

use std::ops::Range;

/// Which forms a view shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Digits {
    Base64,
    Hex,
}

/// One way of reducing a text to digits.
pub(super) struct View {
    pub(super) shows: Digits,
    walk: fn(&[u8], &mut dyn FnMut(usize, u8)),
}

/// Most digits of a line of a dump: what stands behind those of sixteen bytes is the column of characters.
const MAX_DUMPED: usize = 32;
/// Most bytes between a quote and the `+` behind it.
const MAX_GAP: usize = 200;

pub(super) const VIEWS: [View; 3] = [
    View { shows: Digits::Base64, walk: base64 },
    View { shows: Digits::Hex, walk: hex },
    View { shows: Digits::Hex, walk: dump },
];

impl View {
    /// The digits alone.
    pub(super) fn digits(&self, text: &[u8]) -> Vec<u8> {
        let mut digits = Vec::with_capacity(text.len());
        (self.walk)(text, &mut |_, digit| digits.push(digit));
        digits
    }

    /// Where ranges of the digits stand in the text.
    pub(super) fn originals(&self, text: &[u8], ranges: &[Range<usize>]) -> Vec<Range<usize>> {
        let mut places = Vec::with_capacity(text.len());
        (self.walk)(text, &mut |at, _| places.push(at));
        let place = |at: usize| places.get(at).copied().unwrap_or(text.len());
        ranges.iter().map(|range| place(range.start)..place(range.end.saturating_sub(1)) + 1).collect()
    }
}

fn base64(text: &[u8], take: &mut dyn FnMut(usize, u8)) {
    for (at, byte) in text.iter().enumerate() {
        let digit = byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_') || !byte.is_ascii();
        if digit || (*byte == b'+' && !joins(text, at)) {
            take(at, *byte);
        }
    }
}

/// Whether a `+` stands between two quoted texts, which it joins: then it is no digit.
fn joins(text: &[u8], at: usize) -> bool {
    let quote = |byte: Option<&u8>| matches!(byte, Some(b'"' | b'\''));
    let (before, behind) = (text.get(..at).unwrap_or_default(), text.get(at + 1..).unwrap_or_default());
    quote(before.iter().rev().take(MAX_GAP).find(|byte| !byte.is_ascii_whitespace()))
        && quote(behind.iter().take(MAX_GAP).find(|byte| !byte.is_ascii_whitespace()))
}

fn hex(text: &[u8], take: &mut dyn FnMut(usize, u8)) {
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

fn dump(text: &[u8], take: &mut dyn FnMut(usize, u8)) {
    let mut start = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        columns(line, |at, digit| take(start + at, digit));
        start += line.len();
    }
}

/// The digits of one line of a dump, without its offset, before which other words may stand; of a line that is none,
/// nothing.
fn columns(line: &[u8], mut take: impl FnMut(usize, u8)) {
    let mut from = 0;
    while let Some(word) = line.get(from..).filter(|word| !word.is_empty()) {
        if columns_behind(line, from, &mut take) {
            return;
        }
        from += word.iter().position(|byte| *byte == b' ').map_or(word.len(), |end| end + 1);
    }
}

/// The same of what stands behind an offset at this place; whether one does.
fn columns_behind(line: &[u8], from: usize, take: &mut impl FnMut(usize, u8)) -> bool {
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
        if !(1..=3).contains(&gap) || run == 0 || !run.is_multiple_of(2) || count + run > MAX_DUMPED {
            return count > 0;
        }
        for place in at + gap..at + gap + run {
            line.get(place).into_iter().for_each(|digit| take(place, digit.to_ascii_lowercase()));
        }
        count += run;
        at += gap + run;
    }
}
