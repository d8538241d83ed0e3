//! Text of others, shown to people and models: a guest's, a server's, a document's, a file's name. This module alone
//! decides which characters of it are obeyed or not seen. They are escaped or refused, so that no text can forge a line,
//! move the cursor or say something to a model that people do not see.
//!
//! | characters | hidden |
//! |---|---|
//! | controls (C0, DEL, C1), line and paragraph separators | always; callers say which line breaks and tabs stay |
//! | marks and overrides of the direction of text | always |
//! | what Unicode calls default ignorable: zero-width characters, fillers, soft hyphens, tags and the rest | always, but for the next three rows |
//! | joiners (U+200C, U+200D) | unless one stands between two characters of other scripts than ASCII, as in Persian, Indic scripts and emoji |
//! | variation selectors | unless one stands behind a character that has variants: a symbol or an ideograph |
//! | tags (U+E0020 to U+E007F) | unless they spell one of the three flags that are written with them |

use std::borrow::Cow;

/// What follows the black flag in the three flags that Unicode recommends with tags: England, Scotland, Wales.
const FLAGS: [&str; 3] = ["gbeng", "gbsct", "gbwls"];
/// The black flag, with which they begin.
const FLAG: char = '\u{1f3f4}';
/// Ends them.
const FLAG_END: char = '\u{e007f}';

/// Whether a character is obeyed rather than shown, or not seen, wherever it stands. Of the characters of a text,
/// [`hidden`] knows more.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}')
        || (is_ignorable(c) && !is_joiner(c) && !is_selector(c))
}

/// `Default_Ignorable_Code_Point` of Unicode 16, and the marks of interlinear annotations, which are not shown either.
fn is_ignorable(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}')
}

fn is_selector(c: char) -> bool {
    matches!(c, '\u{180b}'..='\u{180d}' | '\u{180f}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

/// Whether a character has variants that a selector chooses among: Mongolian letters, ideographs, and for the others the
/// symbols, with the few of ASCII and Latin-1 that are emoji.
fn has_variant(base: char, selector: char) -> bool {
    match selector {
        '\u{180b}'..='\u{180f}' => matches!(base, '\u{1820}'..='\u{18aa}'),
        '\u{e0100}'..='\u{e01ef}' => {
            matches!(base, '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
        }
        _ => matches!(base, '0'..='9' | '#' | '*' | '\u{a9}' | '\u{ae}') || u32::from(base) >= 0x1000,
    }
}

/// The characters of a text that are obeyed rather than shown, or not seen, with where they stand; see the table above.
pub fn hidden_chars(text: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    // Nearly every text is of these alone.
    let plain = text.bytes().all(|b| (b' '..=b'~').contains(&b));
    let mut chars = if plain { "" } else { text }.char_indices();
    // The character that is seen before this one, and what stands between the two: a selector, a joiner.
    let (mut base, mut selected, mut joined) = (None::<char>, false, false);
    let mut flag_until = 0;
    std::iter::from_fn(move || {
        loop {
            let (at, c) = chars.next()?;
            if at < flag_until {
                continue;
            }
            if is_selector(c) {
                let fine = !selected && !joined && base.is_some_and(|base| has_variant(base, c));
                selected = true;
                if fine {
                    continue;
                }
                return Some((at, c));
            }
            if is_joiner(c) {
                let next = chars.clone().next().map(|(_, next)| next);
                let other = |c: char| !c.is_ascii() && !is_hidden(c) && !is_joiner(c) && !is_selector(c);
                let fine = !joined && base.is_some_and(other) && next.is_some_and(other);
                joined = true;
                if fine {
                    continue;
                }
                return Some((at, c));
            }
            if is_hidden(c) {
                return Some((at, c));
            }
            (base, selected, joined) = (Some(c), false, false);
            if c == FLAG {
                flag_until = flag_end(text, at).unwrap_or(0);
            }
        }
    })
}

/// Where a flag that is written with tags ends, if one begins here.
fn flag_end(text: &str, at: usize) -> Option<usize> {
    let tags = |flag: &str| -> String {
        let tag = |b: u8| char::from_u32(0xe0000 + u32::from(b));
        std::iter::once(FLAG).chain(flag.bytes().filter_map(tag)).chain([FLAG_END]).collect()
    };
    let rest = text.get(at..)?;
    FLAGS
        .iter()
        .map(|flag| tags(flag))
        .find(|flag| rest.starts_with(flag.as_str()))
        .map(|flag| at + flag.len())
}

/// The first character of a text that may not stand in it; line breaks and tabs may.
#[must_use]
pub fn first_hidden(text: &str) -> Option<char> {
    hidden_chars(text).map(|(_, c)| c).find(|c| !matches!(c, '\n' | '\t' | '\r'))
}

/// The text in which `put` stands for those hidden characters that `goes` means.
fn replace_hidden(text: &str, goes: impl Fn(usize, char) -> bool, put: fn(char, &mut String)) -> Cow<'_, str> {
    let mut out = String::new();
    let mut done = 0;
    for (at, c) in hidden_chars(text).filter(|(at, c)| goes(*at, *c)) {
        out.push_str(text.get(done..at).unwrap_or_default());
        put(c, &mut out);
        done = at + c.len_utf8();
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(done..).unwrap_or_default());
    Cow::Owned(out)
}

fn push_escaped(c: char, out: &mut String) {
    out.extend(c.escape_default());
}

/// Writes a character as JSON escapes it.
pub fn escape_json(c: char, out: &mut String) {
    out.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
}

/// Makes a text one line of at most `most` characters.
#[must_use]
pub fn one_line(text: &str, most: usize) -> String {
    let end = text.char_indices().nth(most).map_or(text.len(), |(at, _)| at);
    let mut out = replace_hidden(text.get(..end).unwrap_or_default(), |_, _| true, push_escaped).into_owned();
    if end < text.len() {
        out.push('…');
    }
    out
}

/// Makes a text fit for a terminal and for a model: what is hidden is spelt out. Line breaks and tabs stay.
#[must_use]
pub fn escape_hidden(text: &str) -> Cow<'_, str> {
    let breaks = |at: usize, c: char| match c {
        '\n' | '\t' => true,
        '\r' => text.as_bytes().get(at + 1) == Some(&b'\n'),
        _ => false,
    };
    replace_hidden(text, |at, c| !breaks(at, c), push_escaped)
}

/// Leaves out what is hidden. Line breaks and tabs stay.
#[must_use]
pub fn remove_hidden(text: &str) -> Cow<'_, str> {
    replace_hidden(text, |_, c| !matches!(c, '\n' | '\t'), |_, _| {})
}

