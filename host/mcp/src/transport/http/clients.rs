//! Request rates and quotas of clients.
//!
//! A client is a principal: the subject of a token, or an address with anonymous access. Its usage is counted twice,
//! for the client and for all clients together, so that one client cannot use up the server.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use toolbay_policy::serve::ServeLimits;

use crate::auth::failures;
use crate::server::outbox::{Outbox, OutboxSettings};

/// All known clients.
#[derive(Debug)]
pub(super) struct Clients {
    all: Mutex<HashMap<Arc<str>, Arc<ClientState>>>,
    usage: ClientUsage,
    outboxes: OutboxSettings,
}

/// One client.
#[derive(Debug)]
pub(super) struct ClientState {
    /// Unique name of the principal.
    pub(super) name: Arc<str>,
    /// The client's unread responses.
    pub(super) outbox: Arc<Outbox>,
    rate: Mutex<RequestRate>,
    usage: ClientUsage,
}

#[derive(Debug)]
struct RequestRate {
    /// Theoretical arrival time of the next request (GCRA).
    next: Instant,
    used: Instant,
}

/// Counters of the resources in use.
#[derive(Debug, Default)]
struct ClientUsage {
    requests: Arc<AtomicU64>,
    streams: Arc<AtomicU64>,
    sessions: Arc<AtomicU64>,
    body_bytes: Arc<AtomicU64>,
    resume_buffer_bytes: Arc<AtomicU64>,
}

/// A resource with a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuotaKind {
    /// A request, until it is answered.
    Request,
    /// A stream, while the client listens.
    Stream,
    /// A session, of either era.
    Session,
    /// Bytes of request bodies.
    BodyBytes,
    /// Bytes of responses retained for disconnected clients.
    ResumeBufferBytes,
}

/// Acquired quota of a client, released on drop.
#[derive(Debug)]
pub(super) struct QuotaPermit {
    kind: QuotaKind,
    amount: u64,
    client_count: Arc<AtomicU64>,
    total_count: Arc<AtomicU64>,
}

/// The quota that is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QuotaExceeded {
    /// The key in `[serve.limits]`.
    pub(super) key: &'static str,
    /// Whether the limit per client is exceeded, as opposed to the one for all clients.
    pub(super) per_client: bool,
}

impl QuotaKind {
    /// The limits per client and for all clients: the key in `[serve.limits]` and its value.
    fn limits(self, limits: &ServeLimits) -> [(&'static str, u64); 2] {
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
            Self::ResumeBufferBytes => [
                ("resume_buffer_bytes_per_client", limits.resume_buffer_bytes_per_client),
                ("resume_buffer_bytes", limits.resume_buffer_bytes),
            ],
        }
    }
}

impl ClientUsage {
    fn counter(&self, kind: QuotaKind) -> &Arc<AtomicU64> {
        match kind {
            QuotaKind::Request => &self.requests,
            QuotaKind::Stream => &self.streams,
            QuotaKind::Session => &self.sessions,
            QuotaKind::BodyBytes => &self.body_bytes,
            QuotaKind::ResumeBufferBytes => &self.resume_buffer_bytes,
        }
    }

    fn count(&self, kind: QuotaKind) -> u64 {
        self.counter(kind).load(Ordering::Acquire)
    }
}

impl Clients {
    /// Creates an empty registry. Each client gets an outbox with these settings.
    pub(super) fn new(outboxes: OutboxSettings) -> Self {
        Self { all: Mutex::default(), usage: ClientUsage::default(), outboxes }
    }

    /// Returns the client with this name. `None` if the limit is reached and all clients are active.
    pub(super) fn get_or_insert(&self, name: &Arc<str>, limits: &ServeLimits) -> Option<Arc<ClientState>> {
        let mut all = self.all.lock();
        let now = Instant::now();
        if let Some(client) = all.get(name) {
            client.rate.lock().used = now;
            return Some(Arc::clone(client));
        }
        if all.len() >= usize::try_from(limits.clients).unwrap_or(usize::MAX) {
            let idle = all.values().filter(|client| client.is_idle());
            // Clients without a session first: a forgotten client with a session would get fresh counters.
            let oldest =
                idle.min_by_key(|one| (one.usage.count(QuotaKind::Session) > 0, one.rate.lock().used))?;
            let oldest = Arc::clone(&oldest.name);
            all.remove(&oldest);
        }
        let client = Arc::new(ClientState {
            name: Arc::clone(name),
            outbox: Arc::new(Outbox::new(self.outboxes.clone())),
            rate: Mutex::new(RequestRate { next: now, used: now }),
            usage: ClientUsage::default(),
        });
        all.insert(Arc::clone(name), Arc::clone(&client));
        Some(client)
    }

    /// Acquires quota for one unit.
    ///
    /// # Errors
    /// The quota is exceeded.
    pub(super) fn acquire(
        &self,
        client: &ClientState,
        kind: QuotaKind,
        limits: &ServeLimits,
    ) -> Result<QuotaPermit, QuotaExceeded> {
        let mut permit = self.empty_permit(client, kind);
        permit.grow(1, limits)?;
        Ok(permit)
    }

