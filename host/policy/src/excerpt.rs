//! Short forms of third-party texts: one line of a bounded length, and the first sentence.

use crate::hidden_chars::escape_all_hidden;

/// Formats a text as one line of at most `most` characters, with hidden characters escaped.
#[must_use]
pub fn one_line(text: &str, most: usize) -> String {
    let end = text.char_indices().nth(most).map_or(text.len(), |(at, _)| at);
    let mut out = escape_all_hidden(text.get(..end).unwrap_or_default()).into_owned();
    if end < text.len() {
        out.push('…');
    }
    out
}

/// Returns the first sentence of a description, from its first line.
#[must_use]
pub fn first_sentence(text: &str) -> &str {
    let line = text.trim_start().lines().next().unwrap_or_default();
    line.find(". ").and_then(|end| line.get(..=end)).unwrap_or(line).trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_forge_a_line() {
        assert_eq!(one_line("a\n\x1b[31mb\u{202e}", 100), "a\\n\\u{1b}[31mb\\u{202e}");
        assert_eq!(one_line("äöü", 2), "äö…");
        assert_eq!(one_line("👩\u{200d}💻", 9), "👩\u{200d}💻", "an emoji joiner is kept");
    }

    #[test]
    fn a_description_is_cut_to_its_first_sentence() {
        for (text, sentence) in [
            ("Read a file from disk. Supports much.", "Read a file from disk."),
            ("No end", "No end"),
            ("\n A.\nB", "A."),
            ("Version 1.2 of it. More", "Version 1.2 of it."),
            ("", ""),
        ] {
            assert_eq!(first_sentence(text), sentence, "{text:?}");
        }
    }
}
