//! The third stage: permission for a valid call. The permission rules decide, or a person if the rules say so.

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
use super::shared;
use super::validate::ValidatedCall;
use crate::audit;
use crate::call::approval::{ApprovalReply, ApprovalRequest, Approver};
use crate::call::dialog::INPUT_REQUIRED;
use crate::call::fault::{Fault, FaultKind};
use crate::call::invoke::Failure;
use crate::call::{AdmittedCall, CallContext};
use crate::registry::event::HostEvent;
use crate::session::StandingApproval;
use crate::tool::content::{ErrorCode, ToolError, ToolOutput};

/// Longest comment of a person who refused a call, in characters.
const MAX_ANSWER: usize = 300;
/// Longest string argument in the output of a dry run, in characters.
const DRY_RUN_CHARS: usize = 500;

/// Whether a call is approved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ApprovalState {
    /// The call needs no approval, or has it.
    Approved,
    /// The call needs an approval, which a dry run does not request.
    Pending,
}

/// Gates 15 and 16: the rules of the policy and the profile, and the end of a dry run. Only this function constructs an
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

/// Evaluates the rules for the call. Without rules, every call is allowed.
async fn check_permission(
    guard: &mut AuditGuard<'_>,
    tool: ResolvedTool<'_>,
    call: &ValidatedCall,
) -> Result<ApprovalState, Failure> {
    let policy = &guard.batch.call_policy.permissions;
    let profile = tool.profile().map(|profile| &profile.permissions);
    let open = policy.allows_everything() && profile.is_none_or(Permissions::allows_everything);
    if open && !tool.entry().def.traits.needs_approval {
        return Ok(ApprovalState::Approved);
    }
    let ruling = Ruling::decide(guard.batch, tool, call);
    guard.permission = Some(ruling.decision(false, None));
    match ruling.action() {
        Action::Allow => {
            guard.permission = Some(ruling.decision(true, None));
            Ok(ApprovalState::Approved)
        }
        Action::Deny => Err(deny(guard.batch, tool.ctx, &ruling, None)),
        // Boxed to keep the future of calls that need no approval small.
        Action::Ask => Box::pin(request_approval(guard, tool.ctx, &ruling, call)).await,
    }
}

async fn request_approval(
    guard: &mut AuditGuard<'_>,
    ctx: &CallContext,
    ruling: &Ruling<'_>,
    call: &ValidatedCall,
) -> Result<ApprovalState, Failure> {
    let batch = guard.batch;
    let session = &batch.turn.session;
    let approval = StandingApproval::new(ruling.tool, ruling.rule(), ruling.profile);
    let Some((approver, by)) = find_approver(batch) else {
        return Err(deny(batch, ctx, ruling, Some("no approver is available")));
    };
    if ctx.turn.dry_run && !shared::is_approved(batch, &approval).await {
        return Ok(ApprovalState::Pending);
    }
    let _approval_lock = tokio::select! {
        biased;
        () = ctx.cancel().cancelled() => return Err(cancelled()),
        lock = session.lock_approvals() => lock,
    };
    if shared::is_approved(batch, &approval).await {
        guard.permission = Some(ruling.decision(true, Some("before")));
        return Ok(ApprovalState::Approved);
    }
    guard.permission = Some(ruling.decision(false, Some(by)));
    let (tool, call_id) = (Arc::clone(&ctx.tool), Arc::clone(&ctx.call_id));
    batch.pipeline.events.emit(HostEvent::PermissionAsked { tool, call_id });
    let request = ApprovalRequest {
        call_id: audit::cut(&ctx.call_id),
        tool: ruling.tool.name.as_str().to_owned(),
        source: ruling.tool.source.label(),
        args: Value::clone(&call.parsed),
        reason: ruling.reason(),
    };
    let no = match await_reply(batch, approver, &request, ctx).await? {
        Ok(answer @ (ApprovalReply::Yes | ApprovalReply::Always)) => {
            if answer == ApprovalReply::Always {
                shared::add_approval(batch, approval).await;
            }
            guard.permission = Some(ruling.decision(true, Some(by)));
            return Ok(ApprovalState::Approved);
        }
        Ok(ApprovalReply::Deferred) => return Err(postpone(guard, ctx)),
        Ok(ApprovalReply::No(None)) => "the answer was no".to_owned(),
        Ok(ApprovalReply::No(Some(text))) => {
            let text: String = text.chars().take(MAX_ANSWER).collect();
            format!("the answer was no: {text}")
        }
        Err(no_reply) => no_reply,
    };
    Err(deny(batch, ctx, ruling, Some(&no)))
}

