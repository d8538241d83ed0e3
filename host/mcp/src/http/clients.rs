//! What belongs to a client: its pace, its share of the server, its sessions.
//!
//! A client is who a token says, or an address where nobody is asked. Over HTTP of 2026-07-28 a request stands alone;
//! what it may come back to (results that were kept, answers of a person, what was spent) belongs to the client, for each
//! profile apart, until nobody used it for a while (docs/decisions/0020). Two clients never share any of it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use toolbay_core::serve::ServeLimits;
use toolbay_core::session::Session;

/// All clients that are remembered.
#[derive(Debug, Default)]
pub(super) struct Clients {
    all: Mutex<HashMap<Arc<str>, Arc<Client>>>,
    requests: Arc<AtomicU32>,
    streams: Arc<AtomicU32>,
}

/// One client.
#[derive(Debug)]
pub(super) struct Client {
    inner: Mutex<Inner>,
    requests: Arc<AtomicU32>,
    streams: Arc<AtomicU32>,
}

#[derive(Debug)]
struct Inner {
    /// When the next request would come if the client kept exactly to its pace.
    next: Instant,
    used: Instant,
    sessions: HashMap<Arc<str>, Kept>,
}

#[derive(Debug)]
struct Kept {
    session: Arc<Session>,
    begun: Instant,
    used: Instant,
}

/// A part of the server that a client takes, until it is dropped.
#[derive(Debug)]
pub(super) struct Share([Arc<AtomicU32>; 2]);

/// What of the server a request takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// As long as it takes to answer.
    Request,
    /// As long as the client listens.
    Stream,
}

/// Why there is no share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full {
    /// The key of `[serve.limits]`.
    pub(super) key: &'static str,
    /// Whether it is the client that has too many; otherwise all of them together.
    pub(super) own: bool,
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Client>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client of this name; `None`: there are too many, and all are at work.
    pub(super) fn get(&self, name: &Arc<str>, limits: &ServeLimits) -> Option<Arc<Client>> {
        let mut all = self.lock();
        if let Some(client) = all.get(name) {
            client.lock().used = Instant::now();
            return Some(Arc::clone(client));
        }
        if all.len() >= usize::try_from(limits.clients).unwrap_or(usize::MAX) {
            let idle = all.iter().filter(|(_, client)| client.is_idle());
            let (oldest, _) = idle.min_by_key(|(_, client)| client.lock().used)?;
            let oldest = Arc::clone(oldest);
            all.remove(&oldest);
        }
        let now = Instant::now();
        let client = Arc::new(Client {
            inner: Mutex::new(Inner { next: now, used: now, sessions: HashMap::new() }),
            requests: Arc::default(),
            streams: Arc::default(),
        });
        all.insert(Arc::clone(name), Arc::clone(&client));
        Some(client)
    }

    /// A share of the server for one request.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn share(&self, client: &Client, kind: Kind, limits: &ServeLimits) -> Result<Share, Full> {
        let (own, all, keys, most) = match kind {
            Kind::Request => (
                &client.requests,
                &self.requests,
                ["requests_per_client", "requests"],
                [limits.requests_per_client, limits.requests],
            ),
            Kind::Stream => (
                &client.streams,
                &self.streams,
                ["streams_per_client", "streams"],
                [limits.streams_per_client, limits.streams],
            ),
        };
        let [own_key, all_key] = keys;
        let [own_most, all_most] = most;
        if !count(own, own_most) {
            return Err(Full { key: own_key, own: true });
        }
        if !count(all, all_most) {
            own.fetch_sub(1, Ordering::AcqRel);
            return Err(Full { key: all_key, own: false });
        }
        Ok(Share([Arc::clone(own), Arc::clone(all)]))
    }
}

