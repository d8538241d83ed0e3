//! Search for digits with separators: base64 in lines, hexadecimal in pairs, dumps. The text is reduced to its digits, and
//! matches are mapped back to the original. Numbers and characters of dumps become hexadecimal digits.
//!
//! | view | removed characters |
//! |---|---|
//! | base64 | ASCII characters that are not digits of either alphabet: line breaks, spaces, quotes, comment markers |
//! | hexadecimal | spaces and punctuation, and `0x` and `\x` before a byte; case is ignored |
//! | dump | in lines with an offset, as printed by `xxd`, `hexdump -C` and `od -t x1`: the offset and the text column |
//! | dump of words | the same, with the bytes of each word in the order of the text, as `od -x` and `hexdump` print them on a little-endian machine |
//! | words | words of 2, 4 or 8 bytes without an offset (`od -An -t x4`), with their bytes in the order of the text |
//! | octal, decimal | the value of each number of a byte: `od -b`, `od -t u1`, lists such as `[115, 51]` |
//! | characters | in lines with an offset, as printed by `od -c` and `hexdump -c`: the character of each cell |

use std::ops::{Range, RangeInclusive};

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

/// Digits in the offset of a dump.
const OFFSET_DIGITS: RangeInclusive<usize> = 6..=16;
/// Width of a cell of a dump of characters.
const CELL: usize = 4;
/// What separates bytes that do not follow each other. It is no digit.
const BREAK: u8 = b' ';

pub(super) const VIEWS: [DigitView; 8] = [
    DigitView { shows: DigitKind::Base64, walk: walk_base64 },
    DigitView { shows: DigitKind::Hex, walk: walk_hex },
    DigitView { shows: DigitKind::Hex, walk: walk_dump },
    DigitView { shows: DigitKind::Hex, walk: walk_word_dump },
    DigitView { shows: DigitKind::Hex, walk: walk_words },
    DigitView { shows: DigitKind::Hex, walk: walk_octal },
    DigitView { shows: DigitKind::Hex, walk: walk_decimal },
    DigitView { shows: DigitKind::Hex, walk: walk_characters },
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
        // The digits of a word are in another order than those of the text.
        let is_covered = |range: &Range<usize>| {
            let places = places.get(range.clone()).unwrap_or_default();
            let first = places.iter().min().copied().unwrap_or(text.len());
            first..places.iter().max().map_or(first, |last| last + 1)
        };
        ranges.iter().map(is_covered).collect()
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
    walk_dump_lines(text, ByteOrder::OfText, take);
}

fn walk_word_dump(text: &[u8], take: &mut dyn FnMut(usize, u8)) {
    walk_dump_lines(text, ByteOrder::OfWords, take);
}

/// The order of the bytes in each run of digits of a dump.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteOrder {
    OfText,
    /// The last byte of a word first.
    OfWords,
}

fn walk_dump_lines(text: &[u8], order: ByteOrder, take: &mut dyn FnMut(usize, u8)) {
    let mut start = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        walk_dump_line(line, order, |at, digit| take(start + at, digit));
        start += line.len();
    }
}

/// Visits the digits of a dump line. Words may precede its offset. A line without an offset has no digits.
fn walk_dump_line(line: &[u8], order: ByteOrder, mut take: impl FnMut(usize, u8)) {
    let mut from = 0;
    while let Some(word) = line.get(from..).filter(|word| !word.is_empty()) {
        if walk_dump_columns(line, from, order, &mut take) {
            return;
        }
        from += word.iter().position(|byte| *byte == b' ').map_or(word.len(), |end| end + 1);
    }
}

/// Visits the digits after an offset at this position. Returns whether the position has an offset.
fn walk_dump_columns(line: &[u8], from: usize, order: ByteOrder, take: &mut impl FnMut(usize, u8)) -> bool {
    let digits = |at: usize| {
        line.get(at..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_hexdigit()).count()
    };
    let blanks =
        |at: usize| line.get(at..).unwrap_or_default().iter().take_while(|byte| **byte == b' ').count();
    let offset = digits(from);
    let mut at = from + offset;
    if !OFFSET_DIGITS.contains(&offset) || !matches!(line.get(at), Some(b':' | b' ')) {
        return false;
    }
    at += usize::from(line.get(at) == Some(&b':'));
    let mut count = 0;
    loop {
        let (gap, run) = (blanks(at), digits(at + blanks(at)));
        if !(1..=3).contains(&gap) || run == 0 || !run.is_multiple_of(2) || count + run > MAX_DUMP_DIGITS {
            return count > 0;
        }
        for digit in 0..run {
            let place = at
                + gap
                + match order {
                    ByteOrder::OfText => digit,
                    ByteOrder::OfWords => run - 2 - digit / 2 * 2 + digit % 2,
                };
            line.get(place).into_iter().for_each(|digit| take(place, digit.to_ascii_lowercase()));
        }
        count += run;
        at += gap + run;
    }
}

