//! Calls with a start line and no record: they still run, or their process was killed.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::Value;

use super::text;

/// A line with its number and its parsed record.
type Numbered = (u64, String, Value);

/// Start lines of calls that have not ended.
#[derive(Debug, Default)]
pub(super) struct UnfinishedCalls {
    by_id: HashMap<String, u64>,
    lines: BTreeMap<u64, (String, Value)>,
}

impl UnfinishedCalls {
    /// Adds a start line.
    pub(super) fn begin(&mut self, number: u64, line: &str, record: Value) {
        self.by_id.insert(text(&record, "start_id").to_owned(), number);
        self.lines.insert(number, (line.to_owned(), record));
    }

    /// Removes the start line of the call that a record ends.
    pub(super) fn end(&mut self, record: &Value) {
        if text(record, "kind") == "call"
            && let Some(number) = self.by_id.remove(text(record, "start_id"))
        {
            self.lines.remove(&number);
        }
    }

    /// Merges these lines with others and returns the last `most`, in order.
    pub(super) fn join(self, kept: VecDeque<Numbered>, most: usize) -> Vec<Numbered> {
        let starts = self.lines.into_iter().map(|(number, (line, record))| (number, line, record));
        let mut all: Vec<Numbered> = kept.into_iter().chain(starts).collect();
        all.sort_by_key(|(number, ..)| *number);
        let before = all.len().saturating_sub(most);
        all.drain(..before);
        all
    }
}
