//! The fourth stage: the result of an admitted call, from an interceptor, the session's cache or the tool.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use toolbay_policy::output::SchemaMismatch;

use super::check::{check_output, redact_result};
use super::idempotency::{self, KeyedCall};
use super::nested::{MakeCaller, NestedCalls};
use super::resolve::ResolvedTool;
use super::{interception, oversize};
use crate::call::invoke::{Failure, ToolOutcome};
use crate::call::{AdmittedCall, Identity};
use crate::output::rules::OutputRules;
use crate::pipeline::context::early_result::EarlyResult;
use crate::pipeline::context::guard::{AuditGuard, RunFacts};
use crate::pipeline::context::result_memory::CallMemory;
use crate::pipeline::context::shared;
use crate::pipeline::result::cost_of;
use crate::session::ResultKey;
use crate::tool::canonical::Digest;
use crate::tool::content::ToolOutput;
use crate::tool::fault::{Fault, FaultKind};

/// A call with the result of its tool.
pub(crate) struct InvokedCall {
    pub(super) call: AdmittedCall,
    /// The result, checked against the output schema and without the values of secrets.
    pub(super) result: Result<ToolOutput, Failure>,
    /// The output rules for the result.
    pub(super) rules: OutputRules,
    /// The memory that the result holds.
    pub(super) memory: CallMemory,
}

/// Runs the tool or finds the result elsewhere. From here on, the call may have had effects.
pub(crate) async fn invoke(
    guard: &mut AuditGuard<'_>,
    tool: ResolvedTool<'_>,
    call: AdmittedCall,
    make_caller: MakeCaller,
) -> Result<InvokedCall, EarlyResult> {
    guard.run = Some(RunFacts::default());
    if let Some(trace) = &tool.ctx.trace {
        trace.note_arguments(&guard.redactor, &call.args);
    }
    let batch = guard.batch;
    let interceptors = &batch.pipeline.interceptors;
    let (call, answer) = if interceptors.is_empty() {
        (call, None)
    } else {
        Box::pin(interception::before(interceptors, guard, tool, call)).await?
    };
    let nested = NestedCalls::for_tool(tool);
    let mut invocation = Invocation { guard, tool, nested, make_caller, memory: CallMemory::default() };
    let mut result = match answer {
        Some(answer) => invocation.accept(answer.map_err(Failure::from)).await,
        None => invocation.answer(&call).await,
    };
    let Invocation { guard, nested, memory, .. } = invocation;
    let entry = tool.entry();
    let mut rules = OutputRules::for_tool(entry.call.output.or(batch.call_policy.output), &entry.def);
    rules.untrusted |= nested.is_some_and(|nested| nested.returned_untrusted());
    if let Some(cost) = guard.run.as_ref().and_then(|run| run.cost_usd) {
        batch.turn.session.add_cost(cost);
        if let Some(shared) = &batch.pipeline.shared {
            shared::add_cost(shared, &batch.turn.session, cost);
        }
    }
    if !interceptors.is_empty() {
        result = Box::pin(interception::after(interceptors, &guard.redactor, tool, &call, result)).await;
    }
    Ok(InvokedCall { call, result, rules, memory })
}

/// The state of a call during this stage.
struct Invocation<'g, 'b> {
    guard: &'g mut AuditGuard<'b>,
    tool: ResolvedTool<'g>,
    nested: Option<NestedCalls>,
    make_caller: MakeCaller,
    memory: CallMemory,
}

impl Invocation<'_, '_> {
    /// Takes the result from the session's cache, if the tool allows caching and the result is cached; else runs the
    /// tool.
    async fn answer(&mut self, call: &AdmittedCall) -> Result<ToolOutput, Failure> {
        let (batch, def) = (self.guard.batch, &self.tool.entry().def);
        let session = &batch.turn.session;
        if let Some((key, digests)) = self.guard.idempotency_key.clone().zip(self.guard.digests) {
            // Boxed to keep the future of calls without a key small.
            return Box::pin(self.answer_once(call, &key, digests.call)).await;
        }
        let Some((key, max_age)) = self.cache_key() else {
            let result = self.run(call).await;
            return self.accept(result).await;
        };
        if let Some((mut output, age)) = session.cached_result(&key, def, max_age) {
            self.guard.update_run(|run| run.cached = Some(age));
            self.check(&mut output).await?;
            let output = Ok(output);
            self.memory.count(&batch.pipeline.results, self.tool.entry(), &output).await?;
            return output;
        }
        let result = self.run(call).await;
        let output = self.accept(result).await?;
        session.cache_result(&batch.call_policy.session, key, def, &output);
        Ok(output)
    }

    /// Runs the tool under an idempotency key, or takes the result of the first call with it.
    async fn answer_once(
        &mut self,
        call: &AdmittedCall,
        key: &Arc<str>,
        digest: Digest,
    ) -> Result<ToolOutput, Failure> {
        let batch = self.guard.batch;
        match idempotency::claim(batch, self.tool, key, digest).await? {
            KeyedCall::Run(claim) => {
                let result = self.run(call).await;
                let result = self.accept(result).await;
                claim.settle(&result).await;
                result
            }
            KeyedCall::Ended(mut result, age) => {
                self.guard.update_run(|run| run.cached = Some(age));
                if let Ok(output) = &mut result {
                    self.check(output).await?;
                }
                let result = result.map_err(Failure::from);
                self.memory.count(&batch.pipeline.results, self.tool.entry(), &result).await?;
                result
            }
        }
    }

