//! The calls that a tool may make while it runs.

use std::sync::{Arc, OnceLock};

use super::resolve::ResolvedTool;
use crate::call::CallContext;
use crate::call::invoke::nested::{InvokeGrant, ToolCaller};
use crate::pipeline::context::batch::BatchContext;
use crate::pipeline::context::parent_call::ParentCall;

/// Makes the port through which the tool of a parent call calls others. The runner passes it to the stages: nested calls
/// pass all of them again.
pub(crate) type MakeCaller = fn(&Arc<ParentCall>, &BatchContext) -> Arc<dyn ToolCaller>;

/// The calls that a tool may make while it runs.
#[derive(Debug)]
pub(super) struct NestedCalls {
    grant: Arc<dyn InvokeGrant>,
    parent: OnceLock<Arc<ParentCall>>,
}

impl NestedCalls {
    /// The nested calls of a tool; `None` if it has no grant for them.
    pub(super) fn for_tool(tool: ResolvedTool<'_>) -> Option<Self> {
        let grant = tool.entry().invoker.invoke_grant(tool.ctx.profile.as_deref())?;
        Some(Self { grant, parent: OnceLock::new() })
    }

    /// Whether a nested call returned untrusted text.
    pub(super) fn returned_untrusted(&self) -> bool {
        self.parent.get().is_some_and(|parent| parent.returned_untrusted())
    }

    /// The call as the parent of its nested calls.
    pub(super) fn parent(&self, batch: &BatchContext, ctx: &Arc<CallContext>) -> &Arc<ParentCall> {
        self.parent.get_or_init(|| Arc::new(ParentCall::new(ctx, &self.grant, batch.parent.as_ref())))
    }
}
