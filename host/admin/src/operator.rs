//! Who sends a request, and what they may do.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use toolbay::Host;
use toolbay_core::audit::{RequestRecord, cut};
use toolbay_policy::admin::{AdminAddress, AdminPolicy, MetricsAccess};
use toolbay_policy::text::one_line;

use crate::api::ApiError;

/// The header in which the command line names its user.
pub(crate) const OPERATOR_HEADER: &str = "toolbay-operator";
/// Longest name of an operator, in characters.
const MAX_NAME: usize = 100;
/// Most tokens in a file. Each token of a request is compared with all of them.
const MAX_TOKENS: usize = 1000;

/// The person or program that sends a request.
#[derive(Debug, Clone)]
pub(crate) struct Operator(pub(crate) Arc<str>);

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    /// Reading.
    View,
    /// Reading and acting.
    Operate,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFile {
    #[serde(default)]
    token: Vec<AdminToken>,
}

/// A token of an operator. The file has its hash only.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdminToken {
    name: String,
    sha256: String,
    role: Role,
}

impl AdminToken {
    /// Reads a file of tokens.
    fn read_all(file: &Path) -> Result<Vec<Self>, String> {
        let text = toolbay::mcp::read_token_file(file)?;
        // The full TOML error quotes the line, which may contain a secret.
        let TokenFile { token: tokens } =
            toml::from_str(&text).map_err(|error| error.message().to_owned())?;
        if tokens.len() > MAX_TOKENS {
            return Err(format!("more than {MAX_TOKENS} tokens"));
        }
        for token in &tokens {
            let legal = |c: char| c.is_ascii_alphanumeric() || "_-.@".contains(c);
            if token.name.is_empty() || token.name.len() > MAX_NAME || !token.name.chars().all(legal) {
                return Err(format!(
                    "`name` must have 1 to {MAX_NAME} letters, digits, `_`, `-`, `.` or `@`"
                ));
            }
            if token.sha256.len() != 64 || !token.sha256.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(format!("`sha256` of `{}` is not 64 hex digits", token.name));
            }
        }
        Ok(tokens)
    }

    /// Finds the token of a request, in constant time.
    fn find(tokens: Vec<Self>, secret: &[u8]) -> Option<Self> {
        let sha256 = format!("{:x}", Sha256::digest(secret));
        let is_it = |token: &Self| token.sha256.to_ascii_lowercase().as_bytes().ct_eq(sha256.as_bytes());
        let mut found = None;
        for token in tokens {
            if bool::from(is_it(&token)) {
                found = Some(token);
            }
        }
        found
    }
}

/// Checks the token file of a policy.
///
/// # Errors
/// The file cannot be read, its owner or mode is not trusted, or it is invalid.
pub fn check_tokens(file: &Path) -> Result<(), String> {
    AdminToken::read_all(file).map(drop)
}

/// What decides about the requests of the admin listener.
#[derive(Clone)]
pub(crate) struct AdminGate {
    host: Host,
    tokens: PathBuf,
    metrics: MetricsAccess,
    /// Accepted `Host` headers; `None` for a socket, which no page can reach.
    hosts: Option<Arc<[String]>>,
}

/// Why a request is refused.
struct Refusal {
    status: StatusCode,
    reason: &'static str,
    message: String,
}

impl AdminGate {
    /// A gate for a listener at `address`.
    pub(crate) fn new(host: Host, policy: &AdminPolicy, address: Option<SocketAddr>) -> Self {
        let names = |address: SocketAddr| {
            let port = address.port();
            [address.to_string(), format!("localhost:{port}")].into()
        };
        let hosts = match policy.listen {
            AdminAddress::Loopback(_) => Some(address.map_or_else(|| [].into(), names)),
            AdminAddress::Socket(_) => None,
        };
        Self { host, tokens: policy.tokens.clone(), metrics: policy.metrics, hosts }
    }

