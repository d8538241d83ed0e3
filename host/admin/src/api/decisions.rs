//! Decisions of operators: switches, answers to questions, grants.

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use serde::Deserialize;

use super::{ApiError, ApiResult, ReasonRequest, blocking};
use crate::control::ServerControl;
use crate::files::GrantError;
use crate::operator::Operator;

/// The body of a grant.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantRequest {
    /// The digest of the version that the operator saw.
    digest: String,
}

type Body<T> = Result<Json<T>, JsonRejection>;

pub(super) fn router() -> Router<ServerControl> {
    Router::new()
        .route("/api/v1/tools/{name}/disable", post(disable))
        .route("/api/v1/tools/{name}/enable", post(enable))
        .route("/api/v1/questions/{number}/approve", post(approve))
        .route("/api/v1/questions/{number}/refuse", post(refuse))
        .route("/api/v1/plugins/{id}/grant", post(grant))
}

async fn disable(
    State(control): State<ServerControl>,
    Extension(operator): Extension<Operator>,
    Path(name): Path<String>,
    body: Body<ReasonRequest>,
) -> ApiResult {
    switch(control, operator, name, Some(body?.0.reason_or_none())).await
}

async fn enable(
    State(control): State<ServerControl>,
    Extension(operator): Extension<Operator>,
    Path(name): Path<String>,
) -> ApiResult {
    switch(control, operator, name, None).await
}

/// Disables a tool with a reason, or enables it without one.
async fn switch(
    control: ServerControl,
    operator: Operator,
    tool: String,
    disabled: Option<String>,
) -> ApiResult {
    let is_known = control.has_tool(&tool);
    let switched = blocking(move || control.switch_tool(&tool, disabled.as_deref(), &operator.name)).await;
    // A tool that is gone may still have a switch.
    switched.map_err(|failed| match is_known {
        true => failed,
        false => ApiError::new(StatusCode::NOT_FOUND, "unknown_tool", failed.message),
    })?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn approve(
    State(control): State<ServerControl>,
    Extension(operator): Extension<Operator>,
    Path(number): Path<u64>,
) -> ApiResult {
    answer(&control, number, true, None, &operator)
}

async fn refuse(
    State(control): State<ServerControl>,
    Extension(operator): Extension<Operator>,
    Path(number): Path<u64>,
    body: Body<ReasonRequest>,
) -> ApiResult {
    let Json(ReasonRequest { reason }) = body?;
    answer(&control, number, false, reason.as_deref(), &operator)
}

fn answer(
    control: &ServerControl,
    number: u64,
    allow: bool,
    why: Option<&str>,
    operator: &Operator,
) -> ApiResult {
    match control.answer(number, allow, why, &operator.name) {
        Some(question) => Ok(Json(question).into_response()),
        None => {
            let message = format!("no question {number} waits; it may be answered, or its call ended");
            Err(ApiError::new(StatusCode::NOT_FOUND, "unknown_question", message))
        }
    }
}

async fn grant(
    State(control): State<ServerControl>,
    Extension(operator): Extension<Operator>,
    Path(id): Path<String>,
    body: Body<GrantRequest>,
) -> Result<Response, ApiError> {
    let Json(GrantRequest { digest }) = body?;
    control.grant(&id, &digest, &operator.name).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

impl From<GrantError> for ApiError {
    fn from(error: GrantError) -> Self {
        let (status, code) = match error {
            GrantError::Changed(_) => (StatusCode::CONFLICT, "changed"),
            GrantError::Failed(_) => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
        };
        Self::new(status, code, error.to_string())
    }
}