impl Client {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Acquire) == 0 && self.streams.load(Ordering::Acquire) == 0
    }

    /// Counts one more request.
    ///
    /// # Errors
    /// It came too early; says by how much.
    pub(super) fn pace(&self, limits: &ServeLimits) -> Result<(), Duration> {
        const BURST: Duration = Duration::from_secs(1);
        let now = Instant::now();
        let mut inner = self.lock();
        let next = inner.next.max(now);
        let ahead = next.saturating_duration_since(now);
        if ahead >= BURST {
            return Err(ahead.saturating_sub(BURST).max(Duration::from_millis(1)));
        }
        inner.next = next.checked_add(BURST / limits.requests_per_second.max(1)).unwrap_or(next);
        Ok(())
    }

    /// The session of this name, which only this client has. It is a new one if the one before was not used for a while,
    /// or is too old.
    pub(super) fn session(&self, name: &Arc<str>, limits: &ServeLimits) -> Arc<Session> {
        let now = Instant::now();
        let mut inner = self.lock();
        let fresh = |kept: &Kept| {
            now.saturating_duration_since(kept.used) < limits.session_idle
                && now.saturating_duration_since(kept.begun) < limits.session_age
        };
        if let Some(kept) = inner.sessions.get_mut(name).filter(|kept| fresh(kept)) {
            kept.used = now;
            return Arc::clone(&kept.session);
        }
        inner.sessions.retain(|_, kept| fresh(kept));
        let most = usize::try_from(limits.sessions_per_client).unwrap_or(usize::MAX);
        if inner.sessions.len() >= most
            && let Some(oldest) = inner.sessions.iter().min_by_key(|(_, kept)| kept.used)
        {
            let oldest = Arc::clone(oldest.0);
            inner.sessions.remove(&oldest);
        }
        // What is kept of results stays under the name: who comes back a day later still reads what is there.
        let session = Arc::new(Session::named(name));
        let kept = Kept { session: Arc::clone(&session), begun: now, used: now };
        inner.sessions.insert(Arc::clone(name), kept);
        session
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        for count in &self.0 {
            count.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn count(counter: &AtomicU32, most: u32) -> bool {
    let more = |count: u32| (count < most).then(|| count.saturating_add(1));
    counter.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> ServeLimits {
        ServeLimits {
            clients: 2,
            requests: 3,
            requests_per_client: 2,
            requests_per_second: 10,
            sessions_per_client: 2,
            session_idle: Duration::from_secs(60),
            session_age: Duration::from_secs(100),
            ..ServeLimits::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_has_its_share_and_no_more() {
        let (clients, limits) = (Clients::default(), limits());
        let a = clients.get(&"a".into(), &limits).unwrap();
        let b = clients.get(&"b".into(), &limits).unwrap();
        let share = |client: &Client| clients.share(client, Kind::Request, &limits);
        let held = (share(&a).unwrap(), share(&a).unwrap());
        assert_eq!(share(&a).unwrap_err(), Full { key: "requests_per_client", own: true });
        let other = share(&b).unwrap();
        assert_eq!(share(&b).unwrap_err(), Full { key: "requests", own: false });
        assert!(clients.get(&"c".into(), &limits).is_none(), "both are at work");
        drop(other);
        assert!(clients.get(&"c".into(), &limits).is_some(), "b is idle and goes");
        drop(held);
        assert!(clients.share(&a, Kind::Request, &limits).is_ok());
        assert_eq!(clients.requests.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_s_worth_may_come_at_once_and_then_one_after_the_other() {
        let (clients, limits) = (Clients::default(), limits());
        let client = clients.get(&"a".into(), &limits).unwrap();
        assert!((0..10).all(|_| client.pace(&limits).is_ok()));
        let early = client.pace(&limits).unwrap_err();
        assert!(early <= Duration::from_millis(100), "{early:?}");
        tokio::time::advance(Duration::from_millis(100)).await;
        assert!(client.pace(&limits).is_ok() && client.pace(&limits).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_are_apart_and_end() {
        let (clients, limits) = (Clients::default(), limits());
        let client = clients.get(&"a".into(), &limits).unwrap();
        let session = |name: &str| client.session(&name.into(), &limits);
        let (one, two) = (session("1"), session("2"));
        assert!(Arc::ptr_eq(&one, &session("1")) && !Arc::ptr_eq(&one, &two));
        tokio::time::advance(Duration::from_secs(50)).await;
        assert!(Arc::ptr_eq(&one, &session("1")));
        session("3");
        assert!(!Arc::ptr_eq(&two, &session("2")), "2 was used longest ago");
        tokio::time::advance(Duration::from_secs(55)).await;
        assert!(!Arc::ptr_eq(&one, &session("1")), "too old");
    }
}
