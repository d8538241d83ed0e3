//! One call: what it was, how the gates decided, what it used, and the lines of the policy that would allow what was refused.

use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use toolbay_core::approval::Decision;
use toolbay_core::audit::AuditRecord;
use toolbay_core::tool::ToolSource;

use super::layout::{PageFrame, duration, fact, facts, path_part, plain, size, table, time};
use crate::gate::AdminGate;
use crate::history::FinishedCall;
use crate::operator::Operator;

pub(super) async fn show(
    State(gate): State<AdminGate>,
    Extension(operator): Extension<Operator>,
    Path(number): Path<u64>,
) -> Response {
    let frame = PageFrame::new(&gate, &operator, "/calls");
    let found = gate.control.admin().and_then(|admin| admin.history.get(number));
    let Some(call) = found else {
        let body =
            html! { p { "The call is not in memory any more. " code { "toolbay log" } " reads the audit." } };
        return frame.page_with(StatusCode::NOT_FOUND, "Unknown call", &body);
    };
    let record = &call.record;
    let body = html! {
        (facts(&about(&call)))
        h2 { "Gates" } (gates(record))
        h2 { "Uses of capabilities" } (uses(record))
        @if !record.hints.is_empty() {
            h2 { "What would allow it" }
            @for hint in &record.hints { pre tabindex="0" { (plain(&hint.to_string())) } }
        }
        h2 { "Usage" } (facts(&usage(record)))
    };
    frame.page(&record.tool, &body)
}

fn about(call: &FinishedCall) -> Vec<(&'static str, Markup)> {
    let record = &call.record;
    let text = |value: &Option<String>| value.as_deref().map(fact);
    let tool = html! { a href={ "/tools/" (path_part(&record.tool)) } { (plain(&record.tool)) } };
    let plugin = call.plugin().map(|id| html! { a href={ "/plugins/" (path_part(id)) } { (plain(id)) } });
    let rows = [
        ("Tool", Some(tool)),
        ("Plugin", plugin),
        ("Digest", record.source.as_deref().and_then(digest).map(|digest| html! { code { (digest) } })),
        ("Outcome", Some(fact(record.outcome))),
        ("Ended", Some(time(call.ended))),
        ("Call", Some(fact(&*record.call_id))),
        ("Made by the call", text(&record.outer)),
        ("Through", text(&record.through)),
        ("Session", text(&record.session_id)),
        ("Agent", text(&record.agent_id)),
        ("Platform", text(&record.platform)),
        ("Profile", text(&record.profile)),
        ("Trace", record.traceparent.map(|trace| fact(trace.to_string()))),
        ("Reason of the caller", text(&record.reason)),
        ("Arguments, SHA-256", record.args_sha256.as_ref().map(|digest| html! { code { (digest) } })),
    ];
    rows.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

fn digest(source: &ToolSource) -> Option<&str> {
    match source {
        ToolSource::Plugin { digest, .. } => Some(digest),
        ToolSource::Builtin | ToolSource::Mcp { .. } | ToolSource::OpenApi { .. } => None,
    }
}

fn gates(record: &AuditRecord) -> Markup {
    let permission = match &record.permission {
        None => "no rule of the policy decided".to_owned(),
        Some(decision) => describe(decision),
    };
    let refusal = record.refusal.map_or_else(|| "by no gate".to_owned(), |reason| reason.to_string());
    let limit = record.limit.as_ref().map(|limit| format!("{} ended the call", limit.name));
    facts(&[
        ("Refused", fact(refusal)),
        ("Permission", fact(permission)),
        ("Started", fact(if record.began { "yes" } else { "no" })),
        ("Result", fact(if record.cached { "from the cache of the session" } else { "new" })),
        ("Limit", fact(limit.unwrap_or_else(|| "none was reached".to_owned()))),
        ("Reducer", fact(record.reducer.unwrap_or("none"))),
    ])
}

fn describe(decision: &Decision) -> String {
    let Decision { action, rule, of_profile, allowed, by } = decision;
    let place = if *of_profile { "the profile" } else { "the policy" };
    let rule =
        rule.map_or_else(|| format!("the default of {place}"), |rule| format!("rule {rule} of {place}"));
    let by = by.map(|by| format!(", answered by: {by}")).unwrap_or_default();
    format!("{rule} says {}{by}; {}", action.as_str(), if *allowed { "allowed" } else { "refused" })
}

fn uses(record: &AuditRecord) -> Markup {
    html! {
        @if record.uses.is_empty() { p { "It used none." } } @else {
            (table("Uses of capabilities", &["Capability", "Target", "Decision"], &html! {
                @for one in &record.uses { tr {
                    th scope="row" { (one.key) }
                    td { code { (plain(&one.what)) } }
                    td class=(if one.allowed { "ok" } else { "failed" }) { @if one.allowed { "granted" } @else { "refused" } }
                } }
            }))
        }
        @if record.uses_not_kept > 0 { p.quiet { (record.uses_not_kept) " more were not kept." } }
    }
}

fn usage(record: &AuditRecord) -> Vec<(&'static str, Markup)> {
    let usage = &record.usage;
    let micros = |us: u64| fact(duration(Duration::from_micros(us)));
    vec![
        ("Total", micros(record.duration_us)),
        ("Waiting", micros(record.waited_us)),
        ("In the queue", micros(usage.queued_us)),
        ("In the tool", micros(usage.wall_us)),
        ("Fuel", fact(usage.fuel.map_or_else(|| "not counted".to_owned(), |fuel| fuel.to_string()))),
        ("Memory", fact(size(usage.peak_memory_bytes))),
        ("Arguments", fact(size(usage.args_bytes))),
        ("Result", fact(size(usage.result_bytes))),
        ("Delivered", fact(format!("{} characters", record.delivered_chars))),
        ("Cost", fact(record.cost_usd.map_or_else(|| "none".to_owned(), |cost| format!("${cost:.4}")))),
    ]
}
