//! Where the answer to an admitted call comes from: the session's cache, or the tool.

use std::sync::Arc;
use std::time::Duration;

use super::Batch;
use super::deliver::{check_output, redacted};
use super::way::Way;
use crate::call::fault::{Fault, FaultKind};
use crate::call::invoke::{Failure, Invocation};
use crate::call::{Admitted, CallContext, Identity};
use crate::registry::view::Entry;
use crate::session::ResultKey;
use crate::tool::content::ToolOutput;

impl Way {
    /// A result of before, if the tool has a cache and this session has one; else the tool's.
    pub(super) async fn answer(
        &mut self,
        batch: Batch<'_>,
        entry: &Entry,
        call: &Admitted,
        ctx: &Arc<CallContext>,
    ) -> Result<ToolOutput, Failure> {
        let session = &batch.turn.session;
        let Some((key, keep)) = self.key(entry, ctx) else {
            let result = self.invoke(batch, entry, call, ctx).await;
            return self.take(batch, entry, result).await;
        };
        if let Some((output, age)) = session.cached(&key, &entry.def, keep) {
            self.cached = Some(age);
            let output = Ok(output);
            self.count(batch, entry, &output).await?;
            return output;
        }
        let result = self.invoke(batch, entry, call, ctx).await;
        let output = self.take(batch, entry, result).await?;
        session.keep(&batch.gates.session, key, &entry.def, &output);
        Ok(output)
    }

    /// Checks and redacts an answer, and notes what it cost. The one place through which all passes that a tool says; a
    /// reducer comes after it.
    pub(super) async fn take(
        &mut self,
        batch: Batch<'_>,
        entry: &Entry,
        answer: Result<ToolOutput, Failure>,
    ) -> Result<ToolOutput, Failure> {
        self.cost_usd = match &answer {
            Ok(output) => output.cost_usd,
            Err(Failure::Refused(error)) => error.cost_usd,
            Err(Failure::Fault(_) | Failure::Host(_)) => None,
        };
        // First of all: nothing else is done with what there is no room for.
        self.count(batch, entry, &answer).await?;
        let checked = answer.and_then(|output| {
            check_output(&entry.def, &output)?;
            Ok(output)
        });
        redacted(&self.redactor, checked)
    }

    /// Waits for its turn if the tool is serial, and runs it.
    async fn invoke(
        &mut self,
        batch: Batch<'_>,
        entry: &Entry,
        call: &Admitted,
        ctx: &Arc<CallContext>,
    ) -> Result<ToolOutput, Failure> {
        // One call of a lane after the other could go on long after the batch was given up.
        if entry.serial.is_some() && ctx.cancel().is_cancelled() {
            return Err(Fault::new(FaultKind::Cancelled, "the call was cancelled before it ran").into());
        }
        let turn = match &entry.serial {
            Some(lane) => Some(batch.pipeline.lanes.enter(lane, ctx.cancel()).await?),
            None => None,
        };
        self.reserve(batch, entry, ctx).await?;
        self.write_start(batch, entry, ctx);
        if !entry.invoker.begins() {
            ctx.begin().map_err(|problem| Failure::unrecorded(&problem))?;
        }
        let invoked = match self.onto.as_ref().map(|onto| onto.way(batch, ctx)) {
            Some(onward) => entry.invoker.invoke_with(call, ctx, onward),
            None => entry.invoker.invoke(call, ctx),
        };
        let Invocation { result, usage } = invoked.await;
        drop(turn);
        self.usage = Some(usage);
        result
    }

    /// Under what the result is kept; `None` if it is not. What a tool reads of attachments is not in its arguments.
    fn key(&self, entry: &Entry, ctx: &CallContext) -> Option<(ResultKey, Duration)> {
        let keep = entry.cache?;
        // Nor is what it got of other tools.
        if ctx.turn.attachments.is_some() || self.onto.is_some() {
            return None;
        }
        let caller =
            Identity { turn: None, message_count: None, traceparent: None, ..ctx.turn.identity.clone() };
        let key = ResultKey {
            call: self.call_sha256?,
            profile: ctx.profile.clone(),
            caller: format!("{caller:?}"),
        };
        Some((key, keep))
    }
}
