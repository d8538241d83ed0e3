//! `memory_write`.

use toolbay_sdk::prelude::*;

use crate::notes::{self, Note, NoteFile};

/// The longest note in characters, also after an append.
const MAX_TEXT: usize = 100_000;
const MAX_TAGS: usize = 20;

/// The result of a write.
#[data]
#[derive(Debug, PartialEq, Eq)]
pub struct NoteReport {
    /// The note's name.
    pub name: String,
    /// The number of characters of the text.
    pub chars: usize,
    /// The tags of the note.
    pub tags: Vec<String>,
}

/// Write a note under a name, replacing what it said, or append to it. An empty text removes the note.
#[tool(
    toolset = "memory", tags = ["write"], closed_world,
    kv = "plugin", reason = "keeps the lasting notes",
    optional(kv = "session", reason = "keeps the notes of the session"),
)]
pub fn memory_write(
    /// The note's name.
    #[arg(length(min = 1, max = 100))]
    name: String,
    /// What it is to say.
    #[arg(length(max = 100_000))]
    text: String,
    /// Words to file it under, at most 20; without them it keeps those it has.
    tags: Option<Vec<String>>,
    /// Add the text as a new line to what the note says.
    #[arg(default = false)]
    append: bool,
    /// `lasting`: for all sessions. `session`: for this one.
    place: Option<NoteFile>,
) -> Result<Rendered<NoteReport>> {
    let place = place.unwrap_or(NoteFile::Lasting);
    let tags = tags.as_deref().map(check_tags).transpose()?;
    if text.is_empty() && !append {
        let existed = notes::remove(place, &name)?;
        let text = if existed { format!("Removed `{name}`.") } else { format!("There was no `{name}`.") };
        return Ok(Rendered { text, data: NoteReport { name, chars: 0, tags: Vec::new() } });
    }
    let note = notes::change(place, &name, |old| {
        let (before, kept) = old.map_or_else(Default::default, |old| (old.text, old.tags));
        let text = if append && !before.is_empty() { format!("{before}\n{text}") } else { text.clone() };
        if text.chars().count() > MAX_TEXT {
            let problem = format!("the note would have more than {MAX_TEXT} characters: write a shorter one");
            return Err(Error::input(problem).at("/text"));
        }
        Ok(Note { name: name.clone(), text, tags: tags.clone().unwrap_or(kept) })
    })?;
    let chars = note.text.chars().count();
    Ok(Rendered {
        text: format!("Wrote `{name}`, {chars} characters."),
        data: NoteReport { name, chars, tags: note.tags },
    })
}

fn check_tags(tags: &[String]) -> Result<Vec<String>> {
    let wrong = |problem: &str| Err(Error::input(problem).at("/tags"));
    if tags.len() > MAX_TAGS {
        return wrong("a note has at most 20 tags");
    }
    if tags.iter().any(|tag| tag.trim().is_empty() || tag.chars().count() > 50) {
        return wrong("a tag has 1 to 50 characters");
    }
    let mut tags: Vec<String> = tags.iter().map(|tag| tag.trim().to_lowercase()).collect();
    tags.sort();
    tags.dedup();
    Ok(tags)
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::kv::Scope;
    use toolbay_sdk::testing::{FakeHost, call};
    use toolbay_sdk::types::ErrorCode;

    use super::*;

    #[test]
    fn a_note_is_written_appended_to_and_removed() {
        let fake = FakeHost::new().kv(Scope::Plugin);
        fake.run(|| {
            let write = |args| call::<memory_write>(args).map(|output| output.value);
            assert_eq!(
                write(json!({"name": "a", "text": "one", "tags": ["X", "x ", "B"]})).unwrap(),
                "Wrote `a`, 3 characters."
            );
            assert_eq!(notes::get(NoteFile::Lasting, "a").unwrap().unwrap().tags, ["b", "x"]);
            assert_eq!(
                write(json!({"name": "a", "text": "two", "append": true})).unwrap(),
                "Wrote `a`, 7 characters."
            );
            let note = notes::get(NoteFile::Lasting, "a").unwrap().unwrap();
            assert_eq!((note.text.as_str(), note.tags.len()), ("one\ntwo", 2), "the tags stay");
            assert_eq!(write(json!({"name": "a", "text": ""})).unwrap(), "Removed `a`.");
            assert_eq!(write(json!({"name": "a", "text": ""})).unwrap(), "There was no `a`.");
        });
    }

    #[test]
    fn what_is_too_much_or_not_granted_is_refused() {
        let fake = FakeHost::new().kv(Scope::Plugin);
        fake.run(|| {
            for args in [
                json!({"name": "a", "text": "x", "tags": vec!["t"; 21]}),
                json!({"name": "a", "text": "x", "tags": [" "]}),
                json!({"name": "a", "text": "x", "tags": ["t".repeat(51)]}),
                json!({"name": "a", "text": "x".repeat(100_001)}),
            ] {
                assert_eq!(call::<memory_write>(args).unwrap_err().code(), ErrorCode::InputInvalid);
            }
            let session = json!({"name": "a", "text": "x", "place": "session"});
            assert_eq!(call::<memory_write>(session).unwrap_err().subject(), Some("denied"));
        });
    }
}
