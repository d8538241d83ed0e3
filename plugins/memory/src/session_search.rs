//! `session_search`.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use toolbay_sdk::prelude::*;

use crate::notes::{self, MAX_NOTES, Note, NoteFile};

/// The most different words of a query that count.
pub(crate) const MAX_WORDS: usize = 32;
/// The weight of a word in a note's name or tags, and the most occurrences in the text that count: a short note
/// with the word in its name comes before a long note that repeats it.
const NAME: usize = 5;
const TAG: usize = 3;
const MOST_IN_TEXT: usize = 4;
/// The size of an excerpt around the first word, in characters.
const SNIPPET: usize = 160;

/// A matching note.
#[data]
#[derive(Debug, PartialEq, Eq)]
pub struct SessionHit {
    /// The note's name.
    pub name: String,
    /// The sessions that share it.
    pub place: NoteFile,
    /// The score; the best comes first.
    pub score: usize,
    /// An excerpt of its text.
    pub snippet: String,
}

/// The result of a search.
#[data]
#[derive(Debug, PartialEq, Eq)]
pub struct SessionHits {
    /// The matching notes, best first.
    pub hits: Vec<SessionHit>,
    /// Whether some notes were not searched.
    pub incomplete: bool,
}

/// Search the notes of this session and the lasting ones for words. The best fits come first.
///
/// A word matches also as the beginning of a longer one. Notes with more of the words come before notes with fewer.
#[tool(
    toolset = "memory", tags = ["search"], read_only, idempotent, closed_world, untrusted_output,
    kv = "plugin", reason = "keeps the lasting notes",
    optional(kv = "session", reason = "keeps the notes of the session"),
)]
pub fn session_search(
    /// The words to look for.
    #[arg(length(min = 1, max = 1000))]
    query: String,
    /// Show at most this many.
    #[arg(default = 10, range(min = 1, max = 100))]
    max_results: usize,
) -> Result<Rendered<SessionHits>> {
    let words: BTreeSet<String> = notes::words(&query).take(MAX_WORDS).collect();
    if words.is_empty() {
        return Err(Error::input("the query has no words").at("/query"));
    }
    let mut found: Vec<((usize, usize), SessionHit)> = Vec::new();
    let mut incomplete = false;
    for place in [NoteFile::Session, NoteFile::Lasting] {
        let (notes, more) = match notes::all(place) {
            Ok(all) => all,
            // Without a grant or a session, only lasting notes are searched.
            Err(_) if place == NoteFile::Session => continue,
            Err(error) => return Err(error),
        };
        incomplete |= more;
        for note in notes {
            let rank = rank(&note, &words);
            if rank.0 > 0 {
                let hit = SessionHit {
                    snippet: snippet(&note.text, &words),
                    name: note.name,
                    place,
                    score: rank.1,
                };
                found.push((rank, hit));
            }
        }
    }
    found.sort_by(|(a, one), (b, other)| Reverse(a).cmp(&Reverse(b)).then_with(|| one.name.cmp(&other.name)));
    let hits: Vec<SessionHit> = found.into_iter().take(max_results).map(|(_, hit)| hit).collect();
    let mut text: String =
        hits.iter().map(|hit| format!("{} ({}): {}\n", hit.name, hit.place.word(), hit.snippet)).collect();
    if hits.is_empty() {
        text = "Nothing was found.".to_owned();
    }
    if incomplete {
        text.push_str(&format!("[only the first {MAX_NOTES} notes by name were searched]\n"));
    }
    Ok(Rendered { text, data: SessionHits { hits, incomplete } })
}

/// How many of the words a note has, and its score.
fn rank(note: &Note, words: &BTreeSet<String>) -> (usize, usize) {
    let (mut different, mut score) = (0, 0);
    for word in words {
        let in_tags: usize = note.tags.iter().map(|tag| count_word(tag, word)).sum();
        let worth = NAME * count_word(&note.name, word).min(1)
            + TAG * in_tags.min(1)
            + count_word(&note.text, word).min(MOST_IN_TEXT);
        different += usize::from(worth > 0);
        score += worth;
    }
    (different, score)
}

