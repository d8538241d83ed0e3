//! The mailbox of one event loop: events for the loop, and its replies. Nothing here blocks.
//!
//! A byte goes to a socket when the queue stops being empty, so one wake-up of the loop delivers many events.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use toolbay::core::pipeline::memory::MemoryReservation;
use toolbay::{ApprovalReply, CallContext, CancellationToken, Failure, ToolOutput};

use crate::error::{BridgeError, ErrorKind};
use crate::event::Event;

/// Most events that wait for the loop and that nothing waits for: progress and warnings. When there are more, the oldest is
/// dropped and counted: a person wants the newest.
pub const MAX_PROGRESS: usize = 1000;

/// What waits for a reply of the loop.
pub(crate) enum Question {
    /// A call of a native tool.
    Call { context: Arc<CallContext>, answer: oneshot::Sender<Result<ToolOutput, Failure>> },
    /// A request for approval.
    Approval { answer: oneshot::Sender<ApprovalReply> },
}

/// The queue of events for one event loop.
pub(crate) struct Mailbox {
    queue: Mutex<EventQueue>,
    state: Mutex<MailboxState>,
    reader: UnixStream,
    writer: UnixStream,
}

#[derive(Default)]
struct EventQueue {
    events: VecDeque<QueuedEvent>,
    progress: usize,
    dropped: u64,
    closed: bool,
}

struct QueuedEvent {
    text: String,
    is_progress: bool,
    /// The open host that the event names.
    host: Option<u64>,
    /// The part of the host's `result_memory` that the results hold until the loop has them.
    _memory: Vec<MemoryReservation>,
}

#[derive(Default)]
struct MailboxState {
    questions: HashMap<u64, Question>,
    /// The batches in progress.
    batches: HashMap<u64, CancellationToken>,
    closed: bool,
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("socket", &self.reader).finish_non_exhaustive()
    }
}

impl Mailbox {
    pub(crate) fn new() -> Result<Self, BridgeError> {
        let (reader, writer) = UnixStream::pair().map_err(|error| no_socket(&error))?;
        for end in [&reader, &writer] {
            end.set_nonblocking(true).map_err(|error| no_socket(&error))?;
        }
        Ok(Self { queue: Mutex::default(), state: Mutex::default(), reader, writer })
    }

    /// The socket that becomes readable when there are events.
    pub(crate) fn socket(&self) -> Result<OwnedFd, BridgeError> {
        Ok(self.reader.try_clone().map_err(|error| no_socket(&error))?.into())
    }

    /// Queues an event. A closed mailbox drops it.
    pub(crate) fn push(&self, event: &Event<'_>) {
        self.push_with(event, Vec::new());
    }

    /// Queues an event with the memory of its results.
    pub(crate) fn push_with(&self, event: &Event<'_>, memory: Vec<MemoryReservation>) {
        self.queue_event(event, memory, None);
    }

    /// Queues the number of an open host as the answer of a request. Returns false if the mailbox is closed.
    pub(crate) fn push_opened(&self, id: u64, host: u64) -> bool {
        self.queue_event(&Event::Done { id, value: host.into() }, Vec::new(), Some(host))
    }

    fn queue_event(&self, event: &Event<'_>, memory: Vec<MemoryReservation>, host: Option<u64>) -> bool {
        let is_progress = matches!(event, Event::Progress { .. } | Event::Log { .. });
        let Ok(text) = serde_json::to_string(event) else { return false };
        let mut queue = self.queue.lock();
        if queue.closed {
            return false;
        }
        let was_empty = queue.events.is_empty();
        if is_progress {
            queue.make_room();
            queue.progress += 1;
        }
        queue.events.push_back(QueuedEvent { text, is_progress, host, _memory: memory });
        drop(queue);
        if was_empty {
            // A full socket has bytes, so the loop wakes up.
            drop((&self.writer).write(&[0]));
        }
        true
    }

    /// Takes all events: a JSON object with `events`, and in `dropped` how many progress events are missing.
    pub(crate) fn drain(&self) -> String {
        // Before the queue is emptied: an event after it sends a byte of its own.
        let mut bytes = [0; 64];
        while (&self.reader).read(&mut bytes).is_ok_and(|count| count == bytes.len()) {}
        let mut queue = self.queue.lock();
        let (events, dropped) = (std::mem::take(&mut queue.events), std::mem::take(&mut queue.dropped));
        queue.progress = 0;
        drop(queue);
        // The texts are JSON already.
        let texts: Vec<String> = events.into_iter().map(|event| event.text).collect();
        format!("{{\"dropped\":{dropped},\"events\":[{}]}}", texts.join(","))
    }

