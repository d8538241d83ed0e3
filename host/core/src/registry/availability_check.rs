//! The port that checks whether a tool is available, for conditions beyond grants, and the result of a check.

use std::sync::Arc;
use std::time::Instant;

use toolbay_policy::refusal::PolicyRefusal;

use super::reason::normalize_reason;
use crate::call::invoke::BoxFuture;

/// The port that checks whether a tool is available.
pub trait AvailabilityCheck: Send + Sync + std::fmt::Debug {
    /// Returns the reason if the tool is unavailable. A check that panics or hangs makes the tool unavailable.
    fn check(&self) -> BoxFuture<'_, Result<(), PolicyRefusal>>;

    /// The result, if the check can return it without waiting. Such checks run when their tools are registered.
    fn check_now(&self) -> Option<Result<(), PolicyRefusal>> {
        None
    }
}

/// A check from a function, which must not block.
pub(crate) struct CheckFn<F>(pub(crate) F);

impl<F> std::fmt::Debug for CheckFn<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CheckFn")
    }
}

impl<F: Fn() -> Result<(), String> + Send + Sync> AvailabilityCheck for CheckFn<F> {
    fn check(&self) -> BoxFuture<'_, Result<(), PolicyRefusal>> {
        Box::pin(async { Ok((self.0)()?) })
    }

    fn check_now(&self) -> Option<Result<(), PolicyRefusal>> {
        Some((self.0)().map_err(PolicyRefusal::from))
    }
}

/// The result of a check.
#[derive(Debug, Clone)]
pub(super) struct CheckResult {
    /// `None` if the tool is available.
    pub(super) reason: Option<Arc<PolicyRefusal>>,
    pub(super) at: Instant,
}

impl CheckResult {
    pub(super) fn new(result: Result<(), PolicyRefusal>) -> Self {
        let normalize = |reason: PolicyRefusal| {
            Arc::new(PolicyRefusal { text: normalize_reason(&reason.text).to_string(), ..reason })
        };
        Self { reason: result.err().map(normalize), at: Instant::now() }
    }
}
