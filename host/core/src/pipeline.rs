//! The stages of a call: `ResolvedTool` → `AdmittedCall` → `ToolOutcome` → `ShapedOutput` → `CallResult`.
//!
//! [`Pipeline::call_all`] never fails and never loses a result: each call gets one, in the order of the calls, whatever the
//! tools, the reducers or the host's own code do. `batch` runs the stages; each has a module with the one function that makes
//! its type: `resolve`, `validate`, `admit`, `invoke`, `shape`, `record`.

mod admit;
mod batch;
mod check;
pub mod intercept;
mod invoke;
pub mod memory;
mod nested;
mod record;
mod refusals;
mod resolve;
mod result;
mod result_memory;
mod ruling;
mod schedule;
mod serial;
mod shape;
mod validate;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use serde_json::Value;
use toolbay_policy::audit_policy::AuditPolicy;
use toolbay_policy::limits::HostLimits;
use toolbay_policy::output::Delivery;
use toolbay_policy::permission::{Action, Permissions};
use toolbay_policy::session::SessionLimits;

use self::batch::{BatchContext, CallGroup, consume_call_share};
pub use self::result::{CallResult, PolicyHints, Shaping, cost_usd, outcome};
use self::result_memory::ResultMemory;
use self::schedule::BatchScheduler;
use crate::audit::AuditSink;
use crate::audit::call_log::CallLog;
use crate::call::approval::Approver;
use crate::call::{ToolCall, TurnContext};
use crate::output::redact::Redactor;
use crate::pipeline::intercept::Interceptors;
use crate::pipeline::memory::MemoryBudget;
use crate::pipeline::serial::SerialQueues;
use crate::registry::event::Events;
use crate::registry::view::View;
use crate::session::spool::Spool;
use crate::tool::ToolDef;

/// Calls of one batch that are under way at once: four times what the host runs by default.
/// The rest of a batch waits as what it is, a name and a text.
pub const BATCH_TASKS: usize = 256;

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
    serial: SerialQueues,
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
            serial: SerialQueues::new(&HostLimits::default()),
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
        Self { serial: SerialQueues::new(limits), results: ResultMemory::new(limits), ..self }
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
    pub async fn call_all(&self, view: &View, calls: Vec<ToolCall>, turn: TurnContext) -> Vec<CallResult> {
        let gates = self.gates.load_full();
        let turn_count = turn.session.turn(&gates.session, turn.identity.turn);
        let batch = BatchContext {
            pipeline: self.clone(),
            view: view.clone(),
            turn: Arc::new(turn),
            gates,
            turn_count,
            size: calls.len(),
            parent: None,
            deadline: None,
        };
        if calls.len() > 1 {
            let groups = CallGroup::group(view, calls);
            // Boxed to keep the future of a single call small.
            return Box::pin(BatchScheduler::run(batch, groups)).await;
        }
        let mut results = Vec::with_capacity(calls.len());
        for call in calls {
            consume_call_share().await;
            results.push(batch.run_call(call).await);
        }
        results
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

#[cfg(test)]
#[path = "pipeline/intercept_tests.rs"]
mod intercept_tests;
