//! Events of a host: changes of tools, plugins and policy, and noteworthy outcomes of calls.
//!
//! A callback runs synchronously, in the order of the events, and may change the registry. A stream receives the same
//! events asynchronously. A stream that is too slow loses the oldest events and learns how many.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::broadcast;

use crate::registry::ToolEntry;
use crate::tool::ToolDef;
use crate::tool::diff::SourceDiff;

/// Events that a stream can lag behind before it loses the oldest.
const BACKLOG: usize = 1024;

/// An event of a host. Tool names are qualified; `source` is a [label](crate::tool::ToolSource::label).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum HostEvent {
    /// Tools were registered.
    Registered {
        /// The tools.
        tools: Vec<Arc<str>>,
        /// The source of the tools.
        source: String,
    },
    /// The tools of a source were replaced.
    Replaced {
        /// The new tools.
        tools: Vec<Arc<str>>,
        /// The source of the tools.
        source: String,
        /// The differences, and whether they break callers.
        diff: SourceDiff,
    },
    /// Tools were removed.
    Unregistered {
        /// The tools.
        tools: Vec<Arc<str>>,
        /// The source of the tools.
        source: String,
    },
    /// A tool was enabled.
    Enabled {
        /// The tool.
        tool: Arc<str>,
    },
    /// A tool was disabled.
    Disabled {
        /// The tool.
        tool: Arc<str>,
        /// The reason.
        reason: String,
    },
    /// The availability of a tool changed.
    Availability {
        /// The tool.
        tool: Arc<str>,
        /// The reason if the tool is unavailable; `None` if it is available.
        reason: Option<String>,
    },
    /// The metadata of a tool changed.
    Metadata {
        /// The tool.
        tool: Arc<str>,
    },
    /// A plugin file was not loaded, or did not replace the active version.
    NotLoaded {
        /// The file.
        file: String,
        /// The problem.
        problem: String,
        /// Whether an older version of the plugin stays active.
        kept: bool,
    },
    /// A plugin waits for the operator's consent to new grants.
    #[serde(rename = "held")]
    ConsentRequired {
        /// The plugin.
        plugin: String,
        /// The new grants, and how to consent.
        reason: String,
        /// Whether an older version of the plugin stays active. If not, its tools are registered but cannot be called.
        kept: bool,
    },
    /// The policy was reloaded and applies from the next call on.
    PolicyReloaded {
        /// Changed keys of `[host]` that apply from the next start on.
        restart: Vec<&'static str>,
    },
    /// The policy was reloaded but is invalid; the old policy stays in force.
    PolicyRefused {
        /// The line and the problem.
        problem: String,
    },
    /// An approval was requested for a call.
    PermissionAsked {
        /// The tool.
        tool: Arc<str>,
        /// The caller's id of the call.
        call_id: Arc<str>,
    },
    /// A call was denied.
    PermissionDenied {
        /// The tool.
        tool: Arc<str>,
        /// The caller's id of the call.
        call_id: Arc<str>,
        /// The reason of the rule or the person.
        reason: Option<String>,
    },
    /// A call ended without an output.
    ToolError {
        /// The tool.
        tool: Arc<str>,
        /// The caller's id of the call.
        call_id: Arc<str>,
        /// The outcome as in the audit: an error code, a fault, or `host_failed`.
        outcome: &'static str,
    },
}

impl HostEvent {
    /// The event of a change of a source's tools. `None` means that the source did not exist, before or after.
    pub(super) fn from_source_change(
        source: String,
        old: Option<&[Arc<ToolEntry>]>,
        new: Option<&[Arc<ToolEntry>]>,
    ) -> Option<Self> {
        fn defs(entries: &[Arc<ToolEntry>]) -> impl Iterator<Item = &ToolDef> {
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

type Callback = Arc<dyn Fn(&HostEvent) + Send + Sync>;

/// The event channel of a host. Clones share it.
#[derive(Clone)]
pub struct Events(Arc<EventChannels>);

struct EventChannels {
    callbacks: Mutex<Vec<Callback>>,
    stream: broadcast::Sender<HostEvent>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("streams", &self.0.stream.receiver_count()).finish_non_exhaustive()
    }
}

impl Default for Events {
    fn default() -> Self {
        Self(Arc::new(EventChannels { callbacks: Mutex::default(), stream: broadcast::Sender::new(BACKLOG) }))
    }
}

impl Events {
    /// Calls `callback` with each later event. It runs on the thread that emits the event, so it must be quick. A panic
    /// is logged and does not affect other callbacks.
    pub fn listen(&self, callback: impl Fn(&HostEvent) + Send + Sync + 'static) {
        self.0.callbacks.lock().push(Arc::new(callback));
    }

    /// A stream of all later events. A receiver that falls more than 1024 events behind learns how many it lost.
    #[must_use]
    pub fn stream(&self) -> broadcast::Receiver<HostEvent> {
        self.0.stream.subscribe()
    }

    /// Emits an event to all callbacks and streams. The caller must not hold a lock that a callback could take.
    pub fn emit(&self, event: HostEvent) {
        let callbacks = self.0.callbacks.lock().clone();
        for callback in callbacks {
            if catch_unwind(AssertUnwindSafe(|| callback(&event))).is_err() {
                tracing::error!("a callback for events panicked");
            }
        }
        // Without a receiver, `send` returns an error that has no meaning here.
        drop(self.0.stream.send(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(tool: &str) -> HostEvent {
        HostEvent::Enabled { tool: tool.into() }
    }

    #[tokio::test]
    async fn events_arrive_in_order_despite_a_panicking_callback() {
        let (events, heard) = (Events::default(), Arc::new(Mutex::new(Vec::new())));
        let hear = |who: &'static str| {
            let heard = Arc::clone(&heard);
            move |event: &HostEvent| heard.lock().push((who, event.clone()))
        };
        events.listen(hear("first"));
        events.listen(|_| panic!("boom"));
        events.listen(hear("last"));
        let mut stream = events.stream();
        events.emit(event("a"));
        events.emit(event("b"));
        let expected = ["a", "b"].map(|tool| [("first", event(tool)), ("last", event(tool))]);
        assert_eq!(*heard.lock(), expected.concat());
        assert_eq!((stream.recv().await, stream.recv().await), (Ok(event("a")), Ok(event("b"))));
    }

    #[tokio::test]
    async fn a_slow_stream_learns_its_losses_and_a_callback_may_emit() {
        let events = Events::default();
        let mut stream = events.stream();
        let again = events.clone();
        events.listen(move |heard| {
            if *heard == event("0") {
                again.emit(event("more"));
            }
        });
        for n in 0..BACKLOG + 9 {
            events.emit(event(&n.to_string()));
        }
        assert_eq!(stream.recv().await, Err(broadcast::error::RecvError::Lagged(10)));
        assert_eq!(stream.recv().await, Ok(event("9")));
    }
}
