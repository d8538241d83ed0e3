//! What belongs to a client: its pace, and its share of the server.
//!
//! A client is who a token says, or an address where nobody is asked. What it takes is counted twice, for itself and for
//! all together, so that none takes what is there for all.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use toolbay_policy::serve::ServeLimits;

use crate::auth::failures;
use crate::server::outbox::{Outbox, OutboxSettings};

/// All clients that are remembered.
#[derive(Debug)]
pub(super) struct Clients {
    all: Mutex<HashMap<Arc<str>, Arc<Client>>>,
    takes: ClientUsage,
    outboxes: OutboxSettings,
}

/// One client.
#[derive(Debug)]
pub(super) struct Client {
    /// A name that no other has.
    pub(super) name: Arc<str>,
    /// Its answers that it has not read.
    pub(super) outbox: Arc<Outbox>,
    pace: Mutex<RequestRate>,
    takes: ClientUsage,
}

#[derive(Debug)]
struct RequestRate {
    /// When the next request would come if the client kept exactly to its pace.
    next: Instant,
    used: Instant,
}

/// What of the server is taken.
#[derive(Debug, Default)]
struct ClientUsage {
    requests: Arc<AtomicU64>,
    streams: Arc<AtomicU64>,
    sessions: Arc<AtomicU64>,
    body_bytes: Arc<AtomicU64>,
    resume_buffer_bytes: Arc<AtomicU64>,
}

/// A kind of what there is to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuotaKind {
    /// A request, as long as it takes to answer.
    Request,
    /// A stream, as long as the client listens.
    Stream,
    /// A session, of either era.
    Session,
    /// Bytes of the bodies of requests.
    BodyBytes,
    /// Bytes of answers whose client's connection broke.
    KeptBytes,
}

/// A part of the server that a client takes, until it is dropped.
#[derive(Debug)]
pub(super) struct QuotaPermit {
    kind: QuotaKind,
    amount: u64,
    own: Arc<AtomicU64>,
    all: Arc<AtomicU64>,
}

/// Why there is no share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QuotaExceeded {
    /// The key of `[serve.limits]`.
    pub(super) key: &'static str,
    /// Whether it is the client that has too many; otherwise all of them together.
    pub(super) own: bool,
}

impl QuotaKind {
    /// The bounds, of one client and of all: the keys of `[serve.limits]`, and what they are.
    fn bounds(self, limits: &ServeLimits) -> [(&'static str, u64); 2] {
        match self {
            Self::Request => [
                ("requests_per_client", limits.requests_per_client.into()),
                ("requests", limits.requests.into()),
            ],
            Self::Stream => {
                [("streams_per_client", limits.streams_per_client.into()), ("streams", limits.streams.into())]
            }
            Self::Session => [
                ("sessions_per_client", limits.sessions_per_client.into()),
                ("sessions", limits.sessions.into()),
            ],
            Self::BodyBytes => [
                ("body_bytes_per_client", limits.body_bytes_per_client),
                ("body_bytes_total", limits.body_bytes_total),
            ],
            Self::KeptBytes => {
                [("resume_buffer_bytes_per_client", limits.resume_buffer_bytes_per_client), ("resume_buffer_bytes", limits.resume_buffer_bytes)]
            }
        }
    }
}

impl ClientUsage {
    fn of(&self, kind: QuotaKind) -> &Arc<AtomicU64> {
        match kind {
            QuotaKind::Request => &self.requests,
            QuotaKind::Stream => &self.streams,
            QuotaKind::Session => &self.sessions,
            QuotaKind::BodyBytes => &self.body_bytes,
            QuotaKind::KeptBytes => &self.resume_buffer_bytes,
        }
    }

    fn count(&self, kind: QuotaKind) -> u64 {
        self.of(kind).load(Ordering::Acquire)
    }
}

impl Clients {
    /// Nobody yet; each gets an outbox of this kind.
    pub(super) fn new(outboxes: OutboxSettings) -> Self {
        Self { all: Mutex::default(), takes: ClientUsage::default(), outboxes }
    }

    /// The client of this name; `None`: there are too many, and all are at work.
    pub(super) fn get(&self, name: &Arc<str>, limits: &ServeLimits) -> Option<Arc<Client>> {
        let mut all = self.all.lock();
        let now = Instant::now();
        if let Some(client) = all.get(name) {
            client.pace.lock().used = now;
            return Some(Arc::clone(client));
        }
        if all.len() >= usize::try_from(limits.clients).unwrap_or(usize::MAX) {
            let idle = all.values().filter(|client| client.is_idle());
            // One that has a session would begin to count anew.
            let oldest =
                idle.min_by_key(|one| (one.takes.count(QuotaKind::Session) > 0, one.pace.lock().used))?;
            let oldest = Arc::clone(&oldest.name);
            all.remove(&oldest);
        }
        let client = Arc::new(Client {
            name: Arc::clone(name),
            outbox: Arc::new(Outbox::new(self.outboxes.clone())),
            pace: Mutex::new(RequestRate { next: now, used: now }),
            takes: ClientUsage::default(),
        });
        all.insert(Arc::clone(name), Arc::clone(&client));
        Some(client)
    }

