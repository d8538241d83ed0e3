//! The third stage: permission for a valid call. The permission rules decide, or a person if the rules say so.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::Value;
use tokio::time::Instant;
use toolbay_policy::permission::{Action, Permissions};
use toolbay_policy::quantity;

use super::resolve::ResolvedTool;
use super::ruling::Ruling;
use super::validate::ValidatedCall;
use crate::approval::{ApprovalCaller, ApprovalReply, ApprovalRequest, Approver, ArgumentsPreview};
use crate::audit;
use crate::call::{AdmittedCall, CallContext};
use crate::pipeline::context::batch::BatchContext;
use crate::pipeline::context::early_result::EarlyResult;
use crate::pipeline::context::guard::AuditGuard;
use crate::pipeline::context::shared;
use crate::registry::event::HostEvent;
use crate::session::StandingApproval;
use crate::tool::content::ToolOutput;
use crate::tool::fault::{Fault, FaultKind};
use crate::tool::refusal::{Refusal, RefusalReason};

/// Longest comment of a person who refused a call, in characters.
const MAX_ANSWER: usize = 300;
/// Steps to copy, read or write a byte of arguments for people.
const PREVIEW_STEPS: u64 = 3;
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
pub(crate) async fn admit(
    guard: &mut AuditGuard<'_>,
    tool: ResolvedTool<'_>,
    call: ValidatedCall,
) -> Result<AdmittedCall, EarlyResult> {
    let state = check_permission(guard, tool, &call).await?;
    let steps = preview_steps(&call);
    let ValidatedCall { args, parsed, .. } = call;
    let call = AdmittedCall { tool: Arc::clone(&tool.entry().def), args, parsed };
    if tool.ctx.turn.dry_run {
        let would_run = move || dry_run(&call, state);
        return Err(EarlyResult::DryRun(Box::pin(tool.ctx.compute(steps, would_run)).await?));
    }
    Ok(call)
}

/// An estimate of the steps to show the arguments of a call to people.
fn preview_steps(call: &ValidatedCall) -> u64 {
    (call.args.len() as u64).saturating_mul(PREVIEW_STEPS)
}

/// Evaluates the rules for the call. Without rules, every call is allowed.
async fn check_permission(
    guard: &mut AuditGuard<'_>,
    tool: ResolvedTool<'_>,
    call: &ValidatedCall,
) -> Result<ApprovalState, EarlyResult> {
    let policy = &guard.batch.call_policy.permissions;
    let profile = tool.found.profile().map(|profile| &profile.permissions);
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
        Action::Deny => Err(deny(guard.batch, tool.ctx, &ruling, &Denial::Rule).into()),
        // Boxed to keep the future of calls that need no approval small.
        Action::Ask => {
            let start = Instant::now();
            let state = Box::pin(request_approval(guard, tool.ctx, &ruling, call)).await;
            guard.waited += start.elapsed();
            state
        }
    }
}

async fn request_approval(
    guard: &mut AuditGuard<'_>,
    ctx: &CallContext,
    ruling: &Ruling<'_>,
    call: &ValidatedCall,
) -> Result<ApprovalState, EarlyResult> {
    let batch = guard.batch;
    let session = &batch.turn.session;
    let approval = StandingApproval::new(ruling.tool, ruling.rule(), ruling.profile);
    let Some((approver, by)) = find_approver(batch) else {
        return Err(deny(batch, ctx, ruling, &Denial::NoApprover(None)).into());
    };
    if ctx.turn.dry_run && !shared::is_approved(batch, &approval).await {
        return Ok(ApprovalState::Pending);
    }
    let _approval_lock = tokio::select! {
        biased;
        () = ctx.cancel().cancelled() => return Err(cancelled().into()),
        lock = session.lock_approvals() => lock,
    };
    if shared::is_approved(batch, &approval).await {
        guard.permission = Some(ruling.decision(true, Some("before")));
        return Ok(ApprovalState::Approved);
    }
    guard.permission = Some(ruling.decision(false, Some(by)));
    let (tool, call_id) = (Arc::clone(&ctx.tool), Arc::clone(&ctx.call_id));
    batch.pipeline.events.emit(HostEvent::PermissionAsked { tool, call_id });
    let (text, sha256) = (Arc::<str>::from(&*call.args), call.sha256);
    let args_text = Arc::clone(&text);
    let preview = ctx.compute(preview_steps(call), move || ArgumentsPreview::new(&text, sha256)).await?;
    let request = ApprovalRequest {
        call_id: audit::cut(&ctx.call_id),
        tool: ruling.tool.name.as_str().to_owned(),
        source: ruling.tool.source.label(),
        caller: caller(batch, ctx),
        args: Arc::clone(&call.parsed),
        args_text,
        preview,
        reason: ruling.reason(),
    };
    let denial = match await_reply(batch, approver, &request, ctx).await? {
        Ok(answer @ (ApprovalReply::Yes | ApprovalReply::Always)) => {
            if answer == ApprovalReply::Always {
                shared::add_approval(batch, approval).await;
            }
            guard.permission = Some(ruling.decision(true, Some(by)));
            return Ok(ApprovalState::Approved);
        }
        Ok(ApprovalReply::Deferred) => {
            uncount(guard);
            return Err(EarlyResult::NeedsInput);
        }
        Ok(ApprovalReply::No(comment)) => {
            Denial::Person(comment.map(|text| text.chars().take(MAX_ANSWER).collect()))
        }
        Ok(ApprovalReply::Unanswered(why)) => {
            Denial::NoApprover(Some(why.chars().take(MAX_ANSWER).collect()))
        }
        Err(no_reply) => no_reply,
    };
    Err(deny(batch, ctx, ruling, &denial).into())
}

