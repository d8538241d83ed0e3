//! The straight way of a batch of calls: gate, invoke, check, reduce, cut, record.
//!
//! [`Pipeline::call_all`] never fails and never loses a result: each call gets one, in the order of the calls,
//! whatever the tools, the reducers or the host's own code do.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::audit::{AuditRecord, AuditSink};
use crate::budget;
use crate::call::{Admitted, CallContext, ToolCall, TurnContext};
use crate::content::{
    BlockBody, ContentBlock, EmbeddedResource, ErrorCode, ResourceBody, ToolError, ToolOutput, ToolResult,
};
use crate::fault::{Fault, FaultKind};
use crate::invoke::{Failure, Invocation};
use crate::json;
use crate::limits::Usage;
use crate::quantity;
use crate::reduce::ReduceContext;
use crate::tool::{ToolDef, ToolSource};
use crate::view::{Entry, View};

/// Longest string argument that a dry run repeats, in characters.
const DRY_RUN_CHARS: usize = 500;

/// What the caller gets for one call.
#[derive(Debug)]
pub struct Delivered {
    /// The caller's id of the call.
    pub call_id: String,
    /// The name that was called.
    pub tool: String,
    /// The output, cut to the budget, or why there is none.
    pub result: Result<ToolOutput, Failure>,
    /// What the guest used.
    pub usage: Usage,
    /// From the call's arrival to this result, in microseconds.
    pub duration_us: u64,
    /// Characters before the text was cut, if it was.
    pub cut_from_chars: Option<usize>,
    /// Where the tool comes from, if there is one of that name.
    pub source: Option<ToolSource>,
}

/// Runs batches. Holds nothing of a session.
#[derive(Debug, Clone)]
pub struct Pipeline {
    audit: Arc<dyn AuditSink>,
}

impl Pipeline {
    /// A pipeline that records to `audit`.
    #[must_use]
    pub fn new(audit: Arc<dyn AuditSink>) -> Self {
        Self { audit }
    }

    /// Runs all calls, in parallel, and returns one result for each, in their order. Must be called inside a tokio
    /// runtime with timers. Dropping the future ends every call.
    pub async fn call_all(&self, view: &View, calls: Vec<ToolCall>, turn: TurnContext) -> Vec<Delivered> {
        let turn = Arc::new(turn);
        let count = calls.len();
        if count == 1 {
            let mut results = Vec::with_capacity(1);
            for call in calls {
                results.push(self.call_one(view, call, Arc::clone(&turn), 1).await);
            }
            return results;
        }
        let mut tasks = JoinSet::new();
        for (index, call) in calls.into_iter().enumerate() {
            let (pipeline, view, turn) = (self.clone(), view.clone(), Arc::clone(&turn));
            tasks.spawn(async move { (index, pipeline.call_one(&view, call, turn, count).await) });
        }
        let mut results: Vec<(usize, Delivered)> = Vec::with_capacity(count);
        while let Some(done) = tasks.join_next().await {
            // A task neither panics (`call_one` catches) nor is aborted while we wait for it.
            if let Ok(result) = done {
                results.push(result);
            }
        }
        results.sort_unstable_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, delivered)| delivered).collect()
    }

    async fn call_one(&self, view: &View, call: ToolCall, turn: Arc<TurnContext>, count: usize) -> Delivered {
        let start = Instant::now();
        let session_id = turn.identity.session_id.clone();
        let mut way = Way { source: None, usage: Usage::default(), reducer: None, cut_from: None };
        let run = AssertUnwindSafe(way.run(view, &call, turn, count)).catch_unwind().await;
        let result =
            run.unwrap_or_else(|_| Err(Failure::Host("a panic while the call ran; see the log".to_owned())));
        let duration_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let text = match &result {
            Ok(output) => output.value.chars().count(),
            Err(failure) => failure.to_string().chars().count(),
        };
        let record = AuditRecord {
            call_id: call.id.clone(),
            tool: call.tool.chars().take(100).collect(),
            source: way.source.clone(),
            session_id,
            outcome: outcome(&result),
            usage: way.usage,
            duration_us,
            delivered_chars: text,
            cut_from_chars: way.cut_from,
            reducer: way.reducer,
        };
        // A sink is the embedder's code; that it fails must not cost the caller the result.
        let recorded = std::panic::catch_unwind(AssertUnwindSafe(|| self.audit.record(record)));
        if recorded.is_err() {
            tracing::error!(call = ?call.id, "the audit sink panicked; a record is lost");
        }
        Delivered {
            call_id: call.id,
            tool: call.tool,
            result,
            usage: way.usage,
            duration_us,
            cut_from_chars: way.cut_from,
            source: way.source,
        }
    }
}

