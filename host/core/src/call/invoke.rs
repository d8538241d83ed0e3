//! The port through which the pipeline runs a tool, whatever is behind it.

pub mod nested;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use toolbay_policy::limits::Usage;

use self::nested::{InvokeGrant, ToolCaller};
use crate::call::fault::{Fault, FaultKind};
use crate::call::{AdmittedCall, CallContext};
use crate::tool::content::{ErrorCode, ToolError, ToolOutput};

/// A boxed future, as ports return it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why a call has no output.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Failure {
    /// The guest, or a gate before it, said no.
    #[error(transparent)]
    Refused(#[from] ToolError),
    /// The guest misbehaved.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The host failed.
    #[error("the host failed: {0}")]
    Host(String),
}

impl Failure {
    /// The audit is required, and the call cannot be recorded.
    #[must_use]
    pub fn unrecorded(problem: &str) -> Self {
        Self::Host(format!(
            "the call was not made, because it cannot be recorded: the policy says `[audit] required = true`, and the \
             audit cannot be written ({problem})"
        ))
    }

    /// The one of the four codes that stands on the wire. `busy` and `suspended` can be tried again; everything
    /// else that is no refusal is a failed execution.
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
                | FaultKind::Cancelled => ErrorCode::ExecutionFailed,
            },
            Self::Host(_) => ErrorCode::ExecutionFailed,
        }
    }
}

/// The result of a tool, and what the tool used.
#[derive(Debug)]
pub struct ToolOutcome {
    /// The output, or why there is none.
    pub result: Result<ToolOutput, Failure>,
    /// What was used.
    pub usage: Usage,
}

/// The call that a call stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The qualified name of the tool that is meant.
    pub tool: String,
    /// Its arguments, a JSON text.
    pub args: String,
}

/// Runs one tool.
pub trait Invoke: Send + Sync + fmt::Debug {
    /// The call that one with these arguments stands for, if the tool does nothing but call others: the pipeline then
    /// makes that call, with its gates, limits and record, in place of this one, once. The arguments are not checked
    /// yet. With nothing to forward to, the call is [invoked](Invoke::invoke) like any other, to say why.
    fn forward(&self, args: &str) -> Option<Target> {
        let _ = args;
        None
    }

    /// The tools that it may call while it runs under a profile; `None`, which is the default: none.
    fn invoke_grant(&self, profile: Option<&str>) -> Option<Arc<dyn InvokeGrant>> {
        let _ = profile;
        None
    }

    /// Whether it calls [`CallContext::begin`] itself, once a call has waited for its place. Otherwise that is done before
    /// it is invoked.
    fn begins(&self) -> bool {
        false
    }

    /// Runs an admitted call of a tool that [may call others](Invoke::invoke_grant), with what makes those calls.
    fn invoke_with<'a>(
        &'a self,
        call: &'a AdmittedCall,
        ctx: &'a Arc<CallContext>,
        caller: Arc<dyn ToolCaller>,
    ) -> BoxFuture<'a, ToolOutcome> {
        drop(caller);
        self.invoke(call, ctx)
    }

    /// Runs an admitted call to its end. Dropping the future ends the call and frees all it held.
    fn invoke<'a>(&'a self, call: &'a AdmittedCall, ctx: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome>;
}
