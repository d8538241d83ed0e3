//! Faults: a guest trapped or hit one of its limits.
//!
//! A fault is neither the tool's own error (a value that the guest returned) nor a failure of the host (an `Err`). It
//! names the limit. The setting that raises the limit is a separate field, which only the operator reads.

use std::time::Duration;

use serde::Serialize;
use toolbay_policy::hint::Hint;
use toolbay_policy::limits::LimitHit;
use toolbay_policy::refusal;

/// The kind of fault that ended the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The guest trapped: a panic, `unreachable`, an out-of-bounds access, `exit`.
    Trap,
    /// The call used up its fuel.
    OutOfFuel,
    /// The deadline passed, in guest code or while the guest waited for a host call.
    Deadline,
    /// The guest hit a memory, table, instance or handle limit and did not recover.
    OutOfMemory,
    /// The result, or an argument of a host call, exceeded its size limit.
    OutputTooLarge,
    /// The result violated the contract: it is not JSON, or does not match its schema.
    BadOutput,
    /// The caller cancelled the call.
    Cancelled,
    /// The host lost its right to run the call after it had begun. Whether it had its effects is unknown, so it must not
    /// be repeated without a check.
    OutcomeUnknown,
    /// No run permit became free in time.
    Busy,
    /// The circuit breaker is open after several faults in a row.
    Suspended,
}

impl FaultKind {
    /// The kind on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trap => "trap",
            Self::OutOfFuel => "out_of_fuel",
            Self::Deadline => "deadline",
            Self::OutOfMemory => "out_of_memory",
            Self::OutputTooLarge => "output_too_large",
            Self::BadOutput => "bad_output",
            Self::Cancelled => "cancelled",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Busy => "busy",
            Self::Suspended => "suspended",
        }
    }
}

/// A fault of a guest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// The kind of fault.
    pub kind: FaultKind,
    /// The message for people and models: it names the limit, but contains no policy line.
    pub message: String,
    /// The limit that was hit, if any.
    pub limit: Option<LimitHit>,
    /// Milliseconds after which a retry may succeed; `None` if a retry does not help.
    pub retry_after_ms: Option<u64>,
}

impl Fault {
    /// A fault without a limit.
    #[must_use]
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), limit: None, retry_after_ms: None }
    }

    /// A fault that a limit caused. The message gets the name and the value of the limit, and the reason if no setting
    /// raises it.
    #[must_use]
    pub fn by_limit(kind: FaultKind, what: &str, limit: LimitHit) -> Self {
        let message = format!("{what}: {limit}");
        Self { kind, message, limit: Some(limit), retry_after_ms: None }
    }

    /// The policy line that raises the limit, for the operator; `None` if no line does.
    #[must_use]
    pub fn hint(&self) -> Option<Hint> {
        self.limit.as_ref()?.hint()
    }

    /// The message and the hint, for the operator.
    #[must_use]
    pub fn for_operator(&self) -> String {
        refusal::format_for_operator(&self.message, self.hint().as_ref())
    }

    /// The same fault with a time after which to retry.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after_ms = Some(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        self
    }
}
