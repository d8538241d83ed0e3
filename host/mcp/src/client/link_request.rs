//! A request over a connection, and why it fails.

use std::sync::OnceLock;

use tokio_util::sync::CancellationToken;
use toolbay_core::call::server_connector::ConnectorError;
use toolbay_policy::excerpt::one_line;
use toolbay_policy::refusal::PolicyRefusal;

use crate::protocol::bounds::MAX_UNREDACTED_CHARS;
use crate::protocol::message::RpcError;

/// Why a request failed. Its `Display` has no policy lines: they are the hint of [`Self::refusal`].
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum LinkError {
    /// The server answered with an error.
    #[error("{}", .0.describe())]
    Rpc(RpcError),
    /// The response is not valid. The connection stays open.
    #[error("{}", .0.text)]
    InvalidResponse(PolicyRefusal),
    /// The server, or a proxy in front of it, refused the request with this status. The text continues the sentence.
    #[error("the server answered with status {}{}", .0, .1.text)]
    Status(u16, PolicyRefusal),
    /// The connection is closed.
    #[error("{}", .0.text)]
    Closed(PolicyRefusal),
    /// The server refused the request, because it no longer knows the session. A new session may run it. Contains the
    /// refusal.
    #[error("{0}")]
    SessionLost(Box<Self>),
    /// The policy or a limit of this host refused the request. A retry does not help.
    #[error("{}", .0.text)]
    Denied(PolicyRefusal),
    /// Too many requests are in flight.
    #[error("{0}")]
    Busy(String),
}

impl LinkError {
    /// What happened, and the hint for the operator.
    pub(super) fn refusal(&self) -> PolicyRefusal {
        let hint = match self {
            Self::InvalidResponse(why) | Self::Status(_, why) | Self::Closed(why) | Self::Denied(why) => {
                why.hint.clone()
            }
            Self::SessionLost(refusal) => refusal.refusal().hint,
            Self::Rpc(_) | Self::Busy(_) => None,
        };
        PolicyRefusal { text: self.to_string(), hint }
    }
}

impl From<RpcError> for LinkError {
    fn from(error: RpcError) -> Self {
        if error.is_without_outcome() {
            Self::InvalidResponse(error.message.into())
        } else {
            Self::Rpc(error)
        }
    }
}

impl From<ConnectorError> for LinkError {
    fn from(error: ConnectorError) -> Self {
        match error {
            ConnectorError::Denied(why) => Self::Denied(why),
            ConnectorError::Redirected(status, why) => Self::Status(status, format!(": {why}").into()),
            ConnectorError::Failed(why) => Self::Closed(why),
        }
    }
}

/// Whether a connection is closed, and why.
#[derive(Debug, Default)]
pub(super) struct LinkClosure {
    closed: CancellationToken,
    reason: OnceLock<PolicyRefusal>,
}

impl LinkClosure {
    /// Marks the connection as closed. The first reason stays.
    pub(super) fn close(&self, why: impl Into<PolicyRefusal>) {
        // Set before the token fires, since waiters read the reason.
        drop(self.reason.set(why.into()));
        self.closed.cancel();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Waits until the connection is closed and returns the reason.
    pub(super) async fn wait_closed(&self) -> PolicyRefusal {
        self.closed.cancelled().await;
        self.reason.get().cloned().unwrap_or_default()
    }

    pub(super) fn error(&self) -> LinkError {
        LinkError::Closed(self.reason.get().cloned().unwrap_or_else(|| "the connection is closed".into()))
    }
}

/// An outgoing request.
#[derive(Debug)]
pub(super) struct LinkRequest<'a> {
    pub(super) id: u64,
    pub(super) method: &'a str,
    pub(super) body: Vec<u8>,
    /// Headers that mirror parts of the request. Used only over HTTP.
    pub(super) headers: Vec<(String, String)>,
}

impl LinkRequest<'_> {
    /// Whether the request is part of the handshake. The protocol forbids cancelling these.
    pub(super) fn is_handshake(&self) -> bool {
        matches!(self.method, "initialize" | "server/discover")
    }
}

/// Quotes the beginning of a server's text for an error message. The result is not redacted yet.
pub(super) fn quote(text: &[u8]) -> String {
    let head = text.get(..text.len().min(MAX_UNREDACTED_CHARS)).unwrap_or_default();
    let text = String::from_utf8_lossy(head);
    let text = text.trim();
    if text.is_empty() { String::new() } else { format!(": {}", one_line(text, MAX_UNREDACTED_CHARS)) }
}
