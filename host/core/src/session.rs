//! What belongs to one conversation and to no other: what it spent, what it was given, what it may look up again.
//!
//! The registry and the pipeline keep nothing of a session, so that two sessions on one registry share nothing.

mod approval;
mod budget;
mod cache;

use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;

use crate::limits;
use crate::permission::Approver;
use crate::quantity;

pub(crate) use approval::Approval;
use budget::Spent;
pub(crate) use budget::TurnCount;
use cache::ResultCache;
pub(crate) use cache::ResultKey;

/// Most bytes of results that a session may be told to keep.
pub const MAX_CACHE_BYTES: u64 = 1 << 30;

/// What one session may use up (`[session]`). What is absent is not bounded. The policy has such limits for all
/// sessions; a session may have its own beside them, and the stricter holds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionLimits {
    /// Calls in all.
    pub max_calls: Option<u64>,
    /// Calls of one tool with the same arguments.
    pub max_identical_calls: Option<u64>,
    /// US dollars that tools say their calls cost. Once so much is spent, no further call begins.
    pub max_cost_usd: Option<f64>,
    /// Calls in one turn.
    pub max_calls_per_turn: Option<u64>,
    /// Calls of one tool with the same arguments in one turn.
    pub max_identical_calls_per_turn: Option<u64>,
    /// Results that are kept for tools with a `cache`.
    pub cache_entries: usize,
    /// Bytes of them, keys included.
    #[serde(deserialize_with = "limits::read_bytes")]
    pub cache_bytes: u64,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            max_calls: None,
            max_identical_calls: None,
            max_cost_usd: None,
            max_calls_per_turn: None,
            max_identical_calls_per_turn: None,
            // A conversation comes back to a few dozen files; a result has some kilobytes.
            cache_entries: 256,
            cache_bytes: 4 << 20,
        }
    }
}

impl SessionLimits {
    /// Says what can not be had.
    ///
    /// # Errors
    /// A zero that would stop every call, dollars that are no amount, or more memory than [`MAX_CACHE_BYTES`].
    pub fn check(&self) -> Result<(), String> {
        let counts = [
            ("max_calls", self.max_calls),
            ("max_identical_calls", self.max_identical_calls),
            ("max_calls_per_turn", self.max_calls_per_turn),
            ("max_identical_calls_per_turn", self.max_identical_calls_per_turn),
        ];
        if let Some((key, _)) = counts.into_iter().find(|(_, most)| *most == Some(0)) {
            return Err(format!("`{key}` of zero would stop every call"));
        }
        if self.max_cost_usd.is_some_and(|most| !most.is_finite() || most <= 0.0) {
            return Err("`max_cost_usd` is an amount above zero".to_owned());
        }
        if self.cache_bytes > MAX_CACHE_BYTES {
            return Err(format!("`cache_bytes` can be at most {}", quantity::show_bytes(MAX_CACHE_BYTES)));
        }
        Ok(())
    }
}

/// One conversation. Its caller makes it, keeps it for as long as it lasts, and gives it with each turn.
///
/// [`Session::default`] is for a single batch: no text is kept under it, since nobody could ask for it later.
///
/// ```
/// use std::sync::Arc;
/// use toolbay_core::call::TurnContext;
/// use toolbay_core::session::{Session, SessionLimits};
///
/// let limits = SessionLimits { max_calls: Some(100), max_cost_usd: Some(0.5), ..SessionLimits::default() };
/// let session = Arc::new(Session::new(limits));
/// let turn = TurnContext { session: Arc::clone(&session), ..TurnContext::default() };
/// assert_eq!((turn.session.calls(), session.cost_usd()), (0, 0.0));
/// ```
#[derive(Debug, Default)]
pub struct Session {
    key: Option<Arc<str>>,
    limits: SessionLimits,
    approver: Option<Arc<dyn Approver>>,
    spent: Spent,
    approvals: Mutex<Vec<Approval>>,
    asking: tokio::sync::Mutex<()>,
    cache: Mutex<ResultCache>,
}

impl Session {
    /// A session with limits of its own, beside those of the policy.
    #[must_use]
    pub fn new(limits: SessionLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// A session that no other is, in this process or the next.
    #[must_use]
    pub fn fresh() -> Self {
        let random = || std::hash::RandomState::new().build_hasher().finish();
        Self { key: Some(format!("fresh:{:016x}{:016x}", random(), random()).into()), ..Self::default() }
    }

    /// The session of this name: who has the name has what is kept under it, also after a restart. Two names are one
    /// only if they are the same bytes.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { key: Some(format!("named:{name}").into()), ..Self::default() }
    }

    /// Under which large results are kept ([`crate::spool`]); `None`: they are not.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The same session with limits of its own, beside those of the policy.
    #[must_use]
    pub fn with_limits(self, limits: SessionLimits) -> Self {
        Self { limits, ..self }
    }

    /// The same session with somebody who is asked for its calls, instead of the host's.
    #[must_use]
    pub fn with_approver(self, approver: Arc<dyn Approver>) -> Self {
        Self { approver: Some(approver), ..self }
    }

    pub(crate) fn approver(&self) -> Option<&Arc<dyn Approver>> {
        self.approver.as_ref()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