    /// Checks and redacts a result, and records its cost. All results of tools and interceptors pass through here,
    /// before the reducer.
    async fn accept(&mut self, answer: Result<ToolOutput, Failure>) -> Result<ToolOutput, Failure> {
        self.guard.update_run(|run| run.cost_usd = cost_of(&answer));
        let mut answer = answer;
        let has_moved = match self.guard.batch.parent {
            // A calling tool has limits of its own.
            Some(_) => false,
            None => oversize::fit(&mut answer, self.tool),
        };
        // Memory first: a result that does not fit is not processed.
        self.memory.count(&self.guard.batch.pipeline.results, self.tool.entry(), &answer).await?;
        // Most tools have no output schema, and many hosts no secret: these calls make no future for either.
        let is_checked = !has_moved && self.tool.entry().def.output_schema.is_some();
        if let (true, Ok(output)) = (is_checked, &mut answer)
            && let Err(problem) = self.check(output).await
        {
            answer = Err(problem.into());
        }
        if self.guard.redactor.is_empty() {
            return answer;
        }
        redact_result(self.tool.ctx, &self.guard.redactor, answer).await
    }

    /// Checks an output against the output schema of the tool. By default, a mismatch is only marked.
    async fn check(&mut self, output: &mut ToolOutput) -> Result<(), Fault> {
        let (entry, settings) = (self.tool.entry(), self.guard.batch.call_policy.output);
        let Some(mismatch) = check_output(self.tool.ctx, &entry.def, output).await? else { return Ok(()) };
        match entry.call.output.or(settings).schema_mismatch.unwrap_or_default() {
            SchemaMismatch::Error => Err(mismatch.fault),
            SchemaMismatch::Mark => {
                self.guard.update_run(|run| run.mismatch = Some(mismatch.mark));
                Ok(())
            }
        }
    }

    /// Waits for the serial queue of the tool, if it has one, and runs the tool.
    async fn run(&mut self, call: &AdmittedCall) -> Result<ToolOutput, Failure> {
        let (batch, entry, ctx) = (self.guard.batch, self.tool.entry(), self.tool.ctx);
        // The calls of a serial queue could otherwise continue one by one long after the batch was cancelled.
        if entry.call.serial.is_some() && ctx.cancel().is_cancelled() {
            return Err(Fault::new(FaultKind::Cancelled, "the call was cancelled before it ran").into());
        }
        let may_wait = entry.call.serial.is_some() || batch.pipeline.shared.is_some();
        let waiting = may_wait.then(Instant::now);
        let turn = async {
            let permit = match &entry.call.serial {
                Some(queue) => Some(batch.pipeline.serial.acquire(queue, ctx.cancel()).await?),
                None => None,
            };
            let lease = match &batch.pipeline.shared {
                Some(shared) => Box::pin(shared::acquire_rights(shared, batch, entry, ctx)).await?,
                None => None,
            };
            self.memory.reserve(&batch.pipeline.results, entry, ctx, batch.parent.is_some()).await?;
            Ok::<_, Failure>((lease, permit))
        };
        let turn = turn.await;
        self.guard.waited += waiting.map_or(Duration::ZERO, |since| since.elapsed());
        let (lease, permit) = turn?;
        self.guard.write_start(entry, ctx);
        if !entry.invoker.calls_begin() {
            ctx.begin().map_err(|problem| Failure::from_audit_error(&problem))?;
        }
        let invoked = match &self.nested {
            Some(nested) => {
                let caller = (self.make_caller)(nested.parent(batch, ctx), batch);
                entry.invoker.invoke_with(call, ctx, caller)
            }
            None => entry.invoker.invoke(call, ctx),
        };
        let ToolOutcome { result, usage } = invoked.await;
        self.guard.update_run(|run| run.usage = Some(usage));
        let result = match ctx.rights() {
            Some(rights) => shared::judge_result(rights, ctx, result),
            None => result,
        };
        drop((lease, permit));
        result
    }

    /// The key of the result in the session's cache; `None` if the result is not cached. Attachments and the results of
    /// other tools are not part of the arguments, so tools that read them are not cached.
    fn cache_key(&self) -> Option<(ResultKey, Duration)> {
        let max_age = self.tool.entry().call.cache?;
        let ctx = self.tool.ctx;
        if ctx.turn.attachments.is_some() || self.nested.is_some() {
            return None;
        }
        let caller =
            Identity { turn: None, message_count: None, traceparent: None, ..ctx.turn.identity.clone() };
        let key = ResultKey {
            call: self.guard.digests?.call,
            profile: ctx.profile.clone(),
            caller: format!("{caller:?}"),
        };
        Some((key, max_age))
    }
}
