//! Which path is what.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Method, Response, StatusCode, Uri};
use axum::routing::{any, get};

use super::State as Shared;
use super::connections::Connection;
use super::{answer, front};

/// Where the metadata of a protected resource is (RFC 9728); the path of the resource follows.
const METADATA: &str = "/.well-known/oauth-protected-resource";

/// From where a request came.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) peer: IpAddr,
    pub(super) connection: Arc<Connection>,
}

/// All paths.
pub(super) fn router(state: Arc<Shared>) -> Router {
    Router::new()
        .route("/mcp", any(whole))
        .route("/mcp/{profile}", any(profile))
        .route("/healthz", get(|| async { answer::text(StatusCode::OK, "ok") }))
        .route("/readyz", get(ready))
        .route(METADATA, get(metadata))
        .route(&format!("{METADATA}/mcp"), get(metadata))
        .route(&format!("{METADATA}/mcp/{{profile}}"), get(metadata_of_profile))
        .fallback(|| async {
            answer::text(StatusCode::NOT_FOUND, "there is nothing here; tools are at /mcp")
        })
        .with_state(state)
}

async fn whole(State(state): State<Arc<Shared>>, request: Request) -> Response<Body> {
    front::serve(&state, None, request).await
}

async fn profile(
    State(state): State<Arc<Shared>>,
    Path(profile): Path<String>,
    request: Request,
) -> Response<Body> {
    front::serve(&state, Some(&profile), request).await
}

/// Whether requests should be sent here: the plugins are loaded, and the end has not begun.
async fn ready(State(state): State<Arc<Shared>>) -> Response<Body> {
    if state.ends.drain.is_cancelled() {
        return answer::text(StatusCode::SERVICE_UNAVAILABLE, "draining");
    }
    if !state.server.is_loaded() {
        return answer::text(StatusCode::SERVICE_UNAVAILABLE, "loading plugins");
    }
    answer::text(StatusCode::OK, "ready")
}

async fn metadata(
    State(state): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response<Body> {
    front::metadata(&state, None, &method, &uri, &headers)
}

async fn metadata_of_profile(
    State(state): State<Arc<Shared>>,
    Path(profile): Path<String>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response<Body> {
    front::metadata(&state, Some(&profile), &method, &uri, &headers)
}

/// The address of the metadata for the endpoint of a profile.
pub(super) fn metadata_address(base: &str, profile: Option<&str>) -> String {
    match profile {
        Some(profile) => format!("{base}{METADATA}/mcp/{profile}"),
        None => format!("{base}{METADATA}/mcp"),
    }
}
