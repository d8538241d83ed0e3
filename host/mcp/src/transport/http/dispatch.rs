//! Dispatches authenticated requests to the protocol layer, in both eras: parses the body, creates the context, runs
//! the request, and responds with one JSON body, or with events if other messages precede the response.

use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Poll;

use axum::body::Body;
use axum::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use futures_util::future::BoxFuture;
use rmcp::model::{ErrorCode, ErrorData, ProtocolVersion, RequestId};
use serde_json::value::RawValue;
use toolbay_core::call::trace::TraceParent;

use super::accept_header::AcceptedTypes;
use super::bodies::RequestBody;
use super::clients::{ClientState, QuotaPermit};
use super::event_body::EventBody;
use super::event_reader::{EventReader, SessionStreamContext};
use super::headers::{self, LAST_EVENT_ID_HEADER, SESSION_ID_HEADER, SESSION_LABEL_HEADER};
use super::sessions::{HttpSession, STREAM_RETRY, SessionScope};
use super::{HttpState, ServeSettings, responses};
use crate::auth::CredentialValidity;
use crate::protocol::event_stream::{EncodedResponse, EventStream, StreamEvent, parse_event_id};
use crate::protocol::event_streams::{BeginStreamError, EventStreams};
use crate::protocol::incoming::{self, ClientMessage, ClientRequest};
use crate::protocol::mirror::HeaderMirror;
use crate::server::connection::McpConnection;
use crate::server::request::RequestOrigin;
use crate::server::{Server, SessionOwner, convert};

/// Longest session label, in bytes.
const MAX_SESSION_LABEL: usize = 128;

type RefusalResponse = Box<Response<Body>>;

/// An authenticated client and its endpoint.
pub(super) struct Dispatcher<'a> {
    pub(super) state: &'a Arc<HttpState>,
    pub(super) settings: &'a Arc<ServeSettings>,
    pub(super) server: &'a Arc<Server>,
    pub(super) client: Arc<ClientState>,
    pub(super) client_address: IpAddr,
    /// Name of the client within this profile.
    pub(super) owner: Arc<str>,
    /// The name of the authenticated principal.
    pub(super) agent_id: Option<String>,
    pub(super) validity: CredentialValidity,
}

/// A running request and its event stream.
struct RequestExchange {
    stream: Arc<EventStream>,
    accepted: AcceptedTypes,
    /// Ends when the request is answered.
    work: BoxFuture<'static, ()>,
    context: Option<SessionStreamContext>,
}

