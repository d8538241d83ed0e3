//! The first stage: the lookup of the tool, and whether the caller may call it.

use std::sync::Arc;

use crate::call::CallContext;
use crate::call::invoke::ForwardTarget;
use crate::pipeline::context::batch::BatchContext;
use crate::pipeline::context::early_result::EarlyResult;
use crate::pipeline::context::guard::AuditGuard;
use crate::pipeline::context::target::CallTarget;
use crate::registry::view::{FoundTool, ToolDenial, ToolEntry};
use crate::tool::refusal::Refusal;

/// A tool of the view that is visible to the caller and available.
#[derive(Clone, Copy)]
pub(crate) struct ResolvedTool<'b> {
    pub(super) found: FoundTool<'b>,
    pub(super) ctx: &'b Arc<CallContext>,
}

impl<'b> ResolvedTool<'b> {
    /// The registry entry of the tool.
    pub(super) fn entry(self) -> &'b Arc<ToolEntry> {
        self.found.entry()
    }
}

/// Looks up the tool of a call. A forwarding tool that is available is replaced by its target.
pub(crate) fn find_target<'b>(guard: &mut AuditGuard<'b>, mut args: String) -> (CallTarget<'b>, String) {
    let batch = guard.batch;
    let mut found = batch.view.find_tool(&guard.requested_tool);
    let forward = |tool: FoundTool<'_>| tool.entry().invoker.forward(&args).filter(|_| tool.is_available());
    let forwarded = found.and_then(forward).map(|ForwardTarget { tool, args: new }| {
        found = batch.view.find_tool(&tool);
        args = new;
        Arc::<str>::from(tool)
    });
    let source = found.map(|tool| &tool.entry().def.source);
    let profile = found.map_or_else(|| batch.view.profile(), FoundTool::profile_name).cloned();
    let denial = found.and_then(|tool| tool.denial());
    let found = found.filter(|_| !denial.as_ref().is_some_and(ToolDenial::hides_tool));
    let entry = found.map(FoundTool::entry);
    // The name shares its allocation with the definition, if there is one.
    let name = match (&forwarded, entry) {
        (_, Some(entry)) => Arc::clone(entry.def.name.as_arc()),
        (Some(name), None) => Arc::clone(name),
        (None, None) => guard.requested_tool.as_str().into(),
    };
    let budget = batch.budget_chars(entry.and_then(|entry| entry.call.result_chars));
    let (id, turn) = (Arc::clone(guard.call_id), Arc::clone(&batch.turn));
    let (redactor, compute) = (guard.redactor.clone(), batch.pipeline.compute.clone());
    let mut ctx = CallContext::new(id, name, budget, turn, redactor, compute, profile);
    ctx.deadline = batch.deadline;
    if let Some(tracer) = &batch.pipeline.tracer {
        ctx.trace = Some(batch.start_trace(tracer, guard.start));
    }
    let target = CallTarget { found, source, denial, ctx: Arc::new(ctx) };
    guard.set_target(&target, forwarded.is_some());
    (target, args)
}

/// Gates 2 to 10: the budgets of the session, the grant of a calling tool, and whether the tool is known, visible and
/// available. The session counts the call first, so calls of unknown tools count as well.
pub(crate) async fn resolve<'b>(
    batch: &'b BatchContext,
    target: &'b CallTarget<'b>,
) -> Result<ResolvedTool<'b>, EarlyResult> {
    batch.turn.session.count_call(&batch.call_policy.session, batch.turn_count.as_deref())?;
    if let Some(parent) = &batch.parent {
        parent.check_grant(&target.ctx.tool)?;
    }
    match (&target.denial, target.found) {
        (None, Some(found)) => Ok(ResolvedTool { found, ctx: &target.ctx }),
        // Boxed to keep the future of calls of known tools small.
        (denial, _) => Err(Box::pin(refuse(batch, target, denial.clone())).await),
    }
}

/// The refusal of a tool that the caller cannot call or must not know. Calls of unknown names share one queue, since callers
/// can invent any number of names; the calls of a tool are in the queue of its source.
async fn refuse(batch: &BatchContext, target: &CallTarget<'_>, denial: Option<ToolDenial>) -> EarlyResult {
    let queue = match &batch.parent {
        Some(parent) => parent.ctx.compute_queue(),
        None => batch.pipeline.compute.queue("unknown tools".into(), target.ctx.cancel().clone()),
    };
    let (view, name) = (batch.view.clone(), Arc::clone(&target.ctx.tool));
    let suggests_names = denial.as_ref().is_none_or(ToolDenial::hides_tool);
    let steps = if suggests_names { view.suggestion_steps() } else { 0 };
    let refusal: Result<Refusal, _> = queue.run(steps, move || view.refuse(&name, denial)).await;
    refusal.map_or_else(EarlyResult::from, EarlyResult::from)
}
