//! The first stage: the lookup of the tool, and whether the caller may call it.

use std::sync::Arc;

use toolbay_policy::Profile;

use super::batch::BatchContext;
use super::record::AuditGuard;
use crate::call::CallContext;
use crate::call::invoke::ForwardTarget;
use crate::registry::view::{FoundTool, ToolEntry};
use crate::tool::ToolSource;
use crate::tool::content::ToolError;

/// The target of a call: a tool of the view, or an unknown name.
pub(super) struct CallTarget<'b> {
    /// The tool. It is looked up once, so all stages see the same tool.
    pub(super) found: Option<FoundTool<'b>>,
    pub(super) ctx: Arc<CallContext>,
}

/// A tool of the view that is visible to the caller and available.
#[derive(Clone, Copy)]
pub(super) struct ResolvedTool<'b> {
    found: FoundTool<'b>,
    pub(super) ctx: &'b Arc<CallContext>,
}

impl<'b> ResolvedTool<'b> {
    /// The registry entry of the tool.
    pub(super) fn entry(self) -> &'b Arc<ToolEntry> {
        self.found.entry()
    }

    /// The profile of the call.
    pub(super) fn profile(self) -> Option<&'b Profile> {
        self.found.profile()
    }

    /// The name of the profile.
    pub(super) fn profile_name(self) -> Option<&'b Arc<str>> {
        self.found.profile_name()
    }
}

impl<'b> CallTarget<'b> {
    /// The source of the tool.
    pub(super) fn source(&self) -> Option<&'b Arc<ToolSource>> {
        self.found.map(|tool| &tool.entry().def.source)
    }

    /// Looks up the tool of a call. A forwarding tool that is available is replaced by its target.
    pub(super) fn find(guard: &mut AuditGuard<'b>, mut args: String) -> (Self, String) {
        let batch = guard.batch;
        let mut found = batch.view.find_tool(&guard.requested_tool);
        let forward =
            |tool: FoundTool<'_>| tool.entry().invoker.forward(&args).filter(|_| tool.is_available());
        let target = found.and_then(forward).map(|ForwardTarget { tool, args: forwarded }| {
            found = batch.view.find_tool(&tool);
            args = forwarded;
            Arc::<str>::from(tool)
        });
        let entry = found.map(FoundTool::entry);
        // The name shares its allocation with the definition, if there is one.
        let name = match (&target, entry) {
            (_, Some(entry)) => Arc::clone(entry.def.name.as_arc()),
            (Some(target), None) => Arc::clone(target),
            (None, None) => guard.requested_tool.as_str().into(),
        };
        let profile = found.map_or_else(|| batch.view.profile(), FoundTool::profile_name).cloned();
        let budget = batch.budget_chars(entry.and_then(|entry| entry.call.result_chars));
        let (id, turn) = (Arc::clone(guard.call_id), Arc::clone(&batch.turn));
        let mut ctx = CallContext::new(id, name, budget, turn, guard.redactor.clone(), profile);
        ctx.deadline = batch.deadline;
        if let Some(tracer) = &batch.pipeline.tracer {
            ctx.trace = Some(batch.start_trace(tracer, guard.start));
        }
        let call = Self { found, ctx: Arc::new(ctx) };
        guard.set_target(&call, target.is_some());
        (call, args)
    }
}

/// Gates 2 to 10: the budgets of the session, the grant of a calling tool, and whether the tool is known, visible and
/// available. The session counts the call first, so a call of an unknown tool counts, too.
pub(super) fn resolve<'b>(
    batch: &'b BatchContext,
    target: &'b CallTarget<'b>,
) -> Result<ResolvedTool<'b>, ToolError> {
    batch.turn.session.count_call(&batch.call_policy.session, batch.turn_count.as_deref())?;
    if let Some(parent) = &batch.parent {
        parent.check_grant(&target.ctx.tool)?;
    }
    let found = target.found.ok_or_else(|| batch.view.unknown_tool_error(&target.ctx.tool))?;
    found.check_available()?;
    Ok(ResolvedTool { found, ctx: &target.ctx })
}
