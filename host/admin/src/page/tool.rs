//! One tool: what it is, whether it can be called, and a form to try it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use tokio_util::sync::CancellationToken;
use toolbay::{Filter, ToolCall, TurnContext};
use toolbay_core::approval::{ApprovalReply, ApprovalRequest, Approver};
use toolbay_core::call::Identity;
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::pipeline::CallResult;
use toolbay_core::registry::ToolEntry;

use super::form::ArgumentForm;
use super::layout::{PageFrame, ReasonForm, duration, fact, facts, path_part, plain, plain_up_to, redirect};
use crate::api::blocking;
use crate::gate::AdminGate;
use crate::operator::Operator;

/// How long a call that a person tries may take: less than the life of a connection.
const TRY_TIME: Duration = Duration::from_secs(45);
/// Longest result on the page, in characters.
const MAX_RESULT: usize = 20_000;
/// The field that says whether to run the call, and its value for a check.
const MODE: &str = "mode";
const CHECK: &str = "check";

pub(super) async fn show(
    State(gate): State<AdminGate>,
    Extension(operator): Extension<Operator>,
    Path(name): Path<String>,
) -> Response {
    match find(&gate, &name) {
        Some(entry) => page(&gate, &operator, &entry, &HashMap::new(), None),
        None => unknown(&gate, &operator),
    }
}

fn find(gate: &AdminGate, name: &str) -> Option<Arc<ToolEntry>> {
    gate.control.host().registry().snapshot().get(name).cloned()
}

fn unknown(gate: &AdminGate, operator: &Operator) -> Response {
    let body = html! { p { "No tool has this name. " a href="/tools" { "All tools" } } };
    PageFrame::new(gate, operator, "/tools").page_with(StatusCode::NOT_FOUND, "Unknown tool", &body)
}

