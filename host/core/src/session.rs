//! What belongs to one conversation and to no other: what it spent, what it was given, what it may look up again.
//!
//! The registry and the pipeline keep nothing of a session, so that two sessions on one registry share nothing.

mod approval;
pub mod attachment;
mod budget;
mod cache;
pub mod kv;
pub mod spool;

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

pub(crate) use approval::Approval;
pub(crate) use budget::TurnCount;
pub(crate) use cache::ResultKey;

use parking_lot::Mutex;
use toolbay_policy::session::SessionLimits;

use crate::call::approval::Approver;
use budget::Spent;
use cache::ResultCache;

/// One conversation. Its caller makes it, keeps it for as long as it lasts, and gives it with each turn.
///
/// [`Session::default`] is for a single batch: no text is kept under it, since nobody could ask for it later.
///
/// ```
/// use std::sync::Arc;
/// use toolbay_core::call::TurnContext;
/// use toolbay_core::session::Session;
/// use toolbay_policy::session::SessionLimits;
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

    /// Under which large results are kept ([`crate::session::spool`]); `None`: they are not.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
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

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
