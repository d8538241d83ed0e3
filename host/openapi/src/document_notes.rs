//! Losses of a document's text as it is read, named for the operator.

use toolbay_policy::excerpt::one_line;

/// The most losses that are named.
const MAX_NOTES: usize = 10;
/// The longest place, in characters.
const MAX_PLACE: usize = 200;

/// One loss.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DocumentNote {
    /// Where it is: a JSON Pointer, or a line and a column.
    pub(crate) place: String,
    pub(crate) text: String,
}

/// The losses so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct DocumentNotes {
    notes: Vec<DocumentNote>,
    more: usize,
}

impl DocumentNotes {
    /// Names a loss, once. `place` runs only if there is room for it.
    pub(crate) fn add_with(&mut self, text: &str, place: impl FnOnce() -> String) {
        if self.notes.len() == MAX_NOTES {
            self.more += 1;
            return;
        }
        let note = DocumentNote { place: one_line(&place(), MAX_PLACE), text: text.to_owned() };
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// These losses, and later ones.
    pub(crate) fn followed_by(mut self, next: Self) -> Self {
        for note in next.notes {
            self.add_with(&note.text, || note.place.clone());
        }
        self.more += next.more;
        self
    }

    /// All notes, with a count of what has none.
    pub(crate) fn into_lines(self) -> Vec<DocumentNote> {
        let more = (self.more > 0).then(|| DocumentNote {
            place: "the document".to_owned(),
            text: format!("{} more of its values and keys are lost", self.more),
        });
        self.notes.into_iter().chain(more).collect()
    }
}