impl Dispatcher<'_> {
    /// Responds to a request with a complete body.
    ///
    /// # Errors
    /// The request was refused. The error is the response.
    pub(super) async fn dispatch(
        self,
        parts: Parts,
        body: RequestBody,
        permit: Arc<QuotaPermit>,
    ) -> Result<Response<Body>, RefusalResponse> {
        match parts.method {
            Method::POST => self.handle_post(&parts.headers, body, permit).await,
            Method::GET => self.handle_get(&parts.headers),
            _ => self.handle_delete(&parts.headers),
        }
    }

    async fn handle_post(
        self,
        headers: &HeaderMap,
        body: RequestBody,
        permit: Arc<QuotaPermit>,
    ) -> Result<Response<Body>, RefusalResponse> {
        let accepted = AcceptedTypes::from_headers(headers);
        if !accepted.json && !accepted.events {
            let text =
                "the client must accept a form of response: Accept: application/json, text/event-stream";
            return Err(refuse(StatusCode::NOT_ACCEPTABLE, text, None));
        }
        if !headers::is_json(headers) {
            let text = "the body must be JSON: Content-Type: application/json";
            return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, text, None));
        }
        let message =
            incoming::parse_message(&body.bytes).map_err(|invalid| responses::invalid_message(&invalid))?;
        let is_legacy =
            headers::check_headers(headers, &message, |tool| self.header_mirror(tool)).map_err(|error| {
                let id = match &message {
                    ClientMessage::Request(request) => Some(request.id.clone()),
                    ClientMessage::Notification { .. } | ClientMessage::Response { .. } => None,
                };
                responses::from_error(StatusCode::BAD_REQUEST, &error, id.as_ref())
            })?;
        if let ClientMessage::Request(request) = &message
            && request.method != "ping"
            && let Some(problem) = self.server.serving_problem()
        {
            return Err(Box::new(responses::unavailable(&problem, &request.id)));
        }
        // The request keeps its quota until its work ends. In a session, it outlives the connection.
        let reserved = (permit, body.permit);
        match message {
            ClientMessage::Request(request) if !is_legacy => {
                let is_well_formed =
                    request.meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty();
                if request.method == "subscriptions/listen" && !accepted.events {
                    let text = "the response is a stream of events: Accept: text/event-stream";
                    return Err(refuse(StatusCode::NOT_ACCEPTABLE, text, Some(&request.id)));
                }
                let exchange = self.stateless_exchange(headers, accepted, request, reserved)?;
                Ok(exchange.respond(|error| headers::status_for(error, is_well_formed)).await)
            }
            // A client whose session ended begins again, and may still send the old id.
            ClientMessage::Request(request) if request.method == "initialize" => {
                self.begin_session(headers, accepted, request).await
            }
            ClientMessage::Request(request) => {
                let session = self.find_session(headers, Some(&request.id))?;
                let exchange = match self.session_exchange(headers, session, accepted, request, reserved) {
                    Ok(exchange) => exchange,
                    Err((BeginStreamError::Duplicate, id)) => return Ok(duplicate_id_response(&id)),
                    Err((BeginStreamError::Closed, id)) => return Err(unknown_session(Some(&id))),
                };
                Ok(exchange.respond(|_| StatusCode::OK).await)
            }
            ClientMessage::Notification { .. } if !is_legacy => Ok(accepted_response()),
            ClientMessage::Response { .. } if !is_legacy => {
                Err(refuse(StatusCode::BAD_REQUEST, "a response requires a session", None))
            }
            ClientMessage::Notification { method, params } => {
                self.find_session(headers, None)?.handle_notification(&method, params.as_deref());
                Ok(accepted_response())
            }
            ClientMessage::Response { id, result } => {
                self.find_session(headers, None)?.connection.resolve(&id, result);
                Ok(accepted_response())
            }
        }
    }

    /// Opens the stream of a session, or resumes a stream.
    fn handle_get(&self, headers: &HeaderMap) -> Result<Response<Body>, RefusalResponse> {
        if !AcceptedTypes::from_headers(headers).events {
            let text = "the client must accept events: Accept: text/event-stream";
            return Err(refuse(StatusCode::NOT_ACCEPTABLE, text, None));
        }
        let session = self.legacy_session(headers)?;
        let own = Arc::clone(&session.streams.session_stream);
        let Some(last) = headers.get(LAST_EVENT_ID_HEADER) else {
            let is_resumable = headers::version_header(headers).is_some_and(supports_resumption);
            let first = is_resumable.then(|| StreamEvent::resume_hint(Some("0".to_owned()), STREAM_RETRY));
            let reader = EventReader::new(own, None, Some(self.stream_context(session)));
            return Ok(event_response(EventBody::new(Some(reader), first)));
        };
        let at = last.to_str().ok().and_then(parse_event_id);
        let found = at.and_then(|(after, number)| match number {
            Some(number) => session.streams.find_by_number(number).map(|stream| (stream, after)),
            None => Some((own, after)),
        });
        // An error would make clients retry with the same id forever, so an unknown id gets an empty stream.
        let reader = found
            .map(|(stream, after)| EventReader::new(stream, Some(after), Some(self.stream_context(session))));
        Ok(event_response(EventBody::new(reader, None)))
    }

    fn handle_delete(&self, headers: &HeaderMap) -> Result<Response<Body>, RefusalResponse> {
        self.legacy_session(headers)?;
        let id = headers.get(SESSION_ID_HEADER).and_then(|id| id.to_str().ok()).unwrap_or_default();
        self.state.sessions.remove(id);
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(response)
    }

    /// The session of a GET or DELETE request.
    fn legacy_session(&self, headers: &HeaderMap) -> Result<Arc<HttpSession>, RefusalResponse> {
        let is_legacy = headers::is_legacy(headers)
            .map_err(|error| responses::from_error(StatusCode::BAD_REQUEST, &error, None))?;
        if !is_legacy {
            let text = "2026-07-28 has no sessions: use POST";
            let mut refusal = refuse(StatusCode::METHOD_NOT_ALLOWED, text, None);
            refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            return Err(refusal);
        }
        self.find_session(headers, None)
    }

    /// Finds the session that the headers name, if it belongs to this client. `request` is the id of the request, for a
    /// refusal.
    fn find_session(
        &self,
        headers: &HeaderMap,
        request: Option<&RequestId>,
    ) -> Result<Arc<HttpSession>, RefusalResponse> {
        let id = headers.get(SESSION_ID_HEADER).ok_or_else(|| session_required(request))?;
        let limits = &self.settings.serve.limits;
        let sessions = &self.state.sessions;
        let session = id.to_str().ok().and_then(|id| sessions.find(id, &self.owner, &self.validity, limits));
        session.ok_or_else(|| unknown_session(request))
    }

    fn stream_context(&self, session: Arc<HttpSession>) -> SessionStreamContext {
        SessionStreamContext {
            state: Arc::clone(self.state),
            settings: Arc::clone(self.settings),
            client: Arc::clone(&self.client),
            session,
        }
    }

    fn request_origin(&self, headers: &HeaderMap) -> RequestOrigin {
        let mut traces = headers.get_all("traceparent").iter();
        let one = traces.next().filter(|_| traces.next().is_none());
        RequestOrigin {
            outbox: Arc::clone(&self.client.outbox),
            validity: Some(self.validity.clone()),
            traceparent: one.and_then(|value| TraceParent::parse(value.to_str().ok()?)),
            client: Some(self.client_address),
        }
    }

    /// Performs `initialize` and creates the session.
    async fn begin_session(
        &self,
        headers: &HeaderMap,
        accepted: AcceptedTypes,
        request: ClientRequest,
    ) -> Result<Response<Body>, RefusalResponse> {
        let permit = self.state.sessions.acquire_permit(
            &self.state.clients,
            &self.client,
            &self.settings.serve.limits,
        );
        let permit = permit.map_err(responses::quota_exceeded)?;
        let retry = request.subject.as_deref().is_some_and(supports_resumption).then_some(STREAM_RETRY);
        let (streams, closed) = (Arc::new(EventStreams::new(retry)), self.state.shutdown.stop.child_token());
        let owner = SessionOwner::new_session(self.agent_id.clone());
        let connection = self.server.connection(owner, Arc::clone(&streams) as _, closed.clone());
        let session =
            Arc::new(HttpSession { streams, connection: Arc::new(connection), closed: closed.clone() });
        let request =
            session.connection.add_context(request, self.request_origin(headers), closed.child_token());
        let reply = Arc::clone(&session.connection).answer(request).await;
        let is_error = reply.error.is_some();
        let mut response = single_response(reply, StatusCode::OK, accepted);
        if is_error {
            return Ok(response);
        }
        let scope = SessionScope {
            client: Arc::clone(&self.client.name),
            owner: Arc::clone(&self.owner),
            validity: self.validity.clone(),
        };
        let id = self.state.sessions.insert(session, scope, permit);
        if let Ok(id) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(HeaderName::from_static(SESSION_ID_HEADER), id);
        }
        Ok(response)
    }

    /// Starts a request in a session. It continues when its reader disconnects.
    fn session_exchange<T: Send + 'static>(
        &self,
        headers: &HeaderMap,
        session: Arc<HttpSession>,
        accepted: AcceptedTypes,
        request: ClientRequest,
        reserved: T,
    ) -> Result<RequestExchange, (BeginStreamError, RequestId)> {
        let (id, cancel) = (request.id.clone(), session.closed.child_token());
        let stream = session.streams.begin(&id, cancel.clone(), accepted.events);
        let stream = stream.map_err(|refusal| (refusal, id.clone()))?;
        let open = OpenRequestGuard { session: Arc::clone(&session), id };
        let request = session.connection.add_context(request, self.request_origin(headers), cancel);
        let connection = Arc::clone(&session.connection);
        let work = Box::pin(async move {
            let reply = connection.answer(request).await;
            open.session.streams.finish(&open.id, Some(reply));
            drop((open, reserved));
        });
        Ok(RequestExchange { stream, accepted, work, context: Some(self.stream_context(session)) })
    }

    /// Starts a request without a session. Disconnecting cancels it.
    fn stateless_exchange<T: Send + 'static>(
        &self,
        headers: &HeaderMap,
        accepted: AcceptedTypes,
        request: ClientRequest,
        reserved: T,
    ) -> Result<RequestExchange, RefusalResponse> {
        // Tasks outlive the request, so only the server's shutdown closes the connection.
        let closed = self.state.shutdown.stop.child_token();
        let cancel = closed.child_token();
        let stream = Arc::new(EventStream::for_stateless_request(cancel.clone(), accepted.events));
        let connection =
            self.server.connection(self.session_owner(headers)?, Arc::clone(&stream) as _, closed);
        let connection: Arc<McpConnection> = Arc::new(connection.for_single_request());
        let request = connection.add_context(request, self.request_origin(headers), cancel);
        let answered = Arc::clone(&stream);
        let work = Box::pin(async move {
            let reply = connection.answer(request).await;
            answered.finish(Some(reply));
            drop(reserved);
        });
        Ok(RequestExchange { stream, accepted, work, context: None })
    }

    /// The arguments of a tool that are mirrored in headers.
    fn header_mirror(&self, tool: &str) -> HeaderMirror {
        self.server.view().get_callable(tool).map(|entry| convert::header_mirror(entry)).unwrap_or_default()
    }

    /// The owner of a request without a legacy session.
    fn session_owner(&self, headers: &HeaderMap) -> Result<SessionOwner, RefusalResponse> {
        let mut name = Arc::clone(&self.owner);
        if let Some(label) = headers.get(SESSION_LABEL_HEADER) {
            let legal = |label: &&str| !label.is_empty() && label.len() <= MAX_SESSION_LABEL;
            let label = label.to_str().ok().filter(legal).ok_or_else(|| {
                let text = format!(
                    "`{SESSION_LABEL_HEADER}` must have 1 to {MAX_SESSION_LABEL} visible ASCII characters"
                );
                Box::new(responses::error(StatusCode::BAD_REQUEST, ErrorCode::INVALID_REQUEST, text, None))
            })?;
            name = format!("{name}#{label}").into();
        }
        let (state, limits) = (self.state, &self.settings.serve.limits);
        let session = state.sessions.stateless_session(&name, &state.clients, &self.client, limits);
        let session = session.map_err(responses::quota_exceeded)?;
        Ok(SessionOwner { session_id: name, agent_id: self.agent_id.clone(), session })
    }
}

