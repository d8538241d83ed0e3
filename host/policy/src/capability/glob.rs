//! Glob patterns for absolute paths, matched name by name.
//!
//! | in a pattern | matches |
//! |---|---|
//! | `*` | any characters of one name, possibly none; a leading dot is not special |
//! | `?` | one character |
//! | `[a-z]`, `[!a-z]` | one character in the set, or not in it |
//! | `**` between slashes | any number of names, possibly none |
//! | `\x` | the character `x` itself |
//!
//! Matching is case-sensitive on every file system. A character is a Unicode scalar value; each byte that is not
//! UTF-8 is a character, too. Matching takes at most (pattern length) × (path length) steps: the segments of a
//! pattern are the states of an automaton, and within a name only the last `*` is retried.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use crate::wildcard;

/// Longest pattern, in characters. Matching the longest path then takes about a millisecond.
const MAX_CHARS: usize = 512;
/// Most segments of a pattern: each state is one bit of a word.
const MAX_SEGMENTS: usize = 120;
/// Offset of invalid UTF-8 bytes, above every character.
const INVALID_BYTE: u32 = 0x11_0000;

/// A pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Glob(Vec<GlobSegment>);

/// A part between two slashes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum GlobSegment {
    /// `**`
    AnyNames,
    /// A name without wildcards.
    Literal(OsString),
    /// A name with wildcards.
    Wildcard(Vec<GlobToken>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum GlobToken {
    Char(char),
    AnyChar,
    Star,
    Set { negated: bool, ranges: Vec<(char, char)> },
}

impl Glob {
    /// Creates a pattern. Consecutive `**` are merged.
    ///
    /// # Errors
    /// The pattern is too long.
    pub(crate) fn new(segments: impl IntoIterator<Item = GlobSegment>) -> Result<Self, String> {
        let mut kept: Vec<GlobSegment> = Vec::new();
        for segment in segments {
            if segment != GlobSegment::AnyNames || kept.last() != Some(&GlobSegment::AnyNames) {
                kept.push(segment);
            }
        }
        if kept.len() > MAX_SEGMENTS {
            return Err(format!("has more than {MAX_SEGMENTS} names"));
        }
        Ok(Self(kept))
    }

    pub(crate) fn segments(&self) -> &[GlobSegment] {
        &self.0
    }

    /// The largest number of parts that are compared with a path.
    pub(crate) fn weight(&self) -> usize {
        let of = |segment: &GlobSegment| {
            if let GlobSegment::Wildcard(tokens) = segment { tokens.len() } else { 1 }
        };
        self.0.iter().map(of).sum()
    }

    /// Whether it matches a whole normalized absolute path.
    pub(crate) fn matches(&self, path: &Path) -> bool {
        self.states(path) >> self.0.len() & 1 == 1
    }

    /// Whether it matches a path in any upper and lower case. A set of characters matches each character here.
    pub(crate) fn matches_in_any_case(&self, path: &Path) -> bool {
        let folded = Self(self.0.iter().map(GlobSegment::fold_case).collect());
        folded.matches(&names(path).map(fold_case).fold(PathBuf::from("/"), |path, name| path.join(name)))
    }

    /// Whether it may match the path or something below it.
    pub(crate) fn matches_at_or_below(&self, path: &Path) -> bool {
        self.states(path) != 0
    }

    /// Whether it matches the path and everything below it.
    pub(crate) fn matches_all_below(&self, path: &Path) -> bool {
        self.0.last() == Some(&GlobSegment::AnyNames) && self.states(path) >> (self.0.len() - 1) & 1 == 1
    }

    /// The states after reading the path: bit n means that segment n is next. The bit after the last segment means a
    /// match.
    fn states(&self, path: &Path) -> u128 {
        let mut at = self.skip_double_stars(1);
        for name in names(path) {
            let mut next = 0_u128;
            for (n, segment) in self.0.iter().enumerate().filter(|(n, _)| at >> n & 1 == 1) {
                match segment {
                    GlobSegment::AnyNames => next |= 1 << n,
                    GlobSegment::Literal(literal) if literal == name => next |= 1 << (n + 1),
                    GlobSegment::Wildcard(tokens) if name_matches(tokens, name) => next |= 1 << (n + 1),
                    GlobSegment::Literal(_) | GlobSegment::Wildcard(_) => {}
                }
            }
            at = self.skip_double_stars(next);
            if at == 0 {
                break;
            }
        }
        at
    }

    /// `**` may match no name.
    fn skip_double_stars(&self, mut at: u128) -> u128 {
        for (n, segment) in self.0.iter().enumerate() {
            if *segment == GlobSegment::AnyNames && at >> n & 1 == 1 {
                at |= 1 << (n + 1);
            }
        }
        at
    }
}

impl GlobSegment {
    /// Parses the part between two slashes. It is not empty, `.` or `..`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == "**" {
            return Ok(Self::AnyNames);
        }
        let mut tokens = Vec::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            tokens.push(match c {
                '\\' => GlobToken::Char(chars.next().ok_or("ends in `\\`")?),
                '?' => GlobToken::AnyChar,
                '[' => parse_set(&mut chars)?,
                '*' if tokens.last() == Some(&GlobToken::Star) => {
                    return Err("`**` must stand alone between slashes".to_owned());
                }
                '*' => GlobToken::Star,
                '{' => {
                    return Err(
                        "`{…}` is not supported: write a line for each alternative, or `\\{`".to_owned()
                    );
                }
                c => GlobToken::Char(c),
            });
        }
        let literal: Option<String> = tokens.iter().map(GlobToken::literal).collect();
        // An escaped `..` would be a name that leads out of its folder without being resolved.
        if matches!(literal.as_deref(), Some("." | "..")) {
            return Err("has an escaped `.` or `..`".to_owned());
        }
        Ok(literal.map_or(Self::Wildcard(tokens), |name| Self::Literal(name.into())))
    }

    /// The segment that matches what [`fold_case`] returns.
    fn fold_case(&self) -> Self {
        match self {
            Self::AnyNames => Self::AnyNames,
            Self::Literal(name) => Self::Literal(fold_case(name).into()),
            Self::Wildcard(tokens) => Self::Wildcard(tokens.iter().flat_map(GlobToken::fold_case).collect()),
        }
    }

    /// Formats the segment so that [`GlobSegment::parse`] reads it back.
    pub(crate) fn show(&self) -> String {
        match self {
            Self::AnyNames => "**".to_owned(),
            Self::Literal(name) => name.to_string_lossy().chars().map(escaped).collect(),
            Self::Wildcard(tokens) => tokens.iter().map(GlobToken::show).collect(),
        }
    }
}

