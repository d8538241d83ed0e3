//! A request whose caller is known, and rmcp, which answers it.

use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::Full;
use rmcp::model::{
    ClientRequest, ErrorCode, ErrorData, GetExtensions as _, JsonRpcRequest, ProtocolVersion,
    ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::body::{Whole, explain};
use super::clients::{Client, Share};
use super::reading::Reading;
use super::session::{Live, answer_of, twice};
use super::sessions::{Begins, Own, RETRY};
use super::short::{self, Plain, Rest};
use super::streams::Refused;
use super::threads::{self, Entered};
use super::{Settings, State, answer};
use crate::auth::Standing;
use crate::protocol::message::{Head, RawArguments};
use crate::protocol::salvage::{self, Salvaged};
use crate::server::connection::Connection;
use crate::server::convert;
use crate::server::workers::Workers;
use crate::server::{Server, Whose};

/// The session that a client of 2026-07-28 wants its request to belong to.
const SESSION: &str = "toolbay-session";
/// The session of a client up to 2025-11-25.
const LEGACY_SESSION: &str = "mcp-session-id";
/// Longest name of a session, in bytes.
const MAX_SESSION: usize = 128;
/// How often something is sent on a stream on which nothing happens: proxies close silent ones.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

type Answer = Box<Response<Body>>;

/// Who asks.
pub(super) struct Asks<'a> {
    pub(super) state: &'a Arc<State>,
    pub(super) settings: &'a Arc<Settings>,
    pub(super) client: Arc<Client>,
    /// Under which name the client has something for this profile alone.
    pub(super) owner: String,
    /// Who it is, if they said.
    pub(super) agent: Option<String>,
    pub(super) standing: Standing,
}

/// What a request takes of the server, as long as something is done for it: in a session it outlives the connection that
/// it came by.
#[derive(Clone)]
struct Reserved {
    _share: Arc<Share>,
    _room: Arc<Share>,
}

