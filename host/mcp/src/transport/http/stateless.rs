//! Session state for requests of 2026-07-28.
//!
//! These requests are stateless. Saved outputs, approvals and spent budgets belong to the client and the profile, until
//! they expire unused (docs/decisions/0020). Two clients never share this state. It costs only memory, and losing it
//! costs at most a repeated approval. At the limit, the least recently used state is therefore dropped.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;
use toolbay_core::session::Session;
use toolbay_policy::serve::ServeLimits;

use super::clients::{ClientState, QuotaPermit};

/// The sessions by name. Each belongs to one client.
#[derive(Debug, Default)]
pub(super) struct StatelessSessions(Mutex<HashMap<Arc<str>, StatelessEntry>>);

#[derive(Debug)]
struct StatelessEntry {
    session: Arc<Session>,
    client: Arc<str>,
    created_at: Instant,
    last_used: Instant,
    _permit: QuotaPermit,
}

impl StatelessEntry {
    fn is_fresh(&self, limits: &ServeLimits) -> bool {
        self.last_used.elapsed() < limits.session_idle && self.created_at.elapsed() < limits.session_age
    }

    /// Whether no request is using the session.
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.session) == 1
    }
}

impl StatelessSessions {
    /// Number of sessions.
    pub(super) fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// The session with this name, if it exists and has not expired.
    pub(super) fn get(&self, name: &str, limits: &ServeLimits) -> Option<Arc<Session>> {
        let mut all = self.0.lock();
        match all.get_mut(name) {
            Some(entry) if entry.is_fresh(limits) => {
                entry.last_used = Instant::now();
                Some(Arc::clone(&entry.session))
            }
            Some(_) => {
                all.remove(name);
                None
            }
            None => None,
        }
    }

    /// Creates the session with this name, or returns the one that another request created meanwhile.
    pub(super) fn insert(&self, name: &Arc<str>, client: &ClientState, permit: QuotaPermit) -> Arc<Session> {
        let now = Instant::now();
        let entry = || StatelessEntry {
            // Saved outputs are keyed by the name, so that a client can read them after its session has expired.
            session: Arc::new(Session::with_name(name)),
            client: Arc::clone(&client.name),
            created_at: now,
            last_used: now,
            _permit: permit,
        };
        Arc::clone(&self.0.lock().entry(Arc::clone(name)).or_insert_with(entry).session)
    }

    /// Drops the least recently used idle session, of one client or of all. Returns `false` if there was none.
    pub(super) fn drop_oldest(&self, of: Option<&str>) -> bool {
        let mut all = self.0.lock();
        let idle = all
            .iter()
            .filter(|(_, entry)| of.is_none_or(|client| *entry.client == *client) && entry.is_idle());
        let oldest = idle.min_by_key(|(_, entry)| entry.last_used).map(|(name, _)| Arc::clone(name));
        oldest.is_some_and(|name| all.remove(&name).is_some())
    }

    /// Drops expired sessions.
    pub(super) fn sweep(&self, limits: &ServeLimits) {
        self.0.lock().retain(|_, entry| entry.is_fresh(limits));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::outbox::OutboxSettings;
    use crate::transport::http::clients::{Clients, QuotaKind};
    use std::time::Duration;

    struct Fixture {
        clients: Clients,
        kept: StatelessSessions,
        limits: ServeLimits,
    }

    impl Fixture {
        fn new() -> Self {
            let limits = ServeLimits {
                session_idle: Duration::from_secs(60),
                session_age: Duration::from_secs(100),
                ..ServeLimits::default()
            };
            Self {
                clients: Clients::new(OutboxSettings::unlimited()),
                kept: StatelessSessions::default(),
                limits,
            }
        }

        fn session(&self, client: &str, name: &str) -> Arc<Session> {
            self.kept.get(name, &self.limits).unwrap_or_else(|| {
                let client = self.clients.get_or_insert(&client.into(), &self.limits).unwrap();
                let share = self.clients.acquire(&client, QuotaKind::Session, &self.limits).unwrap();
                self.kept.insert(&name.into(), &client, share)
            })
        }

        fn counts(&self) -> (usize, u64) {
            (self.kept.count(), self.clients.count(QuotaKind::Session))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_are_separate_and_expire() {
        let fixture = Fixture::new();
        let (one, two) = (fixture.session("a", "1"), fixture.session("a", "2"));
        assert!(Arc::ptr_eq(&one, &fixture.session("a", "1")) && !Arc::ptr_eq(&one, &two));
        tokio::time::advance(Duration::from_secs(50)).await;
        assert!(Arc::ptr_eq(&one, &fixture.session("a", "1")));
        tokio::time::advance(Duration::from_secs(55)).await;
        assert!(!Arc::ptr_eq(&one, &fixture.session("a", "1")), "the session has expired");
        // The other session is not requested again, and only a sweep drops it.
        assert_eq!(fixture.counts(), (2, 2));
        fixture.kept.sweep(&fixture.limits);
        assert_eq!(fixture.counts(), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn the_least_recently_used_idle_session_is_dropped() {
        let fixture = Fixture::new();
        let used = fixture.session("a", "a1");
        for (client, name) in [("b", "b1"), ("a", "a2"), ("b", "b2")] {
            tokio::time::advance(Duration::from_secs(1)).await;
            drop(fixture.session(client, name));
        }
        assert!(fixture.kept.drop_oldest(Some("a")), "drops `a2`, since `a1` is in use");
        assert!(Arc::ptr_eq(&used, &fixture.session("a", "a1")));
        assert!(!fixture.kept.drop_oldest(Some("a")));
        assert!(fixture.kept.drop_oldest(None), "drops `b1`");
        assert!(
            fixture.kept.get("b1", &fixture.limits).is_none()
                && fixture.kept.get("b2", &fixture.limits).is_some()
        );
        assert_eq!(fixture.counts(), (2, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_share_a_new_session() {
        let fixture = Fixture::new();
        let one = fixture.session("a", "1");
        let client = fixture.clients.get_or_insert(&"a".into(), &fixture.limits).unwrap();
        let share = fixture.clients.acquire(&client, QuotaKind::Session, &fixture.limits).unwrap();
        assert!(Arc::ptr_eq(&one, &fixture.kept.insert(&"1".into(), &client, share)));
        assert_eq!(fixture.counts(), (1, 1));
    }
}
