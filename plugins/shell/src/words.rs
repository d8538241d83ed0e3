//! Splits a command line into words like a shell, and refuses what only a shell can do.

use toolbay_sdk::{Error, Result};

/// Splits at white space. Quotes and backslashes mean what they mean in a POSIX shell. Any other unquoted special
/// character is an error, so that a model does not assume that it took effect.
pub(crate) fn split(line: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_ascii_whitespace() => words.extend(word.take()),
            '\'' => quoted(&mut chars, word.get_or_insert_default())?,
            '"' => double_quoted(&mut chars, word.get_or_insert_default())?,
            '\\' => word.get_or_insert_default().push(chars.next().ok_or_else(|| unfinished("\\"))?),
            '|' | '&' | ';' | '<' | '>' | '(' | ')' | '`' | '$' => return Err(no_shell(c)),
            '*' | '?' | '[' => return Err(no_shell(c)),
            '~' | '#' if word.is_none() => return Err(no_shell(c)),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

fn quoted(chars: &mut impl Iterator<Item = char>, word: &mut String) -> Result<()> {
    loop {
        match chars.next().ok_or_else(|| unfinished("'"))? {
            '\'' => return Ok(()),
            c => word.push(c),
        }
    }
}

fn double_quoted(chars: &mut impl Iterator<Item = char>, word: &mut String) -> Result<()> {
    loop {
        match chars.next().ok_or_else(|| unfinished("\""))? {
            '"' => return Ok(()),
            c @ ('$' | '`') => return Err(no_shell(c)),
            '\\' => match chars.next().ok_or_else(|| unfinished("\""))? {
                c @ ('"' | '\\' | '$' | '`') => word.push(c),
                c => word.extend(['\\', c]),
            },
            c => word.push(c),
        }
    }
}

fn no_shell(c: char) -> Error {
    Error::input(format!(
        "`{c}`: no shell reads this line. Run one program at a time, and put text with such a character in single quotes"
    ))
    .at("/command")
}

fn unfinished(mark: &str) -> Error {
    Error::input(format!("nothing ends what `{mark}` begins")).at("/command")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_as_a_shell_does() {
        let cases: &[(&str, &[&str])] = &[
            ("", &[]),
            ("  make\tall\n", &["make", "all"]),
            ("git commit -m 'two words'", &["git", "commit", "-m", "two words"]),
            (r#"a "b c"'d e'f"#, &["a", "b cd ef"]),
            (r#"echo "\"\\\$\x" \" a\ b"#, &["echo", r#""\$\x"#, "\"", "a b"]),
            ("echo '' \"\"", &["echo", "", ""]),
            ("echo '$HOME|;*' a#b a~b", &["echo", "$HOME|;*", "a#b", "a~b"]),
        ];
        for (line, words) in cases {
            assert_eq!(split(line).unwrap(), *words, "{line}");
        }
    }

    #[test]
    fn what_only_a_shell_could_do_is_refused() {
        for line in [
            "a | b", "a && b", "a; b", "a > b", "a < b", "a $(b)", "a `b`", "a $HOME", "a *.c", "a ?",
            "a [b]", "~/a", "# a", "(a)", "\"$a\"", "\"`a`\"", "'a", "\"a", "a\\",
        ] {
            let error = split(line).unwrap_err();
            assert_eq!(error.subject(), Some("/command"), "{line}");
        }
    }
}
