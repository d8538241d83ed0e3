//! What changes in a host, and what of its calls is worth knowing at once, told to whoever wants to hear it.
//!
//! A callback hears each event in the order in which it was told, before the teller goes on; it may change the registry
//! itself. A stream hears the same later, and is told when it was too slow and missed some.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::broadcast;

use crate::registry::Entry;
use crate::tool::ToolDef;
use crate::tool::diff::SourceDiff;

/// Events a stream can lag behind before it misses the oldest.
const BACKLOG: usize = 1024;

/// Something that happened. Names of tools are qualified names; `source` is
/// [`ToolSource::label`](crate::tool::ToolSource::label).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// Tools came in.
    Registered {
        /// The tools.
        tools: Vec<Arc<str>>,
        /// Where they come from.
        source: String,
    },
    /// Tools came in place of those that their source had before.
    Replaced {
        /// The tools that are there now.
        tools: Vec<Arc<str>>,
        /// Where they come from.
        source: String,
        /// How they differ from those before, and whether callers of those still fit.
        diff: SourceDiff,
    },
    /// Tools went.
    Unregistered {
        /// The tools.
        tools: Vec<Arc<str>>,
        /// Where they came from.
        source: String,
    },
    /// A tool may be called again.
    Enabled {
        /// The tool.
        tool: Arc<str>,
    },
    /// A tool may not be called any more.
    Disabled {
        /// The tool.
        tool: Arc<str>,
        /// Why.
        reason: String,
    },
    /// A tool says otherwise than before whether it is available.
    Availability {
        /// The tool.
        tool: Arc<str>,
        /// Why it is not; `None`: it is.
        reason: Option<String>,
    },
    /// A source was read again.
    Refreshed {
        /// Which.
        source: String,
    },
    /// What is told of a tool is another.
    Metadata {
        /// The tool.
        tool: Arc<str>,
    },
    /// A file is not loaded, or not in place of what runs under its id.
    NotLoaded {
        /// The file.
        file: String,
        /// Why.
        problem: String,
        /// Whether the plugin's older version goes on.
        kept: bool,
    },
    /// A plugin waits until the operator agrees to what it would newly get.
    Held {
        /// The plugin.
        plugin: String,
        /// What, and how to agree.
        reason: String,
        /// Whether the plugin's older version goes on; if not, its tools are there and cannot be called.
        kept: bool,
    },
    /// The policy was read again and holds from the next call on.
    PolicyReloaded {
        /// Keys of `[host]` that are other ones now and hold from the next start on.
        restart: Vec<&'static str>,
    },
    /// The policy was read again and cannot be used; the one before holds.
    PolicyRefused {
        /// The line at fault and what is wrong with it.
        problem: String,
    },
    /// Somebody is asked whether a call may happen.
    PermissionAsked {
        /// The tool.
        tool: Arc<str>,
        /// The caller's id of the call.
        call_id: Arc<str>,
    },
    /// A call may not happen.
    PermissionDenied {
        /// The tool.
        tool: Arc<str>,
        /// The caller's id of the call.
        call_id: Arc<str>,
        /// What the rule or the person said.
        reason: Option<String>,
    },
    /// A call ended without an output.
    ToolError {
        /// The tool.
        tool: Arc<str>,
        /// The caller's id of the call.
        call_id: Arc<str>,
        /// As in the audit: an error code, a fault, or `host_failed`.
        outcome: &'static str,
    },
}

impl Event {
    /// What became of the tools of a source; `None` of a side: the source was not there.
    pub(super) fn of_source(
        source: String,
        old: Option<&[Arc<Entry>]>,
        new: Option<&[Arc<Entry>]>,
    ) -> Option<Self> {
        fn defs(entries: &[Arc<Entry>]) -> impl Iterator<Item = &ToolDef> {
            entries.iter().map(|entry| &*entry.def)
        }
        let names = |entries| defs(entries).map(|def| Arc::from(def.name.as_str())).collect();
        Some(match (old, new) {
            (None, None) => return None,
            (None, Some(new)) => Self::Registered { tools: names(new), source },
            (Some(old), None) => Self::Unregistered { tools: names(old), source },
            (Some(old), Some(new)) => {
                let diff = SourceDiff::new(defs(old), defs(new));
                Self::Replaced { tools: names(new), source, diff }
            }
        })
    }
}

type Callback = Arc<dyn Fn(&Event) + Send + Sync>;

/// The events of one host. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Events(Arc<Inner>);

struct Inner {
    callbacks: Mutex<Vec<Callback>>,
    stream: broadcast::Sender<Event>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("streams", &self.0.stream.receiver_count()).finish_non_exhaustive()
    }
}

impl Default for Events {
    fn default() -> Self {
        Self(Arc::new(Inner { callbacks: Mutex::default(), stream: broadcast::Sender::new(BACKLOG) }))
    }
}

impl Events {
    /// Calls `callback` with each event from now on. It runs where the event happens, so it must be quick; one that
    /// panics is logged and disturbs no other.
    pub fn listen(&self, callback: impl Fn(&Event) + Send + Sync + 'static) {
        self.0.callbacks.lock().push(Arc::new(callback));
    }

    /// Every event from now on. A receiver that falls more than 1024 events behind is told how many it missed.
    #[must_use]
    pub fn stream(&self) -> broadcast::Receiver<Event> {
        self.0.stream.subscribe()
    }

    /// Tells all who listen. No lock may be held that a callback could want.
    pub fn tell(&self, event: Event) {
        let callbacks = self.0.callbacks.lock().clone();
        for callback in callbacks {
            if catch_unwind(AssertUnwindSafe(|| callback(&event))).is_err() {
                tracing::error!("a callback for events panicked");
            }
        }
        // Nobody listening is no error.
        drop(self.0.stream.send(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(tool: &str) -> Event {
        Event::Enabled { tool: tool.into() }
    }

    #[tokio::test]
    async fn all_hear_in_order_and_a_bad_callback_stops_nobody() {
        let (events, heard) = (Events::default(), Arc::new(Mutex::new(Vec::new())));
        let hear = |who: &'static str| {
            let heard = Arc::clone(&heard);
            move |event: &Event| heard.lock().push((who, event.clone()))
        };
        events.listen(hear("first"));
        events.listen(|_| panic!("boom"));
        events.listen(hear("last"));
        let mut stream = events.stream();
        events.tell(event("a"));
        events.tell(event("b"));
        let expected = ["a", "b"].map(|tool| [("first", event(tool)), ("last", event(tool))]);
        assert_eq!(*heard.lock(), expected.concat());
        assert_eq!((stream.recv().await, stream.recv().await), (Ok(event("a")), Ok(event("b"))));
    }

    #[tokio::test]
    async fn a_slow_stream_is_told_what_it_missed_and_a_callback_may_tell_more() {
        let events = Events::default();
        let mut stream = events.stream();
        let again = events.clone();
        events.listen(move |heard| {
            if *heard == event("0") {
                again.tell(event("more"));
            }
        });
        for n in 0..BACKLOG + 9 {
            events.tell(event(&n.to_string()));
        }
        assert_eq!(stream.recv().await, Err(broadcast::error::RecvError::Lagged(10)));
        assert_eq!(stream.recv().await, Ok(event("9")));
    }
}
