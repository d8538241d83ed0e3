//! Character budgets of results, and cutting to a budget.
//!
//! Characters are Unicode scalar values. The marker of a cut counts against the budget.

use std::borrow::Cow;

use toolbay_policy::output::Truncation;

/// The share of one call: `floor(total / calls)`, capped by the tool's own limit.
#[must_use]
pub fn share(total: usize, calls: usize, own: Option<u64>) -> usize {
    let share = total / calls.max(1);
    own.map_or(share, |own| share.min(usize::try_from(own).unwrap_or(usize::MAX)))
}

/// The number of characters of a text, if it exceeds the budget.
#[must_use]
pub fn char_count_if_over(text: &str, budget: usize) -> Option<usize> {
    // A text has at most as many characters as bytes.
    if text.len() <= budget {
        return None;
    }
    let total = text.chars().count();
    (total > budget).then_some(total)
}

/// Cuts `text` to at most `budget` characters, including the marker. Returns the original number of characters if the
/// text was cut.
pub fn cut(text: &mut String, budget: usize) -> Option<usize> {
    let total = char_count_if_over(text, budget)?;
    *text = shorten(text, budget, Truncation::Head, total, "");
    Some(total)
}

/// Cuts `text`, which must be longer than `budget`. The marker contains `total`, the original number of characters, and
/// `rest` if it fits.
#[must_use]
pub fn shorten(text: &str, budget: usize, mode: Truncation, total: usize, rest: &str) -> String {
    shorten_with(text, budget, mode, total, rest, unchanged)
}

fn unchanged(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text)
}

/// Shortens a text as [`shorten`] does, and cleans the remaining parts. They are cut again if cleaning makes them longer.
/// The marker counts the characters that the text had before it was cleaned.
#[must_use]
pub fn shorten_with(
    text: &str,
    budget: usize,
    mode: Truncation,
    total: usize,
    rest: &str,
    clean: impl Fn(&str) -> Cow<'_, str>,
) -> String {
    let present = text.chars().count();
    // The number of omitted characters depends on the length of the marker. It has no more digits than `present`.
    let marker = |left_out: usize, rest: &str| match mode {
        Truncation::Head => format!("\n[truncated — {total} chars total{rest}]"),
        Truncation::HeadTail => {
            format!("\n[truncated — {total} chars total, {left_out} left out here{rest}]\n")
        }
    };
    let length = |rest: &str| marker(present, rest).chars().count();
    let (rest, room) = match (budget.checked_sub(length(rest)), budget.checked_sub(length(""))) {
        // `rest` is included as long as at least one character of the text remains.
        (Some(room), _) if room > 0 || rest.is_empty() => (rest, room),
        (_, Some(room)) => ("", room),
        (_, None) => return cleaned_head(text, budget, clean),
    };
    let marker = marker(present.saturating_sub(room), rest);
    let tail_chars = match mode {
        Truncation::Head => 0,
        Truncation::HeadTail => room - room / 2,
    };
    let tail = clean(last_chars(text, tail_chars));
    let mut out = cleaned_head(text, room - tail_chars, &clean);
    out.push_str(&marker);
    out.push_str(last_chars(&tail, tail_chars));
    out
}

/// The first characters of a text, cleaned.
fn cleaned_head(text: &str, chars: usize, clean: impl Fn(&str) -> Cow<'_, str>) -> String {
    let end = text.char_indices().nth(chars).map_or(text.len(), |(end, _)| end);
    let mut head = clean(text.get(..end).unwrap_or_default()).into_owned();
    truncate(&mut head, chars);
    head
}

/// The last characters of a text.
fn last_chars(text: &str, chars: usize) -> &str {
    let start = chars.checked_sub(1).and_then(|before| text.char_indices().rev().nth(before));
    match start {
        Some((start, _)) => text.get(start..).unwrap_or_default(),
        None if chars == 0 => "",
        None => text,
    }
}