impl GlobToken {
    fn fold_case(&self) -> Vec<Self> {
        match self {
            Self::Char(c) => fold_char(*c).map(Self::Char).collect(),
            Self::AnyChar | Self::Set { .. } => vec![Self::AnyChar],
            Self::Star => vec![Self::Star],
        }
    }

    const fn literal(&self) -> Option<char> {
        match self {
            Self::Char(c) => Some(*c),
            Self::AnyChar | Self::Star | Self::Set { .. } => None,
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Char(c) => escaped(*c),
            Self::AnyChar => "?".to_owned(),
            Self::Star => "*".to_owned(),
            Self::Set { negated: not, ranges } => {
                let one = |(from, to): &(char, char)| match from == to {
                    true => escaped_in_set(*from),
                    false => format!("{}-{}", escaped_in_set(*from), escaped_in_set(*to)),
                };
                let ranges: String = ranges.iter().map(one).collect();
                format!("[{}{ranges}]", if *not { "!" } else { "" })
            }
        }
    }

    fn matches(&self, unit: u32) -> bool {
        match self {
            Self::Char(c) => u32::from(*c) == unit,
            Self::AnyChar | Self::Star => true,
            Self::Set { negated: not, ranges } => {
                ranges.iter().any(|(from, to)| (u32::from(*from)..=u32::from(*to)).contains(&unit)) != *not
            }
        }
    }
}

/// Limits the length to keep matching fast.
pub(crate) fn check_length(text: &str) -> Result<(), String> {
    match text.chars().count() {
        0..=MAX_CHARS => Ok(()),
        _ => Err(format!("has more than {MAX_CHARS} characters")),
    }
}

/// Returns the names in an absolute path as segments that match only them.
pub(crate) fn literal_segments(path: &Path) -> Vec<GlobSegment> {
    names(path).map(|name| GlobSegment::Literal(name.to_owned())).collect()
}