impl Asks<'_> {
    /// The answer of an endpoint to a request whose body is there.
    ///
    /// # Errors
    /// The answer of this server itself.
    pub(super) async fn answer(
        self,
        server: &Server,
        mut parts: Parts,
        mut whole: Whole,
        share: Arc<Share>,
    ) -> Result<Response<Body>, Answer> {
        let live = self.live(&parts.headers);
        if let Some(live) = &live
            && let Some(call) = short::in_session(&parts, &whole.bytes)
        {
            return self.call(live, call, parts, whole, share).await;
        }
        if let Some((call, tool)) = short::alone(&parts, &whole.bytes)
            && server.view().get_callable(&tool).is_some_and(|entry| !convert::is_mirrored(entry))
        {
            return self.call_alone(server, call, parts, whole, share).await;
        }
        let posts = parts.method == Method::POST && is_json(&parts.headers);
        let unread = match posts.then(|| salvage::of_body(&whole.bytes)).flatten() {
            Some(Salvaged::Call { text, arguments }) => {
                whole.bytes = text.into();
                Some(arguments)
            }
            Some(Salvaged::Request(refusal)) => return Err(Box::new(answer::to_request(*refusal))),
            Some(Salvaged::Unasked) | None => None,
        };
        let head = std::str::from_utf8(&whole.bytes).ok().and_then(Head::read);
        if posts && head.is_none() {
            return Err(Box::new(explain(&whole.bytes)));
        }
        let begins = head.as_ref().and_then(Head::begins).filter(|_| begins_session(&parts));
        let raw = unread.or_else(|| Some(RawArguments(head.as_ref()?.arguments()?.into())));
        if parts.method == Method::DELETE && live.is_none() && parts.headers.contains_key(LEGACY_SESSION) {
            return Err(Box::new(answer::text(StatusCode::NOT_FOUND, "there is no such session")));
        }
        // A request of a session ends with it.
        let closed = match &live {
            Some(live) => live.closed.clone(),
            None => self.state.ends.stop.child_token(),
        };
        let connection = self.connection(server, &parts, begins.is_some(), &closed)?;
        let begun = match (&begins, &connection) {
            (Some(_), Some(connection)) => Some(self.begins(connection, &closed)?),
            _ => None,
        };
        if let Some(raw) = raw {
            parts.extensions.insert(raw);
        }
        // The library keeps the request that began a session for as long as the session lasts; it is answered at once.
        if begins.is_none() {
            parts.extensions.insert(Reserved { _share: share, _room: Arc::clone(&whole.room) });
        }
        let version = begins.as_deref().or_else(|| version(&parts.headers));
        let primed = version.is_some_and(knows_primed);
        parts.extensions.insert(self.standing.clone());
        let own = self.own(live, primed);
        let own = Own { begins: Mutex::new(begun), ..own };
        // What has no session is handed through by tasks of the library, which end with it.
        let here = threads::own().filter(|_| connection.is_some() && begins.is_none());
        Ok(Box::pin(handle(own, connection, closed, here, parts, whole.bytes)).await)
    }

    /// The answer to a call without a session, however long it takes.
    async fn call_alone(
        self,
        server: &Server,
        call: Plain,
        parts: Parts,
        whole: Whole,
        share: Arc<Share>,
    ) -> Result<Response<Body>, Answer> {
        // A task outlives its request.
        let (closed, id) = (self.state.ends.stop.child_token(), call.0.id.clone());
        let cancel = closed.child_token();
        let connection = server.connection_of(self.whose(&parts.headers)?, closed);
        let (call, peer) = (self.carrying(call, parts, whole, share), self.state.nobody.peer());
        // Whoever leaves cancels it; it goes on until it has ended, and is recorded.
        let _left = cancel.clone().drop_guard();
        let mut work = Box::pin(async move { answer_of(&connection, call, peer, cancel).await });
        let answer = match poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
            Poll::Ready(answer) => answer,
            Poll::Pending => tokio::spawn(work).await.unwrap_or_else(|_| {
                let error = ErrorData::internal_error("the call was lost; see the log", None);
                ServerJsonRpcMessage::error(error, Some(id))
            }),
        };
        Ok(short::response_alone(&answer))
    }

    /// A call with all that belongs to its request.
    fn carrying(
        &self,
        (mut call, raw): Plain,
        mut parts: Parts,
        whole: Whole,
        share: Arc<Share>,
    ) -> JsonRpcRequest<ClientRequest> {
        if let Some(raw) = raw {
            parts.extensions.insert(raw);
        }
        parts.extensions.insert(Reserved { _share: share, _room: whole.room });
        parts.extensions.insert(self.standing.clone());
        call.request.extensions_mut().insert(parts);
        call
    }

    /// The answer to a call in a session.
    async fn call(
        self,
        live: &Arc<Live>,
        call: Plain,
        parts: Parts,
        whole: Whole,
        share: Arc<Share>,
    ) -> Result<Response<Body>, Answer> {
        let (rest, id) = (Rest::of(&parts.headers), call.0.id.clone());
        let primed = version(&parts.headers).is_some_and(knows_primed);
        let call = self.carrying(call, parts, whole, share);
        let own = self.own(Some(Arc::clone(live)), primed);
        let mut reading = match live.ask(call) {
            Ok((line, work)) => Reading::new(line, None, Some(work), own.keeper(live)),
            Err(Refused::Twice) => return Ok(short::response(&twice(id))),
            Err(Refused::Over) => {
                return Err(Box::new(answer::text(StatusCode::NOT_FOUND, "there is no such session")));
            }
        };
        if let Some(message) = poll_fn(|context| Poll::Ready(reading.at_once(context))).await {
            return Ok(short::response(&message));
        }
        let own = Own { reading: Mutex::new(Some(reading)), ..own };
        let handled = handle(own, None, live.closed.clone(), None, rest.into_parts(), short::begun());
        Ok(Box::pin(handled).await)
    }

    /// The sessions as this request may use them.
    fn own(self, live: Option<Arc<Live>>, primed: bool) -> Own {
        Own {
            state: Arc::clone(self.state),
            settings: Arc::clone(self.settings),
            client: self.client,
            owner: self.owner.into(),
            standing: self.standing,
            live,
            begins: Mutex::default(),
            reading: Mutex::default(),
            primed,
        }
    }

    /// The session that the request names, if it is this client's.
    fn live(&self, headers: &HeaderMap) -> Option<Arc<Live>> {
        let id = headers.get(LEGACY_SESSION)?.to_str().ok()?;
        self.state.sessions.find(id, &self.owner, &self.standing, &self.settings.serve.limits)
    }

    /// What answers the request, unless a session does.
    fn connection(
        &self,
        server: &Server,
        parts: &Parts,
        begins: bool,
        closed: &CancellationToken,
    ) -> Result<Option<Arc<Connection>>, Answer> {
        if parts.method != Method::POST || is_in_session(parts) {
            return Ok(None);
        }
        let whose = if begins { Whose::of_session(self.agent.clone()) } else { self.whose(&parts.headers)? };
        let connection = server.connection_of(whose, closed.clone());
        let connection = match begins {
            true => connection,
            false => connection.working_in(Some(Workers::of_request(Handle::current()))).of_one_request(),
        };
        Ok(Some(Arc::new(connection)))
    }

    /// What a session begins with: the share of one more.
    fn begins(&self, connection: &Arc<Connection>, closed: &CancellationToken) -> Result<Begins, Answer> {
        let limits = &self.settings.serve.limits;
        let share = self.state.sessions.seat(self.state, &self.client, limits);
        let share = share.map_err(|full| Box::new(answer::full(full)))?;
        Ok(Begins { connection: Arc::clone(connection), share, closed: closed.clone() })
    }

    /// What the request belongs to, if it does not belong to a session of before 2026-07-28.
    fn whose(&self, headers: &HeaderMap) -> Result<Whose, Answer> {
        let mut name = self.owner.clone();
        if let Some(label) = headers.get(SESSION) {
            let legal = |label: &&str| !label.is_empty() && label.len() <= MAX_SESSION;
            let label = label.to_str().ok().filter(legal).ok_or_else(|| {
                let text = format!("`{SESSION}` has 1 to {MAX_SESSION} visible ASCII characters");
                Box::new(answer::error(StatusCode::BAD_REQUEST, ErrorCode::INVALID_REQUEST, text, None))
            })?;
            name = format!("{name}#{label}");
        }
        let name: Arc<str> = name.into();
        let (state, limits) = (self.state, &self.settings.serve.limits);
        let session = state.sessions.stateless(&name, state, &self.client, limits);
        let session = session.map_err(|full| Box::new(answer::full(full)))?;
        Ok(Whose { session_id: name.to_string(), agent_id: self.agent.clone(), session })
    }
}

