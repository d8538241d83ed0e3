//! `memory_read`.

use toolbay_sdk::prelude::*;

use crate::notes::{self, MAX_NOTES, Note, NoteFile};

/// The result of a read.
#[data]
#[derive(Debug, PartialEq, Eq)]
pub struct FoundNotes {
    /// The notes: one with its text, or several without.
    pub notes: Vec<Note>,
    /// Whether notes were left out.
    pub more: bool,
}

/// Read a note by its name, or list the names and tags of all notes, or of those with a tag.
#[tool(
    toolset = "memory", tags = ["read"], read_only, idempotent, closed_world, untrusted_output,
    kv = "plugin", reason = "keeps the lasting notes",
    optional(kv = "session", reason = "keeps the notes of the session"),
)]
pub fn memory_read(
    /// The note's name; without it, notes are listed.
    name: Option<String>,
    /// List only notes with this tag.
    tag: Option<String>,
    /// `lasting`: for all sessions. `session`: for this one.
    place: Option<NoteFile>,
    /// List at most this many.
    #[arg(default = 100, range(min = 1, max = 1000))]
    max_notes: usize,
) -> Result<Rendered<FoundNotes>> {
    let place = place.unwrap_or(NoteFile::Lasting);
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        let note = notes::get(place, &name)?;
        let note = note.ok_or_else(|| Error::failed(format!("there is no note `{name}`")).at("not-found"))?;
        return Ok(Rendered { text: note.text.clone(), data: FoundNotes { notes: vec![note], more: false } });
    }
    let (all, unseen) = notes::all(place)?;
    let tag = tag.map(|tag| tag.trim().to_lowercase());
    let has_tag = |note: &Note| tag.as_ref().is_none_or(|tag| note.tags.contains(tag));
    let mut listed: Vec<Note> =
        all.into_iter().filter(has_tag).map(|note| Note { text: String::new(), ..note }).collect();
    let more = unseen || listed.len() > max_notes;
    listed.truncate(max_notes);
    let mut text: String = listed.iter().map(line).collect();
    if listed.is_empty() {
        text = "There are no such notes.".to_owned();
    }
    if more {
        text.push_str(&format!(
            "[there may be more: {} are shown, {MAX_NOTES} are looked at]\n",
            listed.len()
        ));
    }
    Ok(Rendered { text, data: FoundNotes { notes: listed, more } })
}

fn line(note: &Note) -> String {
    let tags: String = note.tags.iter().map(|tag| format!(" #{tag}")).collect();
    format!("{}{tags}\n", note.name)
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::kv::Scope;
    use toolbay_sdk::testing::{FakeHost, call};

    use super::*;
    use crate::memory_write::memory_write;

    #[test]
    fn notes_are_read_and_listed_in_their_place() {
        let fake = FakeHost::new().kv(Scope::Plugin).kv(Scope::Session);
        fake.run(|| {
            let write = |args| call::<memory_write>(args).unwrap();
            write(json!({"name": "b", "text": "bee", "tags": ["Animal"]}));
            write(json!({"name": "a", "text": "ant", "tags": ["animal", "small"]}));
            write(json!({"name": "s", "text": "now", "place": "session"}));
            let read = |args| call::<memory_read>(args).map(|output| output.value);
            assert_eq!(read(json!({"name": "a"})).unwrap(), "ant");
            assert_eq!(read(json!({})).unwrap(), "a #animal #small\nb #animal\n");
            assert_eq!(read(json!({"tag": "SMALL"})).unwrap(), "a #animal #small\n");
            assert_eq!(read(json!({"place": "session"})).unwrap(), "s\n");
            assert_eq!(read(json!({"tag": "none"})).unwrap(), "There are no such notes.");
            assert_eq!(read(json!({"name": "s"})).unwrap_err().subject(), Some("not-found"));
            assert!(
                read(json!({"max_notes": 1})).unwrap().starts_with("a #animal #small\n[there may be more")
            );
        });
    }
}
