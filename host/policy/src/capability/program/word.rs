//! A pattern for one word: text in which `*` stands for any run of characters.

use crate::wildcard;

/// Stands for a `*` in text: no argument can hold it.
const STAR: char = '\0';

/// One part of a word pattern. A word without wild parts is itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WordSymbol {
    /// This character.
    Char(char),
    /// Any run of characters, also none.
    Any,
}

/// A pattern for one word. A `*` at its beginning never stands for text that begins with `-`: what was meant as a
/// name does not turn into an option.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WordPattern(Vec<WordSymbol>);

impl WordPattern {
    /// A pattern of these parts; `**` is `*`.
    pub(super) fn new(mut symbols: Vec<WordSymbol>) -> Self {
        symbols.dedup_by(|a, b| (*a, *b) == (WordSymbol::Any, WordSymbol::Any));
        Self(symbols)
    }

    /// The pattern that only this text matches.
    pub(super) fn exact(text: &str) -> Self {
        Self(text.chars().map(WordSymbol::Char).collect())
    }

    /// The text between its stars: one piece more than there are stars.
    fn literals(&self) -> Vec<String> {
        self.0.split(is_any).map(text_of).collect()
    }

    /// Its text, with a character in place of each star.
    fn with_stars_as(&self, star: char) -> String {
        self.0.iter().map(|symbol| if let WordSymbol::Char(c) = symbol { *c } else { star }).collect()
    }

    pub(super) fn symbols(&self) -> &[WordSymbol] {
        &self.0
    }

    /// Whether it is `*` and nothing else.
    pub(super) fn is_any(&self) -> bool {
        self.0 == [WordSymbol::Any]
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        if self.starts_with_star() && text.starts_with('-') {
            return false;
        }
        wildcard::text_matches_pieces(&self.literals(), text)
    }

    /// Whether every word of `inner` is one of this. Exact: a `*` of `inner` can be anything, so only a `*` of this
    /// can take it.
    pub(super) fn covers(&self, inner: &Self) -> bool {
        !(self.starts_with_star() && inner.starts_with_dash())
            && wildcard::text_matches_pieces(&self.literals(), &inner.with_stars_as(STAR))
    }

    /// Whether some word matches both.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        if self.starts_with_star() && other.starts_with_dash()
            || self.starts_with_dash() && other.starts_with_star()
        {
            return false;
        }
        match (self.literals().as_slice(), other.literals().as_slice()) {
            ([one], pieces) | (pieces, [one]) => wildcard::text_matches_pieces(pieces, one),
            // What stands between two stars fits into a star of the other: only the two ends can exclude each other.
            ([left, .., left_end], [right, .., right_end]) => {
                (left.starts_with(right.as_str()) || right.starts_with(left.as_str()))
                    && (left_end.ends_with(right_end.as_str()) || right_end.ends_with(left_end.as_str()))
            }
            ([], _) | (_, []) => false,
        }
    }

    /// Whether all its words are names: not empty, not with `-` in front.
    pub(super) fn is_operand(&self) -> bool {
        !self.starts_with_dash() && self.0.iter().any(|symbol| !is_any(symbol))
    }

    /// Whether one of its words is a name.
    pub(super) fn may_be_operand(&self) -> bool {
        !self.starts_with_dash() && !self.0.is_empty()
    }

    fn starts_with_star(&self) -> bool {
        self.0.first() == Some(&WordSymbol::Any)
    }

    fn starts_with_dash(&self) -> bool {
        self.0.first() == Some(&WordSymbol::Char('-'))
    }
}

fn text_of(symbols: &[WordSymbol]) -> String {
    symbols
        .iter()
        .filter_map(|symbol| if let WordSymbol::Char(c) = symbol { Some(*c) } else { None })
        .collect()
}

fn is_any(symbol: &WordSymbol) -> bool {
    *symbol == WordSymbol::Any
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn word(text: &str) -> WordPattern {
        WordPattern::new(
            text.chars().map(|c| if c == '*' { WordSymbol::Any } else { WordSymbol::Char(c) }).collect(),
        )
    }

    /// Whether two patterns have a text in common, by trying every way: slow and obvious.
    fn meet(left: &[WordSymbol], right: &[WordSymbol]) -> bool {
        match (left, right) {
            ([], []) => true,
            ([WordSymbol::Any, rest @ ..], other) | (other, [WordSymbol::Any, rest @ ..]) => {
                meet(rest, other)
                    || matches!(other, [_, more @ ..] if meet(&[&[WordSymbol::Any], rest].concat(), more))
            }
            ([a, left @ ..], [b, right @ ..]) => a == b && meet(left, right),
            ([], _) | (_, []) => false,
        }
    }

    proptest! {
        #[test]
        fn words_overlap_where_a_text_matches_both(left in "[ab*]{0,6}", right in "[ab*]{0,6}") {
            let (left, right) = (word(&left), word(&right));
            prop_assert_eq!(left.overlaps(&right), meet(&left.0, &right.0), "{:?} {:?}", left, right);
            prop_assert_eq!(left.overlaps(&right), right.overlaps(&left));
        }

        #[test]
        fn a_word_covers_what_only_its_stars_take(outer in "[ab*]{0,6}", inner in "[ab*]{0,6}") {
            let (outer, inner) = (word(&outer), word(&inner));
            let slow = wildcard::matches(&outer.0, &inner.0, is_any, |part, symbol| part == symbol);
            prop_assert_eq!(outer.covers(&inner), slow, "{:?} {:?}", outer, inner);
        }
    }
}
