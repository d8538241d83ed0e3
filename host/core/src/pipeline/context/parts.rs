//! The parts of a pipeline, and its policy.

use std::sync::Arc;

use arc_swap::ArcSwap;
use toolbay_policy::audit_policy::AuditPolicy;
use toolbay_policy::output::OutputSettings;
use toolbay_policy::permission::Permissions;
use toolbay_policy::session::SessionLimits;

use super::result_memory::ResultMemory;
use super::serial::SerialQueues;
use crate::approval::Approver;
use crate::audit::AuditSink;
use crate::audit::call_log::CallLog;
use crate::call::compute::ComputePool;
use crate::call::idempotency::CallKeys;
use crate::call::shared::SharedState;
use crate::call::trace::Tracer;
use crate::output::redact::Redactor;
use crate::pipeline::intercept::Interceptors;
use crate::pipeline::running::RunningCalls;
use crate::registry::event::Events;
use crate::session::Session;
use crate::session::output_store::OutputStore;

/// The operator's policy for calls, apart from grants.
#[derive(Debug, Clone, Default)]
pub struct CallPolicy {
    /// The permission rules.
    pub permissions: Permissions,
    /// The limits of a session.
    pub session: SessionLimits,
    /// The output settings for tools that do not set their own.
    pub output: OutputSettings,
    /// Whether calls require the audit, and which calls get a start line.
    pub audit: AuditPolicy,
    /// The number of the published epoch, if several replicas share the policy.
    pub epoch: Option<u64>,
    /// Whether a call with an idempotency key runs again if its tool is idempotent and the result of the first call is
    /// not known.
    pub reruns_idempotent: bool,
}

/// The parts of a pipeline. Each batch holds them by one reference: a count for each part, changed by all threads,
/// would slow down parallel calls.
#[derive(Debug, Clone)]
pub(crate) struct PipelineParts {
    pub(crate) audit: Arc<dyn AuditSink>,
    pub(crate) redactor: Arc<ArcSwap<Redactor>>,
    pub(crate) call_policy: Arc<ArcSwap<CallPolicy>>,
    pub(crate) approver: Option<Arc<dyn Approver>>,
    pub(crate) interceptors: Arc<Interceptors>,
    pub(crate) events: Events,
    pub(crate) call_log: Arc<CallLog>,
    pub(crate) running: Arc<RunningCalls>,
    pub(crate) serial: SerialQueues,
    pub(crate) results: ResultMemory,
    /// Where long work on the data of others runs.
    pub(crate) compute: ComputePool,
    pub(crate) output_store: Option<Arc<dyn OutputStore>>,
    pub(crate) tracer: Option<Arc<Tracer>>,
    pub(crate) shared: Option<SharedState>,
    /// The idempotency keys of sessions that belong to this replica.
    pub(crate) calls: Arc<dyn CallKeys>,
}

impl PipelineParts {
    /// The shared state and the account of a session there; `None` if the session belongs to this host.
    pub(crate) fn shared_state_of<'a>(&self, session: &'a Session) -> Option<(&SharedState, &'a str)> {
        self.shared.as_ref().zip(session.account())
    }
}
