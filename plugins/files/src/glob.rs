//! The patterns of `search_files`.
//!
//! | pattern | matches |
//! |---|---|
//! | `?` | one character, not `/` |
//! | `*` | any number of characters, not `/` |
//! | `**/` | any number of directories, also none |
//! | `**` elsewhere | anything |
//! | `[a-z]`, `[!a-z]` | one character of a set, or not of it |
//! | `{a,b}` | one of several, not nested |
//! | `\x` | the character `x` itself |
//!
//! A pattern without `/` is compared with the name, any other with the path relative to the searched directory.

use regex::{Regex, RegexBuilder};
use toolbay_sdk::{Error, Result};

/// Far more than any handwritten pattern needs.
const COMPILED_BYTES: usize = 1 << 20;

/// A parsed pattern.
#[derive(Debug)]
pub(crate) struct Glob {
    regex: Regex,
    by_path: bool,
}

impl Glob {
    pub(crate) fn new(pattern: &str) -> Result<Self> {
        let source = translate(pattern).map_err(|message| Error::input(message).at("/pattern"))?;
        let regex = RegexBuilder::new(&source).size_limit(COMPILED_BYTES).build();
        let regex =
            regex.map_err(|_| Error::input(format!("`{pattern}` is no glob pattern")).at("/pattern"))?;
        Ok(Self { regex, by_path: pattern.contains('/') })
    }

    /// Returns whether a path relative to the searched directory matches.
    pub(crate) fn matches(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.regex.is_match(if self.by_path { path } else { name })
    }
}

fn translate(pattern: &str) -> std::result::Result<String, String> {
    let mut regex = String::from("(?s)^");
    let mut rest = pattern.strip_prefix("./").unwrap_or(pattern).chars().peekable();
    let mut in_braces = false;
    while let Some(c) = rest.next() {
        match c {
            '*' if rest.next_if_eq(&'*').is_some() => {
                regex.push_str(if rest.next_if_eq(&'/').is_some() { "(?:.*/)?" } else { ".*" });
            }
            '*' => regex.push_str("[^/]*"),
            '?' => regex.push_str("[^/]"),
            '[' => {
                regex.push('[');
                if rest.next_if(|c| matches!(c, '!' | '^')).is_some() {
                    regex.push_str("^/");
                }
                let mut set = 0;
                loop {
                    match rest.next() {
                        Some(']') if set > 0 => break,
                        Some('-') => regex.push('-'),
                        Some(c) => literal(&mut regex, c),
                        None => return Err(format!("a `]` is missing in `{pattern}`")),
                    }
                    set += 1;
                }
                regex.push(']');
            }
            '{' if in_braces => return Err(format!("`{{` inside of `{{` in `{pattern}`")),
            '{' => {
                in_braces = true;
                regex.push_str("(?:");
            }
            '}' if in_braces => {
                in_braces = false;
                regex.push(')');
            }
            ',' if in_braces => regex.push('|'),
            '\\' => literal(&mut regex, rest.next().ok_or("nothing follows the `\\` at the end")?),
            c => literal(&mut regex, c),
        }
    }
    if in_braces {
        return Err(format!("a `}}` is missing in `{pattern}`"));
    }
    regex.push('$');
    Ok(regex)
}

fn literal(regex: &mut String, c: char) {
    regex.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, matching: &[&str], others: &[&str]) {
        let glob = Glob::new(pattern).unwrap();
        for path in matching {
            assert!(glob.matches(path), "{pattern} should match {path}");
        }
        for path in others {
            assert!(!glob.matches(path), "{pattern} should not match {path}");
        }
    }

    #[test]
    fn every_line_of_the_table() {
        check("*.rs", &["a.rs", "src/a.rs", ".rs"], &["a.rss", "rs"]);
        check("src/*.rs", &["src/a.rs"], &["src/b/a.rs", "x/src/a.rs", "a.rs"]);
        check("**/*.rs", &["a.rs", "src/a.rs", "a/b/c.rs"], &["a.r"]);
        check("src/**", &["src/a", "src/b/c"], &["src", "other/src/a"]);
        check("src/**/a.rs", &["src/a.rs", "src/b/c/a.rs"], &["src/ba.rs"]);
        check("a?c", &["abc", "aéc"], &["ac", "a/c"]);
        check("[a-c]x[!0-9]", &["axb", "cx-"], &["dxb", "ax5"]);
        check("[]]", &["]"], &["a"]);
        check("*.{rs,toml}", &["a.rs", "b.toml"], &["c.md"]);
        check(r"\*a+(b)", &["*a+(b)"], &["xa+(b)", "*aab"]);
        check("./a/b", &["a/b"], &["b"]);
    }

    #[test]
    fn malformed_patterns_are_refused() {
        for pattern in ["[a", "{a", "{a,{b}}", "a\\", "[z-a]"] {
            assert_eq!(Glob::new(pattern).unwrap_err().subject(), Some("/pattern"), "{pattern}");
        }
    }
}