/// The approver for the call, and its name in the audit.
fn find_approver(batch: &BatchContext) -> Option<(&Arc<dyn Approver>, &'static str)> {
    let of_turn = batch.turn.approver.as_ref().map(|approver| (approver, "client"));
    let of_session = batch.turn.session.approver().map(|approver| (approver, "session"));
    let of_host = batch.pipeline.approver.as_ref().map(|approver| (approver, "host"));
    of_turn.or(of_session).or(of_host)
}

/// The reply of the approver, or the reason why there is none. The end of the call withdraws the request.
async fn await_reply(
    batch: &BatchContext,
    approver: &Arc<dyn Approver>,
    request: &ApprovalRequest,
    ctx: &CallContext,
) -> Result<Result<ApprovalReply, String>, Failure> {
    let patience = batch.call_policy.permissions.ask_timeout;
    // In an async block, since the method itself may panic before it returns a future.
    let asked = AssertUnwindSafe(async { approver.ask(request).await }).catch_unwind();
    tokio::select! {
        biased;
        () = ctx.cancel().cancelled() => Err(cancelled()),
        answer = asked => Ok(answer.map_err(|_| {
            tracing::error!(tool = %ctx.tool, "an approver panicked; the call is refused");
            "the approver failed".to_owned()
        })),
        () = tokio::time::sleep(patience) => {
            let waited = quantity::show_duration(patience);
            Ok(Err(format!("the approver did not answer within {waited} (`[permissions] ask_timeout`)")))
        }
    }
}

/// Ends a call that the client will repeat with the reply. This attempt does not count against the budgets.
fn postpone(guard: &AuditGuard<'_>, ctx: &CallContext) -> Failure {
    let (batch, digests) = (guard.batch, guard.digests);
    batch
        .turn
        .session
        .uncount_call(batch.turn_count.as_deref(), digests.as_ref().map(|digests| &digests.call));
    if let Some(shared) = &batch.pipeline.shared {
        shared::return_call(shared, batch);
    }
    let text = format!("Tool {} was not run: the call needs an approval first", ctx.tool);
    ToolError::new(ErrorCode::NotAvailable, text).with_subject(INPUT_REQUIRED).into()
}

fn cancelled() -> Failure {
    Fault::new(FaultKind::Cancelled, "the call was cancelled before it was approved").into()
}

fn deny(batch: &BatchContext, ctx: &CallContext, ruling: &Ruling<'_>, no: Option<&str>) -> Failure {
    let mut because = ruling.reason();
    if let Some(no) = no {
        because.push_str(", and ");
        because.push_str(no);
    }
    let (tool, call_id) = (Arc::clone(&ctx.tool), Arc::clone(&ctx.call_id));
    let event = HostEvent::PermissionDenied { tool, call_id, reason: Some(because.clone()) };
    batch.pipeline.events.emit(event);
    let name = ruling.tool.name.as_str();
    let text = format!(
        "Tool {name} is denied by permission policy: {because}: {}",
        refusal::not_permitted_notice(name)
    );
    ToolError::new(ErrorCode::NotAvailable, text)
        .with_subject("permission")
        .with_hint(Some(ruling.allowing_lines()))
        .into()
}

/// The output of a dry run for a call that would run.
fn dry_run(call: &AdmittedCall, state: ApprovalState) -> ToolOutput {
    let mut args = Value::clone(&call.parsed);
    shorten(&mut args);
    let approval = if state == ApprovalState::Pending { ", if it is approved" } else { "" };
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
