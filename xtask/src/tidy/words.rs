//! Refuses words and names that `docs/reference/glossary.md` replaces. No other check polices prose.

use super::{Report, Source};

/// Phrases that no text may contain, and what to write.
const PHRASES: [(&str, &str); 16] = [
    ("can not", "cannot"),
    ("what is none", "name the thing"),
    ("so many", "the number, or \"this many\""),
    ("is told", "name the reader and the message"),
    ("are told", "name the reader and the message"),
    ("of before", "earlier"),
    ("to be had", "available"),
    ("in a box", "boxed"),
    ("goes on", "continues"),
    ("go on with", "continue with"),
    ("whoever", "name the party"),
    ("of which", "a second sentence"),
    ("for want of", "without"),
    ("as it was", "unchanged"),
    ("the one goes that", "name what is dropped"),
    ("a room of its own", "name the module"),
];

/// Names that no type, trait or alias may have. Each was used for several unrelated things.
const TYPES: [&str; 60] = [
    "Admitted",
    "Answered",
    "Area",
    "Areas",
    "Asked",
    "Asker",
    "Asks",
    "Bad",
    "Below",
    "Brought",
    "Busy",
    "Cage",
    "Crew",
    "Delivered",
    "Floor",
    "Found",
    "Full",
    "Given",
    "Granted",
    "GrantedUnder",
    "Handed",
    "Held",
    "Inner",
    "Kept",
    "Known",
    "Lane",
    "Lanes",
    "Lent",
    "Life",
    "Live",
    "Looked",
    "Made",
    "Meter",
    "Nobody",
    "Now",
    "Offers",
    "Onto",
    "Onward",
    "Open",
    "Outer",
    "Outside",
    "Outward",
    "Over",
    "Own",
    "Person",
    "Place",
    "Places",
    "Promises",
    "Settled",
    "Shelf",
    "Silent",
    "Since",
    "Spool",
    "Standing",
    "Takes",
    "Told",
    "Unasked",
    "Whole",
    "Whose",
    "Wish",
];

/// Names that no function may have.
const FUNCTIONS: [&str; 8] = ["apart", "becomes", "hear", "rests", "tell", "tell_once", "told", "works"];

/// Files that are not searched: this list, and texts of others.
const EXCLUDED: [&str; 5] =
    ["xtask/src/tidy/words.rs", "tests/data/", "Cargo.lock", "package-lock.json", "LICENSE"];

pub(super) fn check(sources: &[Source], report: &mut Report) {
    let searched = |source: &&Source| !EXCLUDED.iter().any(|part| source.path.contains(part));
    for source in sources.iter().filter(searched) {
        check_phrases(source, report);
        if source.path.ends_with(".rs") {
            check_names(source, report);
        }
    }
}

/// Searches for phrases, also across line breaks of a paragraph or a comment.
fn check_phrases(source: &Source, report: &mut Report) {
    let (text, starts) = unwrapped(&source.text);
    for (phrase, instead) in PHRASES {
        for (at, _) in text.match_indices(phrase) {
            if is_whole(&text, at, phrase.len()) {
                let line = starts.partition_point(|start| *start <= at);
                report.errors.push(format!("{}:{line}: `{phrase}`: write {instead}", source.path));
            }
        }
    }
}

/// The text in lower case as one line, and where each line starts in it. Comment markers and quotes are left out.
fn unwrapped(text: &str) -> (String, Vec<usize>) {
    let mut joined = String::with_capacity(text.len());
    let mut starts = Vec::new();
    for line in text.lines() {
        starts.push(joined.len());
        let words = line.trim().trim_start_matches(['/', '!', '#', '*', '>']).trim_start();
        joined.push_str(&words.to_ascii_lowercase());
        joined.push(' ');
    }
    (joined, starts)
}

fn is_whole(text: &str, at: usize, length: usize) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (before, after) = (text.get(..at), text.get(at + length..));
    !before.is_some_and(|text| text.ends_with(is_word))
        && !after.is_some_and(|text| text.starts_with(is_word))
}

fn check_names(source: &Source, report: &mut Report) {
    for (number, line) in source.text.lines().enumerate() {
        let mut words =
            line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        let keyword =
            words.by_ref().find(|word| matches!(*word, "struct" | "enum" | "trait" | "type" | "fn"));
        let banned = match (keyword, words.next()) {
            (Some("fn"), Some(name)) => FUNCTIONS.contains(&name).then_some(name),
            (Some(_), Some(name)) => TYPES.contains(&name).then_some(name),
            _ => None,
        };
        if let Some(name) = banned.filter(|_| !line.trim_start().starts_with("//")) {
            report.errors.push(format!(
                "{}:{}: `{name}`: name it after what it holds or does",
                source.path,
                number + 1
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(path: &str, text: &str) -> Vec<String> {
        let mut report = Report::default();
        check(&[Source { path: path.to_owned(), text: text.to_owned() }], &mut report);
        report.errors
    }

    #[test]
    fn finds_a_phrase_across_lines_and_in_any_case() {
        assert_eq!(errors("a.md", "fine\nThe client is\ntold.\n").len(), 1);
        assert_eq!(
            errors("a.rs", "/// It is\n    /// told.\n"),
            ["a.rs:1: `is told`: write name the reader and the message"]
        );
        assert_eq!(errors("a.rs", "// Whoever reads this\n").len(), 1);
        assert!(errors("a.rs", "// this told, a box, goes one\n").is_empty());
        assert!(errors("tests/data/a.md", "whoever").is_empty());
    }

    #[test]
    fn finds_names_of_types_and_functions() {
        assert_eq!(errors("a.rs", "pub(crate) struct Held<'a> {").len(), 1);
        assert_eq!(errors("a.rs", "    pub async fn rests(&self) {").len(), 1);
        assert!(errors("a.rs", "// struct Held\nlet held = Held::new();\nfn rest() {}\n").is_empty());
    }
}
