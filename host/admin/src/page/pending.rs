//! What waits for a person: questions about calls, and plugins that want more than they have.

use std::time::Duration;

use axum::Extension;
use axum::extract::{Form, Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use toolbay_core::approval::ApprovalCaller;

use super::layout::{PageFrame, ReasonForm, duration, fact, facts, path_part, plain, redirect};
use crate::files::{HeldPlugin, ToolChanges, VersionChanges};
use crate::gate::AdminGate;
use crate::operator::Operator;
use crate::questions::Question;

/// The page itself.
const PATH: &str = "/pending";
/// The page without plugins, which are loaded to be shown.
const QUESTIONS: &str = "/pending?questions=true";

#[derive(Deserialize)]
pub(super) struct PendingQuery {
    /// Whether only questions are wanted.
    #[serde(default)]
    questions: bool,
}

pub(super) async fn show(
    State(gate): State<AdminGate>,
    Extension(operator): Extension<Operator>,
    Query(query): Query<PendingQuery>,
) -> Response {
    let frame = PageFrame::new(&gate, &operator, PATH);
    let questions = gate.control.questions();
    let held = if query.questions { Ok(Vec::new()) } else { gate.control.held_plugins().await };
    let body = html! {
        section #questions data-refresh data-refresh-from=(QUESTIONS) {
            h2 { "Calls that need approval" }
            @if questions.is_empty() { p { "No call waits." } }
            @for question in &questions { (show_question(&frame, question)) }
        }
        section {
            h2 { "Plugins that need consent" }
            @match held {
                Err(problem) => p.alarm role="alert" { (plain(&problem)) },
                Ok(held) if held.is_empty() => p { "No plugin waits." },
                Ok(held) => @for plugin in &held { (show_plugin(&frame, plugin)) },
            }
        }
    };
    frame.page("Pending", &body)
}

fn show_question(frame: &PageFrame<'_>, question: &Question) -> Markup {
    let Question { number, tool, source, caller, call_id, reason, args, args_cut_from, waited_ms } = question;
    html! {
        article {
            h3 { (plain(tool)) }
            p { (plain(source)) " wants to run: " (plain(reason)) }
            (show_caller(caller))
            // In the tab order, so that a keyboard scrolls it.
            pre tabindex="0" role="region" aria-label={ "Arguments of " (plain(tool)) } { (plain(args)) }
            @if let Some(total) = args_cut_from { p.alarm { "The arguments have " (total) " characters; the rest is not shown." } }
            p.quiet { "Call " code { (plain(call_id)) } ", waiting for " (duration(Duration::from_millis(*waited_ms))) }
            @if frame.may_act() {
                form.inline method="post" action={ (PATH) "/questions/" (number) "/approve" } { button { "Approve" } }
                form.inline method="post" action={ (PATH) "/questions/" (number) "/refuse" } {
                    label for={ "why-" (number) } { "Reason, which the model reads" }
                    input id={ "why-" (number) } name="reason" maxlength="500";
                    button.danger { "Refuse" }
                }
            }
        }
    }
}

/// Who asks. A client names itself; an agent with a token is verified.
fn show_caller(caller: &ApprovalCaller) -> Markup {
    let rows = [
        ("Client, as it names itself", &caller.client),
        ("Token or agent", &caller.agent),
        ("Platform", &caller.platform),
        ("Session", &caller.session),
        ("Profile", &caller.profile),
    ];
    let known = rows.into_iter().filter_map(|(key, value)| Some((key, fact(value.as_ref()?))));
    facts(&known.collect::<Vec<_>>())
}