/// How many words of a text are a word, or begin with it.
pub(crate) fn count_word(text: &str, word: &str) -> usize {
    notes::words(text).filter(|one| one.starts_with(word)).count()
}

/// The text around the first of the words, on one line.
pub(crate) fn snippet(text: &str, words: &BTreeSet<String>) -> String {
    let line: Vec<&str> = text.split_whitespace().collect();
    let has = |piece: &&str| notes::words(piece).any(|one| words.iter().any(|word| one.starts_with(word)));
    let first = line.iter().position(has).unwrap_or(0).saturating_sub(5);
    let shown = line.iter().skip(first).copied().collect::<Vec<_>>().join(" ");
    let cut: String = shown.chars().take(SNIPPET).collect();
    let (start, end) = (if first > 0 { "… " } else { "" }, if cut.len() < shown.len() { "…" } else { "" });
    format!("{start}{cut}{end}")
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::kv::Scope;
    use toolbay_sdk::testing::{FakeHost, call};
    use toolbay_sdk::types::ErrorCode;

    use super::*;
    use crate::memory_write::memory_write;

    fn write(name: &str, text: &str, tags: &[&str], place: &str) {
        let args = json!({"name": name, "text": text, "tags": tags, "place": place});
        call::<memory_write>(args).unwrap();
    }

    fn names(query: &str) -> Vec<String> {
        let output = call::<session_search>(json!({"query": query})).unwrap();
        let hits: SessionHits = toolbay_sdk::serde_json::from_str(&output.structured.unwrap()).unwrap();
        hits.hits.into_iter().map(|hit| hit.name).collect()
    }

    #[test]
    fn the_best_fit_comes_first() {
        let fake = FakeHost::new().kv(Scope::Plugin).kv(Scope::Session);
        fake.run(|| {
            write("deploy", "push the tag", &[], "lasting");
            write("log", "deploy deploy deploy deploy deploy deploy deploy", &[], "lasting");
            write("tags", "how it is done", &["deploy"], "lasting");
            write("today", "we deployed on Friday", &[], "session");
            write("other", "nothing of it", &[], "lasting");
            assert_eq!(names("Deploy!"), ["deploy", "log", "tags", "today"]);
            assert_eq!(names("deploy friday"), ["today", "deploy", "log", "tags"], "more of the words first");
            assert_eq!(names("ploy"), Vec::<String>::new());
        });
    }

    #[test]
    fn without_a_session_the_lasting_notes_are_searched() {
        let fake = FakeHost::new().kv(Scope::Plugin);
        fake.run(|| {
            write("a", &format!("{} needle in hay", "hay ".repeat(100)), &[], "lasting");
            let output = call::<session_search>(json!({"query": "NEEDLE"})).unwrap();
            assert_eq!(output.value, "a (lasting): … hay hay hay hay hay needle in hay\n");
            let nothing = call::<session_search>(json!({"query": "thread"})).unwrap();
            assert_eq!(nothing.value, "Nothing was found.");
            let wrong = call::<session_search>(json!({"query": " ?! "})).unwrap_err();
            assert_eq!((wrong.code(), wrong.subject()), (ErrorCode::InputInvalid, Some("/query")));
        });
    }

    #[test]
    fn a_search_is_bounded() {
        let fake = FakeHost::new().kv(Scope::Plugin);
        fake.run(|| {
            for n in 0..=MAX_NOTES {
                write(&format!("n{n:05}"), "same", &[], "lasting");
            }
            let output = call::<session_search>(json!({"query": "same", "max_results": 3})).unwrap();
            assert_eq!(output.value.lines().count(), 4);
            assert!(output.value.ends_with("[only the first 2000 notes by name were searched]\n"));
        });
    }
}
