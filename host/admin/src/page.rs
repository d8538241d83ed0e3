//! The page of operators: what runs, what ended, what was refused, what waits for a decision, and the tools.
//!
//! Everything is rendered here and works without a script; the script only refreshes what is on the screen. Texts of
//! guests and callers are data: the templates escape HTML, and `plain` escapes invisible characters.

mod assets;
mod budgets;
mod call;
mod calls;
mod chart;
mod form;
mod layout;
mod now;
mod pending;
mod plugins;
mod refused;
mod sign_in;
mod tool;
mod tools;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};

use crate::gate::AdminGate;
use crate::paths;

pub(crate) use layout::security_headers;

/// Largest body of a form, in bytes: arguments of a call that a person tries.
const MAX_FORM: usize = 1 << 20;

/// The page that says why a request was refused.
pub(crate) fn refusal(status: StatusCode, message: &str) -> Response {
    let body = maud::html! { p { (layout::plain(message)) } p { a href="/" { "Start page" } } };
    layout::bare(status, "Refused", &body)
}

/// The routes.
pub(crate) fn router(gate: AdminGate) -> Router {
    Router::new()
        .route("/", get(now::show))
        .route("/stop", post(now::stop))
        .route("/resume", post(now::resume))
        .route("/reload", post(now::reload))
        .route("/running/{number}/cancel", post(now::cancel))
        .route("/calls", get(calls::show))
        .route("/calls/{number}", get(call::show))
        .route("/refused", get(refused::show))
        .route("/pending", get(pending::show))
        .route("/pending/questions/{number}/approve", post(pending::approve))
        .route("/pending/questions/{number}/refuse", post(pending::refuse))
        .route("/pending/plugins/{id}/grant", post(pending::grant))
        .route("/plugins", get(plugins::list))
        .route("/plugins/{id}", get(plugins::show))
        .route("/tools", get(tools::show))
        .route("/tools/{name}", get(tool::show))
        .route("/tools/{name}/call", post(tool::call))
        .route("/tools/{name}/disable", post(tool::disable))
        .route("/tools/{name}/enable", post(tool::enable))
        .route("/budgets", get(budgets::show))
        .route(paths::SIGN_IN, get(sign_in::show).post(sign_in::sign_in))
        .route(paths::SIGN_OUT, post(sign_in::sign_out))
        .route(paths::STYLE, get(assets::style))
        .route(paths::SCRIPT, get(assets::script))
        .route(paths::ICON, get(assets::icon))
        .layer(DefaultBodyLimit::max(MAX_FORM))
        .with_state(gate)
}
