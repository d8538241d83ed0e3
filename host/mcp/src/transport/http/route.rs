//! Which path is what.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::ALLOW;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use percent_encoding::percent_decode_str;
use toolbay_policy::serve::Serve;

use super::State;
use super::connections::{HttpConnection, network};
use super::refused::RequestSummary;
use super::{answer, forwarded, request_checks};

/// Where the metadata of a protected resource is (RFC 9728); the path of the resource follows.
const METADATA: &str = "/.well-known/oauth-protected-resource";

/// From where a request came.
#[derive(Debug, Clone)]
pub(super) struct Source {
    /// The other end of the connection.
    peer: IpAddr,
    /// Who that is where nobody is asked.
    anonymous: Arc<str>,
    pub(super) connection: Arc<HttpConnection>,
}

impl Source {
    /// What comes over a connection from `peer`.
    pub(super) fn of(peer: IpAddr, connection: &Arc<HttpConnection>) -> Self {
        let (peer, connection) = (peer.to_canonical(), Arc::clone(connection));
        Self { peer, anonymous: anonymous(peer), connection }
    }

    /// The address of the client that sent a request with these headers: that of the connection, or what a trusted
    /// proxy says.
    pub(super) fn client_address(&self, headers: &HeaderMap, serve: &Serve) -> IpAddr {
        if serve.trusted_proxies.is_empty() {
            return self.peer;
        }
        forwarded::client_address(self.peer, headers, &serve.trusted_proxies)
    }

    /// Who a client at this address is where nobody is asked.
    pub(super) fn anonymous(&self, client: IpAddr) -> Arc<str> {
        if client == self.peer { Arc::clone(&self.anonymous) } else { anonymous(client) }
    }
}

fn anonymous(address: IpAddr) -> Arc<str> {
    format!("anonymous:{}", network(address)).into()
}

/// What is at a path.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Endpoint(Option<String>),
    Health,
    Readiness,
    Metadata(Option<String>),
}

impl Place {
    fn at(path: &str) -> Option<Self> {
        match path {
            "/mcp" => return Some(Self::Endpoint(None)),
            "/healthz" => return Some(Self::Health),
            "/readyz" => return Some(Self::Readiness),
            _ => {}
        }
        if let Some(profile) = path.strip_prefix("/mcp/") {
            return Some(Self::Endpoint(Some(name(profile)?)));
        }
        match path.strip_prefix(METADATA)? {
            "" | "/mcp" => Some(Self::Metadata(None)),
            rest => Some(Self::Metadata(Some(name(rest.strip_prefix("/mcp/")?)?))),
        }
    }
}

/// The name that is one part of a path.
fn name(part: &str) -> Option<String> {
    if part.is_empty() || part.contains('/') {
        return None;
    }
    percent_decode_str(part).decode_utf8().ok().map(String::from)
}

/// The answer to a request. One that refuses it is recorded.
pub(super) async fn answer(state: &Arc<State>, request: Request<Body>) -> Response<Body> {
    let client = client_address(state, &request);
    let summary = RequestSummary::of(&request);
    let response = respond(state, request).await;
    let audit = &**state.server.pipeline.audit();
    let client = || client.map_or_else(String::new, |client| client.to_string());
    state.refused.record(audit, client, summary, &response);
    response
}

/// The address of the client that sent a request.
fn client_address(state: &State, request: &Request<Body>) -> Option<IpAddr> {
    let source = request.extensions().get::<Source>()?;
    Some(source.client_address(request.headers(), &state.settings.load().serve))
}

async fn respond(state: &Arc<State>, request: Request<Body>) -> Response<Body> {
    match Place::at(request.uri().path()) {
        Some(Place::Endpoint(profile)) => request_checks::serve(state, profile.as_deref(), request).await,
        Some(_) if !matches!(*request.method(), Method::GET | Method::HEAD) => not_allowed(),
        Some(Place::Health) => answer::text(StatusCode::OK, "ok"),
        Some(Place::Readiness) => ready(state),
        Some(Place::Metadata(profile)) => metadata(state, profile.as_deref(), &request),
        None => answer::text(StatusCode::NOT_FOUND, "there is nothing here; tools are at /mcp"),
    }
}

fn not_allowed() -> Response<Body> {
    let mut response = answer::text(StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET,HEAD"));
    response
}

/// Whether requests should be sent here: the plugins are loaded, and the end has not begun.
fn ready(state: &State) -> Response<Body> {
    if state.ends.drain.is_cancelled() {
        return answer::text(StatusCode::SERVICE_UNAVAILABLE, "draining");
    }
    if !state.server.is_loaded() {
        return answer::text(StatusCode::SERVICE_UNAVAILABLE, "loading plugins");
    }
    let Some(health) = state.server.pipeline.audit().health() else {
        return answer::text(StatusCode::OK, "ready");
    };
    // Where calls need the audit and it cannot be written, every call is refused.
    let refuses = health.problem.is_some() && state.server.pipeline.requires_audit();
    let (status, ready) = match refuses {
        true => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
        false => (StatusCode::OK, "ready"),
    };
    let now =
        health.problem.map(|problem| format!("; it cannot be written now: {problem}")).unwrap_or_default();
    answer::text(status, format!("{ready}\naudit: {} records are missing{now}", health.lost))
}

fn metadata(state: &State, profile: Option<&str>, request: &Request<Body>) -> Response<Body> {
    request_checks::metadata(state, profile, request.method(), request.uri(), request.headers())
}

/// The address of the metadata for the endpoint of a profile.
pub(super) fn metadata_address(base: &str, profile: Option<&str>) -> String {
    match profile {
        Some(profile) => format!("{base}{METADATA}/mcp/{profile}"),
        None => format!("{base}{METADATA}/mcp"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_place_or_nothing() {
        let named = |name: &str| Some(name.to_owned());
        for (path, expect) in [
            ("/mcp", Some(Place::Endpoint(None))),
            ("/mcp/a", Some(Place::Endpoint(named("a")))),
            ("/mcp/%61%2fb", Some(Place::Endpoint(named("a/b")))),
            ("/healthz", Some(Place::Health)),
            ("/readyz", Some(Place::Readiness)),
            ("/.well-known/oauth-protected-resource", Some(Place::Metadata(None))),
            ("/.well-known/oauth-protected-resource/mcp", Some(Place::Metadata(None))),
            ("/.well-known/oauth-protected-resource/mcp/a", Some(Place::Metadata(named("a")))),
        ] {
            assert_eq!(Place::at(path), expect, "{path}");
        }
        for nothing in [
            "",
            "/",
            "/mcp/",
            "/mcp/a/",
            "/mcp/a/b",
            "/mcp/%ff",
            "/MCP",
            "/healthz/",
            "//mcp",
            "/mcpx",
            "/.well-known/oauth-protected-resource/",
            "/.well-known/oauth-protected-resource/mcp/",
            "/.well-known/oauth-protected-resource/other",
        ] {
            assert_eq!(Place::at(nothing), None, "{nothing}");
        }
    }
}
