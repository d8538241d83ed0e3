//! What the caller gets for a call.

use std::sync::Arc;
use std::time::Duration;

use toolbay_policy::limits::Usage;

use crate::call::invoke::Failure;
use crate::output::untrusted::Mark;
use crate::pipeline::memory::MemoryReservation;
use crate::session::spool::Spooled;
use crate::tool::ToolSource;
use crate::tool::canonical::Digest;
use crate::tool::content::ToolOutput;

/// The result of one call.
#[derive(Debug)]
pub struct CallResult {
    /// The caller's id of the call.
    pub call_id: Arc<str>,
    /// The name of the tool that was called.
    pub tool: String,
    /// The name that the caller used, if that tool only forwarded the call (`tool_call`).
    pub through: Option<String>,
    /// The output, cut to the budget, or why there is none.
    pub result: Result<ToolOutput, Failure>,
    /// What the shaping of the output changed.
    pub shaping: Shaping,
    /// What the guest used.
    pub usage: Usage,
    /// From the call's arrival to this result, in microseconds.
    pub duration_us: u64,
    /// Where the tool comes from, if there is one of that name.
    pub source: Option<Arc<ToolSource>>,
    /// SHA-256 of the call, `{"args":…,"tool":…}` in canonical form ([`crate::tool::canonical`]): equal calls have equal
    /// digests, in whatever order their arguments were written. `None`: the arguments were not parsed.
    pub call_sha256: Option<Digest>,
    /// The age of the result, if it comes from the session's cache: the tool did not run, and the call cost nothing.
    pub cached: Option<Duration>,
    /// The memory that the result holds of the host's `result_memory`. Dropping it gives the memory back.
    pub memory: Option<MemoryReservation>,
    /// The policy lines that would allow what the call was refused.
    pub hints: PolicyHints,
}

/// What became of a tool's output on its way to the caller.
#[derive(Debug, Clone, Default)]
pub struct Shaping {
    /// Characters before the text was cut, if it was.
    pub cut_from_chars: Option<usize>,
    /// The texts that were saved for the session, because they were cut or reduced.
    pub saved: Vec<Spooled>,
    /// The mark around texts of this tool, if others may have written them. `structured` carries none: whatever turns it
    /// into text adds the mark.
    pub mark: Option<Mark>,
}

/// Policy lines for the operator ([`toolbay_policy::refusal`]). The texts of a result contain none of them.
#[derive(Debug, Clone, Default)]
pub struct PolicyHints {
    /// One hint for each refusal.
    pub lines: Vec<String>,
    /// Whether the policy lets models read them; each edge that speaks to models checks this.
    pub for_model: bool,
}

impl PolicyHints {
    /// The hints as one text, if the policy lets a model read them.
    #[must_use]
    pub fn for_model(&self) -> Option<String> {
        (self.for_model && !self.lines.is_empty()).then(|| self.lines.join("\n"))
    }
}

impl CallResult {
    /// What the call cost in US dollars, as the tool said; a failed call may have cost, too.
    #[must_use]
    pub fn cost_usd(&self) -> Option<f64> {
        cost_of(&self.result)
    }
}

/// The cost that a tool states with its output or its error, in US dollars.
pub(super) fn cost_of(result: &Result<ToolOutput, Failure>) -> Option<f64> {
    match result {
        Ok(output) => output.cost_usd,
        Err(Failure::Refused(error)) => error.cost_usd,
        Err(Failure::Fault(_) | Failure::Host(_)) => None,
    }
}

/// What the calls of a batch cost together, in US dollars.
#[must_use]
pub fn cost_usd(results: &[CallResult]) -> f64 {
    // Not `sum`: the sum of nothing is -0.0.
    results.iter().filter_map(CallResult::cost_usd).fold(0.0, |sum, cost| sum + cost)
}

/// The outcome of a call as the audit names it: `ok`, an error code, a fault, or `host_failed`.
#[must_use]
pub fn outcome(result: &Result<ToolOutput, Failure>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(Failure::Refused(error)) => error.code.as_str(),
        Err(Failure::Fault(fault)) => fault.kind.as_str(),
        Err(Failure::Host(_)) => "host_failed",
    }
}
