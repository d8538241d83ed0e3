//! The straight way of a batch of calls: gate, invoke, check, reduce, mark, cut, record.
//!
//! [`Pipeline::call_all`] never fails and never loses a result: each call gets one, in the order of the calls,
//! whatever the tools, the reducers or the host's own code do.

mod admit;
mod answer;
mod around;
mod deliver;
mod fit;
mod inner;
pub mod intercept;
mod lane;
pub mod memory;
mod permit;
mod record;
mod refused;
mod results;
mod schedule;
mod way;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use serde_json::Value;
use toolbay_policy::audit_policy::AuditPolicy;
use toolbay_policy::limits::{HostLimits, Usage};
use toolbay_policy::output::Delivery;
use toolbay_policy::permission::{Action, Permissions};
use toolbay_policy::session::SessionLimits;

use self::inner::Outer;
use self::record::Open;
use self::results::{Reserved, ResultMemory};
use self::schedule::BatchScheduler;
use self::way::Way;
use crate::audit::AuditSink;
use crate::audit::call_log::CallLog;
use crate::call::approval::Approver;
use crate::call::invoke::Failure;
use crate::call::{ToolCall, TurnContext};
use crate::output::redact::Redactor;
use crate::output::untrusted::Mark;
use crate::pipeline::intercept::Interceptors;
use crate::pipeline::lane::Lanes;
use crate::pipeline::memory::{MemoryBudget, MemoryReservation};
use crate::registry::event::Events;
use crate::registry::view::View;
use crate::session::TurnCount;
use crate::session::spool::{Spool, Spooled};
use crate::tool::canonical::Digest;
use crate::tool::content::ToolOutput;
use crate::tool::{ToolDef, ToolSource};

/// Calls of one batch that are under way at once: four times what the host runs by default.
/// The rest of a batch waits as what it is, a name and a text.
pub const BATCH_TASKS: usize = 256;

/// What a call takes of the budget of 128 that tokio gives a task before it makes room for others: sixteen calls, a tenth
/// of a millisecond and more.
const CALL_SHARE: usize = 8;

/// What the caller gets for one call.
#[derive(Debug)]
pub struct Delivered {
    /// The caller's id of the call.
    pub call_id: Arc<str>,
    /// The name of the tool that was called.
    pub tool: String,
    /// The name that the caller used, if that tool only passed the call on (`tool_call`).
    pub through: Option<String>,
    /// The output, cut to the budget, or why there is none.
    pub result: Result<ToolOutput, Failure>,
    /// What the guest used.
    pub usage: Usage,
    /// From the call's arrival to this result, in microseconds.
    pub duration_us: u64,
    /// Characters before the text was cut, if it was.
    pub cut_from_chars: Option<usize>,
    /// Where the tool comes from, if there is one of that name.
    pub source: Option<Arc<ToolSource>>,
    /// SHA-256 of the call, `{"args":…,"tool":…}` in canonical form ([`crate::tool::canonical`]): the same for the same
    /// call, in whatever order its arguments were written. `None`: they were not parsed.
    pub call_sha256: Option<Digest>,
    /// How old the result is, if it is one of before: the tool did not run, and the call cost nothing.
    pub cached: Option<Duration>,
    /// The texts that were kept for the session, because they were cut or reduced.
    pub kept: Vec<Spooled>,
    /// The mark that texts of this tool carry, if others may have written them. `structured` carries none: whoever makes
    /// text of it puts the mark around it.
    pub mark: Option<Mark>,
    /// What it holds of the host's memory for results (`result_memory`), until it is dropped. Whoever takes the result and
    /// drops this gives the memory back.
    pub memory: Option<MemoryReservation>,
    /// What would allow what the call was refused, for the operator ([`toolbay_policy::refusal`]). The texts of the result have
    /// none of it.
    pub hints: Vec<String>,
    /// Whether the policy lets models read the hints; each edge that speaks to models asks this.
    pub policy_hints: bool,
}

impl Delivered {
    /// The hints as one text, if the policy lets a model read them.
    #[must_use]
    pub fn hints_for_model(&self) -> Option<String> {
        (self.policy_hints && !self.hints.is_empty()).then(|| self.hints.join("\n"))
    }

    /// What the call cost in US dollars, as the tool said; a failed one may have cost, too.
    #[must_use]
    pub fn cost_usd(&self) -> Option<f64> {
        match &self.result {
            Ok(output) => output.cost_usd,
            Err(Failure::Refused(error)) => error.cost_usd,
            Err(Failure::Fault(_) | Failure::Host(_)) => None,
        }
    }
}

/// What the calls of a batch cost together, in US dollars.
#[must_use]
pub fn cost_usd(results: &[Delivered]) -> f64 {
    // Not `sum`: that of nothing is -0.0.
    results.iter().filter_map(Delivered::cost_usd).fold(0.0, |sum, cost| sum + cost)
}

