//! Refusals: a gate of the host ended the call before its tool was started.
//!
//! A refusal has a text, and a reason for programs. Each gate returns a [`Refusal`], which cannot be built without
//! a reason, so the audit, the log, the admin page and the metrics can tell every refusal from the others.

use std::fmt;

use serde::{Serialize, Serializer};
use toolbay_policy::hint::Hint;

use super::fault::FaultKind;

/// Why the host refused a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// The operator stopped all calls.
    Stopped,
    /// The replica has no contact with the others.
    NoContact,
    /// The session has spent its calls.
    MaxCalls,
    /// The turn has spent its calls.
    MaxCallsPerTurn,
    /// The session has spent its dollars.
    MaxCost,
    /// The session repeated the call too often.
    MaxIdenticalCalls,
    /// The turn repeated the call too often.
    MaxIdenticalCallsPerTurn,
    /// The budget that several replicas share cannot be read.
    BudgetUnavailable,
    /// The calling tool has no grant for the called one.
    Invoke,
    /// No tool has the name.
    UnknownTool,
    /// A source names the tool and could not register it.
    LeftOut,
    /// The source of such a name has no tools: it is still loading, or it failed.
    SourceAbsent,
    /// The view or its profile excludes the tool.
    Excluded,
    /// The lists of the view do not have the tool.
    Filter,
    /// The profile does not have the tool.
    Profile,
    /// The tool is disabled.
    Disabled,
    /// The tool is not available: usually a grant is missing.
    Unavailable,
    /// The arguments are too large.
    ArgumentsTooLarge,
    /// The arguments are not JSON.
    ArgumentsNotJson,
    /// The arguments do not match the schema.
    ArgumentsInvalid,
    /// A permission rule denies the call.
    Rule,
    /// A permission rule asks for an approval, and nobody can be asked.
    NoApprover,
    /// A person refused the call.
    Person,
    /// Nobody replied to the request for an approval in time.
    ApprovalTimeout,
    /// The approver failed.
    ApproverFailed,
    /// The client repeats the call with the reply of a person.
    InputRequired,
    /// The idempotency key does not fit the call or its session.
    IdempotencyKey,
    /// An interceptor of the embedder answered with an error.
    Interceptor,
    /// The code that runs the tool returned an error before the tool was started.
    Invoker,
    /// The call ended before its tool was started: it was cancelled, or waited too long.
    Fault(FaultKind),
    /// The host failed: it cannot record the call or run the tool.
    Host,
}

impl RefusalReason {
    /// The reason in records and labels. A reason that one line of the policy sets has the name of that line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::NoContact => "no_contact",
            Self::MaxCalls => "max_calls",
            Self::MaxCallsPerTurn => "max_calls_per_turn",
            Self::MaxCost => "max_cost_usd",
            Self::MaxIdenticalCalls => "max_identical_calls",
            Self::MaxIdenticalCallsPerTurn => "max_identical_calls_per_turn",
            Self::BudgetUnavailable => "budget_unavailable",
            Self::Invoke => "invoke",
            Self::UnknownTool => "unknown_tool",
            Self::LeftOut => "left_out",
            Self::SourceAbsent => "source_absent",
            Self::Excluded => "excluded",
            Self::Filter => "filter",
            Self::Profile => "profile",
            Self::Disabled => "disabled",
            Self::Unavailable => "unavailable",
            Self::ArgumentsTooLarge => "args_bytes",
            Self::ArgumentsNotJson => "not_json",
            Self::ArgumentsInvalid => "schema",
            Self::Rule => "rule",
            Self::NoApprover => "no_approver",
            Self::Person => "person",
            Self::ApprovalTimeout => "ask_timeout",
            Self::ApproverFailed => "approver_failed",
            Self::InputRequired => "input_required",
            Self::IdempotencyKey => "idempotency_key",
            Self::Interceptor => "interceptor",
            Self::Invoker => "invoker",
            Self::Fault(kind) => kind.as_str(),
            Self::Host => "host_failed",
        }
    }

    /// Whether a caller must not learn that the tool exists: its refusal reads like that of an unknown name.
    #[must_use]
    pub const fn hides_tool(self) -> bool {
        matches!(self, Self::Excluded | Self::Filter | Self::Profile)
    }
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for RefusalReason {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.as_str())
    }
}

/// The refusal of a gate. Its caller gets it as a [`ToolError`](crate::tool::content::ToolError) with its reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    pub(super) reason: RefusalReason,
    pub(super) message: String,
    pub(super) subject: Option<String>,
    pub(super) hint: Option<Hint>,
}

impl Refusal {
    /// A refusal with a message for the model.
    #[must_use]
    pub fn new(reason: RefusalReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), subject: None, hint: None }
    }

    /// Sets the subject.
    #[must_use]
    pub fn with_subject(self, subject: impl Into<String>) -> Self {
        Self { subject: Some(subject.into()), ..self }
    }

    /// Sets the hint for the operator.
    #[must_use]
    pub fn with_hint(self, hint: Option<Hint>) -> Self {
        Self { hint, ..self }
    }
}