/// The reason why a call that the rules deny, or that needs an approval, does not run.
enum Denial {
    /// The rules deny it.
    Rule,
    /// Nobody can be asked. The text is the approver's reason, if it gave one.
    NoApprover(Option<String>),
    /// A person refused the call, with an optional comment.
    Person(Option<String>),
    /// Nobody replied within this time.
    Timeout(Duration),
    /// The approver panicked.
    ApproverFailed,
}

impl Denial {
    fn reason(&self) -> RefusalReason {
        match self {
            Self::Rule => RefusalReason::Rule,
            Self::NoApprover(_) => RefusalReason::NoApprover,
            Self::Person(_) => RefusalReason::Person,
            Self::Timeout(_) => RefusalReason::ApprovalTimeout,
            Self::ApproverFailed => RefusalReason::ApproverFailed,
        }
    }

    /// The outcome of asking a person.
    fn event(&self) -> Option<String> {
        Some(match self {
            Self::Rule => return None,
            Self::NoApprover(None) => "no approver is available".to_owned(),
            Self::NoApprover(Some(why)) => why.clone(),
            Self::Person(None) => "the answer was no".to_owned(),
            Self::Person(Some(comment)) => format!("the answer was no: {comment}"),
            Self::Timeout(waited) => {
                let waited = quantity::show_duration(*waited);
                format!("the approver did not answer within {waited} (`[permissions] ask_timeout`)")
            }
            Self::ApproverFailed => "the approver failed".to_owned(),
        })
    }

    /// What would change the outcome, for the model.
    const fn remedy(&self) -> &'static str {
        match self {
            Self::Rule => "only the operator can allow it, in the policy",
            Self::NoApprover(_) => {
                "it runs where a person can be asked and agrees, or where the policy allows it without asking"
            }
            Self::Person(_) => {
                "only that person can change it, so do not repeat the call unless they ask for it"
            }
            Self::Timeout(_) | Self::ApproverFailed => "a later call asks again",
        }
    }
}

/// The approver for the call, and its name in the audit.
fn find_approver(batch: &BatchContext) -> Option<(&Arc<dyn Approver>, &'static str)> {
    let of_turn = batch.turn.approver.as_ref().map(|approver| (approver, "client"));
    let of_session = batch.turn.session.approver().map(|approver| (approver, "session"));
    let of_host = batch.pipeline.approver.as_ref().map(|approver| (approver, "host"));
    of_turn.or(of_session).or(of_host)
}

/// Who asks for the call.
fn caller(batch: &BatchContext, ctx: &CallContext) -> ApprovalCaller {
    let text = |text: &str| audit::redacted(ctx.redactor(), text);
    let identity = &batch.turn.identity;
    ApprovalCaller {
        client: identity.client.as_deref().map(text),
        agent: identity.agent_id.as_deref().map(text),
        platform: identity.platform.as_deref().map(text),
        session: batch.turn.session.id().map(text),
        profile: ctx.profile.as_deref().map(text),
    }
}

/// The reply of the approver, or the reason why there is none. The end of the call withdraws the request.
async fn await_reply(
    batch: &BatchContext,
    approver: &Arc<dyn Approver>,
    request: &ApprovalRequest,
    ctx: &CallContext,
) -> Result<Result<ApprovalReply, Denial>, Fault> {
    let patience = batch.call_policy.permissions.ask_timeout;
    // In an async block, since the method itself may panic before it returns a future.
    let answer = AssertUnwindSafe(async { approver.ask(request).await }).catch_unwind();
    tokio::select! {
        biased;
        () = ctx.cancel().cancelled() => Err(cancelled()),
        answer = answer => Ok(answer.map_err(|_| {
            tracing::error!(tool = %ctx.tool, "an approver panicked; the call is refused");
            Denial::ApproverFailed
        })),
        () = tokio::time::sleep(patience) => Ok(Err(Denial::Timeout(patience))),
    }
}

/// Gives the budgets back what the call has taken: the client will repeat it with the reply.
fn uncount(guard: &AuditGuard<'_>) {
    let (batch, digests) = (guard.batch, guard.digests);
    batch
        .turn
        .session
        .uncount_call(batch.turn_count.as_deref(), digests.as_ref().map(|digests| &digests.call));
    if let Some(shared) = &batch.pipeline.shared {
        shared::return_call(shared, batch);
    }
}

fn cancelled() -> Fault {
    Fault::new(FaultKind::Cancelled, "the call was cancelled before it was approved")
}

fn deny(batch: &BatchContext, ctx: &CallContext, ruling: &Ruling<'_>, denial: &Denial) -> Refusal {
    let mut because = ruling.reason();
    if let Some(event) = denial.event() {
        because.push_str(", and ");
        because.push_str(&event);
    }
    let (tool, call_id) = (Arc::clone(&ctx.tool), Arc::clone(&ctx.call_id));
    let event = HostEvent::PermissionDenied { tool, call_id, reason: Some(because.clone()) };
    batch.pipeline.events.emit(event);
    let name = ruling.tool.name.as_str();
    let remedy = match (denial, ruling.long_argument()) {
        (Denial::Rule, Some(_)) => {
            "a shorter argument is compared, and may run; otherwise only the operator can allow it"
        }
        _ => denial.remedy(),
    };
    let text = format!("Tool {name} is denied by permission policy: {because}; {remedy}");
    Refusal::new(denial.reason(), text).with_subject("permission").with_hint(ruling.hint())
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
