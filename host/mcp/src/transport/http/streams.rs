//! The streams of one session, and which of them a message of the server goes to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{
    GetExtensions as _, JsonRpcMessage, ProgressToken, RequestId, ServerJsonRpcMessage, ServerNotification,
};
use rmcp::service::OriginatingRequestId;
use tokio_util::sync::CancellationToken;

use super::line::Line;

/// The streams of a session.
#[derive(Debug)]
pub(super) struct Streams {
    all: Mutex<All>,
    /// What belongs to no request.
    pub(super) own: Arc<Line>,
    /// How long a client is told to wait before it comes back, if it is told to.
    retry: Option<Duration>,
}

#[derive(Debug, Default)]
struct All {
    next: u64,
    /// Those of requests that have not ended, whether or not somebody still waits for them.
    open: HashMap<RequestId, Arc<Line>>,
    tokens: HashMap<ProgressToken, RequestId>,
    /// In which requests the server asked its client what.
    asked: HashMap<RequestId, RequestId>,
    /// Those that clients have left, by their numbers.
    left: HashMap<u64, Arc<Line>>,
    over: bool,
}

/// Why a request can not begin.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// One of this id has not ended.
    Twice,
    /// The session is over.
    Over,
}

impl Streams {
    pub(super) fn new(retry: Option<Duration>) -> Self {
        Self { all: Mutex::default(), own: Arc::new(Line::of_session()), retry }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins that of a request, whose progress has this token.
    pub(super) fn begin(
        &self,
        id: &RequestId,
        token: Option<ProgressToken>,
        cancel: CancellationToken,
    ) -> Result<Arc<Line>, Refused> {
        let mut all = self.all();
        if all.over {
            return Err(Refused::Over);
        }
        if all.open.contains_key(id) {
            return Err(Refused::Twice);
        }
        let line = Arc::new(Line::of_request(all.next, cancel, self.retry));
        all.next = all.next.wrapping_add(1);
        all.open.insert(id.clone(), Arc::clone(&line));
        if let Some(token) = token {
            all.tokens.insert(token, id.clone());
        }
        Ok(line)
    }

    /// The request has ended: with this answer, if it has one.
    pub(super) fn end(&self, id: &RequestId, answer: Option<ServerJsonRpcMessage>) {
        let line = {
            let mut all = self.all();
            all.tokens.retain(|_, of| of != id);
            all.asked.retain(|_, of| of != id);
            all.open.remove(id)
        };
        if let Some(line) = line {
            line.end(answer);
        }
    }

    /// The client does not want the answer any more. Its id is free when the request has ended.
    pub(super) fn cancel(&self, id: &RequestId) {
        let line = self.all().open.get(id).cloned();
        if let Some(line) = line {
            line.cancel.cancel();
            line.end(None);
        }
    }

    /// Sends a message of the server to where it belongs, as soon as there is room.
    pub(super) async fn tell(&self, message: ServerJsonRpcMessage) {
        match &message {
            JsonRpcMessage::Response(response) => self.end(&response.id.clone(), Some(message)),
            JsonRpcMessage::Error(error) => match error.id.clone() {
                Some(id) => self.end(&id, Some(message)),
                None => self.own.tell(message).await,
            },
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {
                if let Some(line) = self.line_of(&message) {
                    line.tell(message).await;
                }
            }
        }
    }

    /// Where what the server asks or says belongs; `None`: nobody waits for it.
    fn line_of(&self, message: &ServerJsonRpcMessage) -> Option<Arc<Line>> {
        let mut all = self.all();
        let all = &mut *all;
        let (of, else_own) = match message {
            JsonRpcMessage::Request(request) => {
                let origin = request.request.extensions().get::<OriginatingRequestId>();
                let of = origin.map(|origin| origin.0.clone()).filter(|of| all.open.contains_key(of));
                if let Some(of) = &of {
                    all.asked.insert(request.id.clone(), of.clone());
                }
                (of, true)
            }
            JsonRpcMessage::Notification(told) => match &told.notification {
                ServerNotification::ProgressNotification(progress) => {
                    (all.tokens.get(&progress.params.progress_token).cloned(), false)
                }
                ServerNotification::CancelledNotification(cancelled) => {
                    let of = cancelled.params.request_id.as_ref().and_then(|id| all.asked.remove(id));
                    (of, true)
                }
                _ => (None, true),
            },
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => (None, true),
        };
        match of.and_then(|of| all.open.get(&of)) {
            Some(line) => Some(Arc::clone(line)),
            None => else_own.then(|| Arc::clone(&self.own)),
        }
    }

    /// Remembers one whose client has left; `false`: the session is over.
    pub(super) fn leave(&self, line: &Arc<Line>) -> bool {
        let mut all = self.all();
        if let Some(number) = line.number().filter(|_| !all.over) {
            all.left.insert(number, Arc::clone(line));
        }
        !all.over
    }

    /// Forgets one that was left, and was read to its end.
    pub(super) fn forget(&self, line: &Line) {
        if let Some(number) = line.number() {
            self.all().left.remove(&number);
        }
    }

    /// That of this number, if its request has not ended or its client has left it.
    pub(super) fn numbered(&self, number: u64) -> Option<Arc<Line>> {
        let all = self.all();
        let open = || all.open.values().find(|line| line.number() == Some(number));
        all.left.get(&number).or_else(open).cloned()
    }

    /// Whether no request runs.
    pub(super) fn rests(&self) -> bool {
        self.all().open.is_empty()
    }

    /// Forgets what waited for its client for too long.
    pub(super) fn sweep(&self) {
        self.all().left.retain(|_, line| !line.is_stale());
    }

    /// Ends all; what was sent before is still read.
    pub(super) fn close(&self) {
        let (open, left) = {
            let mut all = self.all();
            all.over = true;
            let open: Vec<_> = all.open.values().cloned().collect();
            (open, std::mem::take(&mut all.left))
        };
        open.iter().chain(left.values()).chain([&self.own]).for_each(|line| line.end(None));
    }
}
