//! What operators see, as JSON.

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolbay::PluginInfo;
use toolbay_core::audit::{AuditRecord, MAX_TEXT};
use toolbay_core::tool::refusal::RefusalReason;
use toolbay_policy::excerpt::one_line;

use super::{ApiError, ApiResult};
use crate::control::ServerControl;
use crate::history::{CallFilter, FinishedCall, SessionTotals};

/// Calls in a response, if the request does not say.
const CALLS: usize = 100;
/// Most calls in a response.
const MAX_CALLS: usize = 1000;

/// One line of the log.
#[derive(Debug, Serialize)]
pub(crate) struct CallSummary<'a> {
    number: u64,
    time: String,
    tool: String,
    plugin: Option<&'a str>,
    outcome: &'static str,
    /// Why the host refused the call before its tool was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<RefusalReason>,
    duration_us: u64,
    session: Option<String>,
}

impl<'a> CallSummary<'a> {
    pub(crate) fn of(call: &'a FinishedCall) -> Self {
        let record = &call.record;
        Self {
            number: call.number,
            time: DateTime::<Utc>::from(call.ended).to_rfc3339_opts(SecondsFormat::Millis, true),
            tool: one_line(&record.tool, MAX_TEXT),
            plugin: call.plugin(),
            outcome: record.outcome,
            refusal: record.refusal,
            duration_us: record.duration_us,
            session: record.session_id.as_deref().map(|id| one_line(id, MAX_TEXT)),
        }
    }
}

/// One call with everything that the audit has.
#[derive(Serialize)]
struct LoggedCall<'a> {
    number: u64,
    time: String,
    #[serde(flatten)]
    record: &'a AuditRecord,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LogQuery {
    text: String,
    plugin: String,
    outcome: String,
    before: Option<u64>,
    limit: Option<usize>,
}

pub(super) fn router() -> Router<ServerControl> {
    Router::new()
        .route("/api/v1/log", get(log))
        .route("/api/v1/plugins", get(plugins))
        .route("/api/v1/tools", get(tools))
        .route("/api/v1/pending", get(pending))
        .route("/api/v1/budgets", get(budgets))
}

pub(super) fn no_history() -> ApiError {
    let message = "the server keeps no calls; the table [admin] of the policy switches it on";
    ApiError::new(StatusCode::NOT_FOUND, "log_off", message)
}

async fn log(State(control): State<ServerControl>, Query(query): Query<LogQuery>) -> ApiResult {
    let history = &control.admin().ok_or_else(no_history)?.history;
    let most = query.limit.unwrap_or(CALLS).min(MAX_CALLS);
    let LogQuery { text, plugin, outcome, before, .. } = query;
    let found = history.find(&CallFilter { text, plugin, outcome }, before, most);
    let calls: Vec<LoggedCall<'_>> = found
        .iter()
        .map(|call| LoggedCall {
            number: call.number,
            time: CallSummary::of(call).time,
            record: &call.record,
        })
        .collect();
    Ok(Json(calls).into_response())
}

async fn plugins(State(control): State<ServerControl>) -> Response {
    let plugins: Vec<Value> = control.host().plugins().iter().map(plugin).collect();
    Json(plugins).into_response()
}

fn plugin(info: &PluginInfo) -> Value {
    json!({
        "id": info.id.as_str(),
        "version": info.about.as_ref().map(|about| &about.version),
        "digest": &*info.digest,
        "bytes": info.bytes,
        "origin": info.origin,
        "capabilities": info.capabilities,
        "held": info.held,
    })
}

async fn tools(State(control): State<ServerControl>) -> Response {
    Json(control.host().registry().snapshot().status()).into_response()
}

async fn pending(State(control): State<ServerControl>) -> ApiResult {
    let failed = |problem: String| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", problem);
    let plugins = control.held_plugins().await.map_err(failed)?;
    Ok(Json(json!({ "questions": control.questions(), "plugins": plugins })).into_response())
}

/// A session with its sums.
#[derive(Serialize)]
struct SessionBudget {
    session: String,
    #[serde(flatten)]
    totals: SessionTotals,
}

async fn budgets(State(control): State<ServerControl>) -> ApiResult {
    let history = &control.admin().ok_or_else(no_history)?.history;
    let sessions = history.sessions().into_iter().map(|(session, totals)| SessionBudget { session, totals });
    let policy = control.host().policy();
    let limits = policy.session();
    Ok(Json(json!({
        "limits": {"max_calls": limits.max_calls, "max_cost_usd": limits.max_cost_usd},
        "sessions": sessions.collect::<Vec<_>>(),
    }))
    .into_response())
}