/// Cuts a text to at most `chars` characters.
pub fn truncate(text: &mut String, chars: usize) {
    if let Some((end, _)) = text.char_indices().nth(chars) {
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_budget_is_split_evenly_and_capped() {
        assert_eq!(share(80_000, 3, None), 26_666);
        assert_eq!(share(80_000, 1, Some(100)), 100);
        assert_eq!(share(50, 1, Some(u64::MAX)), 50);
        assert_eq!(share(10, 0, None), 10);
        assert_eq!(share(3, 5, None), 0);
    }

    #[test]
    fn a_cut_text_fits_with_its_marker() {
        for (text, budget) in [
            ("x".repeat(200), 100),
            ("🙂".repeat(200), 100),
            ("é\n".repeat(500), 40),
            ("x".repeat(9), 3),
            ("ab".to_owned(), 0),
        ] {
            let total = text.chars().count();
            let mut out = text.clone();
            assert_eq!(cut(&mut out, budget), Some(total));
            assert!(out.chars().count() <= budget, "{out}");
            if budget >= 40 {
                assert!(out.ends_with(&format!("\n[truncated — {total} chars total]")), "{out}");
                assert_eq!(out.chars().count(), budget);
            }
            let head = out.split("\n[truncated").next().unwrap();
            assert!(text.starts_with(head));
        }
    }

    #[test]
    fn a_text_exactly_at_the_limit_is_unchanged() {
        for text in ["x".repeat(100), "🙂".repeat(100), String::new()] {
            let mut out = text.clone();
            assert_eq!(cut(&mut out, 100), None);
            assert_eq!(out, text);
        }
    }

    #[test]
    fn head_tail_keeps_both_ends() {
        let text = "A".repeat(100) + &"B".repeat(100);
        let shortened = |budget, mode, rest: &str| shorten(&text, budget, mode, 200, rest);
        let out = shortened(100, Truncation::HeadTail, "");
        let marker = "\n[truncated — 200 chars total, 150 left out here]\n";
        assert_eq!(out, format!("{}{marker}{}", "A".repeat(25), "B".repeat(25)));
        for mode in [Truncation::Head, Truncation::HeadTail] {
            assert_eq!(shortened(5, mode, "; more"), "AAAAA", "the marker does not fit");
            let out = shortened(60, mode, "; the rest: read_output");
            assert!(out.contains("; the rest: read_output") == (mode == Truncation::Head), "{out}");
        }
        let out = shortened(100, Truncation::HeadTail, "; the rest: read_output");
        assert!(out.contains("; the rest: read_output]\n") && out.ends_with('B'), "{out}");
    }

    proptest! {
        #[test]
        fn a_cut_text_fits_and_keeps_parts_of_the_original(
            text in "(?s).{0,300}", budget in 0usize..300, tail in any::<bool>(), rest in "[a-z]{0,60}",
        ) {
            let mode = if tail { Truncation::HeadTail } else { Truncation::Head };
            let total = text.chars().count();
            prop_assert_eq!(char_count_if_over(&text, budget), (total > budget).then_some(total));
            if total <= budget {
                return Ok(());
            }
            let out = shorten(&text, budget, mode, total, &rest);
            prop_assert!(out.chars().count() <= budget);
            let marker = format!("\n[truncated — {total} chars total");
            match out.rsplit_once(&marker) {
                None => prop_assert!(text.starts_with(&out)),
                Some((head, end)) => {
                    prop_assert!(text.starts_with(head));
                    let (_, end) = end.split_once(']').unwrap();
                    prop_assert!(text.ends_with(end.trim_start_matches('\n')) || text.ends_with(&end[1..]));
                    if let Some(left_out) = out.rsplit_once(" left out here").map(|(before, _)| before) {
                        let left_out: usize = left_out.rsplit_once(", ").unwrap().1.parse().unwrap();
                        let tail = end.chars().count() - 1;
                        prop_assert_eq!(head.chars().count() + left_out + tail, total);
                    }
                }
            }
        }
    }
}
