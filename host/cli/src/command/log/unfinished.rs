//! Calls with a start line and no record: they still run, or their process was killed.

use std::collections::{BTreeMap, HashMap, VecDeque};

use toolbay_core::audit::StartId;
use toolbay_core::audit::read::{AuditLine, ReadEvent};

/// A line with its number and its record.
type Numbered = (u64, String, AuditLine);

/// Start lines of calls that have not ended.
#[derive(Debug, Default)]
pub(super) struct UnfinishedCalls {
    by_id: HashMap<StartId, u64>,
    lines: BTreeMap<u64, Numbered>,
}

impl UnfinishedCalls {
    /// Adds a start line.
    pub(super) fn begin(&mut self, id: StartId, line: Numbered) {
        self.by_id.insert(id, line.0);
        self.lines.insert(line.0, line);
    }

    /// Removes the start line of the call that a record ends.
    pub(super) fn end(&mut self, event: &ReadEvent) {
        if let ReadEvent::Call(call) = event
            && let Some(number) = call.start_id.and_then(|id| self.by_id.remove(&id))
        {
            self.lines.remove(&number);
        }
    }

    /// Merges these lines with others and returns the last `most`, in order.
    pub(super) fn join(self, kept: VecDeque<Numbered>, most: usize) -> Vec<Numbered> {
        let mut all: Vec<Numbered> = kept.into_iter().chain(self.lines.into_values()).collect();
        all.sort_by_key(|(number, ..)| *number);
        let before = all.len().saturating_sub(most);
        all.drain(..before);
        all
    }
}
