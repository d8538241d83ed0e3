//! Sessions: the state of one conversation, such as its budgets, approvals, cached results and saved outputs.
//!
//! The registry and the pipeline store no session state, so two sessions on one registry share nothing.

mod approval;
pub mod attachment;
pub mod attachment_store;
mod budget;
mod cache;
pub mod kv;
pub mod ledger;
pub mod output_store;

use std::sync::Arc;

pub(crate) use approval::StandingApproval;
pub(crate) use budget::TurnCount;
pub(crate) use cache::ResultKey;

use parking_lot::Mutex;
use toolbay_policy::session::SessionLimits;

use crate::approval::Approver;
use crate::random;
use budget::SessionUsage;
use cache::ResultCache;

/// A conversation. The caller creates it and passes it with each turn.
///
/// [`Session::default`] is for a single batch: it has no id and no key, so nothing of it outlives the batch.
///
/// ```
/// use std::sync::Arc;
/// use toolbay_core::call::TurnContext;
/// use toolbay_core::session::Session;
/// use toolbay_policy::session::SessionLimits;
///
/// let limits = SessionLimits { max_calls: Some(100), max_cost_usd: Some(0.5), ..SessionLimits::default() };
/// let session = Arc::new(Session::with_random_key().with_limits(limits));
/// let turn = TurnContext { session: Arc::clone(&session), ..TurnContext::default() };
/// assert_eq!((turn.session.calls(), session.cost_usd()), (0, 0.0));
/// assert!(session.id().is_some());
/// ```
#[derive(Debug, Default)]
pub struct Session {
    id: Option<Arc<str>>,
    key: Option<Arc<str>>,
    limits: SessionLimits,
    approver: Option<Arc<dyn Approver>>,
    usage: SessionUsage,
    approvals: Mutex<Vec<StandingApproval>>,
    approval_lock: tokio::sync::Mutex<()>,
    cache: Mutex<ResultCache>,
}

/// The start of the key of a session with a name.
const NAMED: &str = "named:";

impl Session {
    /// A session with a random key and id, which no other session has, not even after a restart.
    #[must_use]
    pub fn with_random_key() -> Self {
        let id: Arc<str> = format!("{:016x}{:016x}", random::number(), random::number()).into();
        Self { key: Some(format!("fresh:{id}").into()), id: Some(id), ..Self::default() }
    }

    /// A session with the key and id `name`. Every session with the same name, byte for byte, has access to its saved
    /// outputs and to the data that plugins keep for the session, also after a restart.
    #[must_use]
    pub fn with_name(name: &str) -> Self {
        Self { id: Some(name.into()), key: Some(format!("{NAMED}{name}").into()), ..Self::default() }
    }

    /// Sets the limits of the session, in addition to those of the policy.
    #[must_use]
    pub fn with_limits(self, limits: SessionLimits) -> Self {
        Self { limits, ..self }
    }

    /// Sets the id. The key stays.
    #[must_use]
    pub fn with_id(self, id: impl Into<Arc<str>>) -> Self {
        Self { id: Some(id.into()), ..self }
    }

    /// The id, which guests get on request and audit records name. Data that plugins keep for the session and the
    /// stale-write guard belong to it. Without an id, there is no such data, and a turn remembers no reads.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The key under which outputs are saved ([`crate::session::output_store`]); `None` if they are not saved.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The account of the session in a ledger that several replicas share; `None` if the session belongs to this replica.
    #[must_use]
    pub fn account(&self) -> Option<&str> {
        self.key.as_deref()?.strip_prefix(NAMED)
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
