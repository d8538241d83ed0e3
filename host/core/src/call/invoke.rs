//! The port through which the pipeline runs a tool: a plugin, native code, another MCP server or an OpenAPI service.

pub mod nested;

use std::fmt;
use std::sync::Arc;

pub use futures_util::future::BoxFuture;
use toolbay_policy::limits::Usage;

use self::nested::{InvokeGrant, ToolCaller};
use crate::call::{AdmittedCall, CallContext};
use crate::tool::content::{ErrorCode, ToolError, ToolOutput};
use crate::tool::fault::{Fault, FaultKind};
use crate::tool::refusal::{Refusal, RefusalReason};

/// The reason why a call has no output.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Failure {
    /// The tool returned an error, or a gate refused the call.
    #[error(transparent)]
    Refused(#[from] ToolError),
    /// The guest misbehaved.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The host failed.
    #[error("the host failed: {0}")]
    Host(String),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.into())
    }
}

impl Failure {
    /// The refusal reason of a failure that ended a call before its tool was started.
    #[must_use]
    pub fn refusal_reason(&self) -> RefusalReason {
        match self {
            Self::Refused(error) => error.refusal.unwrap_or(RefusalReason::Invoker),
            Self::Fault(fault) => RefusalReason::Fault(fault.kind),
            Self::Host(_) => RefusalReason::Host,
        }
    }

    /// The failure of a call that cannot be recorded although the policy requires the audit.
    #[must_use]
    pub fn from_audit_error(problem: &str) -> Self {
        Self::Host(format!(
            "the call was not run because it cannot be recorded: the policy says `[audit] required = true`, and the \
             audit cannot be written ({problem})"
        ))
    }

    /// The error code on the wire. Calls that failed with `busy` or `suspended` can be tried again, so these are
    /// `not_available`; all other faults and host failures are `execution_failed`.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Refused(error) => error.code,
            Self::Fault(fault) => match fault.kind {
                FaultKind::Busy | FaultKind::Suspended => ErrorCode::NotAvailable,
                FaultKind::Trap
                | FaultKind::OutOfFuel
                | FaultKind::Deadline
                | FaultKind::OutOfMemory
                | FaultKind::OutputTooLarge
                | FaultKind::BadOutput
                | FaultKind::Cancelled
                | FaultKind::OutcomeUnknown => ErrorCode::ExecutionFailed,
            },
            Self::Host(_) => ErrorCode::ExecutionFailed,
        }
    }
}

/// The result of a tool and its resource usage.
#[derive(Debug)]
pub struct ToolOutcome {
    /// The output, or the failure.
    pub result: Result<ToolOutput, Failure>,
    /// The resource usage.
    pub usage: Usage,
}

/// The call that replaces the call of a forwarding tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardTarget {
    /// The qualified name of the target tool.
    pub tool: String,
    /// The arguments for the target tool, a JSON text.
    pub args: String,
}

/// Runs one tool.
pub trait Invoke: Send + Sync + fmt::Debug {
    /// The target of a tool that only forwards calls, such as `tool_call`. The pipeline runs the target in place of
    /// this call, with the target's gates, limits and audit record. It forwards once. `args` are not validated yet. If
    /// this returns `None`, the pipeline [invokes](Invoke::invoke) the tool, which can then explain the problem.
    fn forward(&self, args: &str) -> Option<ForwardTarget> {
        let _ = args;
        None
    }

    /// The tools that this tool may call while it runs under a profile. The default is `None`: no tools.
    fn invoke_grant(&self, profile: Option<&str>) -> Option<Arc<dyn InvokeGrant>> {
        let _ = profile;
        None
    }

    /// Whether the invoker calls [`CallContext::begin`] itself, after the call has waited for a run permit. Otherwise
    /// the pipeline calls it before it invokes the tool.
    fn calls_begin(&self) -> bool {
        false
    }

    /// Runs an admitted call of a tool that [may call other tools](Invoke::invoke_grant), through `caller`.
    fn invoke_with<'a>(
        &'a self,
        call: &'a AdmittedCall,
        ctx: &'a Arc<CallContext>,
        caller: Arc<dyn ToolCaller>,
    ) -> BoxFuture<'a, ToolOutcome> {
        drop(caller);
        self.invoke(call, ctx)
    }

    /// Runs an admitted call to its end. Dropping the future cancels the call and releases its resources.
    fn invoke<'a>(&'a self, call: &'a AdmittedCall, ctx: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome>;
}
