//! Hidden characters in third-party text: output of guests and servers, documents, file names.
//!
//! This module alone decides which characters are hidden: characters that control the display or are invisible. Before
//! a person or a model reads the text, they are escaped, removed or refused. A text then cannot forge a line, move the
//! cursor, or tell a model something that people do not see.
//!
//! | characters | hidden |
//! |---|---|
//! | controls (C0, DEL, C1), line and paragraph separators | always; callers decide which line breaks and tabs to keep |
//! | bidirectional marks and overrides | always |
//! | default ignorable code points of Unicode: zero-width characters, fillers, soft hyphens, tags and others | always, except in the next three rows |
//! | joiners (U+200C, U+200D) | except between two non-ASCII characters, as in Persian, Indic scripts and emoji |
//! | variation selectors | except after a character with variants: a symbol or an ideograph |
//! | tags (U+E0020 to U+E007F) | except in the three flags that are encoded with tags |

use std::borrow::Cow;

/// The tag sequences of the three flags that Unicode recommends for interchange: England, Scotland, Wales.
const FLAGS: [&str; 3] = ["gbeng", "gbsct", "gbwls"];
/// The black flag, the base of these flags.
const FLAG: char = '\u{1f3f4}';
/// The tag that ends a flag.
const FLAG_END: char = '\u{e007f}';

/// Whether a character is hidden in every context. For the characters of a text, [`hidden_chars`] also considers the
/// context.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}')
        || (is_ignorable(c) && !is_joiner(c) && !is_selector(c))
}

/// `Default_Ignorable_Code_Point` of Unicode 16, and the interlinear annotation marks, which are invisible, too.
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

/// Whether a variation selector applies to a base character: Mongolian letters, ideographs, and for other selectors
/// symbols, including the few emoji in ASCII and Latin-1.
fn has_variant(base: char, selector: char) -> bool {
    match selector {
        '\u{180b}'..='\u{180f}' => matches!(base, '\u{1820}'..='\u{18aa}'),
        '\u{e0100}'..='\u{e01ef}' => {
            matches!(base, '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
        }
        _ => matches!(base, '0'..='9' | '#' | '*' | '\u{a9}' | '\u{ae}') || u32::from(base) >= 0x1000,
    }
}

/// Returns the hidden characters of a text with their byte offsets, as in the table above.
pub fn hidden_chars(text: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    // Almost all texts have only these bytes.
    let plain = text.bytes().all(|b| (b' '..=b'~').contains(&b));
    let mut chars = if plain { "" } else { text }.char_indices();
    // The last visible character, and whether a selector or a joiner follows it.
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

/// Returns the end of a tag-encoded flag that starts at `at`.
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

/// Returns the first hidden character of a text. Line breaks and tabs are allowed.
#[must_use]
pub fn first_hidden(text: &str) -> Option<char> {
    hidden_chars(text).map(|(_, c)| c).find(|c| !matches!(c, '\n' | '\t' | '\r'))
}

/// Replaces the hidden characters that `is_replaced` selects by the output of `write`.
fn replace_hidden(
    text: &str,
    is_replaced: impl Fn(usize, char) -> bool,
    write: fn(char, &mut String),
) -> Cow<'_, str> {
    let mut out = String::new();
    let mut done = 0;
    for (at, c) in hidden_chars(text).filter(|(at, c)| is_replaced(*at, *c)) {
        out.push_str(text.get(done..at).unwrap_or_default());
        write(c, &mut out);
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

/// Writes a character as a JSON escape.
pub fn escape_json(c: char, out: &mut String) {
    out.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
}

/// Escapes hidden characters, line breaks and tabs included.
#[must_use]
pub(crate) fn escape_all_hidden(text: &str) -> Cow<'_, str> {
    replace_hidden(text, |_, _| true, push_escaped)
}

/// Escapes hidden characters for terminals and models. Line breaks and tabs are kept.
#[must_use]
pub fn escape_hidden(text: &str) -> Cow<'_, str> {
    let breaks = |at: usize, c: char| match c {
        '\n' | '\t' => true,
        '\r' => text.as_bytes().get(at + 1) == Some(&b'\n'),
        _ => false,
    };
    replace_hidden(text, |at, c| !breaks(at, c), push_escaped)
}

/// Removes hidden characters. Line breaks and tabs are kept.
#[must_use]
pub fn remove_hidden(text: &str) -> Cow<'_, str> {
    replace_hidden(text, |_, c| !matches!(c, '\n' | '\t'), |_, _| {})
}

/// Escapes characters that can smuggle invisible text: tags, and variation selectors and joiners without effect. All
/// other characters are kept, because content must arrive unchanged.
#[must_use]
pub fn escape_smuggled(text: &str) -> Cow<'_, str> {
    let smuggles = |_, c| is_joiner(c) || is_selector(c) || matches!(c, '\u{e0000}'..='\u{e0fff}');
    replace_hidden(text, smuggles, push_escaped)
}

/// Escapes the hidden characters of a JSON text. The value stays the same, and the text is safe for terminals and
/// line-based files.
#[must_use]
pub fn escape_hidden_json(json: &str) -> Cow<'_, str> {
    // In JSON, line breaks and tabs occur only outside strings.
    replace_hidden(json, |_, c| !matches!(c, '\n' | '\t' | '\r'), escape_json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_control_the_terminal() {
        assert_eq!(escape_hidden("a\tb\n\x1b]0;title\x07\u{202e}"), "a\tb\n\\u{1b}]0;title\\u{7}\\u{202e}");
        assert_eq!(escape_hidden("a\r\nb\rc"), "a\r\nb\\rc");
        assert!(matches!(escape_hidden("plain\ntext"), Cow::Borrowed(_)));
    }

    #[test]
    fn joiners_and_selectors_of_languages_and_emoji_are_kept() {
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
    fn characters_that_can_smuggle_text_are_hidden() {
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
        assert_eq!(
            escape_smuggled("a\u{e0041}\u{200b}\u{feff}\x1b[0m"),
            "a\\u{e0041}\u{200b}\u{feff}\x1b[0m"
        );
    }
}
