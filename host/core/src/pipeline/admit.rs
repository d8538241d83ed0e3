//! The third stage: whether a valid call may happen. Permission rules decide, and a person where the rules say so.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::Value;
use toolbay_policy::permission::{Action, Permissions};
use toolbay_policy::quantity;
use toolbay_policy::refusal;

use super::batch::{BatchContext, EarlyResult};
use super::record::AuditGuard;
use super::resolve::ResolvedTool;
use super::ruling::Ruling;
use super::validate::ValidatedCall;
use crate::audit;
use crate::call::approval::{Answer, Approver, Question};
use crate::call::dialog::INPUT_REQUIRED;
use crate::call::fault::{Fault, FaultKind};
use crate::call::invoke::Failure;
use crate::call::{AdmittedCall, CallContext};
use crate::registry::event::Event;
use crate::session::Approval;
use crate::tool::content::{ErrorCode, ToolError, ToolOutput};

/// Longest text of a person who said no, in characters.
const MAX_ANSWER: usize = 300;
/// Longest string argument that a dry run repeats, in characters.
const DRY_RUN_CHARS: usize = 500;

/// Whether a call is approved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ApprovalState {
    /// Nobody has to be asked, or the answer was yes.
    Approved,
    /// A dry run asks nobody; a call would.
    Open,
}

/// Gates 14 and 15: the rules of the policy and the profile, and the end of a dry run. Only this function makes an
/// [`AdmittedCall`].
pub(super) async fn admit(
    guard: &mut AuditGuard<'_>,
    tool: ResolvedTool<'_>,
    call: ValidatedCall,
) -> Result<AdmittedCall, EarlyResult> {
    let state = check_permission(guard, tool, &call).await?;
    let ValidatedCall { args, parsed } = call;
    let call = AdmittedCall { tool: Arc::clone(&tool.entry().def), args, parsed };
    if tool.ctx.turn.dry_run {
        return Err(EarlyResult(Ok(dry_run(&call, state))));
    }
    Ok(call)
}

/// Looks the call up in the rules. Without rules, nothing is evaluated.
async fn check_permission(
    guard: &mut AuditGuard<'_>,
    tool: ResolvedTool<'_>,
    call: &ValidatedCall,
) -> Result<ApprovalState, Failure> {
    let policy = &guard.batch.gates.permissions;
    let profile = tool.profile().map(|profile| &profile.permissions);
    let open = policy.is_open() && profile.is_none_or(Permissions::is_open);
    if open && !tool.entry().def.traits.needs_approval {
        return Ok(ApprovalState::Approved);
    }
    let ruling = Ruling::of(guard.batch, tool, call);
    guard.permission = Some(ruling.decision(false, None));
    match ruling.action() {
        Action::Allow => {
            guard.permission = Some(ruling.decision(true, None));
            Ok(ApprovalState::Approved)
        }
        Action::Deny => Err(denied(guard.batch, tool.ctx, &ruling, None)),
        // Boxed to keep the future of the calls that ask nobody small.
        Action::Ask => Box::pin(ask(guard, tool.ctx, &ruling, call)).await,
    }
}

async fn ask(
    guard: &mut AuditGuard<'_>,
    ctx: &CallContext,
    ruling: &Ruling<'_>,
    call: &ValidatedCall,
) -> Result<ApprovalState, Failure> {
    let batch = guard.batch;
    let session = &batch.turn.session;
    let approval = Approval::new(ruling.tool, ruling.rule(), ruling.profile);
    let Some((approver, by)) = approver_of(batch) else {
        return Err(denied(batch, ctx, ruling, Some("there is nobody to ask")));
    };
    if ctx.turn.dry_run && !session.approved(&approval) {
        return Ok(ApprovalState::Open);
    }
    let _one_at_a_time = tokio::select! {
        biased;
        () = ctx.cancel().cancelled() => return Err(cancelled()),
        turn = session.asks() => turn,
    };
    if session.approved(&approval) {
        guard.permission = Some(ruling.decision(true, Some("before")));
        return Ok(ApprovalState::Approved);
    }
    guard.permission = Some(ruling.decision(false, Some(by)));
    let (tool, call_id) = (Arc::clone(&ctx.tool), Arc::clone(&ctx.call_id));
    batch.pipeline.events.tell(Event::PermissionAsked { tool, call_id });
    let question = Question {
        call_id: audit::cut(&ctx.call_id),
        tool: ruling.tool.name.as_str().to_owned(),
        source: ruling.tool.source.label(),
        args: Value::clone(&call.parsed),
        reason: ruling.because(),
    };
    let no = match answer(batch, approver, &question, ctx).await? {
        Ok(answer @ (Answer::Yes | Answer::Always)) => {
            if answer == Answer::Always {
                session.approve(approval);
            }
            guard.permission = Some(ruling.decision(true, Some(by)));
            return Ok(ApprovalState::Approved);
        }
        Ok(Answer::Later) => return Err(postponed(guard, ctx)),
        Ok(Answer::No(None)) => "the answer was no".to_owned(),
        Ok(Answer::No(Some(text))) => {
            let text: String = text.chars().take(MAX_ANSWER).collect();
            format!("the answer was no: {text}")
        }
        Err(silence) => silence,
    };
    Err(denied(batch, ctx, ruling, Some(&no)))
}

