//! The event queue of the registry. Events are emitted in the order of the changes, with no lock held, so a callback
//! may change the registry.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::registry::event::{Events, HostEvent};

#[derive(Debug, Default)]
pub(super) struct EventQueue {
    events: Events,
    waiting: Mutex<PendingEvents>,
}

#[derive(Debug, Default)]
struct PendingEvents {
    events: VecDeque<HostEvent>,
    /// A thread is flushing. It also emits events that arrive meanwhile.
    flushing: bool,
}

impl EventQueue {
    pub(super) fn new(events: Events) -> Self {
        Self { events, waiting: Mutex::default() }
    }

    pub(super) fn events(&self) -> &Events {
        &self.events
    }

    /// Queues events. The caller holds the registry's write lock, so the queue has the order of the changes.
    pub(super) fn push(&self, events: Vec<HostEvent>) {
        self.waiting.lock().events.extend(events);
    }

    /// Emits the queued events, unless another thread, or a caller further up the stack, is already flushing.
    pub(super) fn flush(&self) {
        if std::mem::replace(&mut self.waiting.lock().flushing, true) {
            return;
        }
        // `Events::emit` catches panics. If one escaped, the guard would end this flush, so that later ones can run.
        let done = FlushTurn(self);
        while let Some(event) = done.next() {
            self.events.emit(event);
        }
    }
}

/// Guards the flushing state.
struct FlushTurn<'a>(&'a EventQueue);

impl FlushTurn<'_> {
    /// The next event. If the queue is empty, this ends the flush under the same lock, so no event is left behind.
    fn next(&self) -> Option<HostEvent> {
        let mut waiting = self.0.waiting.lock();
        let next = waiting.events.pop_front();
        waiting.flushing = next.is_some();
        next
    }
}

impl Drop for FlushTurn<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.waiting.lock().flushing = false;
        }
    }
}
