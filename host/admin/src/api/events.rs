//! The stream of calls that end, as server-sent events. A reader that is too slow loses calls and learns how many; no call
//! waits for it. A reader that comes back with `Last-Event-ID`, as browsers do, gets the calls in between.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::ApiError;
use super::views::CallSummary;
use crate::control::ServerControl;
use crate::history::{CallFilter, CallHistory, FinishedCall};

/// Most streams at once, below the connections of a listener, so that others are still served.
const MAX_STREAMS: usize = 32;
/// Most calls that a reader gets when it comes back: those that a page shows.
const MAX_REPLAYED: usize = 200;
/// How long calls gather before a reader gets them. Those of a busy server fit into the stream: 256 calls.
const PAUSE: Duration = Duration::from_millis(100);
/// How often an idle stream sends a comment, so that a reader that is gone is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) async fn events(
    State(control): State<ServerControl>,
    headers: HeaderMap,
    Query(filter): Query<CallFilter>,
) -> Response {
    let Some(admin) = control.admin() else { return super::views::no_history().into_response() };
    let Some(live) = admin.history.subscribe(MAX_STREAMS) else {
        let message = format!("{MAX_STREAMS} streams are open; close one");
        return ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_streams", message).into_response();
    };
    let seen = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse().ok());
    let mut calls = CallStream { live, filter, last: 0, replayed: VecDeque::new(), lost: 0 };
    if let Some(seen) = seen {
        calls.replay(&admin.history, seen);
    }
    Sse::new(calls.events()).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// The calls for one reader.
struct CallStream {
    live: Receiver<Arc<FinishedCall>>,
    filter: CallFilter,
    /// The number of the last call from before the stream was opened.
    last: u64,
    replayed: VecDeque<Arc<FinishedCall>>,
    /// Calls in between that are not replayed.
    lost: u64,
}

impl CallStream {
    /// Adds the calls after `seen`. A call that ends meanwhile may be both here and live, and counts once.
    fn replay(&mut self, history: &CallHistory, seen: u64) {
        self.last = history.count();
        let newest = history.find(&CallFilter::default(), None, MAX_REPLAYED);
        self.replayed = newest.into_iter().rev().filter(|call| call.number > seen).collect();
        // A number of another process is greater than all of this one.
        let between = self.last.saturating_sub(seen);
        self.lost = between.saturating_sub(u64::try_from(self.replayed.len()).unwrap_or(u64::MAX));
    }

    fn events(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, async |mut calls| {
            let event = calls.next().await?;
            Some((Ok(event), calls))
        })
    }

    async fn next(&mut self) -> Option<Event> {
        if self.lost > 0 {
            return Some(lost_event(std::mem::take(&mut self.lost)));
        }
        while let Some(call) = self.replayed.pop_front() {
            if self.filter.matches(&call) {
                self.last = self.last.max(call.number);
                return Some(call_event(&call));
            }
        }
        loop {
            match self.receive().await {
                Ok(call) if call.number <= self.last || !self.filter.matches(&call) => {}
                Ok(call) => return Some(call_event(&call)),
                Err(RecvError::Lagged(lost)) => return Some(lost_event(lost)),
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// The next call: at once after a quiet time, and otherwise with those of the next tenth of a second. A reader that woke
    /// up for each call would slow down the calls.
    async fn receive(&mut self) -> Result<Arc<FinishedCall>, RecvError> {
        if self.live.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
        self.live.recv().await
    }
}

fn call_event(call: &FinishedCall) -> Event {
    // Written once for all readers.
    let data = call.summary.get_or_init(|| json!(CallSummary::of(call)).to_string().into());
    Event::default().event("call").id(call.number.to_string()).data(data)
}

fn lost_event(lost: u64) -> Event {
    Event::default().event("lost").data(json!({ "calls": lost }).to_string())
}
