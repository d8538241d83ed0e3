//! One call under way: admitted, run, checked, delivered.

use std::sync::Arc;
use std::time::Duration;

use toolbay_policy::limits::Usage;
use toolbay_policy::output::Delivery;

use super::Batch;
use super::admit::{dry_run, matching};
use super::fit::Outgoing;
use super::inner::Onto;
use super::refused;
use super::results::Reserved;
use crate::audit::StartId;
use crate::call::CallContext;
use crate::call::approval::Decision;
use crate::call::invoke::Failure;
use crate::call::invoke::onward;
use crate::output::budget;
use crate::output::delivery::Rules;
use crate::output::redact::Redactor;
use crate::output::untrusted::Mark;
use crate::registry::view::Held;
use crate::session::spool::Spooled;
use crate::tool::ToolSource;
use crate::tool::canonical::Digest;
use crate::tool::content::{ToolOutput, ToolResult};

/// What is known of a call while it is under way.
#[derive(Default)]
pub(super) struct Way {
    pub(super) redactor: Redactor,
    /// What holds where a tool's own settings leave something open.
    pub(super) delivery: Delivery,
    /// The call, from the moment at which it is known what is called.
    pub(super) call: Option<Arc<CallContext>>,
    pub(super) source: Option<Arc<ToolSource>>,
    /// The tool that was called in place of the one that was named.
    pub(super) target: Option<Arc<str>>,
    /// The profile under which it runs.
    pub(super) profile: Option<Arc<str>>,
    pub(super) call_sha256: Option<Digest>,
    pub(super) args_sha256: Option<Digest>,
    /// Why the caller called.
    pub(super) reason: Option<Arc<str>>,
    pub(super) permission: Option<Decision>,
    /// Whether something may have happened.
    pub(super) began: bool,
    /// Its start line in the audit, if it has one once it begins.
    pub(super) start_id: Option<StartId>,
    /// `None`: it has not ended.
    pub(super) usage: Option<Usage>,
    pub(super) cost_usd: Option<f64>,
    pub(super) cached: Option<Duration>,
    pub(super) reducer: Option<&'static str>,
    pub(super) cut_from: Option<usize>,
    pub(super) kept: Vec<Spooled>,
    /// What the words of the tool were marked with.
    pub(super) mark: Option<Mark>,
    /// How the words of the tool go out; `None`: it said none, the host speaks.
    pub(super) rules: Option<Rules>,
    /// The text before it was reduced, if it was.
    pub(super) unreduced: Option<String>,
    /// What it may call, and what became of it.
    pub(super) onto: Option<Onto>,
    /// The memory that its result holds.
    pub(super) memory: Option<Reserved>,
    /// What the operator is told of its refusals.
    pub(super) hints: Vec<String>,
    /// Whether models are told, too.
    pub(super) policy_hints: bool,
}