/// `ok`, an error code, a fault, or `host_failed`.
#[must_use]
pub fn outcome(result: &Result<ToolOutput, Failure>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(Failure::Refused(error)) => error.code.as_str(),
        Err(Failure::Fault(fault)) => fault.kind.as_str(),
        Err(Failure::Host(_)) => "host_failed",
    }
}

/// What is known of a call while it is under way.
struct Way {
    source: Option<ToolSource>,
    usage: Usage,
    reducer: Option<&'static str>,
    cut_from: Option<usize>,
}

impl Way {
    async fn run(
        &mut self,
        view: &View,
        call: &ToolCall,
        turn: Arc<TurnContext>,
        count: usize,
    ) -> Result<ToolOutput, Failure> {
        let own = view.catalog().get(&call.tool);
        self.source = own.map(|entry| entry.def.source.clone());
        let budget = budget::share(turn.budget_chars, count, own.and_then(|entry| entry.result_chars));
        let result = self.produce(view, call, turn, budget).await;
        self.fit(result, budget)
    }

    async fn produce(
        &mut self,
        view: &View,
        call: &ToolCall,
        turn: Arc<TurnContext>,
        budget: usize,
    ) -> Result<ToolOutput, Failure> {
        let (entry, admitted) = admit(view, call)?;
        if turn.dry_run {
            return Ok(dry_run(&admitted));
        }
        let ctx = Arc::new(CallContext::new(&call.id, &call.tool, budget, turn));
        let Invocation { result, usage } = entry.invoker.invoke(&admitted, &ctx).await;
        self.usage = usage;
        let answer: ToolResult = match result {
            Ok(output) => {
                check_output(&entry.def, &output)?;
                Ok(output)
            }
            Err(Failure::Refused(error)) => Err(error),
            Err(other @ (Failure::Fault(_) | Failure::Host(_))) => return Err(other),
        };
        Ok(self.reduce(view, &admitted, &ctx, answer).await?)
    }

