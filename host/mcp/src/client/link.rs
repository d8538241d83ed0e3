//! The way to one server and back, whatever carries it.

use std::sync::Arc;

use serde_json::value::RawValue;
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
        match self {
            Self::Pipe(pipe) => pipe.ask(ask).await,
            Self::Web(web) => web.ask(ask).await,
        }
    }

    /// Sends a notification.
    pub(super) async fn tell(&self, body: Vec<u8>) -> Result<(), LinkError> {
        match self {
            Self::Pipe(pipe) => pipe.tell(body).await,
            Self::Web(web) => web.tell(body).await,
        }
    }

    /// Why it is over, once it is.
    pub(super) async fn over(&self) -> String {
        match self {
            Self::Pipe(pipe) => pipe.over().await,
            // A URL has no connection that could end: a request finds out.
            Self::Web(web) => web.over().await,
        }
    }

    /// Whether it is over.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Pipe(pipe) => pipe.is_over(),
            Self::Web(web) => web.is_over(),
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
