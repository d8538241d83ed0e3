//! How many characters a result may have, and how it is cut to them.
//!
//! Characters are Unicode scalar values. Unlike the seed, the marker is inside the budget, a cut never falls into a
//! character, and errors are cut too.

use toolbay_policy::output::Truncation;

/// The share of one call: `floor(total / calls)`, capped by the tool's own bound.
#[must_use]
pub fn share(total: usize, calls: usize, own: Option<u64>) -> usize {
    let share = total / calls.max(1);
    own.map_or(share, |own| share.min(usize::try_from(own).unwrap_or(usize::MAX)))
}

/// How many characters a text has, if those are more than the budget.
#[must_use]
pub fn over(text: &str, budget: usize) -> Option<usize> {
    // A text of as many bytes has at most as many characters.
    if text.len() <= budget {
        return None;
    }
    let total = text.chars().count();
    (total > budget).then_some(total)
}

/// Cuts `text` in place to at most `budget` characters, marker included; returns how many it had if it was cut.
pub fn cut(text: &mut String, budget: usize) -> Option<usize> {
    let total = over(text, budget)?;
    shorten(text, budget, Truncation::Head, total, "");
    Some(total)
}

/// Cuts `text`, which is longer than `budget`, to it. The marker says that there were `total` characters, and `rest`
/// after it, if there is room for that.
pub fn shorten(text: &mut String, budget: usize, mode: Truncation, total: usize, rest: &str) {
    let here = text.chars().count();
    // The number of characters that are left out is known when the marker is; it has no more digits than this.
    let marker = |left_out: usize, rest: &str| match mode {
        Truncation::Head => format!("\n[truncated — {total} chars total{rest}]"),
        Truncation::HeadTail => {
            format!("\n[truncated — {total} chars total, {left_out} left out here{rest}]\n")
        }
    };
    let length = |rest: &str| marker(here, rest).chars().count();
    let (rest, room) = match (budget.checked_sub(length(rest)), budget.checked_sub(length(""))) {
        // What the way to the rest costs is worth it as long as it leaves anything to read.
        (Some(room), _) if room > 0 || rest.is_empty() => (rest, room),
        (_, Some(room)) => ("", room),
        (_, None) => return truncate(text, budget),
    };
    let marker = marker(here.saturating_sub(room), rest);
    let tail_chars = match mode {
        Truncation::Head => 0,
        Truncation::HeadTail => room - room / 2,
    };
    let tail = tail_chars.checked_sub(1).and_then(|before| text.char_indices().rev().nth(before));
    let tail = tail.and_then(|(at, _)| text.get(at..)).map(ToOwned::to_owned).unwrap_or_default();
    truncate(text, room - tail_chars);
    text.push_str(&marker);
    text.push_str(&tail);
}

fn truncate(text: &mut String, chars: usize) {
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
    fn exactly_at_the_limit_is_untouched() {
        for text in ["x".repeat(100), "🙂".repeat(100), String::new()] {
            let mut out = text.clone();
            assert_eq!(cut(&mut out, 100), None);
            assert_eq!(out, text);
        }
    }

    #[test]
    fn both_ends_stay_and_the_middle_goes() {
        let text = "A".repeat(100) + &"B".repeat(100);
        let shortened = |budget, mode, rest: &str| {
            let mut out = text.clone();
            shorten(&mut out, budget, mode, 200, rest);
            out
        };
        let out = shortened(100, Truncation::HeadTail, "");
        let marker = "\n[truncated — 200 chars total, 150 left out here]\n";
        assert_eq!(out, format!("{}{marker}{}", "A".repeat(25), "B".repeat(25)));
        for mode in [Truncation::Head, Truncation::HeadTail] {
            assert_eq!(shortened(5, mode, "; more"), "AAAAA", "the marker has no room");
            let out = shortened(60, mode, "; the rest: read_output");
            assert!(out.contains("; the rest: read_output") == (mode == Truncation::Head), "{out}");
        }
        let out = shortened(100, Truncation::HeadTail, "; the rest: read_output");
        assert!(out.contains("; the rest: read_output]\n") && out.ends_with('B'), "{out}");
    }

    proptest! {
        #[test]
        fn whatever_is_cut_fits_and_is_a_part_of_it(
            text in "(?s).{0,300}", budget in 0usize..300, tail in any::<bool>(), rest in "[a-z]{0,60}",
        ) {
            let mode = if tail { Truncation::HeadTail } else { Truncation::Head };
            let total = text.chars().count();
            prop_assert_eq!(over(&text, budget), (total > budget).then_some(total));
            if total <= budget {
                return Ok(());
            }
            let mut out = text.clone();
            shorten(&mut out, budget, mode, total, &rest);
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
