//! Nested calls: calls that a running tool makes. They pass the same stages as all other calls.
//!
//! Nested calls run under the view, session, turn and rules of the parent call. They end with it and are recorded with
//! its id. Their outputs go to a program, so they are not reduced, marked or saved. If one of them is
//! untrusted, the output of the calling tool is marked as untrusted as well.

use std::sync::Arc;

use super::schedule::{BatchScheduler, CallGroup};
use crate::call::invoke::BoxFuture;
use crate::call::invoke::nested::{
    CallableTool, MAX_CHARS, NestedBatch, NestedResult, ResultHandler, ToolCaller,
};
use crate::call::{ToolCall, TurnContext};
use crate::pipeline::context::batch::BatchContext;
use crate::pipeline::context::parent_call::ParentCall;
use crate::pipeline::result::CallResult;
use crate::registry::view::ToolEntry;
use crate::tool::toolcall_reason;

/// The port through which the tool of a parent call calls others.
pub(super) fn make_caller(parent: &Arc<ParentCall>, batch: &BatchContext) -> Arc<dyn ToolCaller> {
    Arc::new(PipelineCaller { parent: Arc::clone(parent), batch: batch.clone() })
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
        self.parent.count(calls, most)
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
            BatchScheduler::run_each(batch, groups, at_once, handle).await;
        })
    }
}

impl PipelineCaller {
    fn with_nested_id(&self, call: ToolCall) -> ToolCall {
        ToolCall { id: format!("{}/{}", self.parent.ctx.call_id, call.id).into(), ..call }
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
