//! Authenticates the requests of the admin listener, and refuses others in the form that the client reads.

use axum::extract::{Request, State};
use axum::http::header::{LOCATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::api::ApiError;
use crate::gate::{AdminGate, Refusal, add_retry_after, is_unsafe};
use crate::listener::PeerAddress;
use crate::{page, paths};

/// Lets requests of operators through to the admin listener, with their operator.
pub(crate) async fn authenticate(
    State(gate): State<AdminGate>,
    mut request: Request,
    next: Next,
) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let headers = request.headers().clone();
    let peer = request.extensions().get::<PeerAddress>().copied().unwrap_or_default();
    // It reads a file.
    let decided = tokio::task::spawn_blocking(move || {
        let authorized = gate.authorize(&method, &path, &headers, peer);
        authorized.map_err(|refusal| Box::new(refuse(&gate, refusal, &method, &path, &headers, peer)))
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

/// Records a refusal, and makes its response. A browser without a session gets the sign-in page instead.
fn refuse(
    gate: &AdminGate,
    refusal: Refusal,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    peer: PeerAddress,
) -> Response {
    let is_page = paths::is_page(path);
    if is_page && refusal.reason == "token_missing" && !is_unsafe(method) {
        return (StatusCode::SEE_OTHER, [(LOCATION, paths::SIGN_IN)]).into_response();
    }
    gate.record(&refusal, method, path, headers, peer);
    let Refusal { status, reason, message, retry_after } = refusal;
    let mut response = match is_page {
        true => page::refusal(status, &message),
        false => ApiError::new(status, reason, message).into_response(),
    };
    add_retry_after(&mut response, retry_after);
    if !is_page && status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