/// What the operator's policy says of calls, beside what it grants.
#[derive(Debug, Clone, Default)]
pub struct Gates {
    /// Which calls happen.
    pub permissions: Permissions,
    /// What a session may use up.
    pub session: SessionLimits,
    /// How results are given out where a tool's own settings leave something open.
    pub delivery: Delivery,
    /// Whether calls need the audit, and which of them have a line before they run.
    pub audit: AuditPolicy,
}

/// Runs batches. Holds nothing of a session. All clones are one, but for what `with_…` changes.
#[derive(Debug, Clone)]
pub struct Pipeline {
    audit: Arc<dyn AuditSink>,
    redactor: Arc<ArcSwap<Redactor>>,
    gates: Arc<ArcSwap<Gates>>,
    approver: Option<Arc<dyn Approver>>,
    interceptors: Arc<Interceptors>,
    events: Events,
    log: Arc<CallLog>,
    lanes: Lanes,
    results: ResultMemory,
    spool: Option<Arc<dyn Spool>>,
}

impl Pipeline {
    /// A pipeline that records to `audit`.
    #[must_use]
    pub fn new(audit: Arc<dyn AuditSink>) -> Self {
        Self {
            audit,
            redactor: Arc::default(),
            gates: Arc::default(),
            approver: None,
            interceptors: Arc::default(),
            events: Events::default(),
            log: Arc::default(),
            lanes: Lanes::new(&HostLimits::default()),
            results: ResultMemory::new(&HostLimits::default()),
            spool: None,
        }
    }

    /// Where calls are recorded.
    #[must_use]
    pub fn audit(&self) -> &Arc<dyn AuditSink> {
        &self.audit
    }

    /// Whether the policy refuses calls that cannot be recorded.
    #[must_use]
    pub fn requires_audit(&self) -> bool {
        self.gates.load().audit.required
    }

    /// The same pipeline, which takes the values of secrets out of results, progress and records.
    #[must_use]
    pub fn with_redactor(self, redactor: Redactor) -> Self {
        Self { redactor: Arc::new(ArcSwap::from_pointee(redactor)), ..self }
    }

    /// Takes other values out from the next call on, of all clones of this pipeline. Give one that still knows the
    /// values which calls through an older view may see.
    pub fn replace_redactor(&self, redactor: Redactor) {
        self.redactor.store(Arc::new(redactor));
    }

    /// The same pipeline under these gates.
    #[must_use]
    pub fn with_gates(self, gates: Gates) -> Self {
        Self { gates: Arc::new(ArcSwap::from_pointee(gates)), ..self }
    }

    /// The same pipeline, which asks there when a session has nobody of its own to ask.
    #[must_use]
    pub fn with_approver(self, approver: Arc<dyn Approver>) -> Self {
        Self { approver: Some(approver), ..self }
    }

    /// The same pipeline with these interceptors around its calls.
    #[must_use]
    pub fn with_interceptors(self, interceptors: Interceptors) -> Self {
        Self { interceptors: Arc::new(interceptors), ..self }
    }

    /// The same pipeline, which tells what happens there.
    #[must_use]
    pub fn with_events(self, events: Events) -> Self {
        Self { events, ..self }
    }

    /// The same pipeline, which remembers its last calls there.
    #[must_use]
    pub fn with_log(self, log: CallLog) -> Self {
        Self { log: Arc::new(log), ..self }
    }

    /// The same pipeline under the host's bounds: in the lanes of serial tools as many wait, and as long, as the host lets
    /// wait for a place, and results take as much memory as it gives them.
    #[must_use]
    pub fn with_host_limits(self, limits: &HostLimits) -> Self {
        Self { lanes: Lanes::new(limits), results: ResultMemory::new(limits), ..self }
    }

    /// The memory of results that are not delivered yet.
    #[must_use]
    pub fn result_memory(&self) -> &MemoryBudget {
        self.results.budget()
    }

    /// Bytes of results that one client may leave unread before its next call waits, and how long that waits.
    #[must_use]
    pub fn outbox(&self) -> (u64, Duration) {
        self.results.outbox()
    }

    /// What the rules of the policy, and those of a profile where they are stricter, say of something that is no call of a
    /// tool, as if it were a call of `tool`. Nobody is asked, and nothing is counted.
    #[must_use]
    pub fn action_for(
        &self,
        of_profile: Option<&Permissions>,
        tool: &ToolDef,
        tags: &[Arc<str>],
        args: &Value,
    ) -> Action {
        let tags: Vec<&str> = tags.iter().map(|tag| &**tag).collect();
        let tool = tool.subject(&tags);
        let of_policy = self.gates.load().permissions.decide(tool, args).action;
        of_profile.map_or(of_policy, |profile| profile.decide(tool, args).action.max(of_policy))
    }

    /// Puts other gates in place of those that are there, for all clones. A batch that has begun ends under the old.
    pub fn set_gates(&self, gates: Gates) {
        self.gates.store(Arc::new(gates));
    }

    /// Its last calls.
    #[must_use]
    pub fn log(&self) -> &CallLog {
        &self.log
    }

    /// What it tells.
    #[must_use]
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// The same pipeline, which keeps there what it cuts, for sessions that have a key. Without one, what is cut is gone.
    /// A registry that has [`crate::registry::read_output::entry`] over the same spool lets models read it.
    #[must_use]
    pub fn with_spool(self, spool: Arc<dyn Spool>) -> Self {
        Self { spool: Some(spool), ..self }
    }

