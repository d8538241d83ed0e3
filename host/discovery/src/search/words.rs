//! How text becomes words: the same for tools and queries, so that `Listing Pull-Requests` matches `pullRequestList`.
//!
//! | step | example |
//! |---|---|
//! | text is split where no letter or digit is, and at capitals | `v1/configMaps` → `v1`, `config`, `maps` |
//! | case is ignored | `Maps` → `maps` |
//! | English endings are removed | `maps` → `map`, `merged` → `merg`, `repositories` → `repository` |
//!
//! The endings are few and the rules simple. A wrong stem does no harm if tools and queries have the same one.

/// The longest word, in characters. A longer one is cut.
const MAX_WORD: usize = 40;
/// The most parts of a word that is also a word as a whole.
const MAX_PARTS: usize = 3;

/// Words that carry no meaning for a search, as stems. They are ignored in descriptions, and in queries with other words.
const STOP_WORDS: &[&str] = &[
    "a", "an", "and", "any", "are", "as", "at", "be", "by", "can", "do", "doe", "for", "from", "hav", "how",
    "i", "in", "into", "is", "it", "me", "my", "of", "on", "or", "our", "pleas", "som", "someon", "that",
    "the", "their", "them", "ther", "this", "to", "wa", "want", "we", "what", "wher", "which", "who", "with",
    "you", "your",
];

/// The words of a text in order, as stems. A word of few parts is followed by the whole: `configMap` is also found as
/// `configmap`.
pub(super) fn words(text: &str) -> impl Iterator<Item = String> {
    let all = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    all.flat_map(|word| {
        let compound = (2..=MAX_PARTS).contains(&parts(word).take(MAX_PARTS + 1).count()).then(|| stem(word));
        parts(word).map(stem).chain(compound)
    })
}

/// Whether a stem carries no meaning for a search.
pub(super) fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

/// The parts of a word with capitals inside: `listPods`, `HTTPServer`.
fn parts(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = part_length(rest);
        let part = rest.get(..end)?;
        rest = rest.get(end..).unwrap_or_default();
        Some(part)
    })
}

/// The length of the first part of a word, in bytes: up to a capital after a small letter or digit, or to the last of
/// several capitals before a small letter. A single letter is no part (`OAuth`), and a plural stays whole (`IDs`).
fn part_length(word: &str) -> usize {
    let mut before = ' ';
    let mut chars = word.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next_is_small =
            chars.peek().is_some_and(|(next, c)| c.is_lowercase() && word.get(*next..) != Some("s"));
        let starts = c.is_uppercase() && at > 1 && (!before.is_uppercase() || next_is_small);
        if starts {
            return at;
        }
        before = c;
    }
    word.len()
}

/// Endings that derive one word from another, the longer ones first.
const DERIVATIONS: [&str; 18] = [
    "ication", "ization", "isation", "ation", "ition", "ment", "ance", "ence", "ive", "ion", "ity", "al",
    "er", "or", "iz", "is", "at", "y",
];
/// The shortest root, in bytes. Shorter ones would relate `not` and `notion`.
const MIN_ROOT: usize = 4;

/// The part of a stem that it shares with words derived from it: `review` of `reviewer`. Words of one root are related,
/// but not the same.
pub(super) fn root(stem: &str) -> &str {
    if !stem.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return stem;
    }
    let starts = DERIVATIONS.iter().filter_map(|end| stem.strip_suffix(end));
    let start = starts.filter(|start| start.len() >= MIN_ROOT).max_by_key(|start| stem.len() - start.len());
    let start = start.unwrap_or(stem);
    match start.as_bytes() {
        [.., a, b] if a == b && start.len() > MIN_ROOT => start.get(..start.len() - 1).unwrap_or(start),
        _ => start,
    }
}

/// The stem of a word in lower case.
pub(super) fn stem(word: &str) -> String {
    let word: String = word.chars().take(MAX_WORD).flat_map(char::to_lowercase).collect();
    if word.len() < 3 || !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return word;
    }
    let word = singular(&word);
    let word = without_tense(&word);
    match word.strip_suffix('e') {
        Some(start) if start.len() > 2 => start.to_owned(),
        _ => word.to_owned(),
    }
}

/// Removes the ending of a plural or of the third person.
pub(super) fn singular(word: &str) -> String {
    if let Some(start) = word.strip_suffix("ies").filter(|start| start.len() > 1) {
        return format!("{start}y");
    }
    let keeps_ending = ["us", "ss", "is"].iter().any(|end| word.ends_with(end));
    match word.strip_suffix('s') {
        Some(start) if !keeps_ending => start.to_owned(),
        _ => word.to_owned(),
    }
}

/// Removes `-ing` or `-ed` and a consonant doubled before it.
fn without_tense(word: &str) -> &str {
    let start =
        word.strip_suffix("ing").or_else(|| word.strip_suffix("ed").filter(|start| !start.ends_with('e')));
    let vowel = |byte: u8| matches!(byte, b'a' | b'e' | b'i' | b'o' | b'u' | b'y');
    let Some(start) = start.filter(|start| start.len() > 2 && start.bytes().any(vowel)) else {
        return word;
    };
    match start.as_bytes() {
        [.., a, b] if a == b && !matches!(b, b'l' | b's' | b'z') && !vowel(*b) => {
            start.get(..start.len() - 1).unwrap_or(start)
        }
        _ => start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_split_and_stemmed() {
        for (text, expected) in [
            ("List pull requests", "list pull request"),
            ("listCoreV1NamespacedPod", "list cor v1 namespac pod"),
            ("HTTPServer/v1.configMaps", "http server httpserver v1 config map configmap"),
            ("re-running merged jobs, IDs", "re run merg job id"),
            ("repositories branches statuses status ingress", "repository branch status status ingress"),
            ("Straße naïve 数据", "straße naïve 数据"),
            ("need string sing billing", "need string sing bill"),
        ] {
            assert_eq!(words(text).collect::<Vec<_>>().join(" "), expected, "{text}");
        }
        assert_eq!(words(&"x".repeat(1000)).map(|word| word.len()).collect::<Vec<_>>(), [MAX_WORD]);
    }

    #[test]
    fn the_stop_words_are_sorted() {
        assert!(STOP_WORDS.is_sorted());
    }

    #[test]
    fn words_of_one_root_are_related() {
        for (one, other) in [
            ("evict", "eviction"),
            ("cancel", "cancellation"),
            ("verify", "verifications"),
            ("approve", "approval"),
            ("review", "reviewers"),
            ("organize", "organization"),
            ("create", "creator"),
        ] {
            let root_of = |word| root(&stem(word)).to_owned();
            assert_eq!(root_of(one), root_of(other), "{one} {other}");
        }
        for (one, other) in [("user", "use"), ("order", "ordinal"), ("not", "notion"), ("table", "tab")] {
            assert_ne!(root(&stem(one)), root(&stem(other)), "{one} {other}");
        }
    }
}