fn walk_words(text: &[u8], take: &mut dyn FnMut(usize, u8)) {
    walk_numbers(text, take, |word, start, take| {
        let is_word = matches!(word.len(), 4 | 8 | 16) && word.iter().all(u8::is_ascii_hexdigit);
        for (pair, digits) in word.chunks(2).enumerate().rev().filter(|_| is_word) {
            let at = start + 2 * pair;
            digits.iter().zip(at..).for_each(|(digit, at)| take(at, digit.to_ascii_lowercase()));
        }
        is_word
    });
}

fn walk_octal(text: &[u8], take: &mut dyn FnMut(usize, u8)) {
    walk_numbers(text, take, |word, start, take| {
        word.len() == 3 && take_byte(number(word, 8), start, start + word.len() - 1, take)
    });
}

fn walk_decimal(text: &[u8], take: &mut dyn FnMut(usize, u8)) {
    walk_numbers(text, take, |word, start, take| {
        word.len() <= 3 && take_byte(number(word, 10), start, start + word.len() - 1, take)
    });
}

/// Visits the bytes that the words of a text encode. `take_word` visits those of the word at a position, and returns
/// whether the word encodes any. Between two numbers may be an offset of a dump, but no other word.
fn walk_numbers(
    text: &[u8],
    take: &mut dyn FnMut(usize, u8),
    take_word: impl Fn(&[u8], usize, &mut dyn FnMut(usize, u8)) -> bool,
) {
    let mut broken = true;
    let mut start = 0;
    for word in text.split(|byte| !byte.is_ascii_alphanumeric() && byte.is_ascii()) {
        let is_offset = OFFSET_DIGITS.contains(&word.len()) && word.iter().all(u8::is_ascii_hexdigit);
        if word.is_empty() || take_word(word, start, take) {
            broken &= word.is_empty();
        } else if !is_offset && !std::mem::replace(&mut broken, true) {
            take(start, BREAK);
        }
        start += word.len() + 1;
    }
}

fn number(digits: &[u8], radix: u32) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()
}

/// Visits the two hexadecimal digits of a byte. `first` and `last` are the positions of its encoded form.
fn take_byte(byte: Option<u8>, first: usize, last: usize, take: &mut dyn FnMut(usize, u8)) -> bool {
    let Some(byte) = byte else { return false };
    let digit = |value: u8| if value < 10 { b'0' + value } else { b'a' + value - 10 };
    take(first, digit(byte >> 4));
    take(last, digit(byte & 15));
    true
}

fn walk_characters(text: &[u8], take: &mut dyn FnMut(usize, u8)) {
    let mut start = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let offset = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let cells = line.strip_suffix(b"\n").unwrap_or(line).get(offset..).unwrap_or_default();
        if OFFSET_DIGITS.contains(&offset) {
            for (cell, at) in cells.chunks(CELL).zip((start + offset..).step_by(CELL)) {
                let last = at + cell.len() - 1;
                if !take_byte(character(cell), at, last, take) {
                    take(at, BREAK);
                }
            }
        }
        start += line.len();
    }
}

/// The byte of a cell of a dump of characters: right-aligned, an escape of C, or three octal digits.
fn character(cell: &[u8]) -> Option<u8> {
    match cell {
        [b' ', b' ', b' ', byte] => Some(*byte),
        [b' ', b' ', b'\\', letter] => Some(match letter {
            b'0' => 0,
            b'a' => 7,
            b'b' => 8,
            b't' => b'\t',
            b'n' => b'\n',
            b'v' => 11,
            b'f' => 12,
            b'r' => b'\r',
            _ => return None,
        }),
        [b' ', digits @ ..] => number(digits, 8),
        _ => None,
    }
}
