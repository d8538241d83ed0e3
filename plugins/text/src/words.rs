//! `word_count`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use toolbay_sdk::prelude::*;

/// The counts of `word_count`.
#[data]
#[derive(Debug, PartialEq)]
pub struct WordCount {
    /// Words: sequences without white space that contain a letter or digit.
    pub words: usize,
    /// Lines. A line break at the end does not begin another line.
    pub lines: usize,
    /// Unicode characters.
    pub characters: usize,
    /// The most frequent words in lower case, most frequent first.
    pub top: Vec<Frequency>,
}

/// The frequency of a word.
#[data]
#[derive(Debug, PartialEq)]
pub struct Frequency {
    /// The word, in lower case.
    pub word: String,
    /// The number of occurrences.
    pub count: usize,
}

/// Count the words, lines and characters of a text, and list its most frequent words.
#[tool(toolset = "text", tags = ["count"], read_only, idempotent, closed_world)]
pub fn word_count(
    /// The text.
    text: String,
    /// How many of the most frequent words to list.
    #[arg(default = 10, range(min = 0, max = 100))]
    top: usize,
) -> Json<WordCount> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut words = 0;
    for word in text.split_whitespace() {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        if !word.is_empty() {
            words += 1;
            *counts.entry(word.to_lowercase()).or_default() += 1;
        }
    }
    let mut frequencies: Vec<_> = counts.into_iter().map(|(word, count)| Frequency { word, count }).collect();
    // A stable sort keeps equally frequent words in alphabetical order.
    frequencies.sort_by_key(|frequency| Reverse(frequency.count));
    frequencies.truncate(top);
    Json(WordCount { words, lines: text.lines().count(), characters: text.chars().count(), top: frequencies })
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::testing::{call, describe};

    use super::*;

    #[test]
    fn words_are_counted_without_case_and_punctuation() {
        let Json(count) = word_count("B, b – a\n(a) c! a".to_owned(), 2);
        let frequency = |word: &str, count| Frequency { word: word.to_owned(), count };
        assert_eq!((count.words, count.lines, count.characters), (6, 2, 17));
        assert_eq!(count.top, [frequency("a", 3), frequency("b", 2)]);
    }

    #[test]
    fn an_empty_text_has_nothing() {
        let Json(count) = word_count(String::new(), 10);
        assert_eq!(count, WordCount { words: 0, lines: 0, characters: 0, top: vec![] });
    }

    #[test]
    fn the_model_reads_json() {
        let output = call::<word_count>(json!({"text": "a"})).unwrap();
        assert_eq!(output.value, r#"{"words":1,"lines":1,"characters":1,"top":[{"word":"a","count":1}]}"#);
        assert_eq!(output.structured, Some(output.value));
        assert!(describe::<word_count>().output_schema.is_some());
    }
}
