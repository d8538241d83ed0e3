//! The way of one request to rmcp, and of the response back.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONTENT_TYPE, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Response, StatusCode, Uri};
use http_body_util::Full;
use rmcp::model::{ErrorCode, ProtocolVersion};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;

use super::body::{Ends, Holding, Whole, explain};
use super::clients::{Client, Full as NoShare, Kind, Share};
use super::sessions::{Own, RETRY};
use super::{Settings, State, answer, route};
use crate::auth::Caller;
use crate::message::{self, RawArguments};
use crate::server::{Connection, Whose};

/// The session that a client of 2026-07-28 wants its request to belong to.
const SESSION: &str = "toolbay-session";
/// The session of a client up to 2025-11-25.
const LEGACY_SESSION: &str = "mcp-session-id";
/// Longest name of a session, in bytes.
const MAX_SESSION: usize = 128;
/// How often something is sent on a stream on which nothing happens: proxies close silent ones.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// When to come back after a refusal that is over soon.
const SOON: Duration = Duration::from_secs(1);

type Answer = Box<Response<Body>>;

/// Serves one request to an endpoint.
pub(super) async fn serve(state: &Arc<State>, profile: Option<&str>, request: Request) -> Response<Body> {
    let settings = state.settings.load_full();
    let (parts, body) = request.into_parts();
    let named = settings.names.host(&parts.uri, &parts.headers);
    let named = named.and_then(|host| Ok((host, settings.names.origin(&parts.headers)?)));
    let (host, page) = match named {
        Ok(named) => named,
        Err(problem) => {
            tracing::warn!(problem, "a request was refused");
            return answer::error(StatusCode::FORBIDDEN, ErrorCode::INVALID_REQUEST, problem, None);
        }
    };
    let mut response = if parts.method == Method::OPTIONS && parts.headers.contains_key(ORIGIN) {
        answer::preflight()
    } else {
        let front = Front { state, settings: &settings, profile, host: &host };
        front.answer(parts, body).await.unwrap_or_else(|refusal| *refusal)
    };
    answer::for_page(&mut response, page.as_deref());
    response
}

/// The metadata of the endpoint of a profile.
pub(super) fn metadata(
    state: &State,
    profile: Option<&str>,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Response<Body> {
    let settings = state.settings.load();
    let host = match settings.names.host(uri, headers) {
        Ok(host) => host,
        Err(problem) => return answer::text(StatusCode::FORBIDDEN, problem),
    };
    if !profile.is_none_or(is_plain) {
        return answer::text(StatusCode::NOT_FOUND, "there is no such profile");
    }
    let page = settings.names.origin(headers).unwrap_or_default();
    let mut response = match settings.auth.oauth() {
        Some(oauth) if *method == Method::GET || *method == Method::HEAD => {
            let base = base(&settings, &host);
            let resource = match profile {
                Some(profile) => format!("{base}/mcp/{profile}"),
                None => format!("{base}/mcp"),
            };
            answer::metadata(oauth, &resource, profile)
        }
        _ => answer::text(StatusCode::NOT_FOUND, "this server takes no tokens of an authorization server"),
    };
    answer::for_page(&mut response, page.as_deref());
    response
}

/// Under which address clients reach this server.
fn base(settings: &Settings, host: &str) -> String {
    settings.serve.public_url.clone().unwrap_or_else(|| format!("http://{host}"))
}

/// One request that names this server.
struct Front<'a> {
    state: &'a Arc<State>,
    settings: &'a Settings,
    profile: Option<&'a str>,
    host: &'a str,
}

