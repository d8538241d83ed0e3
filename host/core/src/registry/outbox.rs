//! Events on their way from the registry to those who listen: told in the order of the changes, with no lock held, so
//! that whoever hears one may change the registry.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::registry::event::{Event, Events};

#[derive(Debug, Default)]
pub(super) struct Outbox {
    events: Events,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Event>,
    /// Somebody tells; what comes meanwhile, they tell next.
    telling: bool,
}

impl Outbox {
    pub(super) fn new(events: Events) -> Self {
        Self { events, waiting: Mutex::default() }
    }

    pub(super) fn events(&self) -> &Events {
        &self.events
    }

    /// Takes events in. Called under the lock of the change, which puts the changes in their order.
    pub(super) fn put(&self, events: Vec<Event>) {
        self.lock().events.extend(events);
    }

    /// Tells what waits, unless somebody else does already: another thread, or, further down, this one.
    pub(super) fn tell(&self) {
        if std::mem::replace(&mut self.lock().telling, true) {
            return;
        }
        // `Events::tell` stops panics; were one to get through, telling ends with this thread's turn, not for ever.
        let done = Done(self);
        while let Some(event) = done.next() {
            self.events.tell(event);
        }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }
}

/// The turn of who tells.
struct Done<'a>(&'a Outbox);

impl Done<'_> {
    /// The next event. With the last one the turn ends, in one step, so that nothing put in meanwhile is left lying.
    fn next(&self) -> Option<Event> {
        let mut waiting = self.0.lock();
        let next = waiting.events.pop_front();
        waiting.telling = next.is_some();
        next
    }
}

impl Drop for Done<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().telling = false;
        }
    }
}
