//! Matching of patterns with stars, for paths, program arguments and permission rules.
//!
//! Texts are matched piece by piece, which is faster and gives the same result.

/// Whether a pattern matches a whole sequence. A star matches any run of items, including none.
///
/// After a mismatch, only the last star is extended by one item: the pieces before it were already matched as early
/// as possible. This bounds the time to pattern × items, without recursion.
pub fn matches<P, I>(
    pattern: &[P],
    items: &[I],
    is_star: impl Fn(&P) -> bool,
    takes: impl Fn(&P, &I) -> bool,
) -> bool {
    let (mut part, mut item) = (0, 0);
    let mut star = None;
    while let Some(one) = items.get(item) {
        match pattern.get(part) {
            Some(wanted) if is_star(wanted) => {
                part += 1;
                star = Some((part, item));
            }
            Some(wanted) if takes(wanted, one) => {
                part += 1;
                item += 1;
            }
            _ => match &mut star {
                Some((after, from)) => {
                    *from += 1;
                    (part, item) = (*after, *from);
                }
                None => return false,
            },
        }
    }
    pattern.get(part..).is_some_and(|rest| rest.iter().all(is_star))
}

/// Whether `text` matches `pattern`, in which `*` matches any run of characters. Takes time pattern + text.
pub fn text_matches(pattern: &str, text: &str) -> bool {
    let pieces: Vec<&str> = pattern.split('*').collect();
    text_matches_pieces(&pieces, text)
}

/// Whether `text` consists of these pieces in order, with anything between them. Each piece is matched at its first
/// occurrence, found in linear time: program arguments can be long, and a guest may write both the text and the
/// pattern.
pub fn text_matches_pieces<S: AsRef<str>>(pieces: &[S], text: &str) -> bool {
    let (first, middle, last) = match pieces {
        [] => return text.is_empty(),
        [whole] => return text == whole.as_ref(),
        [first, middle @ .., last] => (first.as_ref(), middle, last.as_ref()),
    };
    let Some(mut left) = text.strip_prefix(first).and_then(|text| text.strip_suffix(last)) else {
        return false;
    };
    for piece in middle.iter().map(AsRef::as_ref).filter(|piece| !piece.is_empty()) {
        let Some((_, after)) = left.split_once(piece) else { return false };
        left = after;
    }
    true
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn texts_match_like_sequences(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            let chars = |text: &str| text.chars().collect::<Vec<char>>();
            let slow = matches(&chars(&pattern), &chars(&text), |c| *c == '*', |a, b| a == b);
            prop_assert_eq!(text_matches(&pattern, &text), slow);
        }
    }

    #[test]
    fn patterns_match_whole_texts_in_linear_time() {
        for (pattern, text, expect) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a*", "a", true),
            ("*a", "ba", true),
            ("a*b", "ab", true),
            ("a*b", "acb", true),
            ("a*b", "abc", false),
            ("a*a", "a", false),
            ("*a*b*", "xxaxxbxx", true),
            ("ab*ba", "aba", false),
            ("é*", "éa", true),
            ("*é", "aéé", true),
            ("*é", "aè", false),
            ("*\u{a9}", "é", false),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(text_matches(pattern, text), expect, "{pattern} {text}");
        }
        let start = Instant::now();
        let (pattern, text) = ("a*".repeat(1000) + "b", "a".repeat(60_000));
        assert!(!text_matches(&pattern, &text));
        // With quadratic time this would take minutes.
        let (pattern, text) = (format!("*{}b*", "a".repeat(100_000)), "a".repeat(1 << 20));
        assert!(!text_matches(&pattern, &text));
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    }
}