impl RequestExchange {
    /// Runs the request and responds: with one JSON body if the response is the only message, else with events. In a
    /// session, events begin at once, so that the client gets an id to resume from. A client that takes no events waits
    /// for the JSON body.
    async fn respond(self, status: impl FnOnce(Option<ErrorCode>) -> StatusCode) -> Response<Body> {
        let Self { stream, accepted, mut work, context } = self;
        let waits = context.is_none() || !accepted.events;
        let reader = EventReader::new(stream, None, context);
        // Most requests are answered at once. Others continue in a task, which ends when the request does.
        if poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await.is_pending() {
            tokio::spawn(work);
        }
        if waits {
            reader.wait_ready().await;
        }
        match reader.stream.take_single_response() {
            Some(reply) => {
                let status = status(reply.error);
                single_response(reply, status, accepted)
            }
            // Cancelled: there is no response.
            None if !accepted.events => accepted_response(),
            None => event_response(EventBody::new(Some(reader), None)),
        }
    }
}

/// Frees the id of a request on drop.
struct OpenRequestGuard {
    session: Arc<HttpSession>,
    id: RequestId,
}

impl Drop for OpenRequestGuard {
    fn drop(&mut self) {
        self.session.streams.finish(&self.id, None);
    }
}

impl HttpSession {
    /// Handles a notification of the client.
    fn handle_notification(&self, method: &str, params: Option<&RawValue>) {
        if method != incoming::CANCELLED {
            return self.connection.handle_notification(method);
        }
        if let Some(id) = incoming::cancelled_request_id(params) {
            self.streams.cancel(&id);
        }
    }
}

