//! Comparison of a name that somebody typed with the known names, with bounded work.
//!
//! The name comes from a model, a guest or a client, and there can be thousands of known names, which plugins and servers
//! choose. So a [`TypedName`] is cut and normalized once, and the search for similar names has two steps:
//!
//! | step | names | work for each |
//! |---|---|---|
//! | count shared letters and letter pairs | at most `MAX_NAMES` | one pass over `MAX_CHARS` characters |
//! | compare letter by letter | the `MAX_COMPARED` with the most in common | `MAX_CHARS`² steps |
//!
//! Together they take about a millisecond at worst.

use crate::name;
use crate::name_list::list_choices;

/// Most characters of a name that are compared, after normalization.
const MAX_CHARS: usize = 64;
/// Most bytes of a typed name that are read, with its separators.
const MAX_BYTES: usize = 8 * MAX_CHARS;
/// Most known names that a search looks at.
const MAX_NAMES: usize = 10_000;
/// Most names that a search compares letter by letter.
const MAX_COMPARED: usize = 32;
/// Most candidates that `may_suggest` is asked about.
const MAX_CANDIDATES: usize = 256;
/// The least similarity of a suggestion.
const MIN_SIMILARITY: f64 = 0.5;
/// The least similarity by edit distance alone: short names share few letter pairs.
const MIN_EDIT_SIMILARITY: f64 = 0.6;
/// Most suggestions.
const MAX_SUGGESTIONS: usize = 3;

/// A name that somebody typed. However long the name is, a comparison costs the same.
#[derive(Debug, Clone)]
pub struct TypedName {
    normalized: String,
    counts: LetterCounts,
    /// Whether the name is longer than what is compared, so that it equals no other.
    is_cut: bool,
}

impl TypedName {
    /// Prepares a name for comparisons.
    #[must_use]
    pub fn new(name: &str) -> Self {
        // Separators count for nothing, but a text of separators must not be read to its end.
        let head = name.get(..name.floor_char_boundary(MAX_BYTES)).unwrap_or_default();
        let mut chars = normalized_chars(head);
        let normalized: String = chars.by_ref().take(MAX_CHARS).collect();
        let is_cut = head.len() < name.len() || chars.next().is_some();
        Self { counts: LetterCounts::of(normalized.chars()), normalized, is_cut }
    }

    /// Whether a known name is the same apart from case and separators.
    #[must_use]
    pub fn is_same(&self, known: &str) -> bool {
        !self.is_cut && normalized_chars(known).eq(self.normalized.chars())
    }

    /// Returns the most similar names, at most three, best first.
    #[must_use]
    pub fn nearest<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        self.nearest_of(names.into_iter().map(|name| (name, ())), |()| true)
    }

    /// Returns the most similar names that `may_suggest` allows, at most three, best first. It calls `may_suggest` for the
    /// best candidates only.
    #[must_use]
    pub fn nearest_of<'a, T>(
        &self,
        names: impl IntoIterator<Item = (&'a str, T)>,
        may_suggest: impl Fn(&T) -> bool,
    ) -> Vec<&'a str> {
        let mut candidates: Vec<(f64, &str, T)> = names
            .into_iter()
            .take(MAX_NAMES)
            .filter_map(|(name, item)| Some((self.estimate(name)?, name, item)))
            .collect();
        candidates.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        let mut near: Vec<(f64, &str)> = candidates
            .into_iter()
            .take(MAX_CANDIDATES)
            .filter(|(_, _, item)| may_suggest(item))
            .take(MAX_COMPARED)
            .map(|(_, name, _)| (self.best(name, |known| self.similarity(known)), name))
            .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
            .collect();
        near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        near.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name).collect()
    }

    /// The better value of a measure for a whole name and for the part behind its namespace.
    fn best(&self, name: &str, measure: impl Fn(&str) -> f64) -> f64 {
        let bare = name::split_qualified(name).map_or(0.0, |(_, bare)| measure(bare));
        measure(name).max(bare)
    }

    /// How much a name has in common with this one; `None` if it cannot be similar enough.
    fn estimate(&self, name: &str) -> Option<f64> {
        let estimate = self.best(name, |known| {
            self.counts.estimate(&LetterCounts::of(normalized_chars(known).take(MAX_CHARS)))
        });
        (estimate >= MIN_SIMILARITY).then_some(estimate)
    }

    /// The better of two measures, from 0 to 1. Shared letter pairs tolerate reordered parts; the edit distance covers
    /// mistakes in short names, which share few pairs.
    fn similarity(&self, known: &str) -> f64 {
        let known: String = normalized_chars(known).take(MAX_CHARS).collect();
        let edits = strsim::normalized_damerau_levenshtein(&self.normalized, &known);
        let pairs = strsim::sorensen_dice(&self.normalized, &known);
        pairs.max(if edits < MIN_EDIT_SIMILARITY { 0.0 } else { edits })
    }
}

/// How often a name has each letter and each pair of letters. Several letters share a count, so two names have at least as
/// much in common by their counts as they really have.
#[derive(Debug, Clone)]
struct LetterCounts {
    letters: [u8; 32],
    pairs: [u8; 128],
    count: u8,
}

