//! The stages of a call: `ResolvedTool` → `AdmittedCall` → `ToolOutcome` → `ShapedOutput` → `CallResult`.
//!
//! [`Pipeline::call_all`] returns one result for each call, in the order of the calls, even if a tool, a reducer or the
//! host's own code fails. `runner` runs the stages, and the calls of a batch side by side. Each of the `stages` is a
//! module with the one function that constructs its type: `resolve`, `validate`, `admit`, `invoke`, `shape`. `context`
//! has what all of them need, with the guard that records each call.

mod context;
pub mod intercept;
pub mod memory;
mod result;
mod runner;
pub mod running;
mod stages;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use serde_json::Value;
use toolbay_policy::limits::HostLimits;
use toolbay_policy::permission::{Action, Permissions};

use self::context::batch::BatchContext;
pub use self::context::parts::CallPolicy;
use self::context::parts::PipelineParts;
use self::context::result_memory::ResultMemory;
use self::context::serial::SerialQueues;
use self::intercept::Interceptors;
use self::memory::MemoryBudget;
pub use self::result::{CallResult, PolicyHints, Shaping, cost_usd, outcome};
pub use self::runner::schedule::BATCH_TASKS;
use self::running::RunningCalls;
use crate::approval::Approver;
use crate::audit::AuditSink;
use crate::audit::call_log::CallLog;
use crate::call::compute::ComputePool;
use crate::call::idempotency::MemoryCallKeys;
use crate::call::shared::{LostContact, SharedState, SharedStatus};
use crate::call::trace::Tracer;
use crate::call::{ToolCall, TurnContext};
use crate::output::redact::Redactor;
use crate::registry::event::Events;
use crate::registry::view::View;
use crate::session::Session;
use crate::session::output_store::OutputStore;
use crate::tool::ToolDef;
use crate::tool::fault::Fault;

/// Runs batches of calls. It stores no state of a session. Clones share their state, except for the settings that a
/// `with_…` method replaced.
#[derive(Debug, Clone)]
pub struct Pipeline {
    parts: Arc<PipelineParts>,
}

impl Pipeline {
    /// A pipeline that records to `audit`.
    #[must_use]
    pub fn new(audit: Arc<dyn AuditSink>) -> Self {
        let parts = PipelineParts {
            audit,
            redactor: Arc::default(),
            call_policy: Arc::default(),
            approver: None,
            interceptors: Arc::default(),
            events: Events::default(),
            call_log: Arc::default(),
            running: Arc::default(),
            serial: SerialQueues::new(&HostLimits::default()),
            results: ResultMemory::new(&HostLimits::default()),
            compute: ComputePool::default(),
            output_store: None,
            tracer: None,
            shared: None,
            calls: Arc::new(MemoryCallKeys::default()),
        };
        Self { parts: Arc::new(parts) }
    }

    fn replace(mut self, replace: impl FnOnce(&mut PipelineParts)) -> Self {
        replace(Arc::make_mut(&mut self.parts));
        self
    }

    /// The audit sink.
    #[must_use]
    pub fn audit(&self) -> &Arc<dyn AuditSink> {
        &self.parts.audit
    }

    /// Whether the policy refuses calls that cannot be recorded.
    #[must_use]
    pub fn requires_audit(&self) -> bool {
        self.parts.call_policy.load().audit.required
    }

    /// Sets the redactor that removes the values of secrets from results, progress and records.
    #[must_use]
    pub fn with_redactor(self, redactor: Redactor) -> Self {
        self.replace(|parts| parts.redactor = Arc::new(ArcSwap::from_pointee(redactor)))
    }

    /// Replaces the redactor for later calls of all clones. The new redactor must still know the values that calls
    /// through an older view can see.
    pub fn replace_redactor(&self, redactor: Redactor) {
        self.parts.redactor.store(Arc::new(redactor));
    }

    /// Sets the call policy.
    #[must_use]
    pub fn with_call_policy(self, policy: CallPolicy) -> Self {
        self.replace(|parts| parts.call_policy = Arc::new(ArcSwap::from_pointee(policy)))
    }