/// A response with one message: as a JSON body, or as an event if the client takes no JSON.
fn single_response(reply: EncodedResponse, status: StatusCode, accepted: AcceptedTypes) -> Response<Body> {
    let mut response = if accepted.json {
        let mut response = Response::new(Body::from(reply.line));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    } else {
        event_response(EventBody::new(None, Some(StreamEvent::single(reply))))
    };
    *response.status_mut() = status;
    response
}

/// A response with a stream of events.
fn event_response(body: EventBody) -> Response<Body> {
    let mut response = Response::new(Body::new(body));
    for (name, value) in [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-cache"),
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn accepted_response() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// The response to a request whose id is in use.
fn duplicate_id_response(id: &RequestId) -> Response<Body> {
    let text = "a request with this id is still pending; ids must be unique";
    responses::from_error(StatusCode::OK, &ErrorData::invalid_request(text, None), Some(id))
}

/// A refusal before the protocol layer. `request` is the id of the request, if it is known.
fn refuse(status: StatusCode, text: &'static str, request: Option<&RequestId>) -> RefusalResponse {
    Box::new(responses::error(status, ErrorCode::INVALID_REQUEST, text, request))
}

fn unknown_session(request: Option<&RequestId>) -> RefusalResponse {
    refuse(StatusCode::NOT_FOUND, "unknown session: send `initialize` to begin a new one", request)
}

fn session_required(request: Option<&RequestId>) -> RefusalResponse {
    refuse(StatusCode::BAD_REQUEST, "the request requires a session: send `initialize` first", request)
}

/// Whether clients of this version expect an initial event with an id and a retry delay.
fn supports_resumption(version: &str) -> bool {
    version >= ProtocolVersion::V_2025_11_25.as_str()
}
