//! The way to one server and back, whatever carries it.

use std::sync::{Arc, OnceLock};

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolbay_core::call::CallContext;
use toolbay_core::call::outside::OutsideError;
use toolbay_policy::text::one_line;

use super::http::Web;
use super::stdio::Pipe;
use crate::protocol::bounds::MAX_HEARD;
use crate::protocol::message::RpcError;

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum LinkError {
    /// The server answered with an error.
    #[error("{}", .0.shown())]
    Rpc(RpcError),
    /// What came is no answer to the request; the connection goes on.
    #[error("{0}")]
    Bad(String),
    /// The server, or who stands before it, refused the request with this status.
    #[error("the server answered with status {0}{1}")]
    Status(u16, String),
    /// The connection is over.
    #[error("{0}")]
    Closed(String),
    /// The policy, or a bound of ours, says no: trying again is no remedy.
    #[error("{0}")]
    Denied(String),
    /// Too many requests are under way.
    #[error("{0}")]
    Busy(String),
}

impl From<OutsideError> for LinkError {
    fn from(error: OutsideError) -> Self {
        match error {
            OutsideError::Denied(why) => Self::Denied(why),
            OutsideError::Failed(why) => Self::Closed(why),
        }
    }
}

/// The end of a connection, and why it came.
#[derive(Debug, Default)]
pub(super) struct Ending {
    over: CancellationToken,
    why: OnceLock<String>,
}

impl Ending {
    /// The connection is over; the first reason stays.
    pub(super) fn end(&self, why: String) {
        // Set before the token fires: who hears it reads the reason.
        drop(self.why.set(why));
        self.over.cancel();
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Waits for it; returns why it came.
    pub(super) async fn over(&self) -> String {
        self.over.cancelled().await;
        self.why.get().cloned().unwrap_or_default()
    }

    pub(super) fn error(&self) -> LinkError {
        LinkError::Closed(self.why.get().cloned().unwrap_or_else(|| "the connection is over".to_owned()))
    }
}

/// A request on its way.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    pub(super) id: u64,
    pub(super) method: &'a str,
    pub(super) body: Vec<u8>,
    /// Headers that mirror parts of the request, where the link has headers.
    pub(super) headers: Vec<(String, String)>,
}

/// A connection to a server.
#[derive(Debug)]
pub(super) enum Link {
    /// A program.
    Pipe(Pipe),
    /// A URL.
    Web(Arc<Web>),
}

impl Link {
    /// Sends a request and waits for its answer. Dropping the future gives the request up, and tells the server so where
    /// it may be told.
    pub(super) async fn ask(&self, ask: Ask<'_>) -> Result<Box<RawValue>, LinkError> {
        let mut open = OpenRequest { link: self, id: ask.id, gives_up: !ask.begins() };
        let answer = match self {
            Self::Pipe(pipe) => pipe.ask(ask).await,
            Self::Web(web) => web.ask(ask).await,
        };
        open.gives_up = false;
        answer
    }

    /// Sends a notification.
    pub(super) async fn tell(&self, method: &str, params: Option<&Value>) -> Result<(), LinkError> {
        match self {
            Self::Pipe(pipe) => pipe.tell(method, params).await,
            Self::Web(web) => web.tell(method, params).await,
        }
    }

    /// What holds the server, if it is a program.
    pub(super) fn confinement(&self) -> Option<&'static str> {
        match self {
            Self::Pipe(pipe) => Some(pipe.confinement),
            Self::Web(_) => None,
        }
    }

    /// Says farewell; tells how a program ended, if it did.
    pub(super) async fn close(&self) -> Option<String> {
        match self {
            Self::Pipe(pipe) => pipe.close().await,
            Self::Web(web) => {
                web.close().await;
                None
            }
        }
    }
}

impl Ask<'_> {
    /// Whether it begins the conversation: a server is not told that such a request was given up.
    fn begins(&self) -> bool {
        matches!(self.method, "initialize" | "server/discover")
    }
}

/// A request that is not answered yet. When it is given up, the server is told.
struct OpenRequest<'a> {
    link: &'a Link,
    id: u64,
    gives_up: bool,
}

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        let cancelled = self.gives_up.then(|| json!({"requestId": self.id, "reason": "the caller gave up"}));
        match (self.link, cancelled) {
            (Link::Pipe(pipe), cancelled) => pipe.forget(self.id, cancelled.as_ref()),
            (Link::Web(web), Some(cancelled)) => web.give_up(cancelled),
            (Link::Web(_), None) => {}
        }
    }
}

/// A progress handle of a call, if anybody wants to know.
pub(super) fn wants_progress(ctx: Option<&Arc<CallContext>>) -> Option<&Arc<CallContext>> {
    ctx.filter(|ctx| ctx.turn.progress.is_some())
}

/// The beginning of what a server said, for a message of ours, out of which values of secrets are still to be taken.
pub(super) fn said(text: &[u8]) -> String {
    let head = text.get(..text.len().min(MAX_HEARD)).unwrap_or_default();
    let text = String::from_utf8_lossy(head);
    let text = text.trim();
    if text.is_empty() { String::new() } else { format!(": {}", one_line(text, MAX_HEARD)) }
}
