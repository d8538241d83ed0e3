//! The budgets of sessions, and what each one used.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};

use super::layout::{PageFrame, fact, facts, plain, table};
use crate::gate::AdminGate;
use crate::history::SessionTotals;
use crate::operator::Operator;

/// Most sessions on the page.
const MAX_LISTED: usize = 200;

pub(super) async fn show(
    State(gate): State<AdminGate>,
    Extension(operator): Extension<Operator>,
) -> Response {
    let frame = PageFrame::new(&gate, &operator, "/budgets");
    let policy = gate.control.host().policy();
    let limits = policy.session();
    let count =
        |limit: Option<u64>| fact(limit.map_or_else(|| "unbounded".to_owned(), |most| most.to_string()));
    let sessions = gate.control.admin().map(|admin| admin.history.sessions()).unwrap_or_default();
    let body = html! {
        h2 { "Limits of a session" }
        (facts(&[
            ("Calls", count(limits.max_calls)),
            ("Equal calls", count(limits.max_identical_calls)),
            ("Calls in a turn", count(limits.max_calls_per_turn)),
            ("Cost", fact(limits.max_cost_usd.map_or_else(|| "unbounded".to_owned(), |most| format!("${most}")))),
        ]))
        p.quiet { "They are in " code { "[session]" } " of the policy." }
        h2 { "Sessions since the server started" }
        @if sessions.is_empty() { p { "No session has made a call." } } @else {
            (table("Sessions", &["Session", "Calls", "Failures", "Fuel", "Cost"], &html! {
                @for (id, totals) in sessions.iter().take(MAX_LISTED) { (row(id, totals, limits.max_calls, limits.max_cost_usd)) }
            }))
        }
    };
    frame.page("Budgets", &body)
}

fn row(id: &str, totals: &SessionTotals, max_calls: Option<u64>, max_cost: Option<f64>) -> Markup {
    html! { tr {
        th scope="row" { (plain(id)) }
        td.number { (totals.calls) @if let Some(most) = max_calls { " of " (most) } }
        td.number { (totals.failures) }
        td.number { (totals.fuel) }
        td.number { (format!("${:.4}", totals.cost_usd)) @if let Some(most) = max_cost { " of $" (most) } }
    } }
}