impl Front<'_> {
    async fn answer(&self, mut parts: Parts, body: Body) -> Result<Response<Body>, Answer> {
        let limits = &self.settings.serve.limits;
        if !matches!(parts.method, Method::POST | Method::GET | Method::DELETE) {
            let mut response = answer::text(StatusCode::METHOD_NOT_ALLOWED, "POST, GET or DELETE");
            let allow = axum::http::HeaderValue::from_static("POST, GET, DELETE");
            response.headers_mut().insert(axum::http::header::ALLOW, allow);
            return Err(Box::new(response));
        }
        let from = parts.extensions.remove::<route::Source>().ok_or_else(|| {
            Box::new(answer::text(StatusCode::INTERNAL_SERVER_ERROR, "the request came from nowhere"))
        })?;
        let caller = self.caller(&parts.headers, from.peer).await?;
        let server =
            self.profile.is_none_or(is_plain).then(|| self.state.server.under(self.profile)).flatten();
        let server = server.ok_or_else(|| {
            let text = "the policy has no profile of this name";
            Box::new(answer::error(StatusCode::NOT_FOUND, ErrorCode::INVALID_REQUEST, text, None))
        })?;
        let client = self.client(&caller)?;
        if self.state.draining.is_cancelled() {
            let text = "the server is about to end";
            return Err(Box::new(answer::later(StatusCode::SERVICE_UNAVAILABLE, text, SOON)));
        }
        // Before its body is read: who sends slowly uses up its own share.
        let kind = kind(&parts);
        let share = self.state.clients.share(&client, kind, limits);
        let share = Arc::new(share.map_err(|full| Box::new(busy(full)))?);
        let working = from.connection.work();
        let whole = self.state.room.read(&parts.headers, body, limits).await?;
        if caller.is_over() {
            let text = "the token was taken back, or its time is over";
            return Err(Box::new(answer::error(
                StatusCode::UNAUTHORIZED,
                ErrorCode::INVALID_REQUEST,
                text,
                None,
            )));
        }
        let closed = self.state.ends.stop.child_token();
        let begins = begins(&parts, &whole.bytes);
        let own = Own {
            sessions: Arc::clone(&self.state.sessions),
            owner: self.owner(&caller).into(),
            limits: limits.clone(),
            closed: closed.clone(),
            primed: begins.as_deref().is_some_and(knows_primed),
        };
        if parts.method == Method::DELETE && !self.has_session(&own, &parts.headers) {
            return Err(Box::new(answer::text(StatusCode::NOT_FOUND, "there is no such session")));
        }
        let whose = match begins {
            Some(_) => {
                own.prepare().map_err(|key| Box::new(busy(NoShare { key, own: key != "sessions" })))?;
                Whose::of_session(self.agent(&caller))
            }
            None => self.whose(&client, &caller, &parts.headers)?,
        };
        if std::str::from_utf8(&whole.bytes).is_ok_and(message::is_call) {
            parts.extensions.insert(Held { _share: Arc::clone(&share), _room: whole.room.clone() });
        }
        let response =
            self.ask(move || server.connection_of(whose.clone(), closed.clone()), own, parts, whole);
        let response = response.await;
        let ends = (kind == Kind::Stream).then(|| self.ends(&caller));
        Ok(response.map(|body| Body::new(Holding::new(body, ends, (share, working)))))
    }

    /// Who it is; may they do this?
    async fn caller(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Caller, Answer> {
        let auth = &self.settings.auth;
        let caller = auth.caller(headers, peer).await;
        caller.and_then(|caller| caller.may(self.profile).map(|()| caller)).map_err(|refusal| {
            let profile = self.profile.filter(|profile| is_plain(profile));
            let metadata = route::metadata_address(&base(self.settings, self.host), profile);
            Box::new(answer::refused(&refusal, auth.oauth(), &metadata))
        })
    }

    /// The client, if it keeps to its pace.
    fn client(&self, caller: &Caller) -> Result<Arc<Client>, Answer> {
        let limits = &self.settings.serve.limits;
        let client = self.state.clients.get(&caller.name, limits).ok_or_else(|| {
            let text = "the server has as many clients as it may; to allow more: [serve.limits] clients = …";
            Box::new(answer::later(StatusCode::SERVICE_UNAVAILABLE, text, SOON))
        })?;
        client.pace(limits).map_err(|early| {
            let text = "too many requests a second; to allow more: [serve.limits] requests_per_second = …";
            Box::new(answer::later(StatusCode::TOO_MANY_REQUESTS, text, early))
        })?;
        Ok(client)
    }

    /// Under which name this client has something for this profile alone.
    fn owner(&self, caller: &Caller) -> String {
        format!("http:{}/{}", caller.name, self.profile.unwrap_or_default())
    }

    fn has_session(&self, own: &Own, headers: &HeaderMap) -> bool {
        let id = headers.get(LEGACY_SESSION).and_then(|id| id.to_str().ok());
        id.is_none_or(|id| own.has(id))
    }

    /// What the request belongs to, if it does not belong to a session of before 2026-07-28.
    fn whose(&self, client: &Client, caller: &Caller, headers: &HeaderMap) -> Result<Whose, Answer> {
        let mut name = self.owner(caller);
        if let Some(label) = headers.get(SESSION) {
            let legal = |label: &&str| !label.is_empty() && label.len() <= MAX_SESSION;
            let label = label.to_str().ok().filter(legal).ok_or_else(|| {
                let text = format!("`{SESSION}` has 1 to {MAX_SESSION} visible ASCII characters");
                Box::new(answer::error(StatusCode::BAD_REQUEST, ErrorCode::INVALID_REQUEST, text, None))
            })?;
            name = format!("{name}#{label}");
        }
        let name: Arc<str> = name.into();
        let session = client.session(&name, &self.settings.serve.limits);
        Ok(Whose { session_id: name.to_string(), agent_id: self.agent(caller), session })
    }

    fn agent(&self, caller: &Caller) -> Option<String> {
        caller.known.then(|| caller.name.to_string())
    }

    async fn ask(
        &self,
        connect: impl Fn() -> Connection + Send + Sync + 'static,
        own: Own,
        parts: Parts,
        whole: Whole,
    ) -> Response<Body> {
        let (method, json) = (parts.method.clone(), is_json(&parts.headers));
        let primed = own.primed || version(&parts.headers).is_some_and(knows_primed);
        let mut config = StreamableHttpServerConfig::default()
            // Names were checked before.
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_legacy_session_mode(true)
            .with_json_response(true)
            .with_sse_keep_alive(Some(KEEP_ALIVE))
            .with_sse_retry(primed.then_some(RETRY))
            .with_cancellation_token(self.state.ends.stop.child_token());
        // So was the length.
        config.max_request_body_bytes = usize::MAX;
        let mut parts = parts;
        if let Some(raw) = std::str::from_utf8(&whole.bytes).ok().and_then(message::arguments) {
            parts.extensions.insert(RawArguments(raw.into()));
        }
        let service = StreamableHttpService::new(move || Ok(connect()), Arc::new(own), config);
        let request = axum::http::Request::from_parts(parts, Full::new(whole.bytes.clone()));
        let mut response = service.handle(request).await;
        match response.status() {
            // What it says of a body that it does not understand.
            StatusCode::UNSUPPORTED_MEDIA_TYPE if method == Method::POST && json => explain(&whole.bytes),
            StatusCode::ACCEPTED if method == Method::DELETE => {
                // Clients take another success for a failure.
                *response.status_mut() = StatusCode::NO_CONTENT;
                response.map(Body::new)
            }
            _ => response.map(Body::new),
        }
    }

    /// What ends a stream.
    fn ends(&self, caller: &Caller) -> Ends {
        let left = caller.expires.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default());
        let age = self.settings.serve.limits.stream_age;
        Ends::new(left.map_or(age, |left| left.min(age)), &self.state.draining, &caller.revoked)
    }
}

