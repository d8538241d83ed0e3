//! A call whose tool calls others, as its nested calls see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::call::CallContext;
use crate::call::invoke::nested::InvokeGrant;
use crate::tool::refusal::{Refusal, RefusalReason};

/// A call that makes nested calls.
#[derive(Debug)]
pub(crate) struct ParentCall {
    pub(crate) ctx: Arc<CallContext>,
    /// The tools that the calling tool may call.
    pub(crate) grant: Arc<dyn InvokeGrant>,
    /// Whether a nested call returned untrusted text.
    returned_untrusted: AtomicBool,
    /// The depth of the call: 0 for a model's call.
    pub(crate) depth: usize,
    /// The number of nested calls below the model's call so far.
    nested_count: Arc<AtomicU32>,
}

impl ParentCall {
    /// A call that runs with `ctx` in this batch.
    pub(crate) fn new(
        ctx: &Arc<CallContext>,
        grant: &Arc<dyn InvokeGrant>,
        above: Option<&Arc<Self>>,
    ) -> Self {
        Self {
            ctx: Arc::clone(ctx),
            grant: Arc::clone(grant),
            returned_untrusted: AtomicBool::new(false),
            depth: above.map_or(0, |parent| parent.depth + 1),
            nested_count: above.map_or_else(Arc::default, |parent| Arc::clone(&parent.nested_count)),
        }
    }

    /// As [`ToolCaller::count`](crate::call::invoke::nested::ToolCaller::count).
    pub(crate) fn count(&self, calls: u32, most: u32) -> Option<u32> {
        let add = |made: u32| made.checked_add(calls).filter(|made| *made <= most);
        self.nested_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()
    }

    /// Refuses a tool outside of the calling tool's grant, before the calling tool learns whether it exists.
    pub(crate) fn check_grant(&self, tool: &str) -> Result<(), Refusal> {
        if self.grant.allows(tool) {
            return Ok(());
        }
        let refusal = self.grant.refusal(tool);
        let text = refusal.for_model(&self.ctx.tool);
        Err(Refusal::new(RefusalReason::Invoke, text).with_subject("denied").with_hint(refusal.hint))
    }

    /// Whether a nested call returned untrusted text.
    pub(crate) fn returned_untrusted(&self) -> bool {
        self.returned_untrusted.load(Ordering::Acquire)
    }

    /// Records that a nested call returned untrusted text.
    pub(crate) fn note_untrusted(&self) {
        self.returned_untrusted.store(true, Ordering::Release);
    }
}
