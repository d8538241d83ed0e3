//! The log: the calls that ended, with filters.

use std::time::Duration;

use axum::Extension;
use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::layout::{PageFrame, duration, path_part, plain, time};
use crate::gate::AdminGate;
use crate::history::{CallFilter, FinishedCall, MAX_CALLS};
use crate::operator::Operator;

/// Calls on one page.
const CALLS: usize = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CallsQuery {
    text: String,
    plugin: String,
    outcome: String,
    before: Option<u64>,
}

pub(super) async fn show(
    State(gate): State<AdminGate>,
    Extension(operator): Extension<Operator>,
    Query(query): Query<CallsQuery>,
) -> Response {
    let frame = PageFrame::new(&gate, &operator, "/calls");
    let CallsQuery { text, plugin, outcome, before } = query;
    let filter = CallFilter { text, plugin, outcome };
    let Some(admin) = gate.control.admin() else {
        return super::refusal(axum::http::StatusCode::NOT_FOUND, "no log");
    };
    let calls = admin.history.find(&filter, before, CALLS);
    let total = admin.history.count();
    let same = format!(
        "text={}&plugin={}&outcome={}",
        path_part(&filter.text),
        path_part(&filter.plugin),
        path_part(&filter.outcome)
    );
    let tail = before.is_none().then(|| format!("/api/v1/events?{same}"));
    let body = html! {
        (filters(&filter))
        p.quiet {
            (total) " calls since the server started; the newest " (MAX_CALLS) " are here. "
            code { "toolbay log" } " reads all of them."
        }
        @if tail.is_some() { p #tail-switch hidden { label { input #tail-on type="checkbox" checked; " Follow" } } }
        div.scroll tabindex="0" role="region" aria-label="Calls" {
            table {
                thead { tr { th scope="col" { "Time" } th scope="col" { "Tool" } th scope="col" { "Outcome" } th scope="col" { "Duration" } th scope="col" { "Session" } } }
                tbody #log data-tail=[tail] { @for call in &calls { (row(call)) } }
            }
        }
        @if calls.is_empty() { p { "No call matches." } }
        @if let Some(last) = calls.last().filter(|_| calls.len() == CALLS) {
            p { a href={ "/calls?" (same) "&before=" (last.number) } { "Older calls" } }
        }
    };
    frame.page("Calls", &body)
}

fn filters(filter: &CallFilter) -> Markup {
    html! {
        form.filters method="get" action="/calls" role="search" {
            label for="text" { "Tool, call, session or reason" }
            input #text name="text" type="search" value=(filter.text);
            label for="plugin" { "Plugin" }
            input #plugin name="plugin" value=(filter.plugin);
            label for="outcome" { "Outcome" }
            input #outcome name="outcome" list="outcomes" value=(filter.outcome);
            datalist #outcomes { @for outcome in ["ok", "failed", "not_available", "cancelled", "deadline", "trap"] { option value=(outcome); } }
            button { "Filter" }
        }
    }
}

fn row(call: &FinishedCall) -> Markup {
    let record = &call.record;
    html! {
        tr {
            td { (time(call.ended)) }
            th scope="row" { a href={ "/calls/" (call.number) } { (plain(&record.tool)) } }
            td class=(if record.outcome == "ok" { "ok" } else { "failed" }) {
                (record.outcome) @if let Some(reason) = record.refusal { ": " (reason.as_str()) }
            }
            td.number { (duration(Duration::from_micros(record.duration_us))) }
            td { (plain(record.session_id.as_deref().unwrap_or("–"))) }
        }
    }
}
