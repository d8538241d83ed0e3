//! The pointer to output that a tool wrote to a file because it was too long: `full output written to P — use read_file
//! …`. Without the pointer a model could not read the rest, so no reducer may lose it or cut it in two.

/// The start of a pointer.
const PHRASE: &str = "full output written to ";

/// Longer paths are not pointers.
const PATH_CHARS: usize = 1024;

/// The last pointer of a text, from the phrase to the end of its path.
pub(crate) fn last(text: &str) -> Option<&str> {
    pointer_at(text, text.rfind(PHRASE)?)
}

/// The pointer at `start`.
fn pointer_at(text: &str, start: usize) -> Option<&str> {
    let rest = text.get(start..)?;
    let line = rest.split(['\n', '\r', '\0']).next()?;
    // A line may have megabytes. A distant end is not the end of a path.
    let near = line.char_indices().nth(PATH_CHARS).and_then(|(end, _)| line.get(..end));
    let shown = match (near.unwrap_or(line).split_once(" — "), near) {
        (Some((shown, _)), _) => shown,
        (None, Some(_)) => return None,
        (None, None) => line.trim_end().strip_suffix(']').unwrap_or(line.trim_end()),
    };
    (shown.len() > PHRASE.len()).then_some(shown)
}

/// The line that restores a pointer.
pub(crate) fn note(pointer: &str) -> String {
    format!("\n[{pointer} — use read_file to retrieve it]")
}

/// Returns whether a line contains a pointer.
pub(crate) fn is_in(line: &str) -> bool {
    // Most lines are short, and a search costs more than a comparison.
    line.len() > PHRASE.len() && line.contains(PHRASE)
}

/// Whether a line is no content: one in brackets, or with a pointer.
pub(crate) fn is_note(line: &str) -> bool {
    (line.starts_with('[') && line.trim_end().ends_with(']')) || is_in(line)
}

/// A place to cut at or before `at` that does not cut a pointer in two.
pub(crate) fn before(text: &str, at: usize) -> usize {
    span_around(text, at).map_or(at, |(start, _)| start)
}

/// A place to cut at or behind `at` that does not cut a pointer in two.
pub(crate) fn behind(text: &str, at: usize) -> usize {
    span_around(text, at).map_or(at, |(_, end)| end)
}

/// The pointer, or what looks like the beginning of one, around a place.
fn span_around(text: &str, at: usize) -> Option<(usize, usize)> {
    // A pointer has at most this many bytes on each side of the cut.
    const REACH: usize = PHRASE.len() + 4 * PATH_CHARS;
    let from = text.floor_char_boundary(at.saturating_sub(REACH));
    let to = text.ceil_char_boundary(at.saturating_add(PHRASE.len()).min(text.len()));
    let start = from + text.get(from..to)?.rfind(PHRASE)?;
    let end = start + pointer_at(text, start).map_or(PHRASE.len(), str::len);
    (start < at && at < end).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_ends_at_the_dash_the_bracket_or_the_line() {
        for (text, expected) in [
            ("a\n[x; full output written to /p q.log — use read_file to see]\nb", Some("/p q.log")),
            ("[full output written to /p.log]\n", Some("/p.log")),
            ("full output written to /p.log\r\n", Some("/p.log")),
            ("full output written to \n", None),
            ("full output written", None),
            ("full output written to /1\nfull output written to /2\n", Some("/2")),
        ] {
            assert_eq!(last(text).map(|p| &p[PHRASE.len()..]), expected, "{text}");
        }
        assert_eq!(last(&format!("{PHRASE}{}", "x".repeat(1 << 20))), None, "no path");
    }

    #[test]
    fn a_cut_goes_around_a_pointer() {
        let text = "aaa full output written to /é/b — use";
        let end = text.find(" —").unwrap();
        for at in 5..end {
            if text.is_char_boundary(at) {
                assert_eq!((before(text, at), behind(text, at)), (4, end), "{at}");
            }
        }
        assert_eq!((before(text, 4), behind(text, 4)), (4, 4));
        assert_eq!((before(text, end), behind(text, end)), (end, end));
    }
}
