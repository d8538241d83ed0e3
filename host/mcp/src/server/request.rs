//! One request and what belongs to it.

use std::sync::Arc;

use rmcp::model::{CacheScope, ClientCapabilities, ErrorData, ProtocolVersion, RequestId, RequestMetaObject};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::auth::CredentialValidity;
use crate::protocol::event_stream::Reply;
use crate::protocol::incoming::Request;
use crate::protocol::lifecycle::Era;
use crate::protocol::message;
use crate::protocol::outbound::Outbound;
use crate::protocol::trace;
use crate::server::convert;
use crate::server::outbox::{Outbox, OutboxPermit};

/// The context of one request: who asks, in which era, what the client can do, and what ends it.
pub(crate) struct RequestContext {
    pub(crate) id: RequestId,
    pub(crate) era: Era,
    pub(crate) version: Option<ProtocolVersion>,
    pub(crate) capabilities: ClientCapabilities,
    /// Whether methods that only clients with a handshake know may be called.
    pub(crate) has_session: bool,
    pub(crate) meta: RequestMetaObject,
    pub(crate) cancel: CancellationToken,
    pub(crate) outbound: Outbound,
    pub(crate) origin: RequestOrigin,
}

/// What the transport knows of a request.
#[derive(Debug, Clone)]
pub(crate) struct RequestOrigin {
    /// Answers that the client has not read.
    pub(crate) outbox: Arc<Outbox>,
    /// Whether the credential counts with which it came, if it needed one.
    pub(crate) validity: Option<CredentialValidity>,
    /// The trace that its headers name.
    pub(crate) traceparent: Option<String>,
}

impl RequestContext {
    /// The trace that the request is part of: what its `_meta` says, or its headers.
    pub(crate) fn traceparent(&self) -> Option<String> {
        match self.meta.get_traceparent() {
            Some(value) => trace::parent(value).map(ToOwned::to_owned),
            None => self.origin.traceparent.clone(),
        }
    }

    /// The answer with a complete result, and what clients of the era want in each.
    pub(crate) fn complete(
        &self,
        result: impl Serialize,
        caching: Option<Caching>,
        room: Option<OutboxPermit>,
    ) -> Answer {
        let is_modern = self.era == Era::Modern;
        let result_type = is_modern.then_some("complete");
        let (caching, meta) = (caching.filter(|_| is_modern), is_modern.then(convert::signature));
        Answer::new(&self.id, &CompleteResult { result_type, result, caching, meta }, room)
    }
}

/// How long a client of 2026-07-28 may keep a result, and for whom.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Caching {
    pub(crate) ttl_ms: u64,
    pub(crate) cache_scope: CacheScope,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CompleteResult<T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    result_type: Option<&'static str>,
    #[serde(flatten)]
    result: T,
    #[serde(flatten)]
    caching: Option<Caching>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<&'static rmcp::model::MetaObject>,
}

/// A request with its context; one that names no version that we speak has only an error.
pub(crate) struct AdmittedRequest {
    pub(crate) request: Result<Request, ErrorData>,
    pub(crate) context: RequestContext,
}

/// The result of a request, as it is written to its client.
#[derive(Debug)]
pub(crate) struct Answer {
    line: Vec<u8>,
    /// The room that it takes until it is written.
    room: Option<OutboxPermit>,
}

impl Answer {
    /// The reply to the request of this id.
    pub(crate) fn reply(outcome: Result<Self, ErrorData>, id: &RequestId, outbox: &Outbox) -> Reply {
        let (line, error, room) = match outcome {
            Ok(Self { line, room }) => (line, None, room),
            Err(error) => (message::response::<_, (), _>(Some(id), Err(&error)), Some(error.code), None),
        };
        Reply { line: outbox.hold(line, room), error }
    }

    /// A result of the request of this id, and the room that was taken for it.
    pub(crate) fn new(id: &RequestId, result: &impl Serialize, room: Option<OutboxPermit>) -> Self {
        Self { line: message::response::<_, _, ()>(Some(id), Ok(result)), room }
    }
}
