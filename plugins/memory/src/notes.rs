//! The notes in the store: `note/<name>`, one entry for each, in the scope of those who share it.

use toolbay_sdk::kv::{self, Scope};
use toolbay_sdk::prelude::*;
use toolbay_sdk::serde_json;

/// Most notes that one call looks at, in each place.
pub(crate) const MAX_NOTES: usize = 2000;
const PREFIX: &str = "note/";
/// Keys of one listing.
const PAGE: u32 = 500;
/// How often a change is tried again because another call was faster.
const TRIES: usize = 100;

/// Who shares a note.
#[data]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// All sessions, for good.
    Lasting,
    /// This session.
    Session,
}

impl Place {
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
    /// Its name, unique in its place.
    pub name: String,
    /// What it says.
    pub text: String,
    /// Words it is filed under, in small letters.
    pub tags: Vec<String>,
}

fn key(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// The note of a name.
pub(crate) fn get(place: Place, name: &str) -> Result<Option<Note>> {
    kv::get_json(place.scope(), &key(name))
}

/// Removes a note; tells whether it was there.
pub(crate) fn remove(place: Place, name: &str) -> Result<bool> {
    let there = kv::get(place.scope(), &key(name))?.is_some();
    kv::remove(place.scope(), &key(name))?;
    Ok(there)
}

/// Makes of the note that is there the one that is to be, on what it is at that moment.
pub(crate) fn change(
    place: Place,
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

/// The notes of a place by name, at most [`MAX_NOTES`]; and whether there are more.
pub(crate) fn all(place: Place) -> Result<(Vec<Note>, bool)> {
    let mut notes = Vec::new();
    let mut last: Option<String> = None;
    loop {
        let keys = kv::keys(place.scope(), PREFIX, last.as_deref(), PAGE)?;
        let Some(end) = keys.last().cloned() else { return Ok((notes, false)) };
        for key in keys {
            if notes.len() == MAX_NOTES {
                return Ok((notes, true));
            }
            // It may have been removed since it was listed.
            notes.extend(kv::get_json::<Note>(place.scope(), &key)?);
        }
        last = Some(end);
    }
}

/// The words of a text, in small letters.
pub(crate) fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}
