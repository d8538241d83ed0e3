//! Calls that began and have no record: they run now, or their process was killed.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::Value;

use super::text;

/// A line with its number and what it says.
type Numbered = (u64, String, Value);

/// Start lines whose call did not end so far.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    by_id: HashMap<String, u64>,
    lines: BTreeMap<u64, (String, Value)>,
}

impl Unfinished {
    /// Keeps a start line until its call ends.
    pub(super) fn begin(&mut self, number: u64, line: &str, record: Value) {
        self.by_id.insert(text(&record, "start_id").to_owned(), number);
        self.lines.insert(number, (line.to_owned(), record));
    }

    /// Forgets the start line of a call whose record this is.
    pub(super) fn end(&mut self, record: &Value) {
        if text(record, "kind") == "call"
            && let Some(number) = self.by_id.remove(text(record, "start_id"))
        {
            self.lines.remove(&number);
        }
    }

    /// The last `most` of these and other lines, in their order.
    pub(super) fn join(self, kept: VecDeque<Numbered>, most: usize) -> Vec<Numbered> {
        let starts = self.lines.into_iter().map(|(number, (line, record))| (number, line, record));
        let mut all: Vec<Numbered> = kept.into_iter().chain(starts).collect();
        all.sort_by_key(|(number, ..)| *number);
        let before = all.len().saturating_sub(most);
        all.drain(..before);
        all
    }
}