    /// Where what is cut is kept.
    #[must_use]
    pub fn spool(&self) -> Option<&Arc<dyn Spool>> {
        self.spool.as_ref()
    }

    /// Runs all calls, in parallel, and returns one result for each, in their order. Calls of serial tools that share a
    /// lane run one after the other, in their order. Must be called inside a tokio runtime with timers. Dropping the
    /// future ends every call.
    pub async fn call_all(&self, view: &View, calls: Vec<ToolCall>, turn: TurnContext) -> Vec<Delivered> {
        let gates = self.gates.load();
        let turn_count = turn.session.turn(&gates.session, turn.identity.turn);
        let (turn, count) = (Arc::new(turn), calls.len());
        if count == 0 {
            return Vec::new();
        }
        if count == 1 {
            let batch = Batch {
                pipeline: self,
                view,
                turn: &turn,
                gates: &gates,
                turn_count: &turn_count,
                count,
                outer: None,
            };
            let mut results = Vec::with_capacity(1);
            for call in calls {
                make_room().await;
                results.push(batch.call(call).await);
            }
            return results;
        }
        let units = units(view, calls);
        let gates = arc_swap::Guard::into_inner(gates);
        let whole =
            Whole { pipeline: self.clone(), view: view.clone(), turn, gates, turn_count, count, outer: None };
        // Boxed, so that a single call does not carry it about.
        Box::pin(BatchScheduler::run(whole, units)).await
    }
}

/// What the tasks of a batch hold together.
struct Whole {
    pipeline: Pipeline,
    view: View,
    turn: Arc<TurnContext>,
    gates: Arc<Gates>,
    turn_count: Option<Arc<TurnCount>>,
    count: usize,
    outer: Option<Outer>,
}

impl Whole {
    async fn run(&self, call: ToolCall) -> Delivered {
        let Self { pipeline, view, turn, gates, turn_count, count, outer } = self;
        let outer = outer.as_ref();
        Batch { pipeline, view, turn, gates, turn_count, count: *count, outer }.call(call).await
    }
}

/// A call with its place in the batch, and those behind it in its lane.
struct Unit {
    first: (usize, ToolCall),
    rest: Vec<(usize, ToolCall)>,
}

fn units(view: &View, calls: Vec<ToolCall>) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::with_capacity(calls.len());
    let mut lanes: HashMap<&Arc<str>, usize> = HashMap::new();
    for (index, call) in calls.into_iter().enumerate() {
        let lane = view.get(&call.tool).and_then(|entry| entry.serial.as_ref());
        let unit = lane.map(|lane| *lanes.entry(lane).or_insert(units.len()));
        match unit.and_then(|unit| units.get_mut(unit)) {
            Some(unit) => unit.rest.push((index, call)),
            None => units.push(Unit { first: (index, call), rest: Vec::new() }),
        }
    }
    units
}

/// Before each call: a caller that makes one after the other, none of which ever waits, would keep its thread from all
/// other tasks, and the runtime from its timers.
async fn make_room() {
    for _ in 0..CALL_SHARE {
        tokio::task::coop::consume_budget().await;
    }
}

/// What all calls of a batch share.
#[derive(Clone, Copy)]
struct Batch<'a> {
    pipeline: &'a Pipeline,
    view: &'a View,
    turn: &'a Arc<TurnContext>,
    gates: &'a Arc<Gates>,
    turn_count: &'a Option<Arc<TurnCount>>,
    count: usize,
    /// The call in the middle of which these are made.
    outer: Option<&'a Outer>,
}

impl Batch<'_> {
    async fn call(self, call: ToolCall) -> Delivered {
        let ToolCall { id, tool, args } = call;
        let mut open = Open::new(self, &id, &tool, args.len());
        let run = {
            let run = pin!(open.way.run(self, &id, &tool, args));
            AssertUnwindSafe(run).catch_unwind().await
        };
        let result =
            run.unwrap_or_else(|_| Err(Failure::Host("a panic while the call ran; see the log".to_owned())));
        let duration_us = open.end(&result);
        let way = std::mem::take(&mut open.way);
        drop(open);
        let (tool, through) = match &way.target {
            Some(target) => (target.to_string(), Some(tool)),
            None => (tool, None),
        };
        let Way {
            source, usage, cut_from, call_sha256, cached, kept, mark, memory, hints, policy_hints, ..
        } = way;
        Delivered {
            call_id: id,
            tool,
            through,
            result,
            usage: usage.unwrap_or_default(),
            duration_us,
            cut_from_chars: cut_from,
            source,
            call_sha256,
            cached,
            kept,
            mark,
            memory: memory.map(Reserved::into_held),
            hints,
            policy_hints,
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

#[cfg(test)]
#[path = "pipeline_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "pipeline/stage_tests.rs"]
mod stage;

#[cfg(test)]
#[path = "pipeline/gates_tests.rs"]
mod gates_tests;
