//! The context and the result of one request.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use rmcp::model::{CacheScope, ClientCapabilities, ErrorData, ProtocolVersion, RequestId, RequestMetaObject};
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use toolbay_core::audit;
use toolbay_core::call::trace::{RequestTrace, RequestTransport, TraceParent};

use crate::auth::CredentialValidity;
use crate::protocol::event_stream::EncodedResponse;
use crate::protocol::incoming::ClientRequest;
use crate::protocol::lifecycle::Era;
use crate::protocol::message;
use crate::protocol::outbound::Outbound;
use crate::server::convert;
use crate::server::outbox::{Outbox, OutboxPermit};

/// The member of `_meta` under which a client repeats a call.
const IDEMPOTENCY_KEY: &str = "toolbay/idempotencyKey";

/// The context of one request: its era, the client's capabilities, and its cancellation.
pub(crate) struct RequestContext {
    pub(crate) id: RequestId,
    pub(crate) era: Era,
    pub(crate) version: Option<ProtocolVersion>,
    pub(crate) capabilities: ClientCapabilities,
    /// The name of the client's program.
    pub(crate) client: Option<Arc<str>>,
    /// Whether methods that require a handshake may be called.
    pub(crate) has_session: bool,
    pub(crate) meta: RequestMetaObject,
    pub(crate) cancel: CancellationToken,
    pub(crate) outbound: Outbound,
    pub(crate) origin: RequestOrigin,
}

/// Transport-level facts about a request.
#[derive(Debug, Clone)]
pub(crate) struct RequestOrigin {
    /// The client's unread responses.
    pub(crate) outbox: Arc<Outbox>,
    /// Validity of the request's credential, if the transport authenticates.
    pub(crate) validity: Option<CredentialValidity>,
    /// The `traceparent` of its headers.
    pub(crate) traceparent: Option<TraceParent>,
    /// The address of the client, over HTTP.
    pub(crate) client: Option<IpAddr>,
}

impl RequestContext {
    /// The `traceparent` of the request: from its `_meta`, or else from its headers.
    pub(crate) fn traceparent(&self) -> Option<TraceParent> {
        match self.meta.get_traceparent() {
            Some(value) => TraceParent::parse(value),
            None => self.origin.traceparent,
        }
    }

    /// The idempotency key of the request, in its `_meta`.
    ///
    /// # Errors
    /// Fails if the key is not a string.
    pub(crate) fn idempotency_key(&self) -> Result<Option<Arc<str>>, ErrorData> {
        let Some(key) = self.meta.0.0.get(IDEMPOTENCY_KEY) else { return Ok(None) };
        let invalid = || ErrorData::invalid_params(format!("`{IDEMPOTENCY_KEY}` must be a string"), None);
        key.as_str().map(|key| Some(key.into())).ok_or_else(invalid)
    }

    /// The trace context of the request, and what its span shows. The `_meta` of a message is its parent; the headers of
    /// HTTP may belong to a request that carries several messages, so they are a link.
    pub(crate) fn trace(&self) -> RequestTrace {
        RequestTrace {
            parent: self.meta.get_traceparent().and_then(TraceParent::parse),
            link: self.origin.traceparent,
            tracestate: self.meta.get_tracestate().and_then(RequestTrace::parse_tracestate),
            baggage: self.meta.get_baggage().and_then(RequestTrace::parse_baggage),
            id: audit::cut(&self.id.to_string()),
            version: self.version.as_ref().map(|version| audit::cut(version.as_str())),
            has_session: self.era == Era::Legacy,
            transport: self.origin.client.map_or(RequestTransport::Pipe, RequestTransport::Tcp),
        }
    }

    /// Encodes a complete result, with the members that the era requires.
    pub(crate) fn complete_response(
        &self,
        result: impl Serialize,
        caching: Option<CacheHints>,
        room: Option<OutboxPermit>,
    ) -> EncodedResult {
        self.complete_list(result, caching, room, BTreeMap::new())
    }

    /// Encodes a complete result that can lack the items of the `missing` sources, which `_meta` names with their states.
    pub(crate) fn complete_list(
        &self,
        result: impl Serialize,
        caching: Option<CacheHints>,
        room: Option<OutboxPermit>,
        missing: BTreeMap<String, &'static str>,
    ) -> EncodedResult {
        let is_modern = self.era == Era::Modern;
        let result_type = is_modern.then_some("complete");
        let (caching, server) = (caching.filter(|_| is_modern), is_modern.then(convert::server_info_meta));
        let meta = (server.is_some() || !missing.is_empty()).then_some(ResultMeta { server, missing });
        EncodedResult::new(&self.id, &CompleteResult { result_type, result, caching, meta }, room)
    }
}

/// Cache hints of 2026-07-28.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CacheHints {
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
    caching: Option<CacheHints>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<ResultMeta>,
}

/// The metadata of a result.
#[derive(Serialize)]
struct ResultMeta {
    #[serde(flatten)]
    server: Option<&'static rmcp::model::MetaObject>,
    /// The sources whose tools a list may lack, each with its state.
    #[serde(rename = "toolbay/missing", skip_serializing_if = "BTreeMap::is_empty")]
    missing: BTreeMap<String, &'static str>,
}

/// A request with its context, or the error if its version or metadata is invalid.
pub(crate) struct RequestInContext {
    pub(crate) request: Result<ClientRequest, ErrorData>,
    pub(crate) context: RequestContext,
}

/// An encoded result, with its reservation in the outbox.
#[derive(Debug)]
pub(crate) struct EncodedResult {
    line: Vec<u8>,
    /// The reservation, held until the line is written.
    room: Option<OutboxPermit>,
}

impl EncodedResult {
    /// Converts the outcome of the request with this id to a response.
    pub(crate) fn into_response(
        outcome: Result<Self, ErrorData>,
        id: &RequestId,
        outbox: &Outbox,
    ) -> EncodedResponse {
        let (line, error, room) = match outcome {
            Ok(Self { line, room }) => (line, None, room),
            Err(error) => {
                (message::encode_response::<_, (), _>(Some(id), Err(&error)), Some(error.code), None)
            }
        };
        EncodedResponse { line: outbox.track_line(line, room), error }
    }

    /// Encodes the result of the request with this id.
    pub(crate) fn new(id: &RequestId, result: &impl Serialize, room: Option<OutboxPermit>) -> Self {
        Self { line: message::encode_response::<_, _, ()>(Some(id), Ok(result)), room }
    }
}
