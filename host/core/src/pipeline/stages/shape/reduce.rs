//! Runs the reducer of a tool: plugin or native code that shortens its output.

use std::pin::pin;

use futures_util::future::{Either, select};

use crate::call::CallContext;
use crate::call::reduce::ReduceContext;
use crate::registry::ReducerEntry;
use crate::tool::content::{ContentBlock, ToolOutput, ToolResult};
use crate::tool::fault::{Fault, FaultKind};

/// A result after its reducer ran.
pub(super) struct ReducerResult {
    pub(super) result: ToolResult,
    /// The outcome of the reducer, for the audit.
    pub(super) note: &'static str,
    /// The original text; `None` if the result was not reduced.
    pub(super) original: Option<String>,
}

/// Applies a reducer. The result never gets longer and never turns from an error into a success or back. Its structured
/// part, metadata, subject and cost do not change.
pub(super) async fn reduce(
    entry: &ReducerEntry,
    args: &String,
    ctx: &CallContext,
    result: ToolResult,
) -> ReducerResult {
    let compute = ctx.compute_queue();
    let context = ReduceContext {
        tool_name: &entry.declared,
        args,
        turn_count: ctx.turn.identity.turn.unwrap_or(0),
        budget_chars: ctx.budget_chars,
        compute: &compute,
    };
    let reduced = match select(entry.reducer.reduce(&result, context), pin!(ctx.cancel().cancelled())).await {
        Either::Left((reduced, _)) => reduced,
        Either::Right(_) => Err(Fault::new(FaultKind::Cancelled, "the call was cancelled")),
    };
    let unreduced = |note, result| ReducerResult { result, note, original: None };
    match (reduced, result) {
        (Ok(None), result) => unreduced("kept", result),
        (Ok(Some(Ok(mut new))), Ok(old)) if count_chars(&new) <= count_chars(&old) => {
            let original = Some(joined_text(&old));
            // The original structured part passed the output schema; a reducer changes text only.
            new.structured = old.structured;
            new.cost_usd = old.cost_usd;
            new.meta = old.meta;
            ReducerResult { result: Ok(new), note: "reduced", original }
        }
        (Ok(Some(Err(mut new))), Err(old)) if new.message.chars().count() <= old.message.chars().count() => {
            new.code = old.code;
            new.subject = old.subject;
            new.cost_usd = old.cost_usd;
            new.details = old.details;
            ReducerResult { result: Err(new), note: "reduced", original: Some(old.message) }
        }
        (Ok(Some(_)), result) => unreduced("refused: longer, or another kind of result", result),
        (Err(fault), result) => {
            tracing::warn!(tool = %entry.target, fault = fault.kind.as_str(), "a reducer failed; its input is used");
            unreduced(fault.kind.as_str(), result)
        }
    }
}

/// Characters that a model may read, in the text and in the blocks. Each byte of binary data counts as one.
fn count_chars(output: &ToolOutput) -> usize {
    output.value.chars().count() + output.content.iter().map(ContentBlock::size).sum::<usize>()
}

/// The text and the texts of the blocks, joined.
fn joined_text(output: &ToolOutput) -> String {
    let blocks = output.content.iter().filter_map(ContentBlock::text);
    let parts: Vec<&str> =
        std::iter::once(output.value.as_str()).chain(blocks).filter(|p| !p.is_empty()).collect();
    parts.join("\n\n")
}
