//! The output of a program as text for a model. Its end matters as much as its start.

/// Keeps the first and last lines of a text within `most` characters, and states how much is missing between them.
pub(crate) fn head_and_tail(text: &str, most: usize) -> String {
    let total = text.chars().count();
    if total <= most {
        return text.to_owned();
    }
    // A program prints its result or its error at the end.
    let head: usize = most / 3;
    let tail = most - head;
    let first: String = text.chars().take(head).collect();
    let last: String = text.chars().skip(total - tail).collect();
    // Whole lines if there are any.
    let first = first.rfind('\n').map_or(first.as_str(), |at| first.get(..=at).unwrap_or_default());
    let last = last.find('\n').map_or(last.as_str(), |at| last.get(at + 1..).unwrap_or_default());
    let missing = total - first.chars().count() - last.chars().count();
    let line = if first.is_empty() || first.ends_with('\n') { "" } else { "\n" };
    format!("{first}{line}[{missing} characters left out]\n{last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_text_stays_and_a_long_one_loses_its_middle() {
        assert_eq!(head_and_tail("a\nb\n", 10), "a\nb\n");
        let long: String = (0..100).map(|n| format!("line {n}\n")).collect();
        let cut = head_and_tail(&long, 90);
        assert!(cut.starts_with("line 0\nline 1\n") && cut.ends_with("line 98\nline 99\n"), "{cut}");
        assert!(cut.contains("characters left out]\nline 9"), "{cut}");
        let flat = head_and_tail(&"é".repeat(100), 30);
        assert!(flat.starts_with("éééééééééé\n[70 characters left out]\n"), "{flat}");
    }
}
