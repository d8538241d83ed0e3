//! Signing in with a token, and out.

use axum::Extension;
use axum::extract::{Form, State};
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;
use maud::html;
use serde::Deserialize;
use toolbay_state::digest::Digest;

use super::layout::{bare, redirect};
use crate::gate::{AdminGate, Refusal, add_retry_after};
use crate::listener::PeerAddress;
use crate::operator::Operator;
use crate::paths;

#[derive(Deserialize)]
pub(super) struct SignInForm {
    token: String,
}

pub(super) async fn show() -> Response {
    page(StatusCode::OK, None)
}

pub(super) async fn sign_in(
    State(gate): State<AdminGate>,
    peer: Option<Extension<PeerAddress>>,
    headers: HeaderMap,
    Form(SignInForm { token }): Form<SignInForm>,
) -> Response {
    let hash = Digest::of(token.trim().as_bytes());
    let peer = peer.map(|Extension(peer)| peer).unwrap_or_default();
    let found = tokio::task::spawn_blocking({
        let gate = gate.clone();
        move || {
            let client = gate.client(peer, &headers);
            gate.find_token(&hash, client)
                .inspect_err(|refusal| gate.record(refusal, &Method::POST, paths::SIGN_IN, &headers, peer))
        }
    });
    match found.await {
        Ok(Ok(token)) => gate.record_operator(token.role),
        Ok(Err(Refusal { status, message, retry_after, .. })) => {
            let mut response = page(status, Some(&message));
            add_retry_after(&mut response, retry_after);
            return response;
        }
        Err(error) => return page(StatusCode::INTERNAL_SERVER_ERROR, Some(&error.to_string())),
    }
    match gate.sessions.open(hash) {
        Ok(cookie) => with_cookie("/", &cookie),
        Err(error) => page(StatusCode::INTERNAL_SERVER_ERROR, Some(&error.to_string())),
    }
}

pub(super) async fn sign_out(
    State(gate): State<AdminGate>,
    Extension(operator): Extension<Operator>,
) -> Response {
    match &operator.session {
        Some(session) => with_cookie(paths::SIGN_IN, &gate.sessions.close(session)),
        None => redirect(paths::SIGN_IN),
    }
}

fn with_cookie(to: &str, cookie: &str) -> Response {
    let mut response = redirect(to);
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

fn page(status: StatusCode, problem: Option<&str>) -> Response {
    let form = html! {
        @if let Some(problem) = problem { p.alarm role="alert" { (problem) } }
        form method="post" action=(paths::SIGN_IN) {
            label for="token" { "Token" }
            input #token name="token" type="password" autocomplete="current-password" required autofocus;
            button { "Sign in" }
        }
        p.quiet { "The tokens are in the file that " code { "[admin] tokens" } " of the policy names." }
    };
    bare(status, "Sign in", &form)
}
