//! Answers for clients up to 2025-11-25 whose connections broke before they were told.
//!
//! Such a client is told how to come back, and comes with `Last-Event-ID`. rmcp forgets a stream as soon as it has sent the
//! answer into it, whether anybody listened or not. So a stream that is left before its end is read on here: the answer,
//! and what the server asks meanwhile, is kept until its client comes, for a minute after the answer, within
//! `kept_bytes`. What was handed to a connection before it broke is not kept.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::Stream;
use rmcp::model::{ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::clients::{Client, Kind, Share};
use super::sessions::Asked;
use super::{Settings, State};

/// How long an answer waits for its client.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// Events that are remembered of a stream; as many as rmcp holds of one.
const MAX_EVENTS: usize = 16;
/// What a stream that is kept takes at least, in bytes: a task, and its end of a channel.
const LEAST: u64 = 4 << 10;

/// The streams of a session that their clients have left, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Replays(Mutex<HashMap<u64, oneshot::Sender<oneshot::Sender<Line>>>>);

/// What a stream is kept with.
#[derive(Debug, Clone)]
pub(super) struct Keeper {
    pub(super) state: Arc<State>,
    pub(super) settings: Arc<Settings>,
    pub(super) client: Arc<Client>,
    pub(super) replays: Arc<Replays>,
    /// Fires when the session is over.
    pub(super) closed: CancellationToken,
}

/// The stream of one request.
#[derive(Debug)]
pub(super) struct Line {
    number: u64,
    receiver: mpsc::Receiver<ServerSseMessage>,
    /// The last of what came.
    came: VecDeque<ServerSseMessage>,
    /// What is told once more, before anything else.
    again: VecDeque<ServerSseMessage>,
    ended: bool,
    open: Option<Arc<Asked>>,
    keeper: Keeper,
}

/// The stream of one request as its client reads it; kept when that one leaves before the end.
#[derive(Debug)]
pub(super) struct Answering(Option<Line>);

/// The place of an event in its stream, and the number of the stream; that of the session itself has none.
pub(super) fn place(event_id: &str) -> Option<(u64, Option<u64>)> {
    match event_id.split_once('/') {
        Some((index, number)) => Some((index.parse().ok()?, Some(number.parse().ok()?))),
        None => Some((event_id.parse().ok()?, None)),
    }
}

impl Replays {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<oneshot::Sender<Line>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream of this number from after an event on, if it is kept.
    pub(super) async fn resume(&self, number: u64, after: u64) -> Option<Answering> {
        let claim = self.lock().remove(&number)?;
        let (give, given) = oneshot::channel();
        claim.send(give).ok()?;
        let mut line = given.await.ok()?;
        let is_later = |event: &&ServerSseMessage| {
            let index = event.event_id.as_deref().and_then(place).map(|(index, _)| index);
            index.is_some_and(|index| index > after)
        };
        line.again = line.came.iter().filter(is_later).cloned().collect();
        Some(Answering(Some(line)))
    }
}

impl Answering {
    pub(super) fn new(
        keeper: Keeper,
        number: u64,
        receiver: mpsc::Receiver<ServerSseMessage>,
        open: Option<Arc<Asked>>,
    ) -> Self {
        let (came, again) = (VecDeque::new(), VecDeque::new());
        Self(Some(Line { number, receiver, came, again, ended: false, open, keeper }))
    }
}

impl Stream for Answering {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ServerSseMessage>> {
        let Some(line) = &mut self.0 else { return Poll::Ready(None) };
        if let Some(event) = line.again.pop_front() {
            return Poll::Ready(Some(event));
        }
        let event = if line.ended { None } else { ready!(line.receiver.poll_recv(cx)) };
        match &event {
            Some(event) => line.remember(event.clone()),
            None => self.0 = None,
        }
        Poll::Ready(event)
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        // Whoever was told nothing does not know what to come back to.
        if let Some(line) = self.0.take().filter(|line| !line.came.is_empty()) {
            line.keep();
        }
    }
}

impl Line {
    fn remember(&mut self, event: ServerSseMessage) {
        if self.came.len() >= MAX_EVENTS {
            self.came.pop_front();
        }
        self.came.push_back(event);
    }

    /// Reads on for a client that has left, if there is room.
    fn keep(self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let keeper = &self.keeper;
        let mut share = keeper.state.clients.nothing(&keeper.client, Kind::KeptBytes);
        if keeper.closed.is_cancelled() || share.grow(LEAST, &keeper.settings.serve.limits).is_err() {
            return;
        }
        let (claim, claimed) = oneshot::channel();
        keeper.replays.lock().insert(self.number, claim);
        runtime.spawn(self.wait(share, claimed));
    }

    /// Reads on until the client comes back, the session is over, or the answer has waited for long enough.
    async fn wait(mut self, mut share: Share, mut claimed: oneshot::Receiver<oneshot::Sender<Self>>) {
        let closed = self.keeper.closed.clone();
        let over = tokio::time::sleep(KEPT_FOR);
        tokio::pin!(over);
        loop {
            tokio::select! {
                biased;
                claim = &mut claimed => {
                    if let Ok(Err(line)) = claim.map(|claim| claim.send(self)) {
                        // It left once more, before it was given anything.
                        line.keep();
                    }
                    return;
                }
                () = closed.cancelled() => break,
                event = self.receiver.recv(), if !self.ended => match event {
                    Some(event) => self.take_in(event, &mut share),
                    None => {
                        self.ended = true;
                        self.open = None;
                        over.as_mut().reset(Instant::now() + KEPT_FOR);
                    }
                },
                () = &mut over, if self.ended => break,
            }
        }
        self.keeper.replays.lock().remove(&self.number);
    }

    /// Keeps what needs its client; how far the call is, is of no interest later.
    fn take_in(&mut self, mut event: ServerSseMessage, share: &mut Share) {
        let Some(message) = &event.message else { return };
        let id = match &**message {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            JsonRpcMessage::Request(_) => None,
            JsonRpcMessage::Notification(_) => return,
        };
        let bytes = serde_json::to_vec(&**message).map_or(u64::MAX, |bytes| bytes.len() as u64);
        if share.grow(bytes, &self.keeper.settings.serve.limits).is_err() {
            event.message = Some(Arc::new(no_room(id)));
        }
        self.remember(event);
    }
}

/// What is answered in place of what there was no room for.
fn no_room(id: Option<RequestId>) -> ServerJsonRpcMessage {
    let text = "the answer came while the connection was broken, and there was no room to keep it; to allow more: \
                [serve.limits] kept_bytes_per_client = …, kept_bytes = …";
    ServerJsonRpcMessage::error(ErrorData::internal_error(text, None), id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_says_where_it_was() {
        assert_eq!(place("3/17"), Some((3, Some(17))));
        assert_eq!(place("0"), Some((0, None)));
        for wrong in ["", "x", "1/", "/1", "1/x", "1/2/3", "-1", "99999999999999999999999"] {
            assert_eq!(place(wrong), None, "{wrong}");
        }
    }
}