/// What a call takes of the server, as long as it goes on: in a session it outlives the connection that it came by.
#[derive(Clone)]
struct Held {
    _share: Arc<Share>,
    _room: Option<Arc<OwnedSemaphorePermit>>,
}

/// What a request takes: `subscriptions/listen` and the stream of a session stay open.
fn kind(parts: &Parts) -> Kind {
    let listens = parts.headers.get("mcp-method").is_some_and(|method| method == "subscriptions/listen");
    if parts.method == Method::GET || listens { Kind::Stream } else { Kind::Request }
}

/// The version that a request asks for, if it begins a session of before 2026-07-28.
fn begins(parts: &Parts, bytes: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Initialize<'a> {
        #[serde(borrow)]
        method: Cow<'a, str>,
        params: Params,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        protocol_version: String,
    }
    let legacy =
        version(&parts.headers).is_none_or(|version| version < ProtocolVersion::V_2026_07_28.as_str());
    if parts.method != Method::POST || parts.headers.contains_key(LEGACY_SESSION) || !legacy {
        return None;
    }
    let message: Initialize<'_> = serde_json::from_slice(bytes).ok()?;
    (message.method == "initialize").then_some(message.params.protocol_version)
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

/// Whether a name can stand in a path as it is.
fn is_plain(profile: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'~');
    profile.bytes().all(legal) && profile.len() <= MAX_SESSION
}

fn busy(full: NoShare) -> Response<Body> {
    let NoShare { key, own } = full;
    let text = format!("there are as many as may be; to allow more: [serve.limits] {key} = …");
    let status = if own { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::SERVICE_UNAVAILABLE };
    answer::later(status, text, SOON)
}