/// Returns the names in an absolute path.
fn names(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => None,
    })
}

/// The same text for all names that differ only in upper and lower case.
fn fold_case(name: &OsStr) -> String {
    name.to_string_lossy().chars().flat_map(fold_char).collect()
}

/// `ẞ` becomes `ß`, then `SS`, then `ss`.
fn fold_char(c: char) -> impl Iterator<Item = char> {
    c.to_lowercase().flat_map(char::to_uppercase).flat_map(char::to_lowercase)
}

fn escaped(c: char) -> String {
    if matches!(c, '\\' | '*' | '?' | '[' | '{') { format!("\\{c}") } else { c.to_string() }
}

fn escaped_in_set(c: char) -> String {
    if matches!(c, '\\' | ']' | '-' | '!' | '^') { format!("\\{c}") } else { c.to_string() }
}

/// Parses the rest of a set, after its `[`.
fn parse_set(chars: &mut std::str::Chars<'_>) -> Result<GlobToken, String> {
    const OPEN: &str = "`[` has no `]`; write `\\[` for the character";
    let mut rest = chars.clone();
    let not = matches!(rest.next(), Some('!' | '^'));
    if not {
        *chars = rest;
    }
    let one = |chars: &mut std::str::Chars<'_>| match chars.next() {
        Some('\\') => chars.next().ok_or(OPEN).map(Some),
        Some(']') => Ok(None),
        Some(c) => Ok(Some(c)),
        None => Err(OPEN),
    };
    let mut ranges = Vec::new();
    while let Some(from) = one(chars)? {
        let mut ahead = chars.clone();
        let to = match (ahead.next(), ahead.clone().next()) {
            (Some('-'), Some(next)) if next != ']' => {
                *chars = ahead;
                one(chars)?.ok_or(OPEN)?
            }
            _ => from,
        };
        if to < from {
            return Err(format!("`[{from}-{to}]` matches nothing"));
        }
        ranges.push((from, to));
    }
    if ranges.is_empty() {
        return Err("`[]` matches nothing".to_owned());
    }
    Ok(GlobToken::Set { negated: not, ranges })
}

fn match_units(name: &OsStr) -> Vec<u32> {
    let mut units = Vec::with_capacity(name.len());
    for chunk in name.as_encoded_bytes().utf8_chunks() {
        units.extend(chunk.valid().chars().map(u32::from));
        units.extend(chunk.invalid().iter().map(|byte| INVALID_BYTE + u32::from(*byte)));
    }
    units
}

