//! The sessions of HTTP clients. Legacy sessions begin with `initialize` and have an id. Those of 2026-07-28 have none
//! ([`StatelessSessions`]). Both count against the same quota. The session id of another client is treated as unknown.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolbay_core::session::Session;
use toolbay_policy::serve::ServeLimits;

use super::clients::{ClientState, Clients, QuotaExceeded, QuotaKind, QuotaPermit};
use super::stateless::StatelessSessions;
use crate::auth::CredentialValidity;
use crate::protocol::event_streams::EventStreams;
use crate::server::connection::McpConnection;

/// Shortest idle time after which a session may be evicted for a new one.
const MIN_IDLE: Duration = Duration::from_secs(5);
/// Delay before a client reconnects to a broken stream.
pub(super) const STREAM_RETRY: Duration = Duration::from_secs(3);

/// The sessions of all clients.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    legacy: Mutex<HashMap<Arc<str>, SessionEntry>>,
    pub(super) stateless: StatelessSessions,
}

/// A legacy session.
#[derive(Debug)]
pub(super) struct HttpSession {
    pub(super) streams: Arc<EventStreams>,
    pub(super) connection: Arc<McpConnection>,
    /// Ends the session.
    pub(super) closed: CancellationToken,
}

/// The owner of a session.
#[derive(Debug)]
pub(super) struct SessionScope {
    pub(super) client: Arc<str>,
    /// Name of the client within a profile.
    pub(super) owner: Arc<str>,
    /// Validity of the credential of the last request.
    pub(super) validity: CredentialValidity,
}

/// An entry of the session table. Dropping it ends the session.
#[derive(Debug)]
struct SessionEntry {
    session: Arc<HttpSession>,
    scope: SessionScope,
    created_at: Instant,
    last_used: Instant,
    _permit: QuotaPermit,
}

impl Sessions {
    /// Adds a new session; returns its unguessable id.
    pub(super) fn insert(
        &self,
        session: Arc<HttpSession>,
        scope: SessionScope,
        permit: QuotaPermit,
    ) -> Arc<str> {
        let (id, now): (Arc<str>, _) = (uuid::Uuid::new_v4().to_string().into(), Instant::now());
        let entry = SessionEntry { session, scope, created_at: now, last_used: now, _permit: permit };
        self.legacy.lock().insert(Arc::clone(&id), entry);
        id
    }

    /// Ends the session with this id.
    pub(super) fn remove(&self, id: &str) {
        let ended = self.legacy.lock().remove(id);
        drop(ended);
    }

    /// Number of legacy sessions.
    pub(super) fn count(&self) -> usize {
        self.legacy.lock().len()
    }

    /// Ends sessions whose credential was revoked.
    pub(super) fn end_revoked(&self) {
        self.legacy.lock().retain(|_, entry| !entry.scope.validity.is_revoked());
    }

    /// Ends expired and revoked sessions, and drops expired streams of all others.
    pub(super) fn sweep(&self, limits: &ServeLimits) {
        self.stateless.sweep(limits);
        self.legacy.lock().retain(|_, entry| !entry.scope.validity.is_revoked() && entry.is_fresh(limits));
        let sessions: Vec<_> = self.legacy.lock().values().map(|entry| Arc::clone(&entry.session)).collect();
        sessions.iter().for_each(|session| session.streams.sweep());
    }

    /// Finds the session with this id if it belongs to this owner, and marks it as used with this credential.
    pub(super) fn find(
        &self,
        id: &str,
        owner: &str,
        validity: &CredentialValidity,
        limits: &ServeLimits,
    ) -> Option<Arc<HttpSession>> {
        let mut sessions = self.legacy.lock();
        let entry = sessions.get_mut(id).filter(|entry| *entry.scope.owner == *owner)?;
        if !entry.is_fresh(limits) {
            sessions.remove(id);
            return None;
        }
        entry.last_used = Instant::now();
        entry.scope.validity = validity.clone();
        Some(Arc::clone(&entry.session))
    }

    /// Finds or creates the session of a 2026-07-28 request.
    ///
    /// # Errors
    /// The session is new, and the quota is exceeded.
    pub(super) fn stateless_session(
        &self,
        name: &Arc<str>,
        clients: &Clients,
        client: &ClientState,
        limits: &ServeLimits,
    ) -> Result<Arc<Session>, QuotaExceeded> {
        match self.stateless.get(name, limits) {
            Some(session) => Ok(session),
            None => Ok(self.stateless.insert(name, client, self.acquire_permit(clients, client, limits)?)),
        }
    }

    /// Acquires quota for a new session. May evict another session.
    ///
    /// # Errors
    /// The quota is exceeded.
    pub(super) fn acquire_permit(
        &self,
        clients: &Clients,
        client: &ClientState,
        limits: &ServeLimits,
    ) -> Result<QuotaPermit, QuotaExceeded> {
        // Another request may take the place of the session that ended: each turn ends one, as long as there are any.
        loop {
            let full = match clients.acquire(client, QuotaKind::Session, limits) {
                Ok(permit) => return Ok(permit),
                Err(full) => full,
            };
            let of = full.per_client.then_some(&*client.name);
            if !self.stateless.drop_oldest(of) && !self.end_oldest(&client.name) {
                return Err(full);
            }
        }
    }

    /// Ends the least recently used legacy session of a client. A client can only evict its own sessions by creating
    /// many.
    fn end_oldest(&self, client: &Arc<str>) -> bool {
        let mut sessions = self.legacy.lock();
        let idle = sessions.iter().filter(|(_, entry)| entry.scope.client == *client && entry.is_idle());
        let oldest = idle.min_by_key(|(_, entry)| entry.last_used).map(|(id, _)| Arc::clone(id));
        oldest.and_then(|id| sessions.remove(&id)).is_some()
    }
}

impl SessionEntry {
    /// Whether the session is within its maximum age, and in use or used recently.
    fn is_fresh(&self, limits: &ServeLimits) -> bool {
        let streams = &self.session.streams;
        let is_used = self.last_used.elapsed() < limits.session_idle
            || !streams.is_idle()
            || streams.session_stream.has_reader();
        self.created_at.elapsed() < limits.session_age && is_used
    }

    /// Whether no request is running and the session was not used recently.
    fn is_idle(&self) -> bool {
        self.session.streams.is_idle() && self.last_used.elapsed() >= MIN_IDLE
    }
}

impl Drop for SessionEntry {
    /// Cancels running requests and refuses new ones.
    fn drop(&mut self) {
        self.session.closed.cancel();
        self.session.streams.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::outbox::OutboxSettings;

    /// Requests of several threads, each in a session of its own, while all other sessions are idle. One thread took the place
    /// that another one had made, which then refused its request.
    #[test]
    fn idle_sessions_make_room_for_all_who_come_at_once() {
        const THREADS: usize = 4;
        let limits = ServeLimits { sessions: 32, sessions_per_client: 32, ..ServeLimits::default() };
        let (sessions, clients) = (Sessions::default(), Clients::new(OutboxSettings::unlimited()));
        let client = clients.get_or_insert(&"c".into(), &limits).unwrap();
        let use_sessions = |thread: usize| {
            for n in 0..5000 {
                let name: Arc<str> = format!("{thread}-{n}").into();
                let found = sessions.stateless_session(&name, &clients, &client, &limits);
                drop(found.unwrap_or_else(|full| panic!("{full:?} at {name}")));
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || use_sessions(thread));
            }
        });
        assert_eq!(sessions.stateless.count(), 32);
    }
}
