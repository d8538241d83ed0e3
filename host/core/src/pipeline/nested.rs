//! Nested calls: calls that a running tool makes. They pass the same stages as all other calls.
//!
//! Nested calls run under the view, session, turn and rules of the parent call. They end with it and are recorded with
//! its id. Their outputs go to a program, so they are neither reduced nor marked nor saved. If one of them is
//! untrusted, the output of the calling tool is marked as untrusted, too.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use super::batch::{BatchContext, CallGroup};
use super::resolve::ResolvedTool;
use super::result::CallResult;
use super::schedule::BatchScheduler;
use crate::call::compute::ComputeQueue;
use crate::call::invoke::BoxFuture;
use crate::call::invoke::nested::{
    CallableTool, InvokeGrant, MAX_CHARS, NestedBatch, NestedResult, ResultHandler, ToolCaller,
};
use crate::call::shared::CallRights;
use crate::call::trace::CallTrace;
use crate::call::{CallContext, ToolCall, TurnContext};
use crate::registry::view::ToolEntry;
use crate::tool::refusal::{Refusal, RefusalReason};
use crate::tool::toolcall_reason;

/// A call that makes nested calls.
#[derive(Debug)]
pub(super) struct ParentCall {
    ctx: Arc<CallContext>,
    grant: Arc<dyn InvokeGrant>,
    /// Whether a nested call returned untrusted text.
    returned_untrusted: AtomicBool,
    /// The depth of the call: 0 for a model's call.
    depth: usize,
    /// The number of nested calls below the model's call so far.
    nested_count: Arc<AtomicU32>,
}

impl ParentCall {
    pub(super) fn id(&self) -> &str {
        &self.ctx.call_id
    }

    /// Where work on the data of the calling tool runs.
    pub(super) fn compute_queue(&self) -> ComputeQueue {
        self.ctx.compute_queue()
    }

    /// What the call may lose while it runs.
    pub(super) fn rights(&self) -> Option<&CallRights> {
        self.ctx.rights()
    }

    pub(super) fn trace(&self) -> Option<&CallTrace> {
        self.ctx.trace.as_deref()
    }

    /// Refuses a tool outside of the calling tool's grant, before the calling tool learns whether it exists.
    pub(super) fn check_grant(&self, tool: &str) -> Result<(), Refusal> {
        if self.grant.allows(tool) {
            return Ok(());
        }
        let refusal = self.grant.refusal(tool);
        let text = refusal.for_model(&self.ctx.tool);
        Err(Refusal::new(RefusalReason::Invoke, text).with_subject("denied").with_hint(refusal.hint))
    }

    /// Records that a nested call returned untrusted text.
    pub(super) fn note_untrusted(&self) {
        self.returned_untrusted.store(true, Ordering::Release);
    }
}

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
        self.parent.get().is_some_and(|parent| parent.returned_untrusted.load(Ordering::Acquire))
    }

    /// The caller that the tool makes nested calls through.
    pub(super) fn caller(&self, batch: &BatchContext, ctx: &Arc<CallContext>) -> Arc<dyn ToolCaller> {
        let above = batch.parent.as_ref();
        let parent = self.parent.get_or_init(|| {
            Arc::new(ParentCall {
                ctx: Arc::clone(ctx),
                grant: Arc::clone(&self.grant),
                returned_untrusted: AtomicBool::new(false),
                depth: above.map_or(0, |parent| parent.depth + 1),
                nested_count: above.map_or_else(Arc::default, |parent| Arc::clone(&parent.nested_count)),
            })
        });
        Arc::new(PipelineCaller { parent: Arc::clone(parent), batch: batch.clone() })
    }
}

/// Makes nested calls in the pipeline.
#[derive(Debug)]
struct PipelineCaller {
    parent: Arc<ParentCall>,
    /// The batch of the parent.
    batch: BatchContext,
}

impl ToolCaller for PipelineCaller {
    fn depth(&self) -> usize {
        self.parent.depth + 1
    }

    fn count(&self, calls: u32, most: u32) -> Option<u32> {
        let more = |made: u32| made.checked_add(calls).filter(|made| *made <= most);
        self.parent.nested_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()
    }

    fn tools(&self) -> Vec<CallableTool> {
        let granted = |entry: &&Arc<ToolEntry>| self.parent.grant.allows(entry.def.name.as_str());
        self.batch.view.discoverable().filter(granted).map(|entry| callable(entry)).collect()
    }

    fn call<'a>(&'a self, nested: NestedBatch, handle: ResultHandler<'a>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let NestedBatch { calls, max_concurrent: at_once, deadline: ends } = nested;
            let cancel = self.batch.turn.cancel.child_token();
            let _end = cancel.clone().drop_guard();
            let turn = TurnContext {
                budget_chars: MAX_CHARS,
                cancel,
                // The parent call reports progress.
                progress: None,
                ..TurnContext::clone(&self.batch.turn)
            };
            let batch = BatchContext {
                turn: Arc::new(turn),
                size: calls.len(),
                parent: Some(Arc::clone(&self.parent)),
                deadline: Some(ends),
                ..self.batch.clone()
            };
            let calls = calls.into_iter().map(|call| self.with_nested_id(call)).collect();
            let groups = CallGroup::group(&batch.view, calls);
            let handle = |index, result: CallResult| {
                let CallResult { result, shaping, hints, .. } = result;
                // The calling program gets the text for models. The operator gets the hints with those of the parent.
                hints.lines.into_iter().for_each(|hint| self.parent.ctx.add_hint(hint));
                handle(index, NestedResult { result, cut: shaping.cut_from_chars.is_some() });
            };
            BatchScheduler::run_nested(batch, groups, at_once, handle).await;
        })
    }
}

impl PipelineCaller {
    fn with_nested_id(&self, call: ToolCall) -> ToolCall {
        ToolCall { id: format!("{}/{}", self.parent.id(), call.id).into(), ..call }
    }
}

fn callable(entry: &ToolEntry) -> CallableTool {
    let schema = &entry.def.input_schema;
    let schema = if entry.has_reason_argument() {
        toolcall_reason::schema_without_reason(schema)
    } else {
        schema.value().clone()
    };
    CallableTool {
        name: entry.def.name.as_str().to_owned(),
        description: entry.def.description.clone(),
        input_schema: schema.to_string(),
        output_schema: entry.def.output_schema.as_ref().map(|schema| schema.value().to_string()),
    }
}
