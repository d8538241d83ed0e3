//! Runs calls: the stages of each call, and the calls of a batch side by side.

mod nested;
pub(super) mod schedule;

use std::panic::AssertUnwindSafe;
use std::pin::pin;

use futures_util::FutureExt;

use self::nested::make_caller;
use self::schedule::{BATCH_TASKS, BatchScheduler, CallGroup, RunCall, consume_call_share};
use super::context::batch::BatchContext;
use super::context::early_result::EarlyResult;
use super::context::guard::AuditGuard;
use super::context::shared;
use super::context::target::CallTarget;
use super::result::{CallResult, ShapedOutput};
use super::stages::admit::admit;
use super::stages::invoke::{InvokedCall, invoke};
use super::stages::resolve::{find_target, resolve};
use super::stages::shape::shape;
use super::stages::validate::validate;
use crate::call::ToolCall;
use crate::call::invoke::Failure;
use crate::tool::fault::Fault;

/// Runs the calls of a turn and returns their results in the order of the calls.
pub(super) async fn run_batch(batch: BatchContext, calls: Vec<ToolCall>) -> Vec<CallResult> {
    if calls.len() > 1 {
        let groups = CallGroup::group(&batch.view, calls);
        // Boxed to keep the future of a single call small.
        return Box::pin(BatchScheduler::run(batch, groups)).await;
    }
    let mut results = Vec::with_capacity(calls.len());
    for call in calls {
        consume_call_share().await;
        results.push(batch.run_call(call).await);
    }
    results
}

/// Runs the calls of a turn, and passes on each result as its call ends, with the index of the call.
pub(super) async fn run_each(
    batch: BatchContext,
    calls: Vec<ToolCall>,
    take: impl FnMut(usize, CallResult) + Send,
) {
    let groups = CallGroup::group(&batch.view, calls);
    BatchScheduler::run_each(batch, groups, BATCH_TASKS, take).await;
}

/// Records a call that is refused before its first gate.
pub(super) fn refuse_call(batch: &BatchContext, call: ToolCall, fault: Fault) -> CallResult {
    let ToolCall { id, tool, args, .. } = call;
    let mut guard = AuditGuard::new(batch, &id, tool, args.len());
    drop(find_target(&mut guard, args));
    guard.finish(ShapedOutput::failed(fault.into()))
}

impl RunCall for BatchContext {
    /// Runs one call through all stages and records it.
    async fn run_call(&self, call: ToolCall) -> CallResult {
        let ToolCall { id, tool, args, idempotency_key } = call;
        let mut guard = AuditGuard::new(self, &id, tool, args.len());
        guard.idempotency_key = idempotency_key;
        let output = {
            let stages = pin!(run_stages(&mut guard, args));
            AssertUnwindSafe(stages).catch_unwind().await
        };
        guard.finish(output.unwrap_or_else(|_| {
            ShapedOutput::failed(Failure::Host("the call panicked; see the log".to_owned()))
        }))
    }
}

/// Runs the stages of a call. Each stage is a type that one function constructs from the previous stage.
async fn run_stages(guard: &mut AuditGuard<'_>, args: String) -> ShapedOutput {
    let (target, args) = find_target(guard, args);
    let outcome = run_tool(guard, &target, args).await;
    shape(guard, &target, outcome).await
}

/// The stages up to the result of the tool. `docs/explanation/call.md` lists their gates in order; a test compares the
/// two.
async fn run_tool(
    guard: &mut AuditGuard<'_>,
    target: &CallTarget<'_>,
    args: String,
) -> Result<InvokedCall, EarlyResult> {
    guard.enter(target)?;
    if let Some(shared) = &guard.batch.pipeline.shared {
        Box::pin(shared::charge(shared, guard.batch)).await?;
    }
    let tool = resolve(guard.batch, target).await?;
    let call = validate(guard, tool, args).await?;
    let call = admit(guard, tool, call).await?;
    invoke(guard, tool, call, make_caller).await
}
