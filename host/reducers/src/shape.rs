//! Converts terminal output to plain text: colours, overwritten progress, indentation.

use std::borrow::Cow;

/// Removes escape sequences, and text of a line that a carriage return overwrites.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(['\u{1b}', '\r']) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        let line = line.strip_suffix('\r').unwrap_or(line);
        push_without_escapes(&mut shown, line.rsplit('\r').next().unwrap_or(line));
        shown.push_str(end);
    }
    Cow::Owned(shown)
}

/// Removes `ESC [ … letter`, and `ESC ] …` up to `BEL` or `ESC \` (ECMA-48, sections 5.4 and 5.6). Of an unfinished
/// sequence, only the `ESC` is removed. No search passes the next `ESC`, so the line is read at most twice.
fn push_without_escapes(shown: &mut String, line: &str) {
    let mut rest = line;
    while let Some((before, sequence)) = rest.split_once('\u{1b}') {
        shown.push_str(before);
        rest = match sequence.chars().next() {
            Some('[') => behind_control(sequence),
            Some(']') => behind_command(sequence),
            _ => None,
        }
        .unwrap_or(sequence);
    }
    shown.push_str(rest);
}

/// The text after `[`, parameters and a final character.
fn behind_control(sequence: &str) -> Option<&str> {
    let end = sequence.bytes().skip(1).position(|b| !(0x20..=0x3f).contains(&b))? + 1;
    let is_final = sequence.as_bytes().get(end).is_some_and(|b| (0x40..=0x7e).contains(b));
    is_final.then(|| sequence.get(end + 1..)).flatten()
}

/// The text after `]`, a string and its terminator.
fn behind_command(sequence: &str) -> Option<&str> {
    let (_, end) = sequence.split_at_checked(sequence.find(['\u{7}', '\u{1b}'])?)?;
    end.strip_prefix('\u{7}').or_else(|| end.strip_prefix("\u{1b}\\"))
}

/// The indentation of a line, in characters.
pub(crate) fn indent(line: &str) -> usize {
    line.chars().take_while(|c| c.is_whitespace()).count()
}

/// Splits leading digits from a text, if there are any.
pub(crate) fn digits(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (end > 0).then(|| text.split_at_checked(end)).flatten()
}

/// Returns whether a text begins with one of these.
pub(crate) fn begins(text: &str, starts: &[&str]) -> bool {
    starts.iter().any(|start| text.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_overwritten_text_go() {
        for (text, expected) in [
            ("a\u{1b}[91mred\u{1b}[0m b\n", "ared b\n"),
            ("\u{1b}]8;;http://x\u{7}link\u{1b}]8;;\u{7}", "link"),
            (" 10%\r 50%\r100%\nnext\r\n", "100%\nnext\n"),
            ("\u{1b}[2K\u{1b}[1Gdone", "done"),
            ("\u{1b}]0;title\u{1b}\\done", "done"),
            ("\u{1b}]0;title \u{1b}[1mbold", "]0;title bold"),
            (
                "an escape \u{1b}[that é does not end",
                "an escape that é does not end".replace("that", "hat").as_str(),
            ),
            ("\u{1b}", ""),
        ] {
            assert_eq!(plain(text), expected, "{text:?}");
        }
        assert!(matches!(plain("as it is\n"), Cow::Borrowed(_)));
    }
}
