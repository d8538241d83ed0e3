//! The session with a server: its id, which the server may change, and whether the server still knows it.
//!
//! Servers tell a lost session in many ways, and most of these also mean other things. So nothing is decided by the refusal:
//! it only causes a `ping` in the session, which a server must answer in each of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;
use toolbay_core::call::server_connector::{ConnectorRequest, ConnectorResponse};

use super::super::bounds::{MAX_ERROR_BODY, NOTIFY_TIMEOUT, SESSION_PROBE_INTERVAL, STABLE_AFTER};
use super::super::link_request::LinkError;
use super::{HttpLink, SESSION_HEADER, StreamEnd, bearer, is_event_stream, is_success};
use crate::protocol::message::{self, INTERNAL_ERROR, METHOD_NOT_FOUND, RpcResult};
use crate::protocol::sse::SseParser;

/// Longest session id, in bytes.
const MAX_SESSION_ID: usize = 1024;
/// The id of a `ping` that probes a session: the largest one that every parser of JSON reads, so that no request has it.
const PROBE_ID: u64 = (1 << 53) - 1;

/// What the client knows about its session.
#[derive(Debug, Default)]
pub(super) struct SessionProbe {
    /// Held while a request finds out whether the server still knows the session.
    alone: tokio::sync::Mutex<()>,
    /// When a probe found that the server knows the session.
    last_known: Mutex<Option<Instant>>,
    is_lost: AtomicBool,
}

/// What of an answer may mean that the server does not know the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefusalSign {
    /// A status of HTTP.
    Status(u16),
    /// A code of JSON-RPC, under a status of success.
    Code(i64),
    /// No answer of JSON-RPC to the request, under a status of success: a page, nothing, another id.
    NoAnswer,
}

impl RefusalSign {
    /// The sign in the answer to a request. `None` if the answer has none.
    pub(super) fn of(status: u16, answer: &Result<RpcResult, LinkError>) -> Option<Self> {
        match answer {
            _ if !is_success(status) => Some(Self::Status(status)),
            Ok(Err(error)) if error.is_without_outcome() => Some(Self::NoAnswer),
            Ok(Err(error)) => Some(Self::Code(error.code)),
            Err(LinkError::InvalidResponse(_)) => Some(Self::NoAnswer),
            Ok(Ok(_)) | Err(_) => None,
        }
    }

    /// Whether servers use it for a lost session. 404 is the status by the specification (2025-11-25, Streamable HTTP), and
    /// nearly every other one occurs in practice; 429 says only that there were too many requests. Of the codes, those are
    /// excluded that the specification of JSON-RPC gives to an unknown method and to a failure. A `ping` has no parameters
    /// that could be invalid.
    fn may_mean_lost_session(self) -> bool {
        match self {
            Self::Status(status) => (300..=599).contains(&status) && status != 429,
            Self::Code(code) => !matches!(code, METHOD_NOT_FOUND | INTERNAL_ERROR),
            Self::NoAnswer => true,
        }
    }

    /// Whether the sign occurs as often for other reasons. The codes that several SDKs use for a lost session are -32001
    /// ("Session not found"), -32000 and -32600.
    fn is_ambiguous(self) -> bool {
        match self {
            Self::Status(_) => false,
            Self::Code(code) => !matches!(code, -32001 | -32000 | -32600),
            Self::NoAnswer => true,
        }
    }

    /// Whether a server that answers a `ping` with it knows the session. `None` if the sign does not tell.
    fn knows_session(self) -> Option<bool> {
        (self != Self::Status(429)).then(|| !self.may_mean_lost_session())
    }

    /// Whether the server refused the request, so that it did not run. It may have begun one that it answers with an error
    /// of its own, or with nothing that can be read.
    pub(super) fn is_refusal(self) -> bool {
        match self {
            Self::Status(status) => status < 500,
            Self::Code(_) | Self::NoAnswer => !self.is_ambiguous(),
        }
    }
}

/// When the sessions with one server were lost. All its connections share it.
#[derive(Debug, Default)]
pub(in super::super) struct LostSessions(Mutex<Option<Instant>>);

impl LostSessions {
    /// Whether a session was lost so recently that another loss is unlikely. A server that answers `ping` in no session
    /// would otherwise lose one with each failed call.
    fn is_recent(&self) -> bool {
        self.0.lock().is_some_and(|last| last.elapsed() < STABLE_AFTER)
    }
}

