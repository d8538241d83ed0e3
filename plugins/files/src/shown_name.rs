//! File names in texts. A file name can have any character: a line break would forge an entry, an escape sequence would
//! control the reader's terminal, and a direction override would show another name.

use std::borrow::Cow;

/// The name with such characters spelt out, as `\u{1b}`. The structured part of a result has the name itself.
pub(crate) fn shown_name(name: &str) -> Cow<'_, str> {
    if !name.chars().any(is_hidden) {
        return Cow::Borrowed(name);
    }
    let mut shown = String::with_capacity(name.len() + 8);
    for c in name.chars() {
        if is_hidden(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Whether a character controls the display or is invisible: controls, separators of lines, and the default ignorable
/// characters of Unicode, except joiners and variation selectors, which languages and emoji need.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
            | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e00ff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_forge_an_entry_or_a_direction() {
        for (name, shown) in [
            ("a\nb/", "a\\nb/"),
            ("\x1b[2Jx", "\\u{1b}[2Jx"),
            ("invoice\u{202e}fdp.exe", "invoice\\u{202e}fdp.exe"),
            ("a\u{200b}b\u{e0041}", "a\\u{200b}b\\u{e0041}"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("Übung 日本 ❤\u{fe0f} می\u{200c}خواهم.txt", "Übung 日本 ❤\u{fe0f} می\u{200c}خواهم.txt"),
        ] {
            assert_eq!(shown_name(name), shown);
        }
    }
}