/// How rmcp is to answer.
fn config(primed: bool) -> StreamableHttpServerConfig {
    let mut config = StreamableHttpServerConfig::default()
        // Names were checked before.
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_legacy_session_mode(true)
        .with_json_response(true)
        .with_sse_keep_alive(Some(KEEP_ALIVE))
        .with_sse_retry(primed.then_some(RETRY));
    // So was the length.
    config.max_request_body_bytes = usize::MAX;
    config
}

/// What the library answers; `here`: the runtime of this thread, if its tasks are to stay there. Its work is large: in a box,
/// else each connection has room for it, and each request is moved with that.
async fn handle(
    own: Own,
    connection: Option<Arc<Connection>>,
    closed: CancellationToken,
    here: Option<Handle>,
    parts: Parts,
    body: Bytes,
) -> Response<Body> {
    let config = config(own.primed).with_cancellation_token(closed);
    let connect = move || connection.clone().ok_or_else(|| io::Error::other("the request has a session"));
    let service = StreamableHttpService::new(connect, Arc::new(own), config);
    let (method, json) = (parts.method.clone(), is_json(&parts.headers));
    let request = axum::http::Request::from_parts(parts, Full::new(body.clone()));
    let answering = async move { service.handle(request).await };
    let mut response = match here {
        Some(runtime) => Entered::new(runtime, || answering).await,
        None => answering.await,
    };
    match response.status() {
        // What it says of a body that it does not understand.
        StatusCode::UNSUPPORTED_MEDIA_TYPE if method == Method::POST && json => explain(&body),
        StatusCode::ACCEPTED if method == Method::DELETE => {
            // Clients take another success for a failure.
            *response.status_mut() = StatusCode::NO_CONTENT;
            response.map(Body::new)
        }
        _ => response.map(Body::new),
    }
}

/// Whether a request is one of a session of before 2026-07-28.
fn is_in_session(parts: &Parts) -> bool {
    let modern = ProtocolVersion::V_2026_07_28;
    parts.headers.contains_key(LEGACY_SESSION)
        && version(&parts.headers).is_none_or(|version| version < modern.as_str())
}

/// Whether `initialize` begins a session when it comes so, whatever version it names.
fn begins_session(parts: &Parts) -> bool {
    parts.method == Method::POST && !parts.headers.contains_key(LEGACY_SESSION)
}

fn version(headers: &HeaderMap) -> Option<&str> {
    headers.get("mcp-protocol-version").and_then(|version| version.to_str().ok())
}

/// Whether a client of this version expects that a stream begins with an event that says how to come back to it.
fn knows_primed(version: &str) -> bool {
    version >= ProtocolVersion::V_2025_11_25.as_str()
}

fn is_json(headers: &HeaderMap) -> bool {
    let essence = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()?.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}
