//! The start page: the calls in progress, the last minutes, and the switch for everything.

use std::time::Duration;

use axum::Extension;
use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use toolbay_core::call::shared::SharedStatus;
use toolbay_core::pipeline::running::RunningCall;

use super::chart::sparkline;
use super::layout::{PageFrame, ReasonForm, duration, plain, redirect, table};
use crate::api::blocking;
use crate::control::ServerControl;
use crate::gate::AdminGate;
use crate::history::{ChartPoint, POINT_SECONDS};
use crate::operator::Operator;

/// Most calls that the page lists.
const MAX_LISTED: usize = 200;

pub(super) async fn show(
    State(gate): State<AdminGate>,
    Extension(operator): Extension<Operator>,
) -> Response {
    let frame = PageFrame::new(&gate, &operator, "/");
    let control = &gate.control;
    let (calls, info) = (control.calls(), control.info());
    let body = html! {
        section #charts data-refresh aria-label="The last ten minutes" {
            @if let Some(admin) = control.admin() { (charts(&admin.history.chart())) }
        }
        section #running data-refresh {
            h2 { "Calls in progress" }
            (running(&frame, &calls))
            p.quiet { (queue(control, &calls)) }
        }
        @if let Some(shared) = &info.shared { (servers(shared)) }
        (switches(&frame, info.stopped.is_some()))
        p { a href="/metrics" { "Metrics for Prometheus" } }
    };
    frame.page("Now", &body)
}

/// The servers that share state with this one.
fn servers(shared: &SharedStatus) -> Markup {
    let epoch = shared.epoch.unwrap_or(0);
    html! {
        section #servers data-refresh {
            h2 { "Servers" }
            @if let Some(reason) = &shared.refusing {
                p.alarm role="alert" { strong { "Calls are refused: " } (plain(reason)) }
            }
            (table("Servers", &["Server", "Epoch"], &html! {
                tr { th scope="row" { (plain(&shared.name)) " (this one)" } td.number { (epoch) } }
                @for (name, epoch) in &shared.others {
                    tr { th scope="row" { (plain(name)) } td.number { (epoch) } }
                }
            }))
            p.quiet { "This server has " (shared.queues) " serial queues and takes part in " (shared.budgets) " shared budgets." }
        }
    }
}

fn charts(points: &[ChartPoint]) -> Markup {
    let values = |of: fn(&ChartPoint) -> u64| points.iter().map(of).collect::<Vec<u64>>();
    html! {
        div.charts {
            (sparkline("Calls", &values(|point| point.calls), |calls| format!("{calls} in {POINT_SECONDS} s")))
            (sparkline("Failures", &values(|point| point.failures), |calls| format!("{calls} in {POINT_SECONDS} s")))
            (sparkline("Longest call", &values(|point| point.longest_us), |us| duration(Duration::from_micros(us))))
        }
    }
}

fn running(frame: &PageFrame<'_>, calls: &[RunningCall]) -> Markup {
    html! {
        @if calls.is_empty() { p { "No call is in progress." } } @else {
            div.scroll tabindex="0" role="region" aria-label="Calls in progress" { table {
                thead { tr { th scope="col" { "Tool" } th scope="col" { "State" } th scope="col" { "Time" } th scope="col" { "Client" } th scope="col" { "Call" } th scope="col" { span.hidden { "Action" } } } }
                tbody { @for call in calls.iter().take(MAX_LISTED) {
                    tr {
                        th scope="row" { (plain(&call.tool)) }
                        td { @if call.began { "running" } @else { "waiting" } }
                        td.number { (duration(Duration::from_millis(call.elapsed_ms))) }
                        td { (plain(call.agent_id.as_deref().or(call.session_id.as_deref()).unwrap_or("–"))) }
                        td { code { (plain(&call.call_id)) } }
                        td { (frame.action(&format!("/running/{}/cancel", call.number), "Cancel", "danger")) }
                    }
                } }
            } }
            @if calls.len() > MAX_LISTED { p.quiet { (calls.len() - MAX_LISTED) " more calls are in progress." } }
        }
    }
}

fn queue(control: &ServerControl, calls: &[RunningCall]) -> String {
    let waiting = calls.iter().filter(|call| !call.began).count();
    let free = control.host().available_call_permits();
    format!("{} running, {waiting} waiting, {free} more could run.", calls.len() - waiting)
}

fn switches(frame: &PageFrame<'_>, is_stopped: bool) -> Markup {
    html! {
        @if frame.may_act() {
            section {
                h2 { "Everything" }
                @if is_stopped {
                    p { "All calls are refused, also after a restart." }
                    form method="post" action="/resume" { button { "Allow calls again" } }
                } @else {
                    form method="post" action="/stop" {
                        label for="reason" { "Reason, which callers see" }
                        input #reason name="reason" maxlength="500";
                        button.danger { "Stop all calls" }
                    }
                }
                form method="post" action="/reload" { button { "Read policy and plugins again" } }
            }
        }
    }
}

pub(super) async fn stop(
    State(gate): State<AdminGate>,
    Extension(operator): Extension<Operator>,
    Form(form): Form<ReasonForm>,
) -> Response {
    let reason = form.reason_or_none();
    let (control, by) = (gate.control.clone(), operator.name.clone());
    let stopped = blocking(move || control.stop(&reason, &by)).await.map(drop);
    finished(&gate, &operator, stopped.map_err(|error| error.message))
}

pub(super) async fn resume(
    State(gate): State<AdminGate>,
    Extension(operator): Extension<Operator>,
) -> Response {
    let (control, by) = (gate.control.clone(), operator.name.clone());
    let resumed = blocking(move || control.resume(&by)).await.map(drop);
    finished(&gate, &operator, resumed.map_err(|error| error.message))
}

pub(super) async fn reload(
    State(gate): State<AdminGate>,
    Extension(operator): Extension<Operator>,
) -> Response {
    gate.control.reload(&operator.name);
    redirect("/")
}

pub(super) async fn cancel(
    State(gate): State<AdminGate>,
    Extension(operator): Extension<Operator>,
    Path(number): Path<u64>,
) -> Response {
    // A call that has ended meanwhile is what the operator wanted.
    drop(gate.control.cancel(number, &operator.name));
    redirect("/")
}

fn finished(gate: &AdminGate, operator: &Operator, done: Result<(), String>) -> Response {
    match done {
        Ok(()) => redirect("/"),
        Err(problem) => {
            let (frame, failed) = (PageFrame::new(gate, operator, "/"), StatusCode::INTERNAL_SERVER_ERROR);
            frame.not_done(failed, "Not done", &problem, ("/", "Back"))
        }
    }
}
