//! Sessions: of clients up to 2025-11-25, which begin with `initialize` and have an id, and of later ones, which have none
//! ([`Stateless`]). They are counted together. An id that belongs to another client is as unknown as one that nobody has.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolbay_core::session::Session;
use toolbay_policy::serve::ServeLimits;

use super::State;
use super::clients::{Client, QuotaExceeded, QuotaKind, QuotaPermit};
use super::stateless::Stateless;
use crate::auth::CredentialValidity;
use crate::protocol::event_streams::EventStreams;
use crate::server::connection::McpConnection;

/// How long a session must have been silent before another one may take its place.
const SETTLED: Duration = Duration::from_secs(5);
/// How long a client is told to wait before it comes back for a stream that broke.
pub(super) const RETRY: Duration = Duration::from_secs(3);

/// The sessions of all clients.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    with_id: Mutex<HashMap<Arc<str>, SessionEntry>>,
    pub(super) stateless: Stateless,
}

/// A session of a client up to 2025-11-25.
#[derive(Debug)]
pub(super) struct HttpSession {
    pub(super) streams: Arc<EventStreams>,
    pub(super) connection: Arc<McpConnection>,
    /// Ends it.
    pub(super) closed: CancellationToken,
}

/// Whose a session is.
#[derive(Debug)]
pub(super) struct SessionScope {
    pub(super) client: Arc<str>,
    /// The client under a profile.
    pub(super) owner: Arc<str>,
    /// Whether the credential counts of the last request in it.
    pub(super) validity: CredentialValidity,
}

/// One of the sessions; it ends when this is dropped.
#[derive(Debug)]
struct SessionEntry {
    session: Arc<HttpSession>,
    scope: SessionScope,
    begun: Instant,
    used: Instant,
    _permit: QuotaPermit,
}

impl Sessions {
    /// Takes in a session that has begun; returns its id, which nobody can guess.
    pub(super) fn begin(
        &self,
        session: Arc<HttpSession>,
        scope: SessionScope,
        permit: QuotaPermit,
    ) -> Arc<str> {
        let (id, now): (Arc<str>, _) = (uuid::Uuid::new_v4().to_string().into(), Instant::now());
        let entry = SessionEntry { session, scope, begun: now, used: now, _permit: permit };
        self.with_id.lock().insert(Arc::clone(&id), entry);
        id
    }

    /// Ends the session of this id.
    pub(super) fn end(&self, id: &str) {
        let ended = self.with_id.lock().remove(id);
        drop(ended);
    }

    /// How many have an id.
    pub(super) fn count(&self) -> usize {
        self.with_id.lock().len()
    }

    /// Ends those that nobody can use any more, whatever their clients came with.
    pub(super) fn end_revoked(&self) {
        self.with_id.lock().retain(|_, entry| !entry.scope.validity.is_revoked());
    }

    /// Ends those that are too old, and those that nobody can use any more; forgets what was kept in others for too long.
    pub(super) fn sweep(&self, limits: &ServeLimits) {
        self.stateless.sweep(limits);
        self.with_id.lock().retain(|_, entry| !entry.scope.validity.is_revoked() && entry.is_fresh(limits));
        let sessions: Vec<_> = self.with_id.lock().values().map(|entry| Arc::clone(&entry.session)).collect();
        sessions.iter().for_each(|session| session.streams.sweep());
    }

    /// The session of this id, if it is this owner's; a request with this credential uses it.
    pub(super) fn find(
        &self,
        id: &str,
        owner: &str,
        validity: &CredentialValidity,
        limits: &ServeLimits,
    ) -> Option<Arc<HttpSession>> {
        let mut sessions = self.with_id.lock();
        let entry = sessions.get_mut(id).filter(|entry| *entry.scope.owner == *owner)?;
        if !entry.is_fresh(limits) {
            sessions.remove(id);
            return None;
        }
        entry.used = Instant::now();
        entry.scope.validity = validity.clone();
        Some(Arc::clone(&entry.session))
    }

    /// What a request of 2026-07-28 belongs to: the session of this name.
    ///
    /// # Errors
    /// It would be a new one, and there is no room for it.
    pub(super) fn stateless(
        &self,
        name: &Arc<str>,
        state: &State,
        client: &Client,
        limits: &ServeLimits,
    ) -> Result<Arc<Session>, QuotaExceeded> {
        match self.stateless.get(name, limits) {
            Some(session) => Ok(session),
            None => Ok(self.stateless.begin(name, client, self.seat(state, client, limits)?)),
        }
    }

    /// The share of one more session, for which another one may have to go.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn seat(
        &self,
        state: &State,
        client: &Client,
        limits: &ServeLimits,
    ) -> Result<QuotaPermit, QuotaExceeded> {
        let share = || state.clients.share(client, QuotaKind::Session, limits);
        share().or_else(|full| {
            let of = full.own.then_some(&*client.name);
            let gone = self.stateless.drop_oldest(of) || self.end_oldest(&client.name);
            if gone { share() } else { Err(full) }
        })
    }

    /// Ends the session with an id that a client has not used for longest. Only one's own: nobody ends another's by
    /// beginning many.
    fn end_oldest(&self, client: &Arc<str>) -> bool {
        let mut sessions = self.with_id.lock();
        let silent = sessions.iter().filter(|(_, entry)| entry.scope.client == *client && entry.is_silent());
        let oldest = silent.min_by_key(|(_, entry)| entry.used).map(|(id, _)| Arc::clone(id));
        oldest.and_then(|id| sessions.remove(&id)).is_some()
    }
}

impl SessionEntry {
    /// Whether it is not too old, and was used lately or is in use.
    fn is_fresh(&self, limits: &ServeLimits) -> bool {
        let streams = &self.session.streams;
        let is_used =
            self.used.elapsed() < limits.session_idle || !streams.is_idle() || streams.own.is_read();
        self.begun.elapsed() < limits.session_age && is_used
    }

    /// Whether nothing has happened in it for a while, and nothing is waited for.
    fn is_silent(&self) -> bool {
        self.session.streams.is_idle() && self.used.elapsed() >= SETTLED
    }
}

impl Drop for SessionEntry {
    /// Nothing new begins in it, and what runs is cancelled.
    fn drop(&mut self) {
        self.session.closed.cancel();
        self.session.streams.close();
    }
}
