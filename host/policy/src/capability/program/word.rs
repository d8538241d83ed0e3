//! Word patterns: text in which `*` matches any run of characters.

use crate::wildcard;

/// Represents a `*` in a text. No argument contains this character.
const STAR: char = '\0';

/// One symbol of a word pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WordSymbol {
    /// This character.
    Char(char),
    /// Any run of characters, possibly empty.
    Any,
}

/// A pattern for one word. A leading `*` never matches text that starts with `-`, so that an operand pattern does not
/// match an option.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WordPattern(Vec<WordSymbol>);

impl WordPattern {
    /// Creates a pattern. `**` is the same as `*`.
    pub(super) fn new(mut symbols: Vec<WordSymbol>) -> Self {
        symbols.dedup_by(|a, b| (*a, *b) == (WordSymbol::Any, WordSymbol::Any));
        Self(symbols)
    }

    /// Creates the pattern that matches only this text.
    pub(super) fn exact(text: &str) -> Self {
        Self(text.chars().map(WordSymbol::Char).collect())
    }

    /// The texts between the stars: one more than there are stars.
    fn literals(&self) -> Vec<String> {
        self.0.split(is_any).map(text_of).collect()
    }

    /// The pattern as text, with `star` in place of each star.
    fn with_stars_as(&self, star: char) -> String {
        self.0.iter().map(|symbol| if let WordSymbol::Char(c) = symbol { *c } else { star }).collect()
    }

    pub(super) fn symbols(&self) -> &[WordSymbol] {
        &self.0
    }

    /// Whether it is a single `*`.
    pub(super) fn is_any(&self) -> bool {
        self.0 == [WordSymbol::Any]
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        if self.starts_with_star() && text.starts_with('-') {
            return false;
        }
        wildcard::text_matches_pieces(&self.literals(), text)
    }

    /// Whether it matches every word that `inner` matches. Exact: a `*` of `inner` can be any text, so only a `*` of
    /// `self` matches it.
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
            // A star can match any text between two stars of the other pattern. Only the ends can conflict.
            ([left, .., left_end], [right, .., right_end]) => {
                (left.starts_with(right.as_str()) || right.starts_with(left.as_str()))
                    && (left_end.ends_with(right_end.as_str()) || right_end.ends_with(left_end.as_str()))
            }
            ([], _) | (_, []) => false,
        }
    }

    /// Whether all matching words are operands: not empty, without a leading `-`.
    pub(super) fn is_operand(&self) -> bool {
        !self.starts_with_dash() && self.0.iter().any(|symbol| !is_any(symbol))
    }

    /// Whether some matching word is an operand.
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

    /// Whether two patterns have a match in common, by exhaustive search: slow but obvious.
    fn overlap_by_search(left: &[WordSymbol], right: &[WordSymbol]) -> bool {
        match (left, right) {
            ([], []) => true,
            ([WordSymbol::Any, rest @ ..], other) | (other, [WordSymbol::Any, rest @ ..]) => {
                overlap_by_search(rest, other)
                    || matches!(other, [_, more @ ..] if overlap_by_search(&[&[WordSymbol::Any], rest].concat(), more))
            }
            ([a, left @ ..], [b, right @ ..]) => a == b && overlap_by_search(left, right),
            ([], _) | (_, []) => false,
        }
    }

    proptest! {
        #[test]
        fn words_overlap_if_a_text_matches_both(left in "[ab*]{0,6}", right in "[ab*]{0,6}") {
            let (left, right) = (word(&left), word(&right));
            prop_assert_eq!(left.overlaps(&right), overlap_by_search(&left.0, &right.0), "{:?} {:?}", left, right);
            prop_assert_eq!(left.overlaps(&right), right.overlaps(&left));
        }

        #[test]
        fn a_star_is_covered_only_by_a_star(outer in "[ab*]{0,6}", inner in "[ab*]{0,6}") {
            let (outer, inner) = (word(&outer), word(&inner));
            let slow = wildcard::matches(&outer.0, &inner.0, is_any, |part, symbol| part == symbol);
            prop_assert_eq!(outer.covers(&inner), slow, "{:?} {:?}", outer, inner);
        }
    }
}