    /// Begins a batch of calls. A closed mailbox refuses it.
    pub(crate) fn begin_batch(&self, id: u64, cancel: CancellationToken) -> Result<(), BridgeError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(BridgeError::closed("event loop"));
        }
        state.batches.insert(id, cancel);
        Ok(())
    }

    pub(crate) fn end_batch(&self, id: u64) {
        self.state.lock().batches.remove(&id);
    }

    /// Cancels a batch, if it still runs.
    pub(crate) fn cancel(&self, id: u64) {
        let cancel = self.state.lock().batches.get(&id).cloned();
        if let Some(cancel) = cancel {
            cancel.cancel();
        }
    }

    /// Registers a question, and sends its event. Dropping the guard withdraws it. `None` if the mailbox is closed.
    pub(crate) fn ask(
        self: &Arc<Self>,
        id: u64,
        question: Question,
        event: &Event<'_>,
    ) -> Option<QuestionGuard> {
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        state.questions.insert(id, question);
        drop(state);
        self.push(event);
        Some(QuestionGuard { mailbox: Arc::clone(self), id })
    }

    /// The context of a call that waits for its reply.
    pub(crate) fn context(&self, id: u64) -> Option<Arc<CallContext>> {
        match self.state.lock().questions.get(&id)? {
            Question::Call { context, .. } => Some(Arc::clone(context)),
            Question::Approval { .. } => None,
        }
    }

    /// Takes a question that is answered; `None` if it was withdrawn.
    pub(crate) fn take_question(&self, id: u64) -> Option<Question> {
        self.state.lock().questions.remove(&id)
    }

    /// Cancels all batches and withdraws all questions. Events are no longer queued. Returns the open hosts whose numbers
    /// the loop did not take.
    pub(crate) fn close(&self) -> Vec<u64> {
        let mut state = self.state.lock();
        state.closed = true;
        let (batches, questions) = (std::mem::take(&mut state.batches), std::mem::take(&mut state.questions));
        drop(state);
        batches.values().for_each(CancellationToken::cancel);
        drop(questions);
        let mut queue = self.queue.lock();
        queue.closed = true;
        queue.events.drain(..).filter_map(|event| event.host).collect()
    }
}

fn no_socket(error: &std::io::Error) -> BridgeError {
    BridgeError::new(ErrorKind::Internal, format!("the event loop has no socket: {error}"))
}

impl EventQueue {
    /// Drops the oldest progress event if there are as many as may wait.
    fn make_room(&mut self) {
        if self.progress < MAX_PROGRESS {
            return;
        }
        if let Some(oldest) = self.events.iter().position(|event| event.is_progress) {
            drop(self.events.remove(oldest));
            self.progress -= 1;
            self.dropped += 1;
        }
    }
}

/// A question that is open as long as the guard lives.
pub(crate) struct QuestionGuard {
    mailbox: Arc<Mailbox>,
    id: u64,
}

impl Drop for QuestionGuard {
    fn drop(&mut self) {
        if self.mailbox.take_question(self.id).is_some() {
            self.mailbox.push(&Event::Withdrawn { id: self.id });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn progress(mailbox: &Mailbox, percent: usize) {
        let (call_id, tool, message) = ("1", "t", &*percent.to_string());
        let audience = "user";
        mailbox.push(&Event::Progress { id: 1, call_id, tool, message, percent: None, audience });
    }

    #[test]
    fn the_oldest_progress_is_dropped_and_counted_and_nothing_else_is() {
        let mailbox = Mailbox::new().unwrap();
        mailbox.push(&Event::Withdrawn { id: 7 });
        (0..MAX_PROGRESS + 5).for_each(|percent| progress(&mailbox, percent));
        let delivery: Value = serde_json::from_str(&mailbox.drain()).unwrap();
        assert_eq!(delivery["dropped"], 5);
        let events = delivery["events"].as_array().unwrap();
        assert_eq!(events.len(), MAX_PROGRESS + 1);
        assert_eq!((&events[0]["event"], &events[1]["message"]), (&"withdrawn".into(), &"5".into()));
        let delivery: Value = serde_json::from_str(&mailbox.drain()).unwrap();
        assert_eq!(delivery, serde_json::json!({"dropped": 0, "events": []}));
    }

    #[test]
    fn one_byte_wakes_the_loop_for_many_events() {
        let mailbox = Mailbox::new().unwrap();
        (0..10).for_each(|percent| progress(&mailbox, percent));
        let mut bytes = [0; 64];
        assert_eq!((&mailbox.reader).read(&mut bytes).unwrap(), 1);
        drop(mailbox.drain());
        progress(&mailbox, 0);
        assert_eq!((&mailbox.reader).read(&mut bytes).unwrap(), 1);
        drop(mailbox.close());
        progress(&mailbox, 0);
        assert!((&mailbox.reader).read(&mut bytes).is_err());
    }

    #[test]
    fn closing_returns_the_hosts_whose_numbers_nobody_took() {
        let mailbox = Mailbox::new().unwrap();
        assert!(mailbox.push_opened(1, 7));
        drop(mailbox.drain());
        assert!(mailbox.push_opened(2, 8));
        assert_eq!(mailbox.close(), [8]);
        assert!(!mailbox.push_opened(3, 9));
    }
}
