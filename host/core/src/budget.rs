//! How many characters a result may have, and how it is cut to them.
//!
//! Characters are Unicode scalar values. Unlike the seed, the marker is inside the budget, a cut never falls into a
//! character, and errors are cut too.

/// The share of one call: `floor(total / calls)`, capped by the tool's own bound.
#[must_use]
pub fn share(total: usize, calls: usize, own: Option<u64>) -> usize {
    let share = total / calls.max(1);
    own.map_or(share, |own| share.min(usize::try_from(own).unwrap_or(usize::MAX)))
}

/// Cuts `text` in place to at most `budget` characters, marker included; returns how many it had if it was cut.
pub fn cut(text: &mut String, budget: usize) -> Option<usize> {
    // A text of as many bytes has at most as many characters.
    if text.len() <= budget {
        return None;
    }
    let total = text.chars().count();
    if total <= budget {
        return None;
    }
    let marker = format!("\n[truncated — {total} chars total]");
    let room = budget.checked_sub(marker.chars().count());
    let end = text.char_indices().nth(room.unwrap_or(budget)).map_or(text.len(), |(at, _)| at);
    text.truncate(end);
    if room.is_some() {
        text.push_str(&marker);
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