    /// A permit for nothing yet, to grow later.
    pub(super) fn empty_permit(&self, client: &ClientState, kind: QuotaKind) -> QuotaPermit {
        let (own, all) = (Arc::clone(client.usage.counter(kind)), Arc::clone(self.usage.counter(kind)));
        QuotaPermit { kind, amount: 0, client_count: own, total_count: all }
    }

    /// Usage of all clients together.
    #[cfg(test)]
    pub(super) fn count(&self, kind: QuotaKind) -> u64 {
        self.usage.count(kind)
    }
}

impl ClientState {
    fn is_idle(&self) -> bool {
        self.usage.count(QuotaKind::Request) == 0 && self.usage.count(QuotaKind::Stream) == 0
    }

    /// Counts one request against the rate limit, in requests per second.
    ///
    /// # Errors
    /// The request came too early. The error is the time until the next allowed request.
    pub(super) fn check_rate(&self, limit: u32) -> Result<(), Duration> {
        failures::check_rate(&mut self.rate.lock().next, Duration::from_secs(1), limit)
    }
}

impl QuotaPermit {
    /// Acquires more quota.
    ///
    /// # Errors
    /// The quota is exceeded. The permit stays unchanged.
    pub(super) fn grow(&mut self, by: u64, limits: &ServeLimits) -> Result<(), QuotaExceeded> {
        let [(own_key, own_most), (all_key, all_most)] = self.kind.limits(limits);
        if !try_add(&self.client_count, by, own_most) {
            return Err(QuotaExceeded { key: own_key, per_client: true });
        }
        if !try_add(&self.total_count, by, all_most) {
            self.client_count.fetch_sub(by, Ordering::AcqRel);
            return Err(QuotaExceeded { key: all_key, per_client: false });
        }
        self.amount = self.amount.saturating_add(by);
        Ok(())
    }

    /// The acquired amount.
    pub(super) fn amount(&self) -> u64 {
        self.amount
    }
}

impl Drop for QuotaPermit {
    fn drop(&mut self) {
        for count in [&self.client_count, &self.total_count] {
            count.fetch_sub(self.amount, Ordering::AcqRel);
        }
    }
}

fn try_add(counter: &AtomicU64, by: u64, most: u64) -> bool {
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
    async fn a_client_cannot_exceed_its_quota() {
        let (clients, limits) = (Clients::new(OutboxSettings::unlimited()), limits());
        let a = clients.get_or_insert(&"a".into(), &limits).unwrap();
        let b = clients.get_or_insert(&"b".into(), &limits).unwrap();
        let share = |client: &ClientState| clients.acquire(client, QuotaKind::Request, &limits);
        let held = (share(&a).unwrap(), share(&a).unwrap());
        assert_eq!(share(&a).unwrap_err(), QuotaExceeded { key: "requests_per_client", per_client: true });
        let other = share(&b).unwrap();
        assert_eq!(share(&b).unwrap_err(), QuotaExceeded { key: "requests", per_client: false });
        assert!(clients.get_or_insert(&"c".into(), &limits).is_none(), "both clients are active");
        drop(other);
        assert!(clients.get_or_insert(&"c".into(), &limits).is_some(), "`b` is idle and is replaced");
        drop(held);
        assert!(clients.acquire(&a, QuotaKind::Request, &limits).is_ok());
        assert_eq!(clients.count(QuotaKind::Request), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn growing_permits_respect_both_limits_and_release_everything() {
        let (clients, limits) = (Clients::new(OutboxSettings::unlimited()), limits());
        let (a, b) = (
            clients.get_or_insert(&"a".into(), &limits).unwrap(),
            clients.get_or_insert(&"b".into(), &limits).unwrap(),
        );
        let (mut of_a, mut of_b) =
            (clients.empty_permit(&a, QuotaKind::BodyBytes), clients.empty_permit(&b, QuotaKind::BodyBytes));
        assert!(of_a.grow(40, &limits).is_ok() && of_a.grow(20, &limits).is_ok());
        assert_eq!(
            of_a.grow(1, &limits).unwrap_err(),
            QuotaExceeded { key: "body_bytes_per_client", per_client: true }
        );
        assert_eq!(
            of_b.grow(41, &limits).unwrap_err(),
            QuotaExceeded { key: "body_bytes_total", per_client: false }
        );
        assert!(of_b.grow(40, &limits).is_ok(), "a refused amount is not counted");
        assert_eq!((of_a.amount(), clients.count(QuotaKind::BodyBytes)), (60, 100));
        drop((of_a, of_b));
        assert_eq!(clients.count(QuotaKind::BodyBytes), 0);
        assert!(clients.empty_permit(&a, QuotaKind::BodyBytes).grow(u64::MAX, &limits).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_of_one_second_is_allowed() {
        let (clients, limits) = (Clients::new(OutboxSettings::unlimited()), limits());
        let client = clients.get_or_insert(&"a".into(), &limits).unwrap();
        assert!((0..10).all(|_| client.check_rate(limits.requests_per_second).is_ok()));
        let early = client.check_rate(limits.requests_per_second).unwrap_err();
        assert!(early <= Duration::from_millis(100), "{early:?}");
        tokio::time::advance(Duration::from_millis(100)).await;
        assert!(
            client.check_rate(limits.requests_per_second).is_ok()
                && client.check_rate(limits.requests_per_second).is_err()
        );
    }
}
