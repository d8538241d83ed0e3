//! Which requests of the admin listener are served.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::Response;
use parking_lot::Mutex;
use toolbay_core::audit::edits::describe_edits;
use toolbay_core::audit::{RequestRecord, cut};
use toolbay_policy::admin::{AdminAddress, AdminPolicy, MetricsAccess};
use toolbay_policy::excerpt::one_line;
use toolbay_policy::quantity::show_duration;
use toolbay_state::digest::Digest;

use crate::attempts::AttemptLimiter;
use crate::control::ServerControl;
use crate::listener::PeerAddress;
use crate::operator::Operator;
use crate::paths;
use crate::session::Sessions;
use crate::tokens::{AdminToken, MAX_NAME, Role};

/// What made a browser send a request (W3C Fetch Metadata).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// What decides about the requests of the admin listener.
#[derive(Clone)]
pub(crate) struct AdminGate {
    pub(crate) control: ServerControl,
    pub(crate) sessions: Arc<Sessions>,
    tokens: PathBuf,
    attempts: Arc<AttemptLimiter>,
    /// The tokens that were read last.
    known: Arc<Mutex<Option<BTreeMap<String, String>>>>,
    metrics: MetricsAccess,
    /// Accepted `Host` headers; `None` for a socket, which no page can reach.
    hosts: Option<Arc<[String]>>,
}

/// Why a request is refused.
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// When the client may try again.
    pub(crate) retry_after: Option<Duration>,
}

impl Refusal {
    fn new(status: StatusCode, reason: &'static str, message: &str) -> Self {
        Self { status, reason, message: message.to_owned(), retry_after: None }
    }
}

impl AdminGate {
    /// A gate for a listener at `address`.
    pub(crate) fn new(control: ServerControl, policy: &AdminPolicy, address: Option<SocketAddr>) -> Self {
        let names = |address: SocketAddr| {
            let port = address.port();
            [address.to_string(), format!("localhost:{port}")].into()
        };
        let hosts = match policy.listen {
            AdminAddress::Loopback(_) => Some(address.map_or_else(|| [].into(), names)),
            AdminAddress::Socket(_) => None,
        };
        let sessions = Arc::new(Sessions::new(address.map(|address| address.port())));
        let (attempts, known, tokens) = (Arc::default(), Arc::default(), policy.tokens.clone());
        Self { control, sessions, tokens, attempts, known, metrics: policy.metrics, hosts }
    }

    /// The operator of a request; `None` for what everybody may see.
    pub(crate) fn authorize(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        peer: PeerAddress,
    ) -> Result<Option<Operator>, Refusal> {
        self.check_host(headers)?;
        let is_open = paths::is_open(path) || (path == "/metrics" && self.metrics == MetricsAccess::Open);
        let bearer = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        if bearer.is_none() {
            // A browser sends cookies, also when another page made it send the request.
            check_site(method, headers)?;
        }
        if is_open {
            return Ok(None);
        }
        let (session, hash) = match bearer {
            Some(secret) => (None, Digest::of(secret)),
            None => {
                let (session, hash) = self.sessions.find(headers).ok_or_else(|| {
                    let message = "sign in, or send `Authorization: Bearer TOKEN`";
                    Refusal::new(StatusCode::UNAUTHORIZED, "token_missing", message)
                })?;
                (Some(session), hash)
            }
        };
        let token = self.find_token(&hash, self.client(peer, headers))?;
        if token.role < Role::Operate && is_unsafe(method) && path != paths::SIGN_OUT {
            let message = format!("the token `{}` has the role `view`, which changes nothing", token.name);
            return Err(Refusal::new(StatusCode::FORBIDDEN, "role", &message));
        }
        self.record_operator(token.role);
        let name = format!("token:{}", token.name).into();
        Ok(Some(Operator { name, role: token.role, session }))
    }

    /// Notes that a person or program is there, so that questions wait for those who may answer.
    pub(crate) fn record_operator(&self, role: Role) {
        if role == Role::Operate
            && let Some(admin) = self.control.admin()
        {
            admin.questions.record_operator();
        }
    }

    /// The address of a client: that of its connection, or what a trusted proxy says (`[serve] trusted_proxies`).
    pub(crate) fn client(&self, peer: PeerAddress, headers: &HeaderMap) -> Option<IpAddr> {
        let proxies = &self.control.host().policy();
        peer.0.map(|peer| toolbay::mcp::http::client_address(peer, headers, &proxies.serve().trusted_proxies))
    }