    /// The operator of a request; `None` for open metrics.
    fn admit(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<Option<Operator>, Refusal> {
        self.check_place(headers)?;
        if path == "/metrics" && self.metrics == MetricsAccess::Open {
            return Ok(None);
        }
        let refuse = |status, reason, message: &str| Refusal { status, reason, message: message.to_owned() };
        let bearer = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        let Some(secret) = bearer else {
            return Err(refuse(
                StatusCode::UNAUTHORIZED,
                "token_missing",
                "send `Authorization: Bearer TOKEN`",
            ));
        };
        let tokens = AdminToken::read_all(&self.tokens).map_err(|problem| {
            tracing::error!(file = %self.tokens.display(), %problem, "no token of the admin listener is accepted");
            refuse(StatusCode::SERVICE_UNAVAILABLE, "tokens", "the tokens cannot be read; see the log")
        })?;
        let Some(token) = AdminToken::find(tokens, secret) else {
            return Err(refuse(StatusCode::UNAUTHORIZED, "token_unknown", "the token is unknown"));
        };
        if token.role < Role::Operate && !matches!(*method, Method::GET | Method::HEAD) {
            let message = format!("the token `{}` has the role `view`, which changes nothing", token.name);
            return Err(refuse(StatusCode::FORBIDDEN, "role", &message));
        }
        Ok(Some(Operator(format!("token:{}", token.name).into())))
    }

    /// Records a refusal, and makes its response.
    fn refuse(&self, refusal: Refusal, method: &Method, path: &str, headers: &HeaderMap) -> Response {
        let Refusal { status, reason, message } = refusal;
        let client = if self.hosts.is_some() { "admin, loopback" } else { "admin, socket" };
        self.host.pipeline().audit().record_request(RequestRecord {
            client: client.to_owned(),
            reason,
            status: status.as_u16(),
            method: cut(method.as_str()),
            path: cut(path),
            host: headers.get(HOST).map(|host| cut(&String::from_utf8_lossy(host.as_bytes()))),
        });
        let mut response = ApiError::new(status, reason, message).into_response();
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }

    /// Refuses requests that a page of another origin or another name of this address brought here.
    fn check_place(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(hosts) = &self.hosts else { return Ok(()) };
        let text =
            |value: Option<&HeaderValue>| value.and_then(|value| value.to_str().ok().map(str::to_owned));
        let host = text(headers.get(HOST)).unwrap_or_default();
        if !hosts.iter().any(|known| known.eq_ignore_ascii_case(&host)) {
            let message = format!("the host `{}` is not that of this listener", one_line(&host, MAX_NAME));
            return Err(Refusal { status: StatusCode::FORBIDDEN, reason: "host", message });
        }
        let is_own =
            |origin: &str| origin.strip_prefix("http://").is_some_and(|of| of.eq_ignore_ascii_case(&host));
        match headers.get(ORIGIN) {
            Some(origin) if !origin.to_str().is_ok_and(is_own) => Err(Refusal {
                status: StatusCode::FORBIDDEN,
                reason: "origin",
                message: "pages of other origins are refused".to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

/// Admits the requests of the admin listener.
pub(crate) async fn authenticate(
    State(gate): State<AdminGate>,
    mut request: Request,
    next: Next,
) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let headers = request.headers().clone();
    // It reads a file.
    let decided = tokio::task::spawn_blocking(move || {
        let admitted = gate.admit(&method, &path, &headers);
        admitted.map_err(|refusal| Box::new(gate.refuse(refusal, &method, &path, &headers)))
    });
    match decided.await {
        Ok(Ok(Some(operator))) => drop(request.extensions_mut().insert(operator)),
        Ok(Ok(None)) => {}
        Ok(Err(refused)) => return *refused,
        Err(error) => {
            let failed = StatusCode::INTERNAL_SERVER_ERROR;
            return ApiError::new(failed, "failed", error.to_string()).into_response();
        }
    }
    next.run(request).await
}

/// Names the user of the control socket, who may do everything.
pub(crate) async fn identify(mut request: Request, next: Next) -> Response {
    let name = request.headers().get(OPERATOR_HEADER).map(|name| String::from_utf8_lossy(name.as_bytes()));
    let name = name.map_or_else(|| "unnamed".to_owned(), |name| one_line(&name, MAX_NAME));
    request.extensions_mut().insert(Operator(name.into()));
    next.run(request).await
}