/// Whether a name matches the tokens of a segment.
fn name_matches(tokens: &[GlobToken], name: &OsStr) -> bool {
    wildcard::matches(
        tokens,
        &match_units(name),
        |token| *token == GlobToken::Star,
        |token, unit| token.matches(*unit),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    fn glob(text: &str) -> Glob {
        Glob::new(
            text.split('/').filter(|part| !part.is_empty()).map(|part| GlobSegment::parse(part).unwrap()),
        )
        .unwrap()
    }

    #[test]
    fn wildcards_match_within_a_name() {
        for (pattern, name, matches) in [
            ("*", "a", true),
            ("*", ".hidden", true),
            ("*.rs", "a.rs", true),
            ("*.rs", ".rs", true),
            ("*.rs", "a.rs.bak", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "abcb", false),
            ("?", "ä", true),
            ("?", "ab", false),
            ("??", "ä", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[a-]", "-", true),
            ("[-a]", "-", true),
            ("[a\\]]", "]", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("\\[a]", "[a]", true),
            ("A", "a", false),
            ("a\nb", "a\nb", true),
        ] {
            assert_eq!(glob(pattern).matches(&Path::new("/").join(name)), matches, "{pattern} {name:?}");
        }
        let odd = Path::new("/").join(OsStr::from_bytes(b"a\xff\xfe"));
        assert!(glob("a??").matches(&odd) && glob("*").matches(&odd) && !glob("a?").matches(&odd));
        assert!(!glob("a\u{fffd}\u{fffd}").matches(&odd), "an invalid byte is no replacement character");
    }

    #[test]
    fn double_stars_match_any_number_of_names() {
        for (pattern, path, matches, enters) in [
            ("a/**", "/a", true, true),
            ("a/**", "/a/b/c", true, true),
            ("a/**", "/b", false, false),
            ("a/**/b", "/a/b", true, true),
            ("a/**/b", "/a/x/y/b", true, true),
            ("a/**/b", "/a/x", false, true),
            ("a/*", "/a/b", true, true),
            ("a/*", "/a/b/c", false, false),
            ("a/*", "/a", false, true),
            ("**/.env/**", "/x/.env", true, true),
            ("**/.env/**", "/x/.env/y", true, true),
            ("**/.env/**", "/x/.envrc", false, true),
            ("**", "/", true, true),
            ("a*/b", "/ax/c", false, false),
        ] {
            let (glob, path) = (glob(pattern), Path::new(path));
            assert_eq!(
                (glob.matches(path), glob.matches_at_or_below(path)),
                (matches, enters),
                "{pattern} {path:?}"
            );
        }
        assert!(
            glob("a/**").matches_all_below(Path::new("/a"))
                && !glob("a/*").matches_all_below(Path::new("/a"))
        );
        assert!(!glob("a/**/b").matches_all_below(Path::new("/a/b")));
    }

    #[test]
    fn case_can_be_ignored() {
        for (pattern, path, matches) in [
            ("a/**/.env/**", "/a/B/.ENV/c", true),
            ("A/Stra\u{df}e", "/a/STRASSE", true),
            ("*.PEM", "/key.pem", true),
            ("[A-C]x", "/bX", true),
            ("a/**/.env/**", "/a/B/.ENVRC", false),
        ] {
            assert_eq!(glob(pattern).matches_in_any_case(Path::new(path)), matches, "{pattern} {path}");
        }
    }

    #[test]
    fn an_invalid_pattern_is_refused() {
        for text in ["a**", "**a", "***", "[a", "[]", "[z-a]", "[!]", "a\\", "{a,b}", "[a\\"] {
            assert!(GlobSegment::parse(text).is_err(), "{text}");
        }
        assert!(check_length(&"x".repeat(513)).is_err());
        assert!(Glob::new((0..121).map(|_| GlobSegment::Literal("a".into()))).is_err());
    }

    #[test]
    fn no_pattern_takes_long() {
        let start = Instant::now();
        let name = format!("/{}", "a".repeat(255));
        assert!(!glob(&format!("{}b", "a*".repeat(250))).matches(Path::new(&name)));
        let deep = "/a".repeat(2000);
        assert!(!glob(&format!("{}/b", "**/a*/".repeat(30))).matches(Path::new(&deep)));
        let sets = "[a-z]*".repeat(80);
        assert!(!glob(&format!("**/{sets}!")).matches(Path::new(&"/aaaaaaaaaaaaaaaa".repeat(240))));
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    }

    /// A recursive reference matcher, slow but obvious.
    fn reference_matches(tokens: &[GlobToken], name: &[char]) -> bool {
        match (tokens, name) {
            ([], []) => true,
            ([GlobToken::Star, rest @ ..], _) => {
                reference_matches(rest, name) || (!name.is_empty() && reference_matches(tokens, &name[1..]))
            }
            ([token, rest @ ..], [c, more @ ..]) => {
                token.matches(u32::from(*c)) && reference_matches(rest, more)
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn it_matches_like_the_reference(pattern in "[ab?*]{0,8}", name in "[abc]{1,8}") {
            prop_assume!(!pattern.contains("**") && !pattern.is_empty());
            let tokens: Vec<GlobToken> = pattern.chars().map(|c| match c {
                '*' => GlobToken::Star,
                '?' => GlobToken::AnyChar,
                c => GlobToken::Char(c),
            }).collect();
            let chars: Vec<char> = name.chars().collect();
            prop_assert_eq!(name_matches(&tokens, OsStr::new(&name)), reference_matches(&tokens, &chars));
        }

        #[test]
        fn a_shown_segment_parses_back(text in "[-a*?\\[\\]!^\\\\{. &\n]{1,12}") {
            if let Ok(segment) = GlobSegment::parse(&text) {
                prop_assert_eq!(GlobSegment::parse(&segment.show()), Ok(segment));
            }
        }
    }
}
