//! The tools, with a search.

use axum::Extension;
use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use toolbay_core::registry::ToolStatus;

use super::layout::{PageFrame, path_part, plain, plain_up_to, table};
use crate::gate::AdminGate;
use crate::operator::Operator;

/// Tools on one page.
const TOOLS: usize = 100;
/// Longest reason in a row, in characters.
const MAX_REASON: usize = 200;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ToolsQuery {
    text: String,
    /// The name of the last tool of the page before.
    after: String,
}

pub(super) async fn show(
    State(gate): State<AdminGate>,
    Extension(operator): Extension<Operator>,
    Query(ToolsQuery { text, after }): Query<ToolsQuery>,
) -> Response {
    let frame = PageFrame::new(&gate, &operator, "/tools");
    let catalog = gate.control.host().registry().snapshot();
    let wanted = text.to_lowercase();
    let matching = catalog.tools().filter(|entry| {
        let (name, description) = (entry.def.name.as_str(), &entry.def.description);
        name > after.as_str()
            && (name.to_lowercase().contains(&wanted) || description.to_lowercase().contains(&wanted))
    });
    let mut tools: Vec<ToolStatus> = matching.take(TOOLS + 1).map(|entry| entry.status(None)).collect();
    let has_more = tools.len() > TOOLS;
    tools.truncate(TOOLS);
    let body = html! {
        form.filters method="get" action="/tools" role="search" {
            label for="text" { "Name or description" }
            input #text name="text" type="search" value=(text);
            button { "Search" }
        }
        @if tools.is_empty() { p { "No tool matches." } } @else {
            (table("Tools", &["Tool", "State", "Source", "Tags"], &html! { @for tool in &tools { (row(tool)) } }))
        }
        @if let Some(last) = tools.last().filter(|_| has_more) {
            p { a href={ "/tools?text=" (path_part(&text)) "&after=" (path_part(&last.name)) } { "More tools" } }
        }
    };
    frame.page("Tools", &body)
}

fn row(tool: &ToolStatus) -> Markup {
    let (class, state) = match (&tool.disabled_reason, &tool.unavailable) {
        (Some(reason), _) => ("failed", format!("off: {}", plain_up_to(reason, MAX_REASON))),
        (None, Some(reason)) => {
            ("failed", format!("not available: {}", plain_up_to(&reason.for_operator(), MAX_REASON)))
        }
        (None, None) => ("ok", "on".to_owned()),
    };
    html! { tr {
        th scope="row" { a href={ "/tools/" (path_part(&tool.name)) } { (plain(&tool.name)) } }
        td class=(class) { (state) }
        td { (plain(&tool.source.label())) }
        td { (plain(&tool.tags.join(", "))) }
    } }
}
