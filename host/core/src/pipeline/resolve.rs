//! The first stage: the tool that a call means, and whether the caller may call it.

use std::sync::Arc;

use toolbay_policy::Profile;

use super::batch::BatchContext;
use super::record::AuditGuard;
use crate::call::CallContext;
use crate::call::invoke::Target;
use crate::registry::view::{Entry, FoundTool};
use crate::tool::ToolSource;
use crate::tool::content::ToolError;

/// What a call names: a tool of the view, or nothing.
pub(super) struct CallTarget<'b> {
    /// The tool. It is looked up once, so every later stage sees the same one.
    pub(super) found: Option<FoundTool<'b>>,
    pub(super) ctx: Arc<CallContext>,
}

/// A tool that the view knows, that its caller may see and that is available.
#[derive(Clone, Copy)]
pub(super) struct ResolvedTool<'b> {
    found: FoundTool<'b>,
    pub(super) ctx: &'b Arc<CallContext>,
}

impl<'b> ResolvedTool<'b> {
    /// The tool as the registry has it.
    pub(super) fn entry(self) -> &'b Arc<Entry> {
        self.found.entry()
    }

    /// The profile under which the call runs.
    pub(super) fn profile(self) -> Option<&'b Profile> {
        self.found.profile()
    }

    /// The name of that profile.
    pub(super) fn profile_name(self) -> Option<&'b Arc<str>> {
        self.found.profile_name()
    }
}

impl<'b> CallTarget<'b> {
    /// Where the tool comes from.
    pub(super) fn source(&self) -> Option<&'b Arc<ToolSource>> {
        self.found.map(|tool| &tool.entry().def.source)
    }

    /// Looks up the tool of a call. A tool that only forwards calls is replaced by its target, if the view lets it be called.
    pub(super) fn find(guard: &mut AuditGuard<'b>, mut args: String) -> (Self, String) {
        let batch = guard.batch;
        let mut found = batch.view.find_tool(&guard.requested_tool);
        let forward =
            |tool: FoundTool<'_>| tool.entry().invoker.forward(&args).filter(|_| tool.is_available());
        let target = found.and_then(forward).map(|Target { tool, args: forwarded }| {
            found = batch.view.find_tool(&tool);
            args = forwarded;
            Arc::<str>::from(tool)
        });
        let entry = found.map(FoundTool::entry);
        // The name is shared with the definition where there is one.
        let name = match (&target, entry) {
            (_, Some(entry)) => Arc::clone(entry.def.name.shared()),
            (Some(target), None) => Arc::clone(target),
            (None, None) => guard.requested_tool.as_str().into(),
        };
        let profile = found.map_or_else(|| batch.view.profile(), FoundTool::profile_name).cloned();
        let budget = batch.budget_chars(entry.and_then(|entry| entry.call.result_chars));
        let (id, turn) = (Arc::clone(guard.call_id), Arc::clone(&batch.turn));
        let mut ctx = CallContext::new(id, name, budget, turn, guard.redactor.clone(), profile);
        ctx.ends = batch.deadline;
        let call = Self { found, ctx: Arc::new(ctx) };
        guard.set_target(&call, target.is_some());
        (call, args)
    }
}

/// Gates 1 to 9: what the session has left, the grant of a calling tool, and whether the tool is known, visible and
/// available. The session counts first, so a call of an unknown tool counts, too.
pub(super) fn resolve<'b>(
    batch: &'b BatchContext,
    target: &'b CallTarget<'b>,
) -> Result<ResolvedTool<'b>, ToolError> {
    batch.turn.session.count_call(&batch.gates.session, batch.turn_count.as_deref())?;
    if let Some(parent) = &batch.parent {
        parent.check_grant(&target.ctx.tool)?;
    }
    let found = target.found.ok_or_else(|| batch.view.unknown(&target.ctx.tool))?;
    found.check_available()?;
    Ok(ResolvedTool { found, ctx: &target.ctx })
}
