//! Reducers: plugins and native code that shorten the output of a tool.

use std::pin::pin;

use futures_util::future::{Either, select};

use crate::call::CallContext;
use crate::call::fault::{Fault, FaultKind};
use crate::output::reduce::ReduceContext;
use crate::registry::ReducerEntry;
use crate::tool::content::{BlockBody, ContentBlock, ResourceBody, ToolOutput, ToolResult};

/// A result after its reducer.
pub(super) struct Reduced {
    pub(super) result: ToolResult,
    /// What became of the reducer, for the audit.
    pub(super) note: &'static str,
    /// The text before it was reduced, if it was.
    pub(super) original: Option<String>,
}

/// Applies the reducer of a tool. The result never gets longer, never turns from an error into a success or back, and
/// keeps its structured part, its metadata, its subject and its cost.
pub(super) async fn reduce(
    entry: &ReducerEntry,
    args: &String,
    ctx: &CallContext,
    result: ToolResult,
) -> Reduced {
    let context = ReduceContext {
        tool_name: &entry.declared,
        args,
        turn_count: ctx.turn.identity.turn.unwrap_or(0),
        budget_chars: ctx.budget_chars,
    };
    let reduced = match select(entry.reducer.reduce(&result, context), pin!(ctx.cancel().cancelled())).await {
        Either::Left((reduced, _)) => reduced,
        Either::Right(_) => Err(Fault::new(FaultKind::Cancelled, "the call was cancelled")),
    };
    let kept = |note, result| Reduced { result, note, original: None };
    match (reduced, result) {
        (Ok(None), result) => kept("kept", result),
        (Ok(Some(Ok(mut new))), Ok(old)) if chars_of(&new) <= chars_of(&old) => {
            let original = Some(text_of(&old));
            // Checked against the output schema before; a reducer only shortens text.
            new.structured = old.structured;
            new.cost_usd = old.cost_usd;
            new.meta = old.meta;
            Reduced { result: Ok(new), note: "reduced", original }
        }
        (Ok(Some(Err(mut new))), Err(old)) if new.message.chars().count() <= old.message.chars().count() => {
            new.code = old.code;
            new.subject = old.subject;
            new.cost_usd = old.cost_usd;
            Reduced { result: Err(new), note: "reduced", original: Some(old.message) }
        }
        (Ok(Some(_)), result) => kept("refused: longer, or another kind of result", result),
        (Err(fault), result) => {
            tracing::warn!(tool = %entry.target, fault = fault.kind.as_str(), "a reducer failed; its input is kept");
            kept(fault.kind.as_str(), result)
        }
    }
}

/// Characters that a model may read: the text, and all that blocks say. Bytes count as one each.
fn chars_of(output: &ToolOutput) -> usize {
    output.value.chars().count() + output.content.iter().map(ContentBlock::size).sum::<usize>()
}

/// The text and the texts of the blocks, as one.
fn text_of(output: &ToolOutput) -> String {
    let blocks = output.content.iter().filter_map(|block| match &block.body {
        BlockBody::Text(text) => Some(text.as_str()),
        BlockBody::Embedded(resource) => match &resource.body {
            ResourceBody::Text(text) => Some(text.as_str()),
            ResourceBody::Blob(_) => None,
        },
        BlockBody::Image(_) | BlockBody::Audio(_) | BlockBody::Link(_) => None,
    });
    let parts: Vec<&str> =
        std::iter::once(output.value.as_str()).chain(blocks).filter(|p| !p.is_empty()).collect();
    parts.join("\n\n")
}