    /// Applies the tool's reducer. Whatever the reducer does, the answer stays at least as good as it was: it never
    /// gets longer, never turns from an error into a success or back, and keeps its structured part and its cost.
    async fn reduce(
        &mut self,
        view: &View,
        call: &Admitted,
        ctx: &CallContext,
        answer: ToolResult,
    ) -> ToolResult {
        let Some(entry) = view.reducer(call.tool.name.as_str()) else { return answer };
        let context = ReduceContext {
            tool_name: &entry.declared,
            args: call.args(),
            turn_count: ctx.turn.identity.turn.unwrap_or(0),
            budget_chars: ctx.budget_chars,
        };
        let cancelled = || Err(Fault::new(FaultKind::Cancelled, "the call was cancelled"));
        let reduced = match select(entry.reducer.reduce(&answer, context), pin!(ctx.cancel.cancelled())).await
        {
            Either::Left((reduced, _)) => reduced,
            Either::Right(_) => cancelled(),
        };
        let (note, answer) = match (reduced, answer) {
            (Ok(None), answer) => ("kept", answer),
            (Ok(Some(Ok(mut new))), Ok(old)) if text_of(&new) <= text_of(&old) => {
                // Checked against the output schema before; a reducer is asked for text.
                new.structured = old.structured;
                new.cost_usd = old.cost_usd;
                new.meta = new.meta.or(old.meta);
                ("reduced", Ok(new))
            }
            (Ok(Some(Err(mut new))), Err(old))
                if new.message.chars().count() <= old.message.chars().count() =>
            {
                new.code = old.code;
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

    fn fit(&mut self, mut result: Result<ToolOutput, Failure>, budget: usize) -> Result<ToolOutput, Failure> {
        let text = match &mut result {
            Ok(output) => &mut output.value,
            Err(Failure::Refused(error)) => &mut error.message,
            Err(Failure::Fault(fault)) => &mut fault.message,
            Err(Failure::Host(message)) => message,
        };
        self.cut_from = budget::cut(text, budget);
        if let Ok(output) = &mut result {
            fit_blocks(output, budget);
        }
        result
    }
}

/// Text in blocks is text too: it gets what `value` left of the budget, and goes when nothing is left.
fn fit_blocks(output: &mut ToolOutput, budget: usize) {
    let mut left = budget.saturating_sub(output.value.chars().count());
    output.content.retain_mut(|block| {
        let text = match &mut block.body {
            BlockBody::Text(text) => text,
            BlockBody::Embedded(EmbeddedResource { body: ResourceBody::Text(text), .. }) => text,
            BlockBody::Image(_) | BlockBody::Audio(_) | BlockBody::Link(_) | BlockBody::Embedded(_) => {
                return true;
            }
        };
        let had = !text.is_empty();
        budget::cut(text, left);
        left = left.saturating_sub(text.chars().count());
        !(had && text.is_empty())
    });
}

/// Characters that a model reads: the text, and the text and links of the blocks. Bytes count as one each.
fn text_of(output: &ToolOutput) -> usize {
    let block = |block: &ContentBlock| match &block.body {
        BlockBody::Text(text) => text.chars().count(),
        BlockBody::Image(blob) | BlockBody::Audio(blob) => blob.data.len(),
        BlockBody::Link(link) => {
            link.uri.len() + link.name.len() + link.description.as_ref().map_or(0, String::len)
        }
        BlockBody::Embedded(resource) => match &resource.body {
            ResourceBody::Text(text) => text.chars().count(),
            ResourceBody::Blob(data) => data.len(),
        },
    };
    output.value.chars().count() + output.content.iter().map(block).sum::<usize>()
}

/// The gates in their order: is there such a tool, may it be seen, can it run, are the arguments small enough, are
/// they JSON, do they match.
fn admit<'v>(view: &'v View, call: &ToolCall) -> Result<(&'v Entry, Admitted), ToolError> {
    let entry = view.find(&call.tool)?;
    let name = entry.def.name.as_str();
    let invalid = |problem: String| {
        let text = format!(
            "the arguments of `{name}` were not accepted: {problem}. Do not retry with the same arguments."
        );
        ToolError::new(ErrorCode::InputInvalid, text)
    };
    if call.args.len() as u64 > entry.args_bytes {
        let most = quantity::show_bytes(entry.args_bytes);
        return Err(invalid(format!(
            "{} bytes, where `args_bytes` in the policy's limits allows {most}",
            call.args.len()
        )));
    }
    let args = if call.args.trim().is_empty() { "{}" } else { &call.args };
    let parsed = json::parse(args).map_err(|e| invalid(format!("not valid JSON: {e}")))?;
    entry.def.input_schema.check(&parsed).map_err(|m| invalid(m.message).about(m.pointer))?;
    Ok((entry, Admitted { tool: Arc::clone(&entry.def), args: args.to_owned(), parsed }))
}

/// A tool that promises a shape keeps it.
fn check_output(tool: &ToolDef, output: &ToolOutput) -> Result<(), Fault> {
    let Some(schema) = &tool.output_schema else { return Ok(()) };
    let bad = |problem: String| {
        Fault::new(FaultKind::BadOutput, format!("`{}` broke its output schema: {problem}", tool.name))
    };
    let Some(structured) = &output.structured else { return Err(bad("no structured result".to_owned())) };
    let value = json::parse(structured.get()).map_err(|e| bad(e.to_string()))?;
    schema.check(&value).map_err(|m| bad(m.message))
}

fn dry_run(call: &Admitted) -> ToolOutput {
    let mut args = call.parsed.clone();
    shorten(&mut args);
    ToolOutput::text(format!("[dry-run] {} would be called with: {args}", call.tool.name))
}

fn shorten(value: &mut Value) {
    match value {
        Value::String(text) => {
            let total = text.chars().count();
            if total > DRY_RUN_CHARS {
                let head: String = text.chars().take(DRY_RUN_CHARS).collect();
                *text = format!("{head}...[truncated, {total} chars]");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(shorten),
        Value::Object(map) => map.values_mut().for_each(shorten),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
#[path = "pipeline_tests.rs"]
mod tests;
