//! Routes requests by path.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::ALLOW;
use axum::http::{HeaderValue, Method, Request, Response, StatusCode};
use percent_encoding::percent_decode_str;

use super::HttpState;
use super::refusals::{RequestSummary, with_reason};
use super::request_checks::{self, METADATA_PATH, is_preflight};
use super::request_source::RequestSource;
use super::{headers, responses};

/// The target of a path.
#[derive(Debug, PartialEq, Eq)]
enum Route {
    Endpoint(Option<String>),
    Health,
    Readiness,
    Metadata(Option<String>),
}

impl Route {
    fn parse(path: &str) -> Option<Self> {
        match path {
            "/mcp" => return Some(Self::Endpoint(None)),
            "/healthz" => return Some(Self::Health),
            "/readyz" => return Some(Self::Readiness),
            _ => {}
        }
        if let Some(profile) = path.strip_prefix("/mcp/") {
            return Some(Self::Endpoint(Some(path_segment(profile)?)));
        }
        match path.strip_prefix(METADATA_PATH)? {
            "" | "/mcp" => Some(Self::Metadata(None)),
            rest => Some(Self::Metadata(Some(path_segment(rest.strip_prefix("/mcp/")?)?))),
        }
    }
}

/// Decodes a name that is one path segment.
fn path_segment(part: &str) -> Option<String> {
    if part.is_empty() || part.contains('/') {
        return None;
    }
    percent_decode_str(part).decode_utf8().ok().map(String::from)
}

/// Responds to a request, and records refusals.
pub(super) async fn handle(state: &Arc<HttpState>, request: Request<Body>) -> Response<Body> {
    let client = client_address(state, &request);
    let summary = RequestSummary::from_request(&request);
    let response = respond(state, request).await;
    let audit = &**state.server.pipeline.audit();
    let client = || client.map_or_else(String::new, |client| client.to_string());
    state.refused.record(audit, client, summary, &response);
    response
}

/// The client address of a request.
fn client_address(state: &HttpState, request: &Request<Body>) -> Option<IpAddr> {
    let source = request.extensions().get::<RequestSource>()?;
    Some(source.client_address(request.headers(), &state.settings.load().serve))
}

async fn respond(state: &Arc<HttpState>, mut request: Request<Body>) -> Response<Body> {
    let route = Route::parse(request.uri().path());
    if let Err(error) = headers::merge_repeated(request.headers_mut()) {
        let status = StatusCode::BAD_REQUEST;
        let refusal = match route {
            Some(Route::Endpoint(_)) => responses::from_error(status, &error, None),
            _ => responses::problem(status, error.message),
        };
        return with_reason(refusal, "headers");
    }
    match route {
        Some(Route::Endpoint(profile)) => request_checks::serve(state, profile.as_deref(), request).await,
        // The headers that clients of MCP send make a browser ask first.
        Some(Route::Metadata(_)) if is_preflight(&request) => {
            request_checks::answer_preflight(state, request.uri(), request.headers())
        }
        Some(_) if !matches!(*request.method(), Method::GET | Method::HEAD) => method_not_allowed(),
        Some(Route::Health) => responses::text(StatusCode::OK, "ok"),
        Some(Route::Readiness) => readiness(state),
        Some(Route::Metadata(profile)) => metadata(state, profile.as_deref(), &request),
        None => responses::problem(StatusCode::NOT_FOUND, "not found; the MCP endpoint is /mcp"),
    }
}

fn method_not_allowed() -> Response<Body> {
    let mut response = responses::problem(StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET,HEAD"));
    response
}

/// The readiness of the server: plugins are loaded, no shutdown has begun, and calls can run.
fn readiness(state: &HttpState) -> Response<Body> {
    let unready = |text: String| responses::text(StatusCode::SERVICE_UNAVAILABLE, text);
    if state.shutdown.drain.is_cancelled() {
        return unready("draining".to_owned());
    }
    if !state.server.is_loaded() {
        return unready("loading plugins".to_owned());
    }
    if let Some(problem) = state.server.serving_problem() {
        return unready(format!("not ready\n{problem}"));
    }
    let Some(health) = state.server.pipeline.audit().health() else {
        return responses::text(StatusCode::OK, "ready");
    };
    // If the policy requires the audit and it cannot be written, every call is refused.
    let refuses = health.problem.is_some() && state.server.pipeline.requires_audit();
    let now =
        health.problem.map(|problem| format!("; it cannot be written now: {problem}")).unwrap_or_default();
    let audit = format!("audit: {} records are missing{now}", health.lost);
    match refuses {
        true => unready(format!("not ready\n{audit}")),
        false => responses::text(StatusCode::OK, format!("ready\n{audit}")),
    }
}

fn metadata(state: &HttpState, profile: Option<&str>, request: &Request<Body>) -> Response<Body> {
    request_checks::resource_metadata(state, profile, request.method(), request.uri(), request.headers())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_paths_are_routed() {
        let named = |name: &str| Some(name.to_owned());
        for (path, expect) in [
            ("/mcp", Some(Route::Endpoint(None))),
            ("/mcp/a", Some(Route::Endpoint(named("a")))),
            ("/mcp/%61%2fb", Some(Route::Endpoint(named("a/b")))),
            ("/healthz", Some(Route::Health)),
            ("/readyz", Some(Route::Readiness)),
            ("/.well-known/oauth-protected-resource", Some(Route::Metadata(None))),
            ("/.well-known/oauth-protected-resource/mcp", Some(Route::Metadata(None))),
            ("/.well-known/oauth-protected-resource/mcp/a", Some(Route::Metadata(named("a")))),
        ] {
            assert_eq!(Route::parse(path), expect, "{path}");
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
            assert_eq!(Route::parse(nothing), None, "{nothing}");
        }
    }
}