impl HttpLink {
    /// Takes the id that a server gives a session in place of the one that was sent. A response that repeats the id of
    /// its request says nothing new: another response may have changed it meanwhile.
    pub(super) fn follow_session(&self, sent: &str, response: &ConnectorResponse) {
        let new_id = session_id(response).filter(|id| id != sent && is_success(response.status));
        if let Some(new_id) = new_id {
            self.state.lock().session = Some(new_id);
        }
    }

    /// Finds out whether a refusal means that the server no longer knows the session. If so, the connection is closed,
    /// and the supervisor begins a new one.
    pub(super) async fn has_lost_session(self: &Arc<Self>, sign: RefusalSign) -> bool {
        let before = self.state();
        let Some(session) = before.session.filter(|_| !before.modern && sign.may_mean_lost_session()) else {
            return false;
        };
        let probe = &self.session_probe;
        let _alone = probe.alone.lock().await;
        if self.inbox.closure.is_closed() || self.state().session.as_ref() != Some(&session) {
            // Another request has found out, or the server has given the session another id.
            return true;
        }
        // Tools use these codes for their own errors, which must not cost a request each.
        let is_recent = probe.last_known.lock().is_some_and(|last| last.elapsed() < SESSION_PROBE_INTERVAL);
        if is_recent && !matches!(sign, RefusalSign::Status(_)) {
            return false;
        }
        if sign.is_ambiguous() && self.lost_sessions.is_recent() {
            return false;
        }
        match tokio::time::timeout(NOTIFY_TIMEOUT, self.ping_session()).await {
            Ok(Some(false)) => {
                probe.is_lost.store(true, Ordering::Release);
                *self.lost_sessions.0.lock() = Some(Instant::now());
                self.inbox.closure.close("the server no longer knows the session".to_owned());
                true
            }
            // Without an answer, nothing is known about the session.
            Ok(Some(true) | None) | Err(_) => {
                *probe.last_known.lock() = Some(Instant::now());
                false
            }
        }
    }

    /// Whether a `ping` in the session is answered. `None` if no answer came, or it says nothing.
    async fn ping_session(self: &Arc<Self>) -> Option<bool> {
        let response = match self.send_once(self.session_ping().await).await {
            Err(LinkError::Status(status, _)) => return RefusalSign::Status(status).knows_session(),
            response => response.ok()?,
        };
        if !is_success(response.status) {
            return RefusalSign::Status(response.status).knows_session();
        }
        let answer = if is_event_stream(&response) {
            let (mut parser, mut total) = (SseParser::default(), 0);
            match self.read_events(Some(PROBE_ID), response.body, &mut parser, &mut total).await {
                Ok(StreamEnd::Answer(answer)) => Ok(answer),
                Ok(StreamEnd::Interrupted) => return RefusalSign::NoAnswer.knows_session(),
                Err(error) => Err(error),
            }
        } else {
            self.read_body(PROBE_ID, response, MAX_ERROR_BODY).await
        };
        match (RefusalSign::of(200, &answer), answer) {
            (Some(sign), _) => sign.knows_session(),
            (None, Ok(_)) => Some(true),
            (None, Err(_)) => None,
        }
    }

    /// Builds a `ping` in the session. Sending it never starts a login.
    async fn session_ping(&self) -> ConnectorRequest {
        #[derive(serde::Serialize)]
        struct Ping {
            jsonrpc: &'static str,
            id: u64,
            method: &'static str,
        }
        let ping = message::encode_line(&Ping { jsonrpc: "2.0", id: PROBE_ID, method: "ping" });
        let (mut ping, _) = self.build_request("POST", ping, Vec::new());
        if let Some(authenticator) = &self.authenticator
            && let Some(token) = authenticator.token().await
        {
            ping.headers.push(bearer(&token));
        }
        ping
    }

    /// Whether the connection ended because the server no longer knows the session.
    pub(in super::super) fn is_session_lost(&self) -> bool {
        self.session_probe.is_lost.load(Ordering::Acquire)
    }
}

/// The session id of a response, if it is a valid one.
pub(super) fn session_id(response: &ConnectorResponse) -> Option<String> {
    let id = response.header(SESSION_HEADER)?;
    let is_visible = id.bytes().all(|byte| (b'!'..=b'~').contains(&byte));
    (!id.is_empty() && id.len() <= MAX_SESSION_ID && is_visible).then(|| id.to_owned())
}