fn page(
    gate: &AdminGate,
    operator: &Operator,
    entry: &ToolEntry,
    sent: &HashMap<String, String>,
    tried: Option<&Markup>,
) -> Response {
    let frame = PageFrame::new(gate, operator, "/tools");
    let name = entry.def.name.as_str();
    let path = format!("/tools/{}", path_part(name));
    let body = html! {
        (state(&frame, entry, &path))
        (facts(&about(entry)))
        @if frame.may_act() {
            h2 { "Try it" }
            form method="post" action={ (path) "/call#result" } {
                (ArgumentForm::new(entry.def.input_schema.value()).render(sent))
                button name=(MODE) value=(CHECK) { "Check only" }
                button name=(MODE) value="run" { "Run" }
            }
            p.quiet { "A check passes the arguments and the policy through all gates and does not run the tool. A run is a real call: it is recorded with your name, and the policy applies." }
        }
        @if let Some(tried) = tried { section #result role="status" { h2 { "Result" } (tried) } }
        (limits(gate, name))
        details { summary { "Schema" } pre tabindex="0" { (plain_up_to(&pretty(entry), MAX_RESULT)) } }
    };
    frame.page(name, &body)
}

fn pretty(entry: &ToolEntry) -> String {
    serde_json::to_string_pretty(entry.def.input_schema.value()).unwrap_or_default()
}

fn state(frame: &PageFrame<'_>, entry: &ToolEntry, path: &str) -> Markup {
    let status = entry.status(None);
    html! {
        @if let Some(reason) = &status.disabled_reason {
            p.alarm { strong { "Disabled: " } (plain(reason)) }
            (frame.action(&format!("{path}/enable"), "Enable", ""))
        } @else {
            @if let Some(reason) = &status.unavailable { p.alarm { strong { "Not available: " } } pre tabindex="0" { (plain(&reason.for_operator())) } }
            @if frame.may_act() {
                form method="post" action={ (path) "/disable" } {
                    label for="reason" { "Reason, which callers see" }
                    input #reason name="reason" maxlength="500";
                    button.danger { "Disable" }
                }
            }
        }
    }
}

fn about(entry: &ToolEntry) -> Vec<(&'static str, Markup)> {
    let status = entry.status(None);
    let rows = [
        ("Description", Some(html! { span.lines { (plain(&entry.def.description)) } })),
        ("Title", status.title.as_ref().map(fact)),
        ("Source", Some(source(entry))),
        ("Tags", (!status.tags.is_empty()).then(|| fact(status.tags.join(", ")))),
        ("Schema, SHA-256", Some(html! { code { (status.schema_sha256) } })),
    ];
    rows.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

fn source(entry: &ToolEntry) -> Markup {
    let source = &entry.def.source;
    html! { @match source.plugin() {
        Some(id) => a href={ "/plugins/" (path_part(id.as_str())) } { (plain(&source.label())) },
        None => (plain(&source.label())),
    } }
}

fn limits(gate: &AdminGate, name: &str) -> Markup {
    let explained = gate.control.host().explain(name, None);
    html! { @if let Some(explained) = explained {
        details { summary { "Limits of a call" } table {
            thead { tr { th scope="col" { "Limit" } th scope="col" { "Value" } th scope="col" { "Set by" } } }
            tbody { @for row in &explained.limits { tr { th scope="row" { code { (row.key) } } td { (row.value) } td { (plain(&row.set)) } } } }
        } }
    } }
}

/// Runs a call, or only checks it.
pub(super) async fn call(
    State(gate): State<AdminGate>,
    Extension(operator): Extension<Operator>,
    Path(name): Path<String>,
    Form(sent): Form<HashMap<String, String>>,
) -> Response {
    let Some(entry) = find(&gate, &name) else { return unknown(&gate, &operator) };
    let tried = match ArgumentForm::new(entry.def.input_schema.value()).arguments(&sent) {
        Err(problem) => html! { p.alarm { (plain(&problem)) } },
        Ok(arguments) => {
            let is_check = sent.get(MODE).is_some_and(|mode| mode == CHECK);
            match run(&gate, &operator, &name, arguments, is_check).await {
                Some(result) => show_result(&result, is_check),
                None => html! { p.alarm { "The call gave no result." } },
            }
        }
    };
    page(&gate, &operator, &entry, &sent, Some(&tried))
}

async fn run(
    gate: &AdminGate,
    operator: &Operator,
    name: &str,
    arguments: String,
    is_check: bool,
) -> Option<CallResult> {
    let cancel = CancellationToken::new();
    let identity = Identity {
        platform: Some("admin".to_owned()),
        agent_id: Some(operator.name.to_string()),
        ..Identity::default()
    };
    let turn = TurnContext {
        cancel: cancel.clone(),
        dry_run: is_check,
        identity,
        approver: Some(Arc::new(PressedRun)),
        ..TurnContext::default()
    };
    let host = gate.control.host();
    let view = host.view(Filter::default());
    let mut calls = std::pin::pin!(host.call_all(&view, vec![ToolCall::new("admin", name, arguments)], turn));
    let results = tokio::select! {
        results = &mut calls => results,
        () = tokio::time::sleep(TRY_TIME) => {
            cancel.cancel();
            calls.await
        }
    };
    results.into_iter().next()
}

/// The operator who pressed `Run` has approved the call.
#[derive(Debug)]
struct PressedRun;

impl Approver for PressedRun {
    fn ask<'a>(&'a self, _: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalReply> {
        Box::pin(std::future::ready(ApprovalReply::Yes))
    }
}

fn show_result(result: &CallResult, is_check: bool) -> Markup {
    html! {
        @match &result.result {
            Ok(_) if is_check => p.ok { "The call passes all gates. It was not run." },
            Ok(output) => {
                pre tabindex="0" { (plain_up_to(&output.value, MAX_RESULT)) }
                @if !output.content.is_empty() { p.quiet { (output.content.len()) " content blocks are not shown." } }
            }
            Err(failure) => {
                p.alarm { (plain(&failure.to_string())) }
            }
        }
        @for hint in &result.hints.lines { pre tabindex="0" { (plain(&hint.to_string())) } }
        p.quiet { (duration(Duration::from_micros(result.duration_us))) @if let Some(fuel) = result.usage.fuel { ", fuel " (fuel) } }
    }
}

pub(super) async fn disable(
    State(gate): State<AdminGate>,
    Extension(operator): Extension<Operator>,
    Path(name): Path<String>,
    Form(form): Form<ReasonForm>,
) -> Response {
    switch(gate, operator, name, Some(form.reason_or_none())).await
}

pub(super) async fn enable(
    State(gate): State<AdminGate>,
    Extension(operator): Extension<Operator>,
    Path(name): Path<String>,
) -> Response {
    switch(gate, operator, name, None).await
}

async fn switch(gate: AdminGate, operator: Operator, name: String, reason: Option<String>) -> Response {
    let (control, by, tool) = (gate.control.clone(), operator.name.clone(), name.clone());
    match blocking(move || control.switch_tool(&tool, reason.as_deref(), &by)).await {
        Ok(()) => redirect(&format!("/tools/{}", path_part(&name))),
        Err(problem) => {
            let (frame, next) = (PageFrame::new(&gate, &operator, "/tools"), ("/tools", "All tools"));
            frame.not_done(StatusCode::CONFLICT, "Not changed", &problem.message, next)
        }
    }
}