    /// Sets the approver for sessions without one.
    #[must_use]
    pub fn with_approver(self, approver: Arc<dyn Approver>) -> Self {
        self.replace(|parts| parts.approver = Some(approver))
    }

    /// Traces the calls, if there is a tracer.
    #[must_use]
    pub fn with_tracer(self, tracer: Option<Tracer>) -> Self {
        self.replace(|parts| parts.tracer = tracer.map(Arc::new))
    }

    /// Shares budgets, serial queues, revocations, approvals, idempotency keys and tasks with other replicas.
    #[must_use]
    pub fn with_shared_state(self, shared: SharedState) -> Self {
        self.replace(|parts| parts.shared = Some(shared))
    }

    /// The state that this replica shares with others; `None` if it shares none.
    #[must_use]
    pub fn shared_state(&self) -> Option<&SharedState> {
        self.parts.shared.as_ref()
    }

    /// The shared state and the account of a session there; `None` if the session belongs to this replica.
    #[must_use]
    pub fn shared_state_of<'a>(&self, session: &'a Session) -> Option<(&SharedState, &'a str)> {
        self.parts.shared_state_of(session)
    }

    /// The status of the shared state as this replica sees it; `None` if it shares none.
    #[must_use]
    pub fn shared_status(&self) -> Option<SharedStatus> {
        self.parts.shared.as_ref().map(SharedState::status)
    }

    /// The share of this replica in an amount for all replicas, rounded up.
    #[must_use]
    pub fn share_of(&self, amount: u32) -> u32 {
        let replicas = self.parts.shared.as_ref().map_or(1, |shared| shared.heartbeat.replica_count());
        amount.div_ceil(u32::try_from(replicas).unwrap_or(u32::MAX).max(1))
    }

    /// Whether this replica is in contact with the others. A host without replicas always is.
    ///
    /// # Errors
    /// The reason why calls are refused.
    pub fn check_contact(&self) -> Result<(), LostContact> {
        self.parts.shared.as_ref().map_or(Ok(()), |shared| shared.heartbeat.check())
    }

    /// Whether calls are traced.
    #[must_use]
    pub fn traces_calls(&self) -> bool {
        self.parts.tracer.is_some()
    }

    /// Sets the interceptors.
    #[must_use]
    pub fn with_interceptors(self, interceptors: Interceptors) -> Self {
        self.replace(|parts| parts.interceptors = Arc::new(interceptors))
    }

    /// Sets the event channel.
    #[must_use]
    pub fn with_events(self, events: Events) -> Self {
        self.replace(|parts| parts.events = events)
    }

    /// Sets the log of the last calls.
    #[must_use]
    pub fn with_call_log(self, log: CallLog) -> Self {
        self.replace(|parts| parts.call_log = Arc::new(log))
    }

    /// Sets the limits for waiting calls of serial tools and for the memory of results.
    #[must_use]
    pub fn with_host_limits(self, limits: &HostLimits) -> Self {
        self.replace(|parts| {
            parts.serial = SerialQueues::new(limits);
            parts.results = ResultMemory::new(limits);
        })
    }

    /// The memory budget of results that are not delivered yet.
    #[must_use]
    pub fn result_memory(&self) -> &MemoryBudget {
        self.parts.results.budget()
    }

    /// The bytes of results that one client may leave unread before its next call waits, and the longest such wait.
    #[must_use]
    pub fn outbox_limits(&self) -> (u64, Duration) {
        self.parts.results.outbox_limits()
    }

    /// The action for an operation that is not a tool call but follows the rules for calls of `tool`: that of the policy, or
    /// of the profile if it is stricter. It requests no approval and counts nothing. `spelled` contains the equivalent
    /// spellings of the arguments ([`Permissions::decide_spelled`]).
    #[must_use]
    pub fn action_for(
        &self,
        of_profile: Option<&Permissions>,
        tool: &ToolDef,
        tags: &[Arc<str>],
        spelled: &[Value],
    ) -> Action {
        let tags: Vec<&str> = tags.iter().map(|tag| &**tag).collect();
        let tool = tool.subject(&tags);
        let of_policy = self.parts.call_policy.load().permissions.decide_spelled(tool, spelled);
        of_profile.map_or(of_policy, |profile| profile.decide_spelled(tool, spelled).max(of_policy))
    }

    /// Replaces the call policy of all clones. A batch that has begun ends under the old policy.
    pub fn set_call_policy(&self, policy: CallPolicy) {
        self.parts.call_policy.store(Arc::new(policy));
    }

    /// The log of the last calls.
    #[must_use]
    pub fn call_log(&self) -> &CallLog {
        &self.parts.call_log
    }

    /// The calls in progress, of all clones.
    #[must_use]
    pub fn running(&self) -> &RunningCalls {
        &self.parts.running
    }

    /// The event channel.
    #[must_use]
    pub fn events(&self) -> &Events {
        &self.parts.events
    }

    /// Sets the store for texts that are cut or reduced, for sessions with a key. Without a store, the rest of a cut
    /// text is lost. Register [`crate::registry::read_output::entry`] with the same store to let models read the texts.
    #[must_use]
    pub fn with_output_store(self, store: Arc<dyn OutputStore>) -> Self {
        self.replace(|parts| parts.output_store = Some(store))
    }

    /// The store for texts that are cut or reduced.
    #[must_use]
    pub fn output_store(&self) -> Option<&Arc<dyn OutputStore>> {
        self.parts.output_store.as_ref()
    }

    /// Runs all calls concurrently and returns one result for each, in the order of the calls. Calls of serial tools
    /// with the same queue run one after the other. Requires a tokio runtime with timers. Dropping the future cancels
    /// every call.
    pub async fn call_all(&self, view: &View, calls: Vec<ToolCall>, turn: TurnContext) -> Vec<CallResult> {
        runner::run_batch(self.batch(view, turn, calls.len()), calls).await
    }

    /// Runs all calls like [`Pipeline::call_all`]. Passes on each result as its call ends, with the index of the call.
    pub async fn call_each(
        &self,
        view: &View,
        calls: Vec<ToolCall>,
        turn: TurnContext,
        take: impl FnMut(usize, CallResult) + Send,
    ) {
        runner::run_each(self.batch(view, turn, calls.len()), calls, take).await;
    }

    /// Refuses a call before its first gate, because its connection has reached a limit. The call is recorded like any
    /// other, and counts for no budget.
    pub fn refuse(&self, view: &View, call: ToolCall, turn: TurnContext, fault: Fault) -> CallResult {
        runner::refuse_call(&self.batch(view, turn, 1), call, fault)
    }

    fn batch(&self, view: &View, turn: TurnContext, size: usize) -> BatchContext {
        let call_policy = self.parts.call_policy.load_full();
        let turn_count = turn.session.turn_count(&call_policy.session, turn.identity.turn);
        BatchContext {
            pipeline: Arc::clone(&self.parts),
            view: view.clone(),
            turn: Arc::new(turn),
            call_policy,
            turn_count,
            size,
            parent: None,
            deadline: None,
        }
    }
}

#[cfg(test)]
#[path = "pipeline_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "pipeline/fixture_tests.rs"]
mod fixture;

#[cfg(test)]
#[path = "pipeline/gates_tests.rs"]
mod gates_tests;

#[cfg(test)]
#[path = "pipeline/host_work_tests.rs"]
mod host_work_tests;

#[cfg(test)]
#[path = "pipeline/permission_tests.rs"]
mod permission_tests;

#[cfg(test)]
#[path = "pipeline/refusal_tests.rs"]
mod refusal_tests;

#[cfg(test)]
#[path = "pipeline/running_tests.rs"]
mod running_tests;

#[cfg(test)]
#[path = "pipeline/intercept_tests.rs"]
mod intercept_tests;

#[cfg(test)]
#[path = "pipeline/shared_tests.rs"]
mod shared_tests;

#[cfg(test)]
#[path = "pipeline/idempotency_tests.rs"]
mod idempotency_tests;

#[cfg(test)]
#[path = "pipeline/native_tests.rs"]
mod native_tests;
