//! The connection to one server, over either transport.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolbay_core::call::CallContext;

use super::http::HttpLink;
use super::link_request::{LinkError, LinkRequest};
use super::stdio::StdioLink;

/// A connection to a server.
#[derive(Debug)]
pub(super) enum Link {
    /// A child process, over its stdin and stdout.
    Stdio(StdioLink),
    /// A URL, over Streamable HTTP.
    Http(Arc<HttpLink>),
}

impl Link {
    /// Sends a request and waits for its response. Dropping the future cancels the request and notifies the server.
    pub(super) async fn request(&self, ask: LinkRequest<'_>) -> Result<Box<RawValue>, LinkError> {
        let mut open = CancelOnDrop { link: self, id: ask.id, armed: !ask.is_handshake() };
        let answer = match self {
            Self::Stdio(stdio) => stdio.request(ask).await,
            Self::Http(http) => http.request(ask).await,
        };
        open.armed = false;
        answer
    }

    /// Sends a notification.
    pub(super) async fn notify(&self, method: &str, params: Option<&Value>) -> Result<(), LinkError> {
        match self {
            Self::Stdio(stdio) => stdio.notify(method, params).await,
            Self::Http(http) => http.notify(method, params).await,
        }
    }

    /// Whether the connection ended because the server no longer knows the session.
    pub(super) fn is_session_lost(&self) -> bool {
        match self {
            Self::Stdio(_) => false,
            Self::Http(http) => http.is_session_lost(),
        }
    }

    /// How the child process is sandboxed; `None` for a URL.
    pub(super) fn confinement(&self) -> Option<&'static str> {
        match self {
            Self::Stdio(stdio) => Some(stdio.confinement),
            Self::Http(_) => None,
        }
    }

    /// Closes the connection. Returns how a child process exited, if it did.
    pub(super) async fn close(&self) -> Option<String> {
        match self {
            Self::Stdio(stdio) => stdio.close().await,
            Self::Http(http) => {
                http.close().await;
                None
            }
        }
    }
}

/// Cancels a pending request on drop, unless the response arrived.
struct CancelOnDrop<'a> {
    link: &'a Link,
    id: u64,
    armed: bool,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let cancelled = self.armed.then(|| json!({"requestId": self.id, "reason": "the caller gave up"}));
        match (self.link, cancelled) {
            (Link::Stdio(stdio), cancelled) => stdio.cancel(self.id, cancelled.as_ref()),
            (Link::Http(http), Some(cancelled)) => http.notify_cancelled(cancelled),
            (Link::Http(_), None) => {}
        }
    }
}

/// The context of a call whose client wants progress.
pub(super) fn progress_target(ctx: Option<&Arc<CallContext>>) -> Option<&Arc<CallContext>> {
    ctx.filter(|ctx| ctx.turn.progress.is_some())
}