impl LetterCounts {
    fn of(chars: impl Iterator<Item = char>) -> Self {
        let mut counts = Self { letters: [0; 32], pairs: [0; 128], count: 0 };
        let mut last = None;
        for c in chars {
            let code = u32::from(c);
            increment(&mut counts.letters, code);
            if let Some(last) = last.replace(code) {
                increment(&mut counts.pairs, u32::wrapping_mul(last, 31).wrapping_add(code));
            }
            counts.count = counts.count.saturating_add(1);
        }
        counts
    }

    /// An upper bound of the similarity, for the most part: the better of both measures, raised a little by the other one,
    /// so that equal estimates are rare.
    fn estimate(&self, other: &Self) -> f64 {
        let (one, two) = (f64::from(self.count), f64::from(other.count));
        if one == 0.0 || two == 0.0 {
            return 0.0;
        }
        let letters = shared(&self.letters, &other.letters) / one.max(two);
        let pairs = 2.0 * shared(&self.pairs, &other.pairs) / (one + two - 2.0).max(1.0);
        let letters = if letters < MIN_EDIT_SIMILARITY { 0.0 } else { letters };
        let best = letters.max(pairs);
        if best < MIN_SIMILARITY { 0.0 } else { MIN_SIMILARITY + letters + 2.0 * pairs }
    }
}

fn increment<const N: usize>(counts: &mut [u8; N], code: u32) {
    if let Some(count) = usize::try_from(code).ok().and_then(|code| counts.get_mut(code % N)) {
        *count = count.saturating_add(1);
    }
}

/// The number of letters that two counts have in common.
fn shared<const N: usize>(one: &[u8; N], other: &[u8; N]) -> f64 {
    one.iter().zip(other).map(|(one, other)| u32::from(*one.min(other))).sum::<u32>().into()
}

/// Formats the suggestion for a mistyped name: ``did you mean `a`?``, ``did you mean `a`, `b` or `c`?``. `None` without
/// names.
#[must_use]
pub fn did_you_mean(names: &[&str]) -> Option<String> {
    list_choices(names).map(|names| format!("did you mean {names}?"))
}

/// Normalizes a name for comparison: lower case, without separators. For names whose length is bounded; [`TypedName`]
/// compares those of others.
#[must_use]
pub fn normalize(name: &str) -> String {
    normalized_chars(name).collect()
}

/// The characters of a name in lower case, without separators.
fn normalized_chars(name: &str) -> impl Iterator<Item = char> {
    name.chars().filter(|c| !matches!(c, '/' | ' ' | '-' | '_')).flat_map(char::to_lowercase)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn nearest<'a>(name: &str, names: &[&'a str]) -> Vec<&'a str> {
        TypedName::new(name).nearest(names.iter().copied())
    }

    #[test]
    fn similar_names_are_suggested() {
        let names = ["p__read_file", "p__write_file", "q__search_web", "q__zip"];
        assert_eq!(nearest("p__readfile", &names), ["p__read_file", "p__write_file"]);
        assert_eq!(nearest("p__rite_file", &names), ["p__write_file", "p__read_file"]);
        assert_eq!(nearest("serach_web", &names), ["q__search_web"]);
        assert_eq!(nearest("zpi", &names), ["q__zip"]);
        assert_eq!(nearest("zzz", &names), Vec::<&str>::new());
        assert_eq!(nearest("", &names), Vec::<&str>::new());
    }

    #[test]
    fn the_meant_name_is_found_among_thousands_of_its_kind() {
        let names: Vec<String> = (0..2000)
            .map(|n| {
                format!(
                    "github__{}_{}_{n:04}",
                    ["list", "create", "update"][n % 3],
                    ["issues", "pulls"][n % 2]
                )
            })
            .collect();
        let known = || names.iter().map(String::as_str).chain(["github__merge_pull_request"]);
        for typed in ["github__merge_pul_request", "merge_pull_requests", "github__pull_request_merge"] {
            assert_eq!(
                TypedName::new(typed).nearest(known()).first(),
                Some(&"github__merge_pull_request"),
                "{typed}"
            );
        }
    }

    #[test]
    fn the_work_does_not_grow_with_what_somebody_typed() {
        for long in ["x".repeat(1 << 24), "_".repeat(1 << 24), "p__read_file".repeat(1 << 20)] {
            let typed = TypedName::new(&long);
            assert!(typed.normalized.len() <= MAX_CHARS);
            assert!(!typed.is_same("p__read_file") && !typed.is_same(""), "a part of a name is another name");
        }
        let asked = Cell::new(0);
        let names: Vec<String> = (0..50_000).map(|n| format!("p__read_file{n}")).collect();
        let found =
            TypedName::new("p__read_file").nearest_of(names.iter().map(|name| (name.as_str(), ())), |()| {
                asked.set(asked.get() + 1);
                false
            });
        assert_eq!((found.len(), asked.get()), (0, MAX_CANDIDATES));
    }

    #[test]
    fn a_name_is_the_same_apart_from_case_and_separators() {
        for (typed, same) in [("P/Read-File", true), ("pReadFile", true), ("p__read_fil", false), ("", false)]
        {
            assert_eq!(TypedName::new(typed).is_same("p__read_file"), same, "{typed}");
        }
    }

    #[test]
    fn a_suggestion_quotes_each_name() {
        for (names, expected) in [
            (&[][..], None),
            (&["a"], Some("did you mean `a`?")),
            (&["a", "b"], Some("did you mean `a` or `b`?")),
            (&["a", "b", "c"], Some("did you mean `a`, `b` or `c`?")),
        ] {
            assert_eq!(did_you_mean(names).as_deref(), expected);
        }
    }
}
