//! A request whose client is known, on its way to the protocol, and the reply on its way back. Both eras go this way: a
//! body is parsed, gets its context, is worked on, and is answered with one JSON body, or with events where something else
//! is sent before the answer.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use futures_util::future::BoxFuture;
use rmcp::model::{ErrorCode, ErrorData, ProtocolVersion, RequestId};
use serde_json::value::RawValue;

use super::body::RequestBody;
use super::clients::{Client, QuotaPermit};
use super::event_body::EventBody;
use super::headers;
use super::reader::{EventReader, StreamKeeper};
use super::sessions::{HttpSession, RETRY, SessionScope};
use super::{Settings, State, answer};
use crate::auth::CredentialValidity;
use crate::protocol::event_stream::{Event, EventStream, Reply, place};
use crate::protocol::event_streams::{EventStreams, StreamRefusal};
use crate::protocol::incoming::{self, ClientMessage, Request};
use crate::protocol::mirror::HeaderMirror;
use crate::protocol::trace;
use crate::server::connection::McpConnection;
use crate::server::request::RequestOrigin;
use crate::server::{Server, SessionOwner, convert};

/// The session that a client of 2026-07-28 wants its request to belong to.
const SESSION: &str = "toolbay-session";
/// The session of a client up to 2025-11-25.
const LEGACY_SESSION: &str = "mcp-session-id";
/// Where a client comes back to.
const LAST_EVENT: &str = "last-event-id";
/// Longest name of a session, in bytes.
const MAX_SESSION: usize = 128;

type Refusal = Box<Response<Body>>;

/// Who asks.
pub(super) struct Dispatch<'a> {
    pub(super) state: &'a Arc<State>,
    pub(super) settings: &'a Arc<Settings>,
    pub(super) server: &'a Arc<Server>,
    pub(super) client: Arc<Client>,
    /// Under which name the client has something for this profile alone.
    pub(super) owner: Arc<str>,
    /// Who it is, if they said.
    pub(super) agent: Option<String>,
    pub(super) validity: CredentialValidity,
}

/// A request and what is done for it.
struct Exchange {
    stream: Arc<EventStream>,
    /// Ends when the request has its answer.
    work: BoxFuture<'static, ()>,
    keeper: Option<StreamKeeper>,
}

