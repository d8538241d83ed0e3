//! The routes of the control API, and the JSON that they take and return.

pub(crate) mod decisions;
mod events;
mod views;

use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::control::ServerControl;
use crate::operator::Operator;

/// Largest body of a request, in bytes.
pub(crate) const MAX_BODY: usize = 64 << 10;

/// The reason of an operator who gives none.
pub(crate) const NO_REASON: &str = "no reason was given";

/// The body of an action with a reason.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReasonRequest {
    /// The reason, which callers see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl ReasonRequest {
    fn reason_or_none(self) -> String {
        self.reason.unwrap_or_else(|| NO_REASON.to_owned())
    }
}

/// An error as the API returns it: `{"error": {"code": …, "message": …}}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ApiError {
    /// The code: `unknown_call`, `bad_request`, `unknown_route`, `failed`.
    pub code: String,
    /// What is wrong.
    pub message: String,
    #[serde(skip)]
    status: StatusCode,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), status }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(json!({ "error": self }))).into_response()
    }
}

impl From<JsonRejection> for ApiError {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), "bad_request", rejection.body_text())
    }
}

impl From<PathRejection> for ApiError {
    fn from(rejection: PathRejection) -> Self {
        Self::new(rejection.status(), "bad_request", rejection.body_text())
    }
}

pub(crate) type ApiResult = Result<Response, ApiError>;

/// The routes.
pub(crate) fn router(control: ServerControl) -> Router {
    Router::new()
        .route("/api/v1/server", get(server))
        .route("/api/v1/calls", get(calls))
        .route("/api/v1/calls/{number}/cancel", post(cancel))
        .route("/api/v1/stop", post(stop))
        .route("/api/v1/resume", post(resume))
        .route("/api/v1/reload", post(reload))
        .merge(views::router())
        .route("/api/v1/events", get(events::events))
        .merge(decisions::router())
        .route("/metrics", get(metrics))
        .fallback(async || ApiError::new(StatusCode::NOT_FOUND, "unknown_route", "there is no such route"))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(control)
}

async fn server(State(control): State<ServerControl>) -> Response {
    Json(control.info()).into_response()
}

async fn metrics(State(control): State<ServerControl>) -> Response {
    match control.admin() {
        Some(admin) => {
            ([(CONTENT_TYPE, admin.metrics_type)], (admin.metrics)(control.host())).into_response()
        }
        None => {
            let message = "metrics are off; the table [admin] of the policy switches them on";
            ApiError::new(StatusCode::NOT_FOUND, "metrics_off", message).into_response()
        }
    }
}

async fn calls(State(control): State<ServerControl>) -> Response {
    Json(control.calls()).into_response()
}

async fn cancel(
    State(control): State<ServerControl>,
    Extension(operator): Extension<Operator>,
    number: Result<Path<u64>, PathRejection>,
) -> ApiResult {
    let Path(number) = number?;
    match control.cancel(number, &operator.name) {
        Some(call) => Ok(Json(call).into_response()),
        None => Err(ApiError::new(
            StatusCode::NOT_FOUND,
            "unknown_call",
            format!("no call {number} is in progress; it may have ended"),
        )),
    }
}

async fn stop(
    State(control): State<ServerControl>,
    Extension(operator): Extension<Operator>,
    body: Result<Json<ReasonRequest>, JsonRejection>,
) -> ApiResult {
    let reason = body?.0.reason_or_none();
    let cancelled = blocking(move || control.stop(&reason, &operator.name)).await?;
    Ok(Json(json!({ "cancelled": cancelled })).into_response())
}

async fn resume(State(control): State<ServerControl>, Extension(operator): Extension<Operator>) -> ApiResult {
    let was_stopped = blocking(move || control.resume(&operator.name)).await?;
    Ok(Json(json!({ "was_stopped": was_stopped })).into_response())
}

async fn reload(State(control): State<ServerControl>, Extension(operator): Extension<Operator>) -> Response {
    control.reload(&operator.name);
    StatusCode::NO_CONTENT.into_response()
}

/// Runs an action that writes files.
pub(crate) async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, ApiError> {
    let failed = |problem: String| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", problem);
    tokio::task::spawn_blocking(act).await.map_err(|error| failed(error.to_string()))?.map_err(failed)
}