/// Who is asked, and the name under which the audit records them.
fn approver_of(batch: &BatchContext) -> Option<(&Arc<dyn Approver>, &'static str)> {
    let of_turn = batch.turn.approver.as_ref().map(|approver| (approver, "client"));
    let of_session = batch.turn.session.approver().map(|approver| (approver, "session"));
    let of_host = batch.pipeline.approver.as_ref().map(|approver| (approver, "host"));
    of_turn.or(of_session).or(of_host)
}

/// The answer of the approver, or why there is none. The end of the call ends the question.
async fn answer(
    batch: &BatchContext,
    approver: &Arc<dyn Approver>,
    question: &Question,
    ctx: &CallContext,
) -> Result<Result<Answer, String>, Failure> {
    let patience = batch.gates.permissions.ask_timeout;
    // In an async block, since the method itself may panic before it makes a future.
    let asked = AssertUnwindSafe(async { approver.ask(question).await }).catch_unwind();
    tokio::select! {
        biased;
        () = ctx.cancel().cancelled() => Err(cancelled()),
        answer = asked => Ok(answer.map_err(|_| {
            tracing::error!(tool = %ctx.tool, "an approver panicked; that is a no");
            "the approver failed".to_owned()
        })),
        () = tokio::time::sleep(patience) => {
            let waited = quantity::show_duration(patience);
            Ok(Err(format!("nobody answered within {waited} (`[permissions] ask_timeout`)")))
        }
    }
}

/// Ends a call that comes again with its answer. It is not counted: the second attempt is the first that counts.
fn postponed(guard: &AuditGuard<'_>, ctx: &CallContext) -> Failure {
    let (batch, digests) = (guard.batch, guard.digests);
    batch.turn.session.take_back(batch.turn_count.as_deref(), digests.as_ref().map(|digests| &digests.call));
    let text = format!("Tool {} was not run: whether it may is to be answered first", ctx.tool);
    ToolError::new(ErrorCode::NotAvailable, text).about(INPUT_REQUIRED).into()
}

fn cancelled() -> Failure {
    Fault::new(FaultKind::Cancelled, "the call was cancelled before it was approved").into()
}

fn denied(batch: &BatchContext, ctx: &CallContext, ruling: &Ruling<'_>, no: Option<&str>) -> Failure {
    let mut because = ruling.because();
    if let Some(no) = no {
        because.push_str(", and ");
        because.push_str(no);
    }
    let (tool, call_id) = (Arc::clone(&ctx.tool), Arc::clone(&ctx.call_id));
    let event = Event::PermissionDenied { tool, call_id, reason: Some(because.clone()) };
    batch.pipeline.events.tell(event);
    let name = ruling.tool.name.as_str();
    let text =
        format!("Tool {name} is denied by permission policy: {because}: {}", refusal::not_permitted(name));
    ToolError::new(ErrorCode::NotAvailable, text)
        .about("permission")
        .with_hint(Some(ruling.allowing_lines()))
        .into()
}

/// What a dry run says of a call that would run.
fn dry_run(call: &AdmittedCall, state: ApprovalState) -> ToolOutput {
    let mut args = Value::clone(&call.parsed);
    shorten(&mut args);
    let approval = if state == ApprovalState::Open { ", if it is approved" } else { "" };
    ToolOutput::text(format!("[dry-run] {} would be called{approval} with: {args}", call.tool.name))
}

fn shorten(value: &mut Value) {
    match value {
        Value::String(text) => {
            let total = text.chars().count();
            if total > DRY_RUN_CHARS {
                let head: String = text.chars().take(DRY_RUN_CHARS).collect();
                *text = format!("{head}...[truncated, {total} chars]");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(shorten),
        Value::Object(map) => map.values_mut().for_each(shorten),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