impl Dispatch<'_> {
    /// The answer to a request whose body is there.
    ///
    /// # Errors
    /// The answer of this server itself.
    pub(super) async fn answer(
        self,
        parts: Parts,
        body: RequestBody,
        permit: Arc<QuotaPermit>,
    ) -> Result<Response<Body>, Refusal> {
        match parts.method {
            Method::POST => self.post(&parts.headers, body, permit).await,
            Method::GET => self.get(&parts.headers),
            _ => self.delete(&parts.headers),
        }
    }

    async fn post(
        self,
        headers: &HeaderMap,
        body: RequestBody,
        permit: Arc<QuotaPermit>,
    ) -> Result<Response<Body>, Refusal> {
        if !headers::accepts(headers, &["application/json", "text/event-stream"]) {
            let text = "a client takes both: Accept: application/json, text/event-stream";
            return Err(Box::new(answer::text(StatusCode::NOT_ACCEPTABLE, text)));
        }
        if !headers::is_json(headers) {
            let text = "the body is JSON: Content-Type: application/json";
            return Err(Box::new(answer::text(StatusCode::UNSUPPORTED_MEDIA_TYPE, text)));
        }
        let message = incoming::read(&body.bytes).map_err(|invalid| Box::new(answer::invalid(&invalid)))?;
        let is_legacy = headers::check(headers, &message, |tool| self.mirror(tool)).map_err(|error| {
            let id = match &message {
                ClientMessage::Request(request) => Some(request.id.clone()),
                ClientMessage::Notification { .. } | ClientMessage::Response { .. } => None,
            };
            Box::new(answer::of_error(StatusCode::BAD_REQUEST, &error, id.as_ref()))
        })?;
        // What the request takes of the server is its own as long as something is done for it: in a session, it outlives the
        // connection that it came by.
        let reserved = (permit, body.permit);
        match message {
            ClientMessage::Request(request) if !is_legacy => {
                let is_well_formed =
                    request.meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty();
                let exchange = self.lone_exchange(headers, request, reserved)?;
                Ok(exchange.respond(|error| headers::status(error, is_well_formed)).await)
            }
            ClientMessage::Request(request) if headers.contains_key(LEGACY_SESSION) => {
                let session = self.session(headers)?;
                let exchange = match self.exchange(headers, session, request, reserved) {
                    Ok(exchange) => exchange,
                    Err((StreamRefusal::Duplicate, id)) => return Ok(duplicate(&id)),
                    Err((StreamRefusal::Over, _)) => return Err(no_session()),
                };
                Ok(exchange.respond(|_| StatusCode::OK).await)
            }
            ClientMessage::Request(request) if request.method == "initialize" => {
                self.begin_session(headers, request).await
            }
            ClientMessage::Request(_) => Err(session_required()),
            ClientMessage::Notification { .. } if !is_legacy => Ok(accepted()),
            ClientMessage::Response { .. } if !is_legacy => {
                let text = "a response belongs to a session, and there is none";
                let error = ErrorData::invalid_request(text, None);
                Err(Box::new(answer::of_error(StatusCode::BAD_REQUEST, &error, None)))
            }
            ClientMessage::Notification { method, params } => {
                self.session(headers)?.notice(&method, params.as_deref());
                Ok(accepted())
            }
            ClientMessage::Response { id, result } => {
                self.session(headers)?.connection.resolve(id, result);
                Ok(accepted())
            }
        }
    }

    /// The stream of a session itself, or the rest of one that broke off.
    fn get(&self, headers: &HeaderMap) -> Result<Response<Body>, Refusal> {
        if !headers::accepts(headers, &["text/event-stream"]) {
            let text = "a client takes events: Accept: text/event-stream";
            return Err(Box::new(answer::text(StatusCode::NOT_ACCEPTABLE, text)));
        }
        let session = self.session_of_legacy(headers)?;
        let own = Arc::clone(&session.streams.own);
        let Some(last) = headers.get(LAST_EVENT) else {
            let is_resumable = headers::version(headers).is_some_and(knows_resumption);
            let first = is_resumable.then(|| Event::invitation(Some("0".to_owned()), RETRY));
            let reader = EventReader::new(own, None, Some(self.keeper(session)));
            return Ok(events(EventBody::new(Some(reader), first)));
        };
        let at = last.to_str().ok().and_then(place);
        let found = at.and_then(|(after, number)| match number {
            Some(number) => session.streams.numbered(number).map(|stream| (stream, after)),
            None => Some((own, after)),
        });
        // An error would make a client come back with the same id for ever.
        let reader =
            found.map(|(stream, after)| EventReader::new(stream, Some(after), Some(self.keeper(session))));
        Ok(events(EventBody::new(reader, None)))
    }

    fn delete(&self, headers: &HeaderMap) -> Result<Response<Body>, Refusal> {
        self.session_of_legacy(headers)?;
        let id = headers.get(LEGACY_SESSION).and_then(|id| id.to_str().ok()).unwrap_or_default();
        self.state.sessions.end(id);
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(response)
    }

    /// The session that a request without a message names.
    fn session_of_legacy(&self, headers: &HeaderMap) -> Result<Arc<HttpSession>, Refusal> {
        let is_legacy = headers::is_legacy(headers)
            .map_err(|error| Box::new(answer::of_error(StatusCode::BAD_REQUEST, &error, None)))?;
        if !is_legacy {
            let text = "clients of 2026-07-28 have no session: POST";
            return Err(Box::new(answer::text(StatusCode::METHOD_NOT_ALLOWED, text)));
        }
        self.session(headers)
    }

    /// The session that the request names, if it is this client's.
    fn session(&self, headers: &HeaderMap) -> Result<Arc<HttpSession>, Refusal> {
        let id = headers.get(LEGACY_SESSION).ok_or_else(session_required)?;
        let limits = &self.settings.serve.limits;
        let sessions = &self.state.sessions;
        let session = id.to_str().ok().and_then(|id| sessions.find(id, &self.owner, &self.validity, limits));
        session.ok_or_else(no_session)
    }

    fn keeper(&self, session: Arc<HttpSession>) -> StreamKeeper {
        StreamKeeper {
            state: Arc::clone(self.state),
            settings: Arc::clone(self.settings),
            client: Arc::clone(&self.client),
            session,
        }
    }

    fn origin(&self, headers: &HeaderMap) -> RequestOrigin {
        let mut traces = headers.get_all("traceparent").iter();
        let one = traces.next().filter(|_| traces.next().is_none());
        let traceparent = one.and_then(|value| trace::parent(value.to_str().ok()?)).map(ToOwned::to_owned);
        RequestOrigin {
            outbox: Arc::clone(&self.client.outbox),
            validity: Some(self.validity.clone()),
            traceparent,
        }
    }

    /// Begins a session: it is answered at once.
    async fn begin_session(&self, headers: &HeaderMap, request: Request) -> Result<Response<Body>, Refusal> {
        let permit = self.state.sessions.seat(self.state, &self.client, &self.settings.serve.limits);
        let permit = permit.map_err(|full| Box::new(answer::full(full)))?;
        let retry = request.subject.as_deref().is_some_and(knows_resumption).then_some(RETRY);
        let (streams, closed) = (Arc::new(EventStreams::new(retry)), self.state.ends.stop.child_token());
        let owner = SessionOwner::of_session(self.agent.clone());
        let connection = self.server.connection(owner, Arc::clone(&streams) as _, closed.clone());
        let session =
            Arc::new(HttpSession { streams, connection: Arc::new(connection), closed: closed.clone() });
        let admitted = session.connection.admit(request, self.origin(headers), closed.child_token());
        let reply = Arc::clone(&session.connection).answer(admitted).await;
        let is_error = reply.error.is_some();
        let mut response = json(reply, StatusCode::OK);
        if is_error {
            return Ok(response);
        }
        let scope = SessionScope {
            client: Arc::clone(&self.client.name),
            owner: Arc::clone(&self.owner),
            validity: self.validity.clone(),
        };
        let id = self.state.sessions.begin(session, scope, permit);
        if let Ok(id) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(HeaderName::from_static(LEGACY_SESSION), id);
        }
        Ok(response)
    }

    /// A request in a session. It continues when its reader leaves.
    fn exchange<T: Send + 'static>(
        &self,
        headers: &HeaderMap,
        session: Arc<HttpSession>,
        request: Request,
        reserved: T,
    ) -> Result<Exchange, (StreamRefusal, RequestId)> {
        let (id, cancel) = (request.id.clone(), session.closed.child_token());
        let stream = session.streams.begin(&id, cancel.clone()).map_err(|refusal| (refusal, id.clone()))?;
        let open = OpenRequest { session: Arc::clone(&session), id };
        let admitted = session.connection.admit(request, self.origin(headers), cancel);
        let connection = Arc::clone(&session.connection);
        let work = Box::pin(async move {
            let reply = connection.answer(admitted).await;
            open.session.streams.end(&open.id, Some(reply));
            drop((open, reserved));
        });
        Ok(Exchange { stream, work, keeper: Some(self.keeper(session)) })
    }

    /// A request without a session. Its client cancels it by leaving.
    fn lone_exchange<T: Send + 'static>(
        &self,
        headers: &HeaderMap,
        request: Request,
        reserved: T,
    ) -> Result<Exchange, Refusal> {
        // A task outlives its request.
        let closed = self.state.ends.stop.child_token();
        let cancel = closed.child_token();
        let stream = Arc::new(EventStream::of_lone_request(cancel.clone()));
        let connection =
            self.server.connection(self.session_owner(headers)?, Arc::clone(&stream) as _, closed);
        let connection: Arc<McpConnection> = Arc::new(connection.of_one_request());
        let admitted = connection.admit(request, self.origin(headers), cancel);
        let answered = Arc::clone(&stream);
        let work = Box::pin(async move {
            let reply = connection.answer(admitted).await;
            answered.end(Some(reply));
            drop(reserved);
        });
        Ok(Exchange { stream, work, keeper: None })
    }

    /// Which arguments of a tool are also in headers.
    fn mirror(&self, tool: &str) -> HeaderMirror {
        self.server.view().get_callable(tool).map(|entry| convert::mirror(entry)).unwrap_or_default()
    }

    /// The owner of a request without a legacy session.
    fn session_owner(&self, headers: &HeaderMap) -> Result<SessionOwner, Refusal> {
        let mut name = Arc::clone(&self.owner);
        if let Some(label) = headers.get(SESSION) {
            let legal = |label: &&str| !label.is_empty() && label.len() <= MAX_SESSION;
            let label = label.to_str().ok().filter(legal).ok_or_else(|| {
                let text = format!("`{SESSION}` has 1 to {MAX_SESSION} visible ASCII characters");
                Box::new(answer::error(StatusCode::BAD_REQUEST, ErrorCode::INVALID_REQUEST, text, None))
            })?;
            name = format!("{name}#{label}").into();
        }
        let (state, limits) = (self.state, &self.settings.serve.limits);
        let session = state.sessions.stateless(&name, state, &self.client, limits);
        let session = session.map_err(|full| Box::new(answer::full(full)))?;
        Ok(SessionOwner { session_id: name, agent_id: self.agent.clone(), session })
    }
}

