//! The calls of one batch and what they share.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;

use super::admit::admit;
use super::invoke::{InvokedCall, invoke};
use super::nested::ParentCall;
use super::record::AuditGuard;
use super::resolve::{CallTarget, resolve};
use super::result::CallResult;
use super::shape::{ShapedOutput, shape};
use super::shared;
use super::validate::validate;
use super::{CallPolicy, PipelineParts};
use crate::call::dialog::INPUT_REQUIRED;
use crate::call::invoke::Failure;
use crate::call::trace::{CallTrace, Tracer};
use crate::call::{ToolCall, TurnContext};
use crate::output::budget;
use crate::registry::view::View;
use crate::session::TurnCount;
use crate::tool::content::ToolOutput;
use crate::tool::fault::Fault;
use crate::tool::refusal::{Refusal, RefusalReason};

/// Units that a call consumes of the 128 that tokio gives a task before it must yield. Other tasks run after sixteen
/// calls, about 100 µs.
const CALL_SHARE: usize = 8;

/// The context that the calls of a batch share.
#[derive(Debug, Clone)]
pub(super) struct BatchContext {
    pub(super) pipeline: Arc<PipelineParts>,
    pub(super) view: View,
    pub(super) turn: Arc<TurnContext>,
    pub(super) call_policy: Arc<CallPolicy>,
    pub(super) turn_count: Option<Arc<TurnCount>>,
    /// The number of calls in the batch.
    pub(super) size: usize,
    /// The parent call, if a tool makes these calls.
    pub(super) parent: Option<Arc<ParentCall>>,
    /// The deadline of the parent call.
    pub(super) deadline: Option<Instant>,
}

/// The result of a call that ends before its tool runs. No variant holds the error of a tool, so every refusal has a reason.
pub(super) enum EarlyResult {
    /// A gate refused the call.
    Refused(Refusal),
    /// The call was cancelled, or waited too long.
    Fault(Fault),
    /// The host failed.
    HostFailed(String),
    /// A dry run ends here.
    DryRun(ToolOutput),
    /// The client repeats the call with the reply of a person. This attempt counts for no budget.
    NeedsInput,
}

impl EarlyResult {
    /// The result for the caller, who called this tool.
    pub(super) fn into_result(self, tool: &str) -> Result<ToolOutput, Failure> {
        match self {
            Self::Refused(refusal) => Err(refusal.into()),
            Self::Fault(fault) => Err(fault.into()),
            Self::HostFailed(problem) => Err(Failure::Host(problem)),
            Self::DryRun(output) => Ok(output),
            Self::NeedsInput => {
                let text = format!("Tool {tool} was not run: the call needs an approval first");
                Err(Refusal::new(RefusalReason::InputRequired, text).with_subject(INPUT_REQUIRED).into())
            }
        }
    }
}

impl From<Refusal> for EarlyResult {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Fault> for EarlyResult {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl BatchContext {
    /// Runs one call through all stages and records it.
    pub(super) async fn run_call(&self, call: ToolCall) -> CallResult {
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

    /// Records a call that is refused before its first gate.
    pub(super) fn refuse_call(&self, call: ToolCall, fault: Fault) -> CallResult {
        let ToolCall { id, tool, args, .. } = call;
        let mut guard = AuditGuard::new(self, &id, tool, args.len());
        drop(CallTarget::find(&mut guard, args));
        guard.finish(ShapedOutput::failed(fault.into()))
    }

    /// Starts the trace of a call.
    pub(super) fn start_trace(&self, tracer: &Arc<Tracer>, start: tokio::time::Instant) -> Arc<CallTrace> {
        let caller = self.parent.as_ref().and_then(|parent| parent.trace());
        let request = &self.turn.request;
        let named = match request {
            Some(request) => request.parent,
            None => self.turn.identity.traceparent,
        };
        Arc::new(tracer.start(caller, named, request.clone(), start))
    }

    /// Most characters of the output of one call.
    pub(super) fn budget_chars(&self, of_tool: Option<u64>) -> usize {
        match self.parent {
            Some(_) => self.turn.budget_chars,
            None => budget::share(self.turn.budget_chars, self.size, of_tool),
        }
    }
}

/// Runs the stages of a call. Each stage is a type that one function constructs from the previous stage.
async fn run_stages(guard: &mut AuditGuard<'_>, args: String) -> ShapedOutput {
    let (target, args) = CallTarget::find(guard, args);
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
    invoke(guard, tool, call).await
}

/// Consumes cooperative budget, so that the task yields regularly. Without it, a caller with many calls that never wait
/// would block all other tasks of its thread and delay the runtime's timers.
pub(super) async fn consume_call_share() {
    for _ in 0..CALL_SHARE {
        tokio::task::coop::consume_budget().await;
    }
}

/// Calls that run one after the other: one call, or the calls of a batch that share a serial queue. Each call comes
/// with its index in the batch.
pub(super) struct CallGroup {
    pub(super) first: (usize, ToolCall),
    pub(super) rest: Vec<(usize, ToolCall)>,
}

impl CallGroup {
    /// Groups calls by serial queue. The order within a group is that of the batch.
    pub(super) fn group(view: &View, calls: Vec<ToolCall>) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::with_capacity(calls.len());
        let mut by_queue: HashMap<&Arc<str>, usize> = HashMap::new();
        for (index, call) in calls.into_iter().enumerate() {
            let queue = view.get(&call.tool).and_then(|entry| entry.call.serial.as_ref());
            let group = queue.map(|queue| *by_queue.entry(queue).or_insert(groups.len()));
            match group.and_then(|group| groups.get_mut(group)) {
                Some(group) => group.rest.push((index, call)),
                None => groups.push(Self { first: (index, call), rest: Vec::new() }),
            }
        }
        groups
    }
}
