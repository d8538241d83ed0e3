//! The fifth stage: shaping of the output for the caller. Refusals are shaped, too.

mod reduce;
mod text;

use toolbay_policy::output::Truncation;

use self::reduce::{ReducerResult, reduce};
use self::text::OutputShaper;
use super::check::redact_result;
use super::invoke::InvokedCall;
use crate::call::AdmittedCall;
use crate::call::invoke::Failure;
use crate::output::rules::OutputRules;
use crate::pipeline::context::early_result::EarlyResult;
use crate::pipeline::context::guard::AuditGuard;
use crate::pipeline::context::refusals;
use crate::pipeline::context::result_memory::CallMemory;
use crate::pipeline::context::target::CallTarget;
use crate::pipeline::result::{ShapedOutput, Shaping};
use crate::tool::content::{ContentBlock, ToolOutput};

/// The rules for texts of the host and for outputs to a calling tool.
const HOST_RULES: OutputRules =
    OutputRules { untrusted: false, truncate: Truncation::Head, strip_blobs: false, policy_hints: false };

/// Shapes the result of the tool, or the result that the host returns in its place.
pub(crate) async fn shape(
    guard: &mut AuditGuard<'_>,
    target: &CallTarget<'_>,
    outcome: Result<InvokedCall, EarlyResult>,
) -> ShapedOutput {
    let (batch, ctx) = (guard.batch, &*target.ctx);
    let (mut result, rules, original, memory) = match outcome {
        Err(early) => (early.into_result(&ctx.tool), HOST_RULES, None, CallMemory::default()),
        Ok(InvokedCall { call, result, rules, memory }) => match &batch.parent {
            // A calling tool gets the complete output without a mark. Its own output is marked later.
            Some(parent) => {
                if rules.untrusted {
                    parent.note_untrusted();
                }
                (result, HOST_RULES, None, memory)
            }
            None => {
                let (result, original) = reduce_answer(guard, target, &call, result).await;
                (result, rules, original, memory)
            }
        },
    };
    refusals::append_raise_note(&mut result, &ctx.tool, target.source.map(|source| &**source));
    let mut shaper = OutputShaper::new(batch, ctx, target.source.map(|source| &**source), rules, original);
    let shaped = shaper.shape(&mut result).await;
    let OutputShaper { mark, saved, reduction_undone, .. } = shaper;
    let cut_from_chars = shaped.unwrap_or_else(|cancelled| {
        result = Err(cancelled.into());
        None
    });
    if reduction_undone {
        guard.update_run(|run| run.reducer = Some("kept"));
    }
    refusals::append_silent_refusals(&mut result, ctx);
    let note = guard.run.as_mut().and_then(|run| run.mismatch.take());
    let mismatch = note.is_some();
    if let (Ok(output), Some(mark)) = (&mut result, note) {
        output.content.push(ContentBlock::from_text(mark));
    }
    let memory = memory.settle(&mut result);
    ShapedOutput { result, shaping: Shaping { cut_from_chars, saved, mark, mismatch }, memory }
}

/// Applies the reducer of the tool, if it has one, to an output or an error. Also returns the original text.
async fn reduce_answer(
    guard: &mut AuditGuard<'_>,
    target: &CallTarget<'_>,
    call: &AdmittedCall,
    result: Result<ToolOutput, Failure>,
) -> (Result<ToolOutput, Failure>, Option<String>) {
    let reducer = target.found.and_then(|tool| guard.batch.view.reducer_for(tool.entry()));
    let (reducer, result) = match (reducer, result) {
        (Some(reducer), Ok(output)) => (reducer, Ok(output)),
        (Some(reducer), Err(Failure::Refused(error))) => (reducer, Err(error)),
        (_, result) => return (result, None),
    };
    let ReducerResult { result, note, original } = reduce(reducer, call.args(), &target.ctx, result).await;
    guard.update_run(|run| run.reducer = Some(note));
    let result = result.map_err(Failure::from);
    if original.is_none() {
        return (result, None);
    }
    // A reducer removes characters, such as colours, that hid a value from the first search.
    (redact_result(&target.ctx, &guard.redactor, result).await, original)
}
