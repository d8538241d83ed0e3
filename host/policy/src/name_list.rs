//! Lists of names in messages: each name in backticks, and a bounded number of them.

use std::fmt::Display;

/// Formats the first `most` names, and the number of the others: `` `a`, `b` and 3 more``.
#[must_use]
pub fn list_names(names: impl IntoIterator<Item = impl Display>, most: usize) -> String {
    let mut names = names.into_iter();
    let shown = quoted(names.by_ref().take(most)).join(", ");
    match names.count() {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Formats all names: `` `a`, `b`, `c` ``. For names whose number is bounded.
#[must_use]
pub fn list_all_names(names: impl IntoIterator<Item = impl Display>) -> String {
    quoted(names).join(", ")
}

/// Formats alternatives: `` `a`, `b` or `c` ``. `None` if there are none.
#[must_use]
pub fn list_choices(names: impl IntoIterator<Item = impl Display>) -> Option<String> {
    let quoted = quoted(names);
    let (last, others) = quoted.split_last()?;
    Some(if others.is_empty() { last.clone() } else { format!("{} or {last}", others.join(", ")) })
}

fn quoted(names: impl IntoIterator<Item = impl Display>) -> Vec<String> {
    names.into_iter().map(|name| format!("`{name}`")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_bounded_and_counts_the_others() {
        for (names, most, expected) in [
            (&[][..], 2, ""),
            (&["a"], 2, "`a`"),
            (&["a", "b"], 2, "`a`, `b`"),
            (&["a", "b", "c", "d"], 2, "`a`, `b` and 2 more"),
        ] {
            assert_eq!(list_names(names, most), expected);
        }
        assert_eq!(list_all_names(["a", "b", "c"]), "`a`, `b`, `c`");
    }

    #[test]
    fn the_last_of_several_choices_follows_an_or() {
        for (names, expected) in
            [(&[][..], None), (&["a"], Some("`a`")), (&["a", "b", "c"], Some("`a`, `b` or `c`"))]
        {
            assert_eq!(list_choices(names).as_deref(), expected);
        }
    }
}
