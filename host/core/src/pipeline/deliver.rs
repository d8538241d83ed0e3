//! From what a tool answered to what is given out: checked, without secrets, reduced.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};

use super::way::Way;
use crate::call::fault::{Fault, FaultKind};
use crate::call::invoke::Failure;
use crate::call::{Admitted, CallContext};
use crate::output::redact::Redactor;
use crate::output::reduce::ReduceContext;
use crate::registry::ReducerEntry;
use crate::tool::ToolDef;
use crate::tool::content::{BlockBody, ContentBlock, ResourceBody, ToolOutput, ToolResult};
use crate::tool::json;

/// A tool that promises a shape keeps it.
pub(super) fn check_output(tool: &ToolDef, output: &ToolOutput) -> Result<(), Fault> {
    let Some(schema) = &tool.output_schema else { return Ok(()) };
    let bad = |problem: String| {
        Fault::new(FaultKind::BadOutput, format!("`{}` broke its output schema: {problem}", tool.name))
    };
    let Some(structured) = &output.structured else { return Err(bad("no structured result".to_owned())) };
    let value = json::parse(structured.get()).map_err(|e| bad(e.to_string()))?;
    schema.check(&value).map_err(|m| bad(m.message))
}

impl Way {
    /// Applies the tool's reducer. Whatever the reducer does, the answer stays at least as good as it was: it never
    /// gets longer, never turns from an error into a success or back, and keeps its structured part, its metadata, its
    /// subject and its cost.
    pub(super) async fn reduce(
        &mut self,
        entry: Option<&Arc<ReducerEntry>>,
        call: &Admitted,
        ctx: &CallContext,
        answer: ToolResult,
    ) -> ToolResult {
        let Some(entry) = entry else { return answer };
        let context = ReduceContext {
            tool_name: &entry.declared,
            args: call.args(),
            turn_count: ctx.turn.identity.turn.unwrap_or(0),
            budget_chars: ctx.budget_chars,
        };
        let cancelled = || Err(Fault::new(FaultKind::Cancelled, "the call was cancelled"));
        let reduced =
            match select(entry.reducer.reduce(&answer, context), pin!(ctx.cancel().cancelled())).await {
                Either::Left((reduced, _)) => reduced,
                Either::Right(_) => cancelled(),
            };
        let (note, answer) = match (reduced, answer) {
            (Ok(None), answer) => ("kept", answer),
            (Ok(Some(Ok(mut new))), Ok(old)) if text_of(&new) <= text_of(&old) => {
                self.unreduced = Some(words_of(&old));
                // Checked against the output schema before; a reducer is asked for text.
                new.structured = old.structured;
                new.cost_usd = old.cost_usd;
                new.meta = old.meta;
                ("reduced", Ok(new))
            }
            (Ok(Some(Err(mut new))), Err(old))
                if new.message.chars().count() <= old.message.chars().count() =>
            {
                self.unreduced = Some(old.message);
                new.code = old.code;
                new.subject = old.subject;
                new.cost_usd = old.cost_usd;
                ("reduced", Err(new))
            }
            (Ok(Some(_)), answer) => ("refused: longer, or another kind of result", answer),
            (Err(fault), answer) => {
                tracing::warn!(tool = %entry.target, fault = fault.kind.as_str(), "a reducer failed; its input is kept");
                (fault.kind.as_str(), answer)
            }
        };
        self.reducer = Some(note);
        answer
    }
}

pub(super) fn redacted(
    redactor: &Redactor,
    result: Result<ToolOutput, Failure>,
) -> Result<ToolOutput, Failure> {
    match result {
        Ok(output) => Ok(redactor.output(output)),
        Err(Failure::Refused(error)) => Err(redactor.error(error).into()),
        Err(Failure::Fault(fault)) => Err(Fault { message: redactor.owned(fault.message), ..fault }.into()),
        Err(Failure::Host(message)) => Err(Failure::Host(redactor.owned(message))),
    }
}

/// Characters that a model may read: the text, and all that blocks say. Bytes count as one each.
fn text_of(output: &ToolOutput) -> usize {
    output.value.chars().count() + output.content.iter().map(ContentBlock::size).sum::<usize>()
}

/// The text and the texts of the blocks, as one.
fn words_of(output: &ToolOutput) -> String {
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
