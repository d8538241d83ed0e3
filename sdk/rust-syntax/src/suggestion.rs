//! Suggestions for mistyped words.

/// The largest edit distance of a typo.
const MOST: usize = 2;

/// Returns ", do you mean `…`?" with the nearest known word, or nothing.
pub fn of<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    let nearest = known.into_iter().map(|one| (distance(word, one), one)).min();
    match nearest {
        Some((letters, one)) if letters <= MOST.min(one.len() / 2) => format!(", do you mean `{one}`?"),
        _ => String::new(),
    }
}

/// The edit distance of two words; swapped neighbours count as one edit (Damerau, 1964).
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.iter().enumerate() {
        let mut this = vec![row + 1];
        for (column, opposite) in other.iter().enumerate() {
            let at = |line: &[usize], place: usize| line.get(place).copied().unwrap_or(usize::MAX - 1);
            let swapped = row > 0
                && column > 0
                && one.get(row - 1) == Some(opposite)
                && other.get(column - 1) == Some(letter);
            let swap = if swapped { at(&before, column - 1) + 1 } else { usize::MAX };
            let change = at(&last, column) + usize::from(letter != opposite);
            this.push(change.min(at(&last, column + 1) + 1).min(at(&this, column) + 1).min(swap));
        }
        before = std::mem::replace(&mut last, this);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_meant_if_it_is_near() {
        let known = ["fs_read", "net", "kv", "timeout_ms"];
        assert_eq!(of("fs_raed", known), ", do you mean `fs_read`?");
        assert_eq!(of("timeout", known), "");
        assert_eq!(of("timeout_s", known), ", do you mean `timeout_ms`?");
        assert_eq!(of("nte", known), ", do you mean `net`?");
        assert_eq!(of("files", known), "");
        assert_eq!(of("x", known), "");
        assert_eq!((distance("", "ab"), distance("ab", "ba"), distance("abc", "abc")), (2, 1, 0));
    }
}
