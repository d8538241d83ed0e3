//! Sessions: the state of one conversation, such as its budgets, approvals, cached results and saved outputs.
//!
//! The registry and the pipeline store no session state, so two sessions on one registry share nothing.

mod approval;
pub mod attachment;
mod budget;
mod cache;
pub mod kv;
pub mod output_store;

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

pub(crate) use approval::StandingApproval;
pub(crate) use budget::TurnCount;
pub(crate) use cache::ResultKey;

use parking_lot::Mutex;
use toolbay_policy::session::SessionLimits;

use crate::call::approval::Approver;
use budget::SessionUsage;
use cache::ResultCache;

/// A conversation. The caller creates it and passes it with each turn.
///
/// [`Session::default`] is for a single batch: it has no key, so its outputs are not saved.
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
    usage: SessionUsage,
    approvals: Mutex<Vec<StandingApproval>>,
    approval_lock: tokio::sync::Mutex<()>,
    cache: Mutex<ResultCache>,
}

impl Session {
    /// A session with its own limits in addition to those of the policy.
    #[must_use]
    pub fn new(limits: SessionLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// A session with a random key, which no other session has, not even after a restart.
    #[must_use]
    pub fn with_random_key() -> Self {
        let random = || std::hash::RandomState::new().build_hasher().finish();
        Self { key: Some(format!("fresh:{:016x}{:016x}", random(), random()).into()), ..Self::default() }
    }

    /// A session with the key `name`. Every session with the same name, byte for byte, has access to its saved outputs,
    /// also after a restart.
    #[must_use]
    pub fn with_name(name: &str) -> Self {
        Self { key: Some(format!("named:{name}").into()), ..Self::default() }
    }

    /// The key under which outputs are saved ([`crate::session::output_store`]); `None` if they are not saved.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Sets the approver for calls of this session, instead of the host's.
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
