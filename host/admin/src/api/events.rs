//! The stream of calls that end, as server-sent events. A reader that is too slow loses calls and learns how many; no call
//! waits for it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::ApiError;
use super::views::CallSummary;
use crate::control::ServerControl;
use crate::history::{CallFilter, FinishedCall};

/// Most streams at once, below the connections of a listener, so that others are still served.
const MAX_STREAMS: usize = 32;
/// How often an idle stream sends a comment, so that a reader that is gone is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) async fn events(
    State(control): State<ServerControl>,
    Query(filter): Query<CallFilter>,
) -> Response {
    let Some(admin) = control.admin() else { return super::views::no_history().into_response() };
    let Some(calls) = admin.history.subscribe(MAX_STREAMS) else {
        let message = format!("{MAX_STREAMS} streams are open; close one");
        return ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_streams", message).into_response();
    };
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Sse::new(follow(calls, filter)).keep_alive(keep_alive).into_response()
}

fn follow(
    calls: Receiver<Arc<FinishedCall>>,
    filter: CallFilter,
) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold((calls, filter), async |(mut calls, filter)| {
        loop {
            let event = match calls.recv().await {
                Ok(call) if !filter.matches(&call) => continue,
                Ok(call) => json_event("call", &json!(CallSummary::of(&call))),
                Err(RecvError::Lagged(lost)) => json_event("lost", &json!({ "calls": lost })),
                Err(RecvError::Closed) => return None,
            };
            return Some((Ok(event), (calls, filter)));
        }
    })
}

fn json_event(name: &str, data: &serde_json::Value) -> Event {
    Event::default().event(name).data(data.to_string())
}