impl Way {
    pub(super) async fn run(
        &mut self,
        batch: Batch<'_>,
        id: &Arc<str>,
        tool: &str,
        mut args: String,
    ) -> Result<ToolOutput, Failure> {
        let Batch { view, turn, .. } = batch;
        // Looked up once: what is asked of the tool from here on is asked of this.
        let mut held = view.held_as(tool);
        let forwards = |held: &Held<'_>| held.entry().invoker.forward(&args);
        if let Some(target) =
            held.as_ref().and_then(forwards).filter(|_| held.is_some_and(Held::may_be_called))
        {
            held = view.held_as(&target.tool);
            self.target = Some(target.tool.into());
            args = target.args;
        }
        let entry = held.map(Held::entry);
        // A name that is written down already is not written again.
        let tool = match (&self.target, entry) {
            (_, Some(entry)) => Arc::clone(entry.def.name.shared()),
            (Some(target), None) => Arc::clone(target),
            (None, None) => tool.into(),
        };
        self.source = entry.map(|entry| Arc::clone(&entry.def.source));
        self.profile = held.map_or_else(|| view.profile(), Held::profile_name).cloned();
        let budget = match batch.outer {
            Some(_) => onward::MAX_CHARS,
            None => budget::share(turn.budget_chars, batch.count, entry.and_then(|entry| entry.result_chars)),
        };
        let (redactor, profile) = (self.redactor.clone(), self.profile.clone());
        let mut ctx = CallContext::new(Arc::clone(id), tool, budget, Arc::clone(turn), redactor, profile);
        ctx.ends = batch.outer.map(|outer| outer.ends);
        let ctx = Arc::new(ctx);
        self.call = Some(Arc::clone(&ctx));
        let delivery = entry.map_or(self.delivery, |entry| entry.delivery.or(self.delivery));
        self.policy_hints = delivery.policy_hints.unwrap_or(false);
        let mut result = self.produce(batch, held, args, &ctx).await;
        self.hints = refused::hints(&result, &ctx);
        refused::point(&mut result, &ctx.tool);
        if let Some(outer) = batch.outer
            && self.rules.is_some_and(|rules| rules.untrusted)
        {
            outer.heard_others();
        }
        let mut outgoing = Outgoing::new(self, batch, &ctx.tool, budget);
        let mut result = outgoing.deliver(result).await;
        let Outgoing { mark, cut_from, kept, unreduced_after_all, .. } = outgoing;
        (self.mark, self.cut_from, self.kept) = (mark, cut_from, kept);
        if unreduced_after_all {
            self.reducer = Some("kept");
        }
        refused::append(&mut result, &ctx);
        self.settle(&mut result);
        result
    }

    /// The gates, in their order: the first that a call does not pass answers it. `docs/reference/pipeline.md` has them as
    /// a table, and a test that compares.
    async fn produce(
        &mut self,
        batch: Batch<'_>,
        held: Option<Held<'_>>,
        args: String,
        ctx: &Arc<CallContext>,
    ) -> Result<ToolOutput, Failure> {
        let session = &batch.turn.session;
        // Dollars, calls of the turn, calls of the session.
        session.count_call(&batch.gates.session, batch.turn_count.as_deref())?;
        // Granted to the tool that calls it, if it was a tool.
        batch.outer.map_or(Ok(()), |outer| outer.permit(&ctx.tool))?;
        // Known, not excluded, permitted by the filter and the profile, available.
        let held = held.ok_or_else(|| batch.view.unknown(&ctx.tool))?;
        let entry = held.admitted()?;
        // Small enough, JSON; not the same too often; as the schema says.
        let read = self.read(entry, args)?;
        self.not_again(batch, entry)?;
        let call = matching(entry, read)?;
        // The rules of the policy and the profile, and who is asked.
        let asked = self.permit(batch, held, &call, ctx).await?;
        if ctx.turn.dry_run {
            return Ok(dry_run(&call, asked.is_left_open()));
        }
        // From here on something may have happened.
        self.began = true;
        self.rules = Some(Rules::of(entry.delivery.or(self.delivery), &entry.def));
        self.onto = Onto::of(entry, ctx);
        let intercepted = !batch.pipeline.interceptors.is_empty();
        let (call, answer) =
            if intercepted { Box::pin(self.before(batch, held, call, ctx)).await? } else { (call, None) };
        let mut answer = match answer {
            Some(answer) => self.take(batch, entry, answer.map_err(Failure::from)).await,
            // A result of before; its turn in the lane; the tool itself.
            None => self.answer(batch, entry, &call, ctx).await,
        };
        if let (Some(onto), Some(rules)) = (&self.onto, &mut self.rules) {
            rules.untrusted |= onto.heard_others();
        }
        if let Some(cost) = self.cost_usd {
            session.spend(cost);
        }
        if intercepted {
            answer = Box::pin(self.after(batch, entry, &call, ctx, answer)).await;
        }
        let answer: ToolResult = match answer {
            Ok(output) => Ok(output),
            Err(Failure::Refused(error)) => Err(error),
            Err(other @ (Failure::Fault(_) | Failure::Host(_))) => return Err(other),
        };
        // A program wants all of it.
        if batch.outer.is_some() {
            return Ok(answer?);
        }
        Ok(self.reduce(batch.view.reducer_of(entry), &call, ctx, answer).await?)
    }
}
