//! The notes in the store: `note/<name>` for each, in the scope of the sessions that share it.

use toolbay_sdk::kv::{self, Scope};
use toolbay_sdk::prelude::*;
use toolbay_sdk::serde_json;

/// The most notes that one call reads, in each place.
pub(crate) const MAX_NOTES: usize = 2000;
const PREFIX: &str = "note/";
/// The number of keys in one listing.
const PAGE: u32 = 500;
/// How often a change is retried after a concurrent change.
const TRIES: usize = 100;

/// The sessions that share a note.
#[data]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum NoteFile {
    /// All sessions, permanently.
    Lasting,
    /// This session only.
    Session,
}

impl NoteFile {
    fn scope(self) -> Scope {
        match self {
            Self::Lasting => Scope::Plugin,
            Self::Session => Scope::Session,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Lasting => "lasting",
            Self::Session => "session",
        }
    }
}

/// One note.
#[data]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The name, unique in its place.
    pub name: String,
    /// The text.
    pub text: String,
    /// The tags, in lower case.
    pub tags: Vec<String>,
}

fn key(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// Returns the note of a name.
pub(crate) fn get(place: NoteFile, name: &str) -> Result<Option<Note>> {
    kv::get_json(place.scope(), &key(name))
}

/// Removes a note. Returns whether it existed.
pub(crate) fn remove(place: NoteFile, name: &str) -> Result<bool> {
    let existed = kv::get(place.scope(), &key(name))?.is_some();
    kv::remove(place.scope(), &key(name))?;
    Ok(existed)
}

/// Replaces a note by a function of its current version.
pub(crate) fn change(
    place: NoteFile,
    name: &str,
    change: impl Fn(Option<Note>) -> Result<Note>,
) -> Result<Note> {
    for _ in 0..TRIES {
        let old = kv::get(place.scope(), &key(name))?;
        let note = change(old.as_deref().map(serde_json::from_slice).transpose()?)?;
        let new = serde_json::to_vec(&note)?;
        if kv::replace(place.scope(), &key(name), old.as_deref(), &new)? {
            return Ok(note);
        }
    }
    Err(Error::failed(format!("`{name}` is being changed by others all the time; try again")))
}

/// The notes of a place by name, at most [`MAX_NOTES`], and whether there are more.
pub(crate) fn all(place: NoteFile) -> Result<(Vec<Note>, bool)> {
    let mut notes = Vec::new();
    let mut last: Option<String> = None;
    loop {
        let keys = kv::keys(place.scope(), PREFIX, last.as_deref(), PAGE)?;
        let Some(end) = keys.last().cloned() else { return Ok((notes, false)) };
        for key in keys {
            if notes.len() == MAX_NOTES {
                return Ok((notes, true));
            }
            // Another call may have removed it since the listing.
            notes.extend(kv::get_json::<Note>(place.scope(), &key)?);
        }
        last = Some(end);
    }
}

/// The words of a text, in lower case.
pub(crate) fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}
