//! What a server sent and this client could not use, for the reason of a timeout.
//!
//! A connection serves several callers, and such output may be a part of any of their results. A call quotes it only if
//! it can belong to no other request of the connection; otherwise the call tells that it came.
//!
//! | while the output arrives | in the reason |
//! |---|---|
//! | no call is open: the server starts | quoted in the reason why it did not start |
//! | one request is open | quoted |
//! | one is open, and the output carries another id | counted |
//! | several are open, or an earlier one ended without an answer that could be read | counted |

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::bounds::MAX_NOTED_IDS;
use crate::protocol::repair::Repair;

/// The output that one call saw, or the start of a server.
#[derive(Debug, Default)]
pub(super) struct OutputNotes(Mutex<Notes>);

#[derive(Debug, Default)]
struct Notes {
    /// Answers that match no request.
    unmatched: usize,
    /// The first ids of such answers.
    ids: Vec<String>,
    /// Lines and events that are no messages.
    lines: usize,
    /// The last of them, unless it may belong to another request.
    last: Option<String>,
    /// What was repaired in the last answer.
    repair: Option<Repair>,
}

/// One thing that a server sent. The text is redacted and bounded.
#[derive(Debug, Clone)]
pub(super) enum UnusableOutput {
    /// An answer with an id that no request ever had.
    UnknownId(String),
    /// A line or an event that is no message.
    Line(String),
}

/// The requests of a connection that are open, and what arrived meanwhile.
#[derive(Debug, Default)]
pub(super) struct OpenRequests {
    /// The notes of the requests. Only calls have some.
    open: Mutex<HashMap<u64, Option<Arc<OutputNotes>>>>,
    /// Whether a request ended without an answer that could be read, so that later output may belong to it.
    has_unanswered: AtomicBool,
    /// The notes of the start, before there are calls.
    start: OutputNotes,
}

/// A request that is open until this is dropped.
#[derive(Debug)]
pub(super) struct OpenRequest<'a> {
    requests: &'a OpenRequests,
    id: u64,
    /// Whether an answer came that could be read.
    pub(super) is_answered: bool,
}

impl OpenRequests {
    /// Marks a request as open. `notes` are those of its call.
    pub(super) fn open(&self, id: u64, notes: Option<&Arc<OutputNotes>>) -> OpenRequest<'_> {
        self.open.lock().insert(id, notes.cloned());
        OpenRequest { requests: self, id, is_answered: false }
    }

    /// Notes what a server sent. `has_other_id` tells whether it carries an id other than that of a request.
    pub(super) fn note(&self, output: &UnusableOutput, has_other_id: impl Fn(u64) -> bool) {
        self.start.add(output, true);
        let open = self.open.lock();
        let is_alone = open.len() == 1 && !self.has_unanswered.load(Ordering::Relaxed);
        for (id, notes) in &*open {
            if let Some(notes) = notes {
                notes.add(output, is_alone && !has_other_id(*id));
            }
        }
    }

    /// Notes that the answer to a request was repaired.
    pub(super) fn note_repair(&self, id: u64, repair: &Repair) {
        if let Some(Some(notes)) = self.open.lock().get(&id) {
            notes.0.lock().repair = Some(repair.clone());
        }
    }

    /// What the server sent instead of an answer to an open request, as a clause.
    pub(super) fn describe(&self, id: u64) -> Option<String> {
        self.open.lock().get(&id)?.as_ref()?.describe()
    }

    /// What the server sent since its start, as a clause. No call may show it.
    pub(super) fn describe_start(&self) -> Option<String> {
        self.start.describe()
    }
}

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        self.requests.open.lock().remove(&self.id);
        if !self.is_answered {
            self.requests.has_unanswered.store(true, Ordering::Relaxed);
        }
    }
}

impl OutputNotes {
    fn add(&self, output: &UnusableOutput, is_quoted: bool) {
        let mut notes = self.0.lock();
        match output {
            UnusableOutput::UnknownId(id) => {
                notes.unmatched = notes.unmatched.saturating_add(1);
                if is_quoted && notes.ids.len() < MAX_NOTED_IDS && !notes.ids.contains(id) {
                    notes.ids.push(id.clone());
                }
            }
            UnusableOutput::Line(line) => {
                notes.lines = notes.lines.saturating_add(1);
                notes.last = is_quoted.then(|| line.clone());
            }
        }
    }

    /// The repairs of the answer since this was asked last.
    pub(super) fn take_repair(&self) -> Option<Repair> {
        self.0.lock().repair.take()
    }

    /// What the server sent instead of an answer, as a clause for the reason of a timeout.
    pub(super) fn describe(&self) -> Option<String> {
        let notes = self.0.lock();
        let ids = match (notes.unmatched, notes.ids.join(", ")) {
            (0, _) => None,
            (_, ids) if ids.is_empty() => Some("answers came that match no request".to_owned()),
            (_, ids) => Some(format!("answers with id {ids} came, which match no request")),
        };
        let lines = match (notes.lines, &notes.last) {
            (0, _) => None,
            (1, Some(last)) => Some(format!("it sent a line or event that is no message: {last}")),
            (1, None) => Some("it sent a line or event that is no message".to_owned()),
            (count, Some(last)) => {
                Some(format!("it sent {count} lines or events that are no messages, the last: {last}"))
            }
            (count, None) => Some(format!("it sent {count} lines or events that are no messages")),
        };
        let clauses: Vec<String> = ids.into_iter().chain(lines).collect();
        (!clauses.is_empty()).then(|| clauses.join(", and "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> UnusableOutput {
        UnusableOutput::Line(text.to_owned())
    }

    fn said(notes: &OutputNotes) -> String {
        notes.describe().unwrap_or_default()
    }

    #[test]
    fn a_call_quotes_only_output_that_can_belong_to_no_other_request() {
        let requests = OpenRequests::default();
        let [one, two, three, four] = std::array::from_fn(|_| Arc::<OutputNotes>::default());
        requests.note(&line("at start"), |_| false);
        let mut first = requests.open(1, Some(&one));
        assert!(requests.describe_start().unwrap().ends_with("at start"));
        assert_eq!(said(&one), "", "it came before the call");
        requests.note(&line("alone"), |_| false);
        assert!(said(&one).ends_with("no message: alone"));
        requests.note(&line("of another"), |id| id == 1);
        assert_eq!(said(&one), "it sent 2 lines or events that are no messages");
        first.is_answered = true;
        drop(first);

        let mut second = requests.open(2, Some(&two));
        let mut unnamed = requests.open(3, None);
        requests.note(&line("secret"), |_| false);
        requests.note(&UnusableOutput::UnknownId("secret".to_owned()), |_| false);
        assert_eq!(
            said(&two),
            "answers came that match no request, and it sent a line or event that is no message"
        );
        (second.is_answered, unnamed.is_answered) = (true, true);
        drop((second, unnamed));
        assert!(!said(&one).contains("secret") && said(&one).contains("2 lines"), "it had ended");

        let given_up = requests.open(4, Some(&three));
        requests.note(&line("mine"), |_| false);
        assert!(said(&three).ends_with("mine"));
        drop(given_up);
        let _open = requests.open(5, Some(&four));
        requests.note(&line("late secret"), |_| false);
        assert_eq!(said(&four), "it sent a line or event that is no message");
        assert!(requests.describe_start().unwrap().contains("6 lines"));
    }
}