impl Exchange {
    /// Works on the request, and answers it: with one body if the answer is all that there is to say, else with events.
    /// In a session the events begin at once, as their client may have to come back for them.
    async fn respond(self, status: impl FnOnce(Option<ErrorCode>) -> StatusCode) -> Response<Body> {
        let Self { stream, mut work, keeper } = self;
        let waits = keeper.is_none();
        let reader = EventReader::new(stream, None, keeper);
        // Most requests are answered at once; a request that waits continues in its own task.
        if poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await.is_pending() {
            tokio::spawn(work);
        }
        if waits {
            reader.begun().await;
        }
        match reader.stream.only() {
            Some(reply) => {
                let status = status(reply.error);
                json(reply, status)
            }
            None => events(EventBody::new(Some(reader), None)),
        }
    }
}

/// A request until it has its answer: its id is taken.
struct OpenRequest {
    session: Arc<HttpSession>,
    id: RequestId,
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.session.streams.end(&self.id, None);
    }
}

impl HttpSession {
    /// Takes a notification of the client in.
    fn notice(&self, method: &str, params: Option<&RawValue>) {
        if method != "notifications/cancelled" {
            return self.connection.notice(method);
        }
        if let Some(id) = incoming::cancelled(params) {
            self.streams.cancel(&id);
        }
    }
}

/// A reply as the body of a response.
fn json(reply: Reply, status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::from(reply.line));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Events as the body of a response.
fn events(body: EventBody) -> Response<Body> {
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

fn accepted() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// What is answered to a request that has the id of another.
fn duplicate(id: &RequestId) -> Response<Body> {
    let text = "a request of this id is not answered yet; each has an id of its own";
    answer::of_error(StatusCode::OK, &ErrorData::invalid_request(text, None), Some(id))
}

fn no_session() -> Refusal {
    Box::new(answer::text(StatusCode::NOT_FOUND, "there is no such session"))
}

fn session_required() -> Refusal {
    Box::new(answer::text(StatusCode::BAD_REQUEST, "the request needs a session: begin with `initialize`"))
}

/// Whether a client of this version expects that a stream begins with an event that says how to come back to it.
fn knows_resumption(version: &str) -> bool {
    version >= ProtocolVersion::V_2025_11_25.as_str()
}