fn show_plugin(frame: &PageFrame<'_>, held: &HeldPlugin) -> Markup {
    let HeldPlugin { plugin, version, digest, origin, reasons, lines, gains, loses, changes, .. } = held;
    let origin: Vec<_> = origin.iter().map(|(key, value)| (key.as_str(), html! { (plain(value)) })).collect();
    html! {
        article {
            h3 { (plain(plugin)) @if let Some(version) = version { " " (plain(version)) } }
            p { "sha256 " code { (digest) } }
            (facts(&origin))
            ul { @for reason in reasons { li { (plain(reason)) } } }
            @if let Some(changes) = changes { (show_changes(changes)) }
            h4 { "It asks for" }
            (asks(held))
            @if !lines.is_empty() {
                h4 { "A grant adds to the policy" }
                pre tabindex="0" { @for line in lines { (plain(line)) "\n" } }
            }
            @if !gains.is_empty() || !loses.is_empty() {
                h4 { "What changes" }
                pre.diff tabindex="0" {
                    @for line in gains { ins { "+ " (plain(line)) } "\n" }
                    @for line in loses { del { "- " (plain(line)) } "\n" }
                }
            }
            @if frame.may_act() {
                form method="post" action={ (PATH) "/plugins/" (path_part(plugin)) "/grant" } {
                    input type="hidden" name="digest" value=(digest);
                    button { "Grant this version" }
                }
            }
        }
    }
}

fn asks(held: &HeldPlugin) -> Markup {
    html! {
        @if held.asks_for.is_empty() { p { "Nothing." } }
        ul { @for one in &held.asks_for {
            li {
                code { (one.key) } " of " code { (plain(&one.target)) } @if one.optional { " (optional)" }
                @if !one.reasons.is_empty() { ": " (plain(&one.reasons.join("; "))) }
            }
        } }
    }
}

fn show_changes(changes: &VersionChanges) -> Markup {
    html! {
        h4 { "Compared with the version that runs" }
        ul {
            @for (what, names) in &changes.lists { @if !names.is_empty() { li { (what) ": " (plain(&names.join(", "))) } } }
            @for ToolChanges { tool, impact, schema, description } in &changes.tools {
                li {
                    code { (plain(tool)) } " changed (" (impact) ")"
                    ul { @for (at, change) in schema { li { code { (plain(at)) } ": " (plain(change)) } } }
                    @if let Some((before, after)) = description {
                        pre.diff tabindex="0" { del { "- " (plain(before)) } "\n" ins { "+ " (plain(after)) } }
                    }
                }
            }
        }
    }
}

pub(super) async fn approve(
    State(gate): State<AdminGate>,
    Extension(operator): Extension<Operator>,
    Path(number): Path<u64>,
) -> Response {
    // A question that is gone is not on the page that follows.
    drop(gate.control.answer(number, true, None, &operator.name));
    redirect(PATH)
}

pub(super) async fn refuse(
    State(gate): State<AdminGate>,
    Extension(operator): Extension<Operator>,
    Path(number): Path<u64>,
    Form(form): Form<ReasonForm>,
) -> Response {
    drop(gate.control.answer(number, false, form.reason(), &operator.name));
    redirect(PATH)
}

#[derive(Deserialize)]
pub(super) struct GrantForm {
    digest: String,
}

pub(super) async fn grant(
    State(gate): State<AdminGate>,
    Extension(operator): Extension<Operator>,
    Path(id): Path<String>,
    Form(GrantForm { digest }): Form<GrantForm>,
) -> Response {
    match gate.control.grant(&id, &digest, &operator.name).await {
        Ok(()) => redirect(&format!("/plugins/{}", path_part(&id))),
        Err(problem) => {
            let frame = PageFrame::new(&gate, &operator, PATH);
            let next = (PATH, "Look again");
            frame.not_done(StatusCode::CONFLICT, "Not granted", &problem.to_string(), next)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_shows_all_that_is_known_of_who_asks() {
        let some = |text: &str| Some(text.to_owned());
        let caller = ApprovalCaller {
            client: some("<b>inspector 1.2"),
            agent: some("token:ci"),
            platform: some("mcp"),
            session: some("s-1\u{202e}"),
            profile: some("few"),
        };
        let shown = show_caller(&caller).into_string();
        for part in ["&lt;b&gt;inspector 1.2", "token:ci", "mcp", "s-1\\u{202e}", "few"] {
            assert!(shown.contains(&format!("<dd>{part}</dd>")), "{part}: {shown}");
        }
        let unknown = show_caller(&ApprovalCaller::default()).into_string();
        assert!(!unknown.contains("<dt>"), "{unknown}");
    }
}
