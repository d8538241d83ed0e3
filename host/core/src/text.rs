//! Text of others, shown to people: a guest's, a model's, a file's name. What a terminal obeys or a reader does not
//! see is escaped, so that no text can forge a line, move the cursor or hide what it says.

use std::borrow::Cow;

/// Whether a character is obeyed rather than shown: controls, line and paragraph separators, what reorders the text
/// around it, and what is not seen at all. The joiners that emoji and several scripts need are not among them.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// Makes a text one line of at most `most` characters.
#[must_use]
pub fn one_line(text: &str, most: usize) -> String {
    if text.len() <= most && text.bytes().all(|b| (b' '..=b'~').contains(&b)) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len().min(most));
    for c in text.chars().take(most) {
        if is_hidden(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    if text.chars().nth(most).is_some() {
        out.push('…');
    }
    out
}

/// Makes a text fit for a terminal; line breaks and tabs stay.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| is_hidden(c) && !matches!(c, '\n' | '\t');
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if obeyed(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_can_not_forge_another() {
        assert_eq!(one_line("a\n\x1b[31mb\u{202e}", 100), "a\\n\\u{1b}[31mb\\u{202e}");
        assert_eq!(one_line("äöü", 2), "äö…");
        assert_eq!(one_line("👩\u{200d}💻", 9), "👩\u{200d}💻", "a joiner is no trick");
    }

    #[test]
    fn a_text_can_not_drive_the_terminal() {
        assert_eq!(visible("a\tb\n\x1b]0;title\x07\u{202e}"), "a\tb\n\\u{1b}]0;title\\u{7}\\u{202e}");
        assert!(matches!(visible("plain\ntext"), Cow::Borrowed(_)));
    }
}
