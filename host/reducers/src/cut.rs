//! Truncates text at character boundaries, around pointers, with a marker that counts what is missing.

use crate::pointer;

/// Room for the marker of [`ends`], with numbers of any size.
const MARKER_CHARS: usize = 84;

/// The least text that makes a cut worthwhile.
const LEAST_CHARS: usize = 16;

/// Counts characters (Unicode scalar values), the unit of budgets.
pub(crate) fn chars(text: &str) -> usize {
    text.chars().count()
}

/// A number with its noun: `1 line`, `2 lines`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    match (number, noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) if !noun.ends_with("ey") => format!("{number} {stem}ies"),
        (_, _) if noun.ends_with('h') => format!("{number} {noun}es"),
        _ => format!("{number} {noun}s"),
    }
}

/// Keeps the start and the end of a text with more than `most` characters. Returns `None` for a shorter text, or if
/// `most` leaves no room for a marker.
///
/// Three fifths of the room belong to the start. A cut prefers a nearby line end, and otherwise falls
/// between two characters.
pub(crate) fn ends(text: &str, most: usize) -> Option<String> {
    if text.len() <= most || chars(text) <= most {
        return None;
    }
    let room = most.checked_sub(MARKER_CHARS).filter(|room| *room >= LEAST_CHARS)?;
    let head_chars = room * 3 / 5;
    let head = text.get(..head_end(text, head_chars))?;
    let tail = text.get(tail_start(text, room - head_chars).max(head.len())..)?;
    let removed = text.get(head.len()..text.len() - tail.len())?;
    let (lines, characters) = (count(removed.lines().count(), "line"), count(chars(removed), "character"));
    let break_before = if head.is_empty() || head.ends_with('\n') { "" } else { "\n" };
    Some(format!("{head}{break_before}[… {lines}, {characters} left out …]\n{tail}"))
}

fn head_end(text: &str, most: usize) -> usize {
    let end = text.char_indices().nth(most).map_or(text.len(), |(at, _)| at);
    let line_end = text.get(..end).and_then(|head| head.rfind('\n')).map_or(0, |at| at + 1);
    pointer::before(text, if line_end > end / 2 { line_end } else { end })
}

fn tail_start(text: &str, most: usize) -> usize {
    let start =
        most.checked_sub(1).and_then(|n| text.char_indices().rev().nth(n)).map_or(text.len(), |(at, _)| at);
    let line_start =
        text.get(start..).and_then(|tail| tail.find('\n')).map_or(text.len(), |at| start + at + 1);
    let half = start + (text.len() - start) / 2;
    pointer::behind(text, if line_start < half { line_start } else { start })
}

/// The first `most` characters of a line. The last one is `…` if the line is longer.
pub(crate) fn clip(line: &str, most: usize) -> String {
    if line.len() <= most {
        return line.to_owned();
    }
    if line.char_indices().nth(most).is_none() {
        return line.to_owned();
    }
    let end = line.char_indices().nth(most.saturating_sub(1)).map_or(line.len(), |(at, _)| at);
    let end = pointer::before(line, end);
    format!("{}…", line.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_at_the_limit_is_untouched() {
        for text in ["x".repeat(500), "🙂".repeat(500), "é\n".repeat(250)] {
            assert_eq!(ends(&text, 500), None);
            assert!(ends(&text, 499).is_some());
        }
    }

    #[test]
    fn both_ends_stay_and_the_marker_counts_what_is_gone() {
        let text: String = (1..=1000).map(|n| format!("line {n}\n")).collect();
        let cut = ends(&text, 500).unwrap();
        assert!(cut.starts_with("line 1\nline 2\n") && cut.ends_with("line 999\nline 1000\n"), "{cut}");
        assert!(chars(&cut) <= 500);
        let (head, rest) = cut.split_once("[… ").unwrap();
        let (marker, tail) = rest.split_once(" left out …]\n").unwrap();
        let lines = 1000 - head.lines().count() - tail.lines().count();
        let characters = chars(&text) - chars(head) - chars(tail);
        assert_eq!(marker, format!("{lines} lines, {characters} characters"));
    }

    #[test]
    fn few_long_lines_are_cut_inside() {
        for text in ["é".repeat(9000), format!("{}\n{}", "a".repeat(5000), "b".repeat(5000))] {
            let cut = ends(&text, 800).unwrap();
            assert!((700..=800).contains(&chars(&cut)), "{}", chars(&cut));
            assert_eq!(cut.lines().count(), 3);
        }
    }

    #[test]
    fn any_room_is_kept_to() {
        let text = "é\n".repeat(400);
        for most in 0..=800 {
            if let Some(cut) = ends(&text, most) {
                assert!(chars(&cut) <= most, "{most}: {}", chars(&cut));
            }
        }
        assert_eq!(ends(&text, 10), None, "no room for a marker");
    }

    #[test]
    fn a_pointer_is_not_cut_in_two() {
        let pointer = "full output written to /some/where/a.log — use read_file";
        for place in 0..400 {
            let text = format!("{}{pointer}{}", "a".repeat(place), "b".repeat(400 - place));
            let cut = ends(&text, 250).unwrap();
            let whole = cut.contains("full output written to /some/where/a.log");
            assert_eq!(whole, cut.contains("full output"), "{place}: {cut}");
            let clipped = clip(&text, 100);
            assert_eq!(clipped.contains("/a.log"), clipped.contains("full output"), "{place}: {clipped}");
        }
    }

    #[test]
    fn clipping_counts_characters() {
        assert_eq!(clip("äöü", 3), "äöü");
        assert_eq!(clip("äöüß", 3), "äö…");
    }

    #[test]
    fn nouns_have_plurals() {
        assert_eq!(count(1, "entry"), "1 entry");
        assert_eq!(count(2, "entry"), "2 entries");
        assert_eq!(count(3, "match"), "3 matches");
        assert_eq!(count(0, "line"), "0 lines");
    }
}
