//! Folding of characters: look-alikes of relevant characters become those, and invisible characters are dropped.

/// The character that this one looks like; `None` if it is invisible.
pub(crate) fn fold(c: char) -> Option<char> {
    if c.is_ascii() && !c.is_ascii_control() {
        return Some(c);
    }
    if is_invisible(c) {
        return None;
    }
    let code = u32::from(c);
    Some(match c {
        '<' | '﹤' | '‹' | '〈' | '⟨' | '❮' | '❬' | '❰' | 'ᐸ' | '˂' | '≺' | '⋖' | '⪡' | 'ᚲ' | '«' | '≪'
        | '𝈶' | '⧼' | '⦑' => '<',
        '>' | '﹥' | '›' | '〉' | '⟩' | '❯' | '❭' | '❱' | 'ᐳ' | '˃' | '≻' | '⋗' | '⪢' | '»' | '≫' | '𝈷'
        | '⧽' | '⦒' => '>',
        '|' | '∣' | '│' | '┃' | '❘' | '❙' | '⏐' | '¦' | 'ǀ' | '⎸' | '⎹' | '︱' | 'ⵏ' => {
            '|'
        }
        '/' | '⁄' | '∕' | '⧸' | '╱' | '⟋' | '〳' | 'Ⳇ' | '⼃' | '丿' | '᜵' => '/',
        '▁' | '_' | '‿' | '⁀' | '﹍' | '﹎' | '﹏' => '_',
        '[' | '⟦' | '【' | '〔' | '〚' | '❲' | '⁅' => '[',
        ']' | '⟧' | '】' | '〕' | '〛' | '❳' | '⁆' => ']',
        '"' | '“' | '”' | '‟' | '〝' | '〞' | '″' => '"',
        '\n' | '\u{2028}' | '\u{2029}' | '\u{85}' => '\n',
        '\u{ff01}'..='\u{ff5e}' => ascii(code - 0xff01 + 0x21),
        // Mathematical alphabets: 13 and a half, each of 26 capitals and 26 small letters.
        '\u{1d400}'..='\u{1d6a3}' => letter((code - 0x1d400) % 52),
        '\u{24b6}'..='\u{24e9}' => letter(code - 0x24b6),
        '\u{249c}'..='\u{24b5}' => letter(code - 0x249c + 26),
        '\u{1f110}'..='\u{1f129}' => letter(code - 0x1f110),
        '\u{1f130}'..='\u{1f149}' => letter(code - 0x1f130),
        '\u{1f150}'..='\u{1f169}' => letter(code - 0x1f150),
        '\u{1f170}'..='\u{1f189}' => letter(code - 0x1f170),
        '\u{2329}' => '<',
        '\u{232a}' => '>',
        _ => c,
    })
}

fn ascii(code: u32) -> char {
    char::from_u32(code).unwrap_or(' ')
}

/// The letter with this index: first 26 capitals, then 26 small letters.
fn letter(number: u32) -> char {
    ascii(if number < 26 { 0x41 + number } else { 0x61 + number - 26 })
}

/// Whether a character is invisible or combines with the character before it.
fn is_invisible(c: char) -> bool {
    if c.is_control() {
        return !matches!(c, '\n' | '\r' | '\t' | '\u{85}');
    }
    matches!(c,
        '\u{ad}' | '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{61c}' | '\u{115f}' | '\u{1160}'
        | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{20d0}'..='\u{20ff}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{fe20}'..='\u{fe2f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d165}'..='\u{1d169}'
        | '\u{1d16d}'..='\u{1d182}' | '\u{e0000}'..='\u{e0fff}')
}