    /// The token with a hash, unless its client made too many attempts. Blocks.
    pub(crate) fn find_token(&self, hash: &Digest, client: Option<IpAddr>) -> Result<AdminToken, Refusal> {
        self.attempts.begin(hash, client).map_err(|wait| {
            let wait = Duration::from_secs(wait.as_secs().saturating_add(1));
            let message = format!("too many wrong tokens; try again in {}", show_duration(wait));
            let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "wrong_tokens", &message);
            Refusal { retry_after: Some(wait), ..refusal }
        })?;
        let found = self.look_up(hash);
        match &found {
            Ok(_) => self.attempts.end(hash, true),
            Err(refusal) if refusal.status == StatusCode::UNAUTHORIZED => self.attempts.end(hash, false),
            // The file cannot be read: that says nothing about the token.
            Err(_) => {}
        }
        found
    }

    fn look_up(&self, hash: &Digest) -> Result<AdminToken, Refusal> {
        let tokens = AdminToken::read_all(&self.tokens).map_err(|problem| {
            tracing::error!(file = %self.tokens.display(), %problem, "no token of the admin listener is accepted");
            let message = "the tokens cannot be read; see the log";
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "tokens", message)
        })?;
        self.record_edits(&tokens);
        let unknown = || Refusal::new(StatusCode::UNAUTHORIZED, "token_unknown", "the token is unknown");
        AdminToken::find(tokens, hash).ok_or_else(unknown)
    }

    /// Records which tokens were added, removed and changed since they were read last.
    fn record_edits(&self, tokens: &[AdminToken]) {
        let now: BTreeMap<String, String> =
            tokens.iter().map(|token| (token.name.clone(), token.fingerprint())).collect();
        let mut known = self.known.lock();
        let edits = known.as_ref().and_then(|before| describe_edits(before, &now));
        *known = Some(now);
        drop(known);
        if let Some(edits) = edits {
            self.control.record("admin_tokens", None, Some(&edits), "file");
        }
    }

    /// Records a refusal.
    pub(crate) fn record(
        &self,
        refusal: &Refusal,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        peer: PeerAddress,
    ) {
        let client = match self.client(peer, headers) {
            Some(address) if address.is_loopback() => "admin, loopback".to_owned(),
            Some(address) => format!("admin, {address}"),
            None => "admin, socket".to_owned(),
        };
        self.control.host().pipeline().audit().record_request(RequestRecord {
            client,
            token: None,
            reason: refusal.reason,
            status: refusal.status.as_u16(),
            method: cut(method.as_str()),
            path: cut(path),
            host: headers.get(HOST).map(|host| cut(&String::from_utf8_lossy(host.as_bytes()))),
        });
    }

    /// Refuses requests that a page of another origin or another name of this address brought here.
    fn check_host(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(hosts) = &self.hosts else { return Ok(()) };
        let host = text(headers, &HOST).unwrap_or_default();
        if !hosts.iter().any(|known| known.eq_ignore_ascii_case(host)) {
            let message = format!("the host `{}` is not that of this listener", one_line(host, MAX_NAME));
            return Err(Refusal::new(StatusCode::FORBIDDEN, "host", &message));
        }
        match headers.contains_key(ORIGIN) && !is_own_origin(headers) {
            true => Err(Refusal::new(StatusCode::FORBIDDEN, "origin", "pages of other origins are refused")),
            false => Ok(()),
        }
    }
}

/// Refuses a request that a page of another origin made a browser send: another site, or another port of this host. A
/// link there may open a page here.
fn check_site(method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
    let site = text(headers, &FETCH_SITE);
    let is_own = match site {
        Some(site) => site == "same-origin" || (site == "none" && !is_unsafe(method)),
        // Not a browser, or one from before 2023, which sends `Origin` with unsafe methods.
        None => !is_unsafe(method) || is_own_origin(headers),
    };
    let is_link = !is_unsafe(method) && text(headers, &FETCH_MODE) == Some("navigate");
    match is_own || is_link {
        true => Ok(()),
        false => Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "origin",
            "requests of pages of other origins are refused",
        )),
    }
}

/// Whether `Origin` names the host of the request. A reverse proxy with TLS keeps `Host`.
fn is_own_origin(headers: &HeaderMap) -> bool {
    let origin = text(headers, &ORIGIN).and_then(|origin| origin.split_once("://"));
    let host = text(headers, &HOST).unwrap_or_default();
    origin.is_some_and(|(_, of)| !host.is_empty() && of.eq_ignore_ascii_case(host))
}

pub(crate) fn is_unsafe(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Says when the client may try again.
pub(crate) fn add_retry_after(response: &mut Response, wait: Option<Duration>) {
    if let Some(wait) = wait {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
    }
}
