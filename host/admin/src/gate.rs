//! Which requests of the admin listener are served.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode};
use toolbay_core::audit::{RequestRecord, cut};
use toolbay_policy::admin::{AdminAddress, AdminPolicy, MetricsAccess};
use toolbay_policy::text::one_line;

use crate::control::ServerControl;
use crate::operator::Operator;
use crate::paths;
use crate::session::Sessions;
use crate::tokens::{AdminToken, MAX_NAME, Role, TokenHash};

/// What made a browser send a request (W3C Fetch Metadata).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// What decides about the requests of the admin listener.
#[derive(Clone)]
pub(crate) struct AdminGate {
    pub(crate) control: ServerControl,
    pub(crate) sessions: Arc<Sessions>,
    tokens: PathBuf,
    metrics: MetricsAccess,
    /// Accepted `Host` headers; `None` for a socket, which no page can reach.
    hosts: Option<Arc<[String]>>,
}

/// Why a request is refused.
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Refusal {
    fn new(status: StatusCode, reason: &'static str, message: &str) -> Self {
        Self { status, reason, message: message.to_owned() }
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
        Self { control, sessions, tokens: policy.tokens.clone(), metrics: policy.metrics, hosts }
    }

    /// The operator of a request; `None` for what everybody may see.
    pub(crate) fn admit(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Option<Operator>, Refusal> {
        self.check_place(headers)?;
        let is_open = paths::is_open(path) || (path == "/metrics" && self.metrics == MetricsAccess::Open);
        let bearer = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        let (session, hash) = match bearer {
            Some(secret) => (None, TokenHash::of(secret)),
            None => {
                // A browser sends cookies, also when another page made it send the request.
                check_site(method, headers)?;
                match self.sessions.find(headers) {
                    Some((session, hash)) => (Some(session), hash),
                    None if is_open => return Ok(None),
                    None => {
                        let message = "sign in, or send `Authorization: Bearer TOKEN`";
                        return Err(Refusal::new(StatusCode::UNAUTHORIZED, "token_missing", message));
                    }
                }
            }
        };
        let token = match self.find_token(&hash) {
            Err(_) if is_open => return Ok(None),
            found => found?,
        };
        if token.role < Role::Operate && is_unsafe(method) && path != paths::SIGN_OUT && !is_open {
            let message = format!("the token `{}` has the role `view`, which changes nothing", token.name);
            return Err(Refusal::new(StatusCode::FORBIDDEN, "role", &message));
        }
        self.attend(token.role);
        let name = format!("token:{}", token.name).into();
        Ok(Some(Operator { name, role: token.role, session }))
    }

    /// Notes that a person or program is there, so that questions wait for those who may answer.
    pub(crate) fn attend(&self, role: Role) {
        if role == Role::Operate
            && let Some(admin) = self.control.admin()
        {
            admin.questions.attend();
        }
    }

    /// The token with a hash. Blocks.
    pub(crate) fn find_token(&self, hash: &TokenHash) -> Result<AdminToken, Refusal> {
        let tokens = AdminToken::read_all(&self.tokens).map_err(|problem| {
            tracing::error!(file = %self.tokens.display(), %problem, "no token of the admin listener is accepted");
            let message = "the tokens cannot be read; see the log";
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "tokens", message)
        })?;
        let unknown = || Refusal::new(StatusCode::UNAUTHORIZED, "token_unknown", "the token is unknown");
        AdminToken::find(tokens, hash).ok_or_else(unknown)
    }

    /// Records a refusal.
    pub(crate) fn record(&self, refusal: &Refusal, method: &Method, path: &str, headers: &HeaderMap) {
        let client = if self.hosts.is_some() { "admin, loopback" } else { "admin, socket" };
        self.control.host().pipeline().audit().record_request(RequestRecord {
            client: client.to_owned(),
            reason: refusal.reason,
            status: refusal.status.as_u16(),
            method: cut(method.as_str()),
            path: cut(path),
            host: headers.get(HOST).map(|host| cut(&String::from_utf8_lossy(host.as_bytes()))),
        });
    }

    /// Refuses requests that a page of another origin or another name of this address brought here.
    fn check_place(&self, headers: &HeaderMap) -> Result<(), Refusal> {
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
