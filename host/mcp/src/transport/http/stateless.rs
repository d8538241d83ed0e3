//! What requests of 2026-07-28 come back to.
//!
//! Such a request stands alone; what it may come back to (results that were kept, answers of a person, what was spent)
//! belongs to its client, for each profile apart, until nobody used it for a while (docs/decisions/0020). Two clients never
//! share any of it. It costs memory only, and losing it costs no more than a question that is asked again: so where there
//! are as many as may be, that one goes which was used longest ago.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;
use toolbay_core::session::Session;
use toolbay_policy::serve::ServeLimits;

use super::clients::{Client, QuotaPermit};

/// The sessions, by their names, each of which one client has.
#[derive(Debug, Default)]
pub(super) struct Stateless(Mutex<HashMap<Arc<str>, Kept>>);

#[derive(Debug)]
struct Kept {
    session: Arc<Session>,
    client: Arc<str>,
    begun: Instant,
    used: Instant,
    _share: QuotaPermit,
}

impl Kept {
    fn is_fresh(&self, limits: &ServeLimits) -> bool {
        self.used.elapsed() < limits.session_idle && self.begun.elapsed() < limits.session_age
    }

    /// Whether no request is answered with it now.
    fn rests(&self) -> bool {
        Arc::strong_count(&self.session) == 1
    }
}

impl Stateless {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// The session of this name, if there is one that is not too old.
    pub(super) fn get(&self, name: &str, limits: &ServeLimits) -> Option<Arc<Session>> {
        let mut all = self.0.lock();
        match all.get_mut(name) {
            Some(kept) if kept.is_fresh(limits) => {
                kept.used = Instant::now();
                Some(Arc::clone(&kept.session))
            }
            Some(_) => {
                all.remove(name);
                None
            }
            None => None,
        }
    }

    /// A new session of this name, or that which another request made meanwhile.
    pub(super) fn begin(&self, name: &Arc<str>, client: &Client, share: QuotaPermit) -> Arc<Session> {
        let now = Instant::now();
        let kept = || Kept {
            // What is kept of results stays under the name: who comes back a day later still reads what is there.
            session: Arc::new(Session::named(name)),
            client: Arc::clone(&client.name),
            begun: now,
            used: now,
            _share: share,
        };
        Arc::clone(&self.0.lock().entry(Arc::clone(name)).or_insert_with(kept).session)
    }

    /// Drops the one that was used longest ago, of one client or of all; returns whether there was one.
    pub(super) fn drop_oldest(&self, of: Option<&str>) -> bool {
        let mut all = self.0.lock();
        let resting =
            all.iter().filter(|(_, kept)| of.is_none_or(|client| *kept.client == *client) && kept.rests());
        let oldest = resting.min_by_key(|(_, kept)| kept.used).map(|(name, _)| Arc::clone(name));
        oldest.is_some_and(|name| all.remove(&name).is_some())
    }

    /// Drops those that are too old.
    pub(super) fn sweep(&self, limits: &ServeLimits) {
        self.0.lock().retain(|_, kept| kept.is_fresh(limits));
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
        kept: Stateless,
        limits: ServeLimits,
    }

    impl Fixture {
        fn new() -> Self {
            let limits = ServeLimits {
                session_idle: Duration::from_secs(60),
                session_age: Duration::from_secs(100),
                ..ServeLimits::default()
            };
            Self { clients: Clients::new(OutboxSettings::roomy()), kept: Stateless::default(), limits }
        }

        fn session(&self, client: &str, name: &str) -> Arc<Session> {
            self.kept.get(name, &self.limits).unwrap_or_else(|| {
                let client = self.clients.get(&client.into(), &self.limits).unwrap();
                let share = self.clients.share(&client, QuotaKind::Session, &self.limits).unwrap();
                self.kept.begin(&name.into(), &client, share)
            })
        }

        fn counts(&self) -> (usize, u64) {
            (self.kept.count(), self.clients.count(QuotaKind::Session))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_are_apart_and_end() {
        let fixture = Fixture::new();
        let (one, two) = (fixture.session("a", "1"), fixture.session("a", "2"));
        assert!(Arc::ptr_eq(&one, &fixture.session("a", "1")) && !Arc::ptr_eq(&one, &two));
        tokio::time::advance(Duration::from_secs(50)).await;
        assert!(Arc::ptr_eq(&one, &fixture.session("a", "1")));
        tokio::time::advance(Duration::from_secs(55)).await;
        assert!(!Arc::ptr_eq(&one, &fixture.session("a", "1")), "too old");
        // Nobody asks for the other one any more; it is dropped all the same.
        assert_eq!(fixture.counts(), (2, 2));
        fixture.kept.sweep(&fixture.limits);
        assert_eq!(fixture.counts(), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_goes_that_was_used_longest_ago_and_rests() {
        let fixture = Fixture::new();
        let used = fixture.session("a", "a1");
        for (client, name) in [("b", "b1"), ("a", "a2"), ("b", "b2")] {
            tokio::time::advance(Duration::from_secs(1)).await;
            drop(fixture.session(client, name));
        }
        assert!(fixture.kept.drop_oldest(Some("a")), "a2: a1 is in use");
        assert!(Arc::ptr_eq(&used, &fixture.session("a", "a1")));
        assert!(!fixture.kept.drop_oldest(Some("a")));
        assert!(fixture.kept.drop_oldest(None), "b1");
        assert!(
            fixture.kept.get("b1", &fixture.limits).is_none()
                && fixture.kept.get("b2", &fixture.limits).is_some()
        );
        assert_eq!(fixture.counts(), (2, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn two_requests_that_begin_one_have_the_same() {
        let fixture = Fixture::new();
        let one = fixture.session("a", "1");
        let client = fixture.clients.get(&"a".into(), &fixture.limits).unwrap();
        let share = fixture.clients.share(&client, QuotaKind::Session, &fixture.limits).unwrap();
        assert!(Arc::ptr_eq(&one, &fixture.kept.begin(&"1".into(), &client, share)));
        assert_eq!(fixture.counts(), (1, 1));
    }
}