/// Spells out what no text needs and what can carry another text unseen: tags, variation selectors and joiners where they
/// mean nothing. All else stays as it is: content must arrive as it was.
#[must_use]
pub fn escape_smuggled(text: &str) -> Cow<'_, str> {
    let smuggles = |_, c| is_joiner(c) || is_selector(c) || matches!(c, '\u{e0000}'..='\u{e0fff}');
    replace_hidden(text, smuggles, push_escaped)
}

/// A JSON text in which what is hidden is escaped: the same value, fit for a terminal and for a file of lines.
#[must_use]
pub fn escape_hidden_json(json: &str) -> Cow<'_, str> {
    // Outside of strings JSON has line breaks and tabs only, and inside of them it has neither.
    replace_hidden(json, |_, c| !matches!(c, '\n' | '\t' | '\r'), escape_json)
}

/// The first sentence of a description, of one line.
#[must_use]
pub fn first_sentence(text: &str) -> &str {
    let line = text.trim_start().lines().next().unwrap_or_default();
    line.find(". ").and_then(|end| line.get(..=end)).unwrap_or(line).trim_end()
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
        assert_eq!(escape_hidden("a\tb\n\x1b]0;title\x07\u{202e}"), "a\tb\n\\u{1b}]0;title\\u{7}\\u{202e}");
        assert_eq!(escape_hidden("a\r\nb\rc"), "a\r\nb\\rc");
        assert!(matches!(escape_hidden("plain\ntext"), Cow::Borrowed(_)));
    }

    #[test]
    fn what_languages_and_emoji_need_is_shown() {
        for text in [
            "می\u{200c}خواهم",
            "क्\u{200d}ष",
            "❤\u{fe0f}",
            "❤\u{fe0f}\u{200d}🔥",
            "1\u{fe0f}\u{20e3}",
            "👨\u{200d}👩\u{200d}👧",
            "葛\u{e0100}",
            "🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}",
            "ᠠ\u{180b}",
            "©\u{fe0f}",
            "e\u{301}",
        ] {
            assert_eq!(hidden_chars(text).count(), 0, "{text:?}");
        }
    }

    #[test]
    fn what_can_carry_another_text_unseen_is_hidden() {
        let tags: String =
            "ignore".bytes().map(|b| char::from_u32(0xe0000 + u32::from(b)).unwrap()).collect();
        for (text, most) in [
            (format!("a{tags}"), 6),
            (format!("🏴{tags}\u{e007f}"), 7),
            ("😀\u{e0101}\u{e0102}".to_owned(), 2),
            ("❤\u{fe0f}\u{fe0f}\u{fe01}".to_owned(), 2),
            ("a\u{fe0f}b\u{fe00}".to_owned(), 2),
            ("a\u{200d}b\u{200c}\u{200d}c".to_owned(), 3),
            ("ä\u{200d}\u{200c}\u{200d}ö".to_owned(), 3),
            (
                "x\u{ad}\u{34f}\u{115f}\u{3164}\u{ffa0}\u{2063}\u{feff}\u{200b}\u{180e}\u{1d173}\u{fffa}"
                    .to_owned(),
                11,
            ),
            ("\u{9b}31m\u{7f}\u{85}".to_owned(), 3),
            ("\u{200d}é".to_owned(), 1),
            ("é\u{200d}".to_owned(), 1),
        ] {
            assert_eq!(hidden_chars(&text).count(), most, "{text:?}");
            assert_eq!(first_hidden(&escape_hidden(&text)), None);
            assert_eq!(first_hidden(&remove_hidden(&text)), None);
            let json = serde_json::to_string(&text).unwrap();
            let shown = escape_hidden_json(&json);
            assert_eq!(first_hidden(&shown), None);
            assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        }
        assert_eq!(escape_smuggled("a\u{e0041}\u{200b}\u{feff}\x1b[0m"), "a\\u{e0041}\u{200b}\u{feff}\x1b[0m");
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
