//! A guest that misbehaved: it trapped, or ran into one of its limits.
//!
//! A fault is neither the tool's own error (a value the guest returned) nor a failure of the host (an `Err`).
//! It names the limit; the setting that raises it stands beside the message, for the operator.

use std::time::Duration;

use serde::Serialize;
use toolbay_policy::limits::LimitHit;
use toolbay_policy::refusal;

/// What kind of misbehaviour ended the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The guest trapped: a panic, `unreachable`, an access out of bounds, `exit`.
    Trap,
    /// The fuel ran out.
    OutOfFuel,
    /// The wall clock ran out, in guest code or in a host call it waited for.
    Deadline,
    /// A memory, table, instance or handle limit was hit and the guest did not survive it.
    OutOfMemory,
    /// The result, or an argument of a host call, was larger than may cross.
    OutputTooLarge,
    /// The answer broke the contract: text that is not JSON, a result that does not match its schema.
    BadOutput,
    /// The caller gave up.
    Cancelled,
    /// The host had no free place in time.
    Busy,
    /// The tool faulted so often in a row that it is not called for a while.
    Suspended,
}

impl FaultKind {
    /// The kind as it stands on the wire.
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
            Self::Busy => "busy",
            Self::Suspended => "suspended",
        }
    }
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// What happened.
    pub kind: FaultKind,
    /// What a person or a model reads: the limit, but no line of the policy.
    pub message: String,
    /// The limit that was hit, if one was.
    pub limit: Option<LimitHit>,
    /// After how many milliseconds a caller may try again with some hope; `None` where trying again is no remedy.
    pub retry_after_ms: Option<u64>,
}

impl Fault {
    /// A fault that no limit stands behind.
    #[must_use]
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), limit: None, retry_after_ms: None }
    }

    /// A fault by a limit; the message is completed with its name and value, and with why nothing raises it.
    #[must_use]
    pub fn by_limit(kind: FaultKind, what: &str, limit: LimitHit) -> Self {
        let message = format!("{what}: {limit}");
        Self { kind, message, limit: Some(limit), retry_after_ms: None }
    }

    /// The line that raises the limit, for the operator; `None` where no line does.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        self.limit.as_ref()?.hint()
    }

    /// The message and the hint, for the operator.
    #[must_use]
    pub fn for_operator(&self) -> String {
        refusal::for_operator(&self.message, self.hint().as_deref())
    }

    /// The same fault with the time after which to try again.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after_ms = Some(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        self
    }
}