    /// A share of the server for one of a kind.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn share(
        &self,
        client: &Client,
        kind: QuotaKind,
        limits: &ServeLimits,
    ) -> Result<QuotaPermit, QuotaExceeded> {
        let mut share = self.nothing(client, kind);
        share.grow(1, limits)?;
        Ok(share)
    }

    /// A share that takes nothing yet.
    pub(super) fn nothing(&self, client: &Client, kind: QuotaKind) -> QuotaPermit {
        let (own, all) = (Arc::clone(client.takes.of(kind)), Arc::clone(self.takes.of(kind)));
        QuotaPermit { kind, amount: 0, own, all }
    }

    /// How much all of them take.
    #[cfg(test)]
    pub(super) fn count(&self, kind: QuotaKind) -> u64 {
        self.takes.count(kind)
    }
}

impl Client {
    fn is_idle(&self) -> bool {
        self.takes.count(QuotaKind::Request) == 0 && self.takes.count(QuotaKind::Stream) == 0
    }

    /// Counts one more request.
    ///
    /// # Errors
    /// It came too early; says by how much.
    pub(super) fn pace(&self, limits: &ServeLimits) -> Result<(), Duration> {
        failures::pace(&mut self.pace.lock().next, Duration::from_secs(1), limits.requests_per_second)
    }
}

impl QuotaPermit {
    /// ClientUsage more.
    ///
    /// # Errors
    /// There is no more; it stays what it is.
    pub(super) fn grow(&mut self, by: u64, limits: &ServeLimits) -> Result<(), QuotaExceeded> {
        let [(own_key, own_most), (all_key, all_most)] = self.kind.bounds(limits);
        if !add(&self.own, by, own_most) {
            return Err(QuotaExceeded { key: own_key, own: true });
        }
        if !add(&self.all, by, all_most) {
            self.own.fetch_sub(by, Ordering::AcqRel);
            return Err(QuotaExceeded { key: all_key, own: false });
        }
        self.amount = self.amount.saturating_add(by);
        Ok(())
    }

    /// How much it is.
    pub(super) fn amount(&self) -> u64 {
        self.amount
    }
}

impl Drop for QuotaPermit {
    fn drop(&mut self) {
        for count in [&self.own, &self.all] {
            count.fetch_sub(self.amount, Ordering::AcqRel);
        }
    }
}

fn add(counter: &AtomicU64, by: u64, most: u64) -> bool {
    let more = |count: u64| count.checked_add(by).filter(|count| *count <= most);
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
            body_bytes_total: 100,
            body_bytes_per_client: 60,
            ..ServeLimits::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_has_its_share_and_no_more() {
        let (clients, limits) = (Clients::new(OutboxSettings::roomy()), limits());
        let a = clients.get(&"a".into(), &limits).unwrap();
        let b = clients.get(&"b".into(), &limits).unwrap();
        let share = |client: &Client| clients.share(client, QuotaKind::Request, &limits);
        let held = (share(&a).unwrap(), share(&a).unwrap());
        assert_eq!(share(&a).unwrap_err(), QuotaExceeded { key: "requests_per_client", own: true });
        let other = share(&b).unwrap();
        assert_eq!(share(&b).unwrap_err(), QuotaExceeded { key: "requests", own: false });
        assert!(clients.get(&"c".into(), &limits).is_none(), "both are at work");
        drop(other);
        assert!(clients.get(&"c".into(), &limits).is_some(), "b is idle and goes");
        drop(held);
        assert!(clients.share(&a, QuotaKind::Request, &limits).is_ok());
        assert_eq!(clients.count(QuotaKind::Request), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_grows_has_the_same_two_bounds_and_gives_back_all_of_it() {
        let (clients, limits) = (Clients::new(OutboxSettings::roomy()), limits());
        let (a, b) = (clients.get(&"a".into(), &limits).unwrap(), clients.get(&"b".into(), &limits).unwrap());
        let (mut of_a, mut of_b) =
            (clients.nothing(&a, QuotaKind::BodyBytes), clients.nothing(&b, QuotaKind::BodyBytes));
        assert!(of_a.grow(40, &limits).is_ok() && of_a.grow(20, &limits).is_ok());
        assert_eq!(
            of_a.grow(1, &limits).unwrap_err(),
            QuotaExceeded { key: "body_bytes_per_client", own: true }
        );
        assert_eq!(
            of_b.grow(41, &limits).unwrap_err(),
            QuotaExceeded { key: "body_bytes_total", own: false }
        );
        assert!(of_b.grow(40, &limits).is_ok(), "what was refused was not counted");
        assert_eq!((of_a.amount(), clients.count(QuotaKind::BodyBytes)), (60, 100));
        drop((of_a, of_b));
        assert_eq!(clients.count(QuotaKind::BodyBytes), 0);
        assert!(clients.nothing(&a, QuotaKind::BodyBytes).grow(u64::MAX, &limits).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_s_worth_may_come_at_once_and_then_one_after_the_other() {
        let (clients, limits) = (Clients::new(OutboxSettings::roomy()), limits());
        let client = clients.get(&"a".into(), &limits).unwrap();
        assert!((0..10).all(|_| client.pace(&limits).is_ok()));
        let early = client.pace(&limits).unwrap_err();
        assert!(early <= Duration::from_millis(100), "{early:?}");
        tokio::time::advance(Duration::from_millis(100)).await;
        assert!(client.pace(&limits).is_ok() && client.pace(&limits).is_err());
    }
}
