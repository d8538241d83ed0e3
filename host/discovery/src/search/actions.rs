//! Synonymous verbs and nouns of APIs, and the action that a query asks for or a tool performs.
//!
//! | text | action |
//! |---|---|
//! | `remove a label` | delete |
//! | `show the labels`, `which labels are there` | list |
//! | `show the label` | read |
//! | `comment on an issue` | none, so a tool that creates something is preferred |

use super::words::{is_stop_word, singular, stem, words};

/// Whether an action or a tool changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    Changes,
}

/// Synonymous verbs, as stems: one action for each group. A verb may be in several groups.
const VERBS: &[(Effect, &[&str])] = &[
    (
        Effect::Reads,
        &["get", "fetch", "read", "show", "retriev", "view", "display", "describ", "see", "inspect", "look"],
    ),
    (Effect::Reads, &["list", "show", "all", "get", "enumerat", "see"]),
    (Effect::Reads, &["search", "find", "query", "lookup", "look", "filter"]),
    (Effect::Reads, &["check", "verify", "validat", "test"]),
    (Effect::Reads, &["download", "export", "get"]),
    (Effect::Changes, &["creat", "add", "new", "mak", "post", "insert", "register"]),
    (Effect::Changes, &["updat", "edit", "chang", "modify", "patch", "post", "set", "adjust", "renam"]),
    (Effect::Changes, &["delet", "remov", "destroy", "drop", "eras", "clear"]),
    (Effect::Changes, &["start", "run", "trigger", "begin", "launch", "dispatch"]),
    (Effect::Changes, &["stop", "cancel", "abort", "end", "terminat"]),
    (Effect::Changes, &["send", "post", "submit"]),
    (Effect::Changes, &["replac", "put", "overwrit", "set"]),
    (Effect::Changes, &["set", "configur", "chang", "choos", "select"]),
    (Effect::Changes, &["enabl", "turn", "activat"]),
    (Effect::Changes, &["disabl", "turn", "deactivat"]),
    (Effect::Changes, &["attach", "connect", "assign"]),
    (Effect::Changes, &["detach", "disconnect", "unassign", "remov"]),
    (Effect::Changes, &["upload", "import"]),
    (Effect::Changes, &["copy", "clon", "duplicat"]),
    (Effect::Changes, &["accept", "approv", "confirm"]),
    (Effect::Changes, &["reject", "declin", "deny", "dismiss"]),
];

/// Synonymous nouns, as stems.
const NOUNS: &[&[&str]] = &[
    &["app", "application"],
    &["auth", "authentication"],
    &["config", "configuration"],
    &["db", "databas"],
    &["dir", "directory", "folder"],
    &["doc", "document", "documentation"],
    &["env", "environment"],
    &["info", "information", "detail"],
    &["org", "organization"],
    &["person", "peopl", "user"],
    &["photo", "pictur", "imag"],
    &["pr", "pull"],
    &["repo", "repository"],
];

/// Words with which a question begins.
const QUESTIONS: [&str; 5] = ["are", "is", "what", "which", "who"];

/// The other words for a stem.
pub(super) fn synonyms(word: &str) -> Vec<&'static str> {
    let groups = VERBS.iter().map(|(_, verbs)| verbs).chain(NOUNS).filter(|group| group.contains(&word));
    let mut others: Vec<&str> =
        groups.flat_map(|group| group.iter().copied()).filter(|one| *one != word).collect();
    others.sort_unstable();
    others.dedup();
    others
}

/// A set of actions: a bit for each group of [`VERBS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Actions(u32);

impl Actions {
    /// The actions that a stem can mean.
    fn of_word(word: &str) -> Self {
        let groups = VERBS.iter().enumerate().filter(|(_, (_, verbs))| verbs.contains(&word));
        Self(groups.map(|(at, _)| 1 << at).sum())
    }

    /// The actions of the first of these stems that means one.
    pub(super) fn first_in<'a>(words: impl IntoIterator<Item = &'a String>) -> Self {
        words
            .into_iter()
            .map(|word| Self::of_word(word))
            .find(|actions| !actions.is_empty())
            .unwrap_or_default()
    }

    /// The actions that a query asks for.
    pub(super) fn of_query(query: &str) -> Self {
        let all: Vec<String> = words(query).collect();
        let mut actions = Self::first_in(&all);
        let (read, list) = (Self::of_word("retriev"), Self::of_word("enumerat"));
        if all.first().is_some_and(|word| QUESTIONS.contains(&word.as_str())) {
            actions = Self(actions.0 | read.0 | list.0);
        }
        if actions.0 & read.0 != 0 && actions.0 & list.0 != 0 {
            // `Show the labels` asks for a list, `show the label` for one.
            let unwanted = if names_several(query) { read } else { list };
            actions = Self(actions.0 & !unwanted.0);
        }
        actions
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether a tool that creates something performs one of them.
    pub(super) fn creates(self) -> bool {
        self.intersects(Self::of_word("creat"))
    }

    /// Whether one of them has this effect.
    pub(super) fn have(self, effect: Effect) -> bool {
        VERBS.iter().enumerate().any(|(at, (of_verb, _))| *of_verb == effect && self.0 >> at & 1 == 1)
    }
}

/// Whether one of the first two nouns of a query is a plural.
fn names_several(query: &str) -> bool {
    let all =
        query.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase).filter(|word| !word.is_empty());
    let is_noun = |word: &String| {
        let stem = stem(word);
        !is_stop_word(&stem) && Actions::of_word(&stem).is_empty()
    };
    let is_plural = |word: String| word.len() > 3 && singular(&word) != word;
    all.filter(is_noun).take(2).any(is_plural)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_hold_stems() {
        let groups = VERBS.iter().map(|(_, verbs)| verbs).chain(NOUNS);
        for word in groups.copied().flatten() {
            let full = format!("{word}e");
            assert!(stem(word) == *word || stem(&full) == *word, "{word}");
            assert!(word.len() < 4 || !word.ends_with('e'), "{word} is no stem");
        }
        assert!(VERBS.len() <= u32::BITS as usize);
        assert_eq!(synonyms("destroy"), ["clear", "delet", "drop", "eras", "remov"]);
        assert_eq!(synonyms("pod"), [""; 0]);
    }

    #[test]
    fn a_query_asks_for_an_action() {
        for (query, word) in [
            ("remove the labels", "delet"),
            ("show the labels", "enumerat"),
            ("which labels does it have", "enumerat"),
            ("show me a label", "retriev"),
            ("what is the status", "retriev"),
            ("how do I create an issue and close it", "creat"),
        ] {
            assert!(Actions::of_query(query).intersects(Actions::of_word(word)), "{query}");
        }
        assert!(!Actions::of_query("show the labels").intersects(Actions::of_word("retriev")));
        assert!(!Actions::of_query("get a label").intersects(Actions::of_word("enumerat")));
        assert!(Actions::of_query("comment on an issue").is_empty());
        let (reads, changes) = (Actions::of_query("view a pod"), Actions::of_query("make a pod"));
        assert!(reads.have(Effect::Reads) && !reads.have(Effect::Changes));
        assert!(changes.have(Effect::Changes) && !changes.have(Effect::Reads));
        assert!(changes.creates() && !reads.creates());
    }
}
