//! The open connections, and their eviction at the limit.
//!
//! A connection costs a client nothing, and the server a descriptor and some memory. When the limit is reached, the
//! server closes the connection that has been idle longest. A client that holds many connections loses them, and a
//! client with a request is served. A connection is idle if it has no request and no pending write. A slow upload or
//! download is not idle; it has its own timeouts.
//!
//! Calls, files and other servers need descriptors, too. Connections therefore take at most half of the descriptor
//! limit of the process, whatever the policy allows. If the process still runs out of descriptors, idle connections are
//! closed first.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolbay_policy::serve::ServeLimits;

/// Polling interval during a shutdown; an idle connection stays open this long so that its last response is written.
const SETTLE_INTERVAL: Duration = Duration::from_millis(500);

/// Idle connections that are closed when the process is out of descriptors: enough for the next connections and calls,
/// and few enough that most clients are not affected.
const SHED_COUNT: usize = 16;

/// The open connections.
#[derive(Debug)]
pub(super) struct Connections {
    /// Limit that follows from the descriptors of the process.
    capacity: usize,
    open: Mutex<OpenConnections>,
    start: Instant,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    all: HashMap<u64, Arc<HttpConnection>>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct HttpConnection {
    peer: IpAddr,
    /// Active requests, plus one while a write is blocked.
    active_uses: AtomicU32,
    /// Start of the idle time, in milliseconds since `start`.
    idle_since: AtomicU64,
    start: Instant,
    /// Fires when the connection is evicted.
    pub(super) evicted: CancellationToken,
}

/// A permit for one open connection, released on drop.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    connections: Arc<Connections>,
    id: u64,
    pub(super) connection: Arc<HttpConnection>,
}

/// Keeps a connection from counting as idle until dropped.
#[derive(Debug)]
pub(super) struct ConnectionUseGuard(Arc<HttpConnection>);

/// The part of an address that a client cannot choose: one IPv6 host usually controls the 2^64 addresses of its /64
/// network.
pub(super) fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
        address => address,
    }
}

impl Connections {
    /// Creates the set, limited by the descriptors of the process.
    pub(super) fn new() -> Self {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let half = descriptors.and_then(|most| usize::try_from(most / 2).ok());
        Self::with_capacity(half.unwrap_or(usize::MAX))
    }

    fn with_capacity(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), open: Mutex::default(), start: Instant::now() }
    }

    /// The limit on connections under these settings.
    pub(super) fn max_connections(&self, limits: &ServeLimits) -> usize {
        usize::try_from(limits.connections).unwrap_or(usize::MAX).min(self.capacity)
    }

    /// Closes the connections that have been idle longest; returns their number.
    pub(super) fn shed_idle(&self) -> usize {
        let mut open = self.open.lock();
        (0..SHED_COUNT).map_while(|_| open.evict_idlest(None)).count()
    }

    /// Number of open connections.
    pub(super) fn count(&self) -> usize {
        self.open.lock().all.len()
    }

    /// Acquires a permit for a new connection. `None` if the limit is reached and no connection is idle.
    pub(super) fn acquire(self: &Arc<Self>, peer: IpAddr, limits: &ServeLimits) -> Option<ConnectionPermit> {
        let mut open = self.open.lock();
        let of_peer = open.all.values().filter(|one| one.peer == peer).count();
        if u64::try_from(of_peer).is_ok_and(|count| count >= limits.connections_per_peer.into()) {
            open.evict_idlest(Some(peer))?;
        }
        if open.all.len() >= self.max_connections(limits) {
            open.evict_idlest(None)?;
        }
        let id = open.next;
        open.next = open.next.wrapping_add(1);
        let connection = Arc::new(HttpConnection {
            peer,
            active_uses: AtomicU32::new(0),
            idle_since: AtomicU64::new(millis(self.start)),
            start: self.start,
            evicted: CancellationToken::new(),
        });
        open.all.insert(id, Arc::clone(&connection));
        drop(open);
        Some(ConnectionPermit { connections: Arc::clone(self), id, connection })
    }
}

impl OpenConnections {
    /// Closes the connection that has been idle longest, of one peer or of all.
    fn evict_idlest(&mut self, of: Option<IpAddr>) -> Option<()> {
        let idle = self.all.iter().filter(|(_, one)| {
            of.is_none_or(|peer| one.peer == peer) && one.active_uses.load(Ordering::Acquire) == 0
        });
        let (id, _) = idle.min_by_key(|(id, one)| (one.idle_since.load(Ordering::Relaxed), **id))?;
        let id = *id;
        self.all.remove(&id)?.evicted.cancel();
        Some(())
    }
}

impl HttpConnection {
    /// Waits until no request is active. Used on shutdown, where incomplete requests are not awaited.
    pub(super) async fn wait_settled(&self) {
        loop {
            tokio::time::sleep(SETTLE_INTERVAL).await;
            if self.active_uses.load(Ordering::Acquire) == 0 {
                return;
            }
        }
    }

    /// When the idle timeout ends, counted from the last request or from the start. `None` if the connection is active.
    pub(super) fn idle_deadline(&self, patience: Duration) -> Option<Instant> {
        if self.active_uses.load(Ordering::Acquire) > 0 {
            return None;
        }
        let since = Duration::from_millis(self.idle_since.load(Ordering::Relaxed));
        self.start.checked_add(since)?.checked_add(patience)
    }

    /// Marks the connection as active.
    pub(super) fn begin_use(self: &Arc<Self>) -> ConnectionUseGuard {
        self.active_uses.fetch_add(1, Ordering::AcqRel);
        ConnectionUseGuard(Arc::clone(self))
    }
}

impl Drop for ConnectionUseGuard {
    fn drop(&mut self) {
        self.0.idle_since.store(millis(self.0.start), Ordering::Relaxed);
        self.0.active_uses.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.connections.open.lock().all.remove(&self.id);
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(connections: u32, connections_per_peer: u32) -> ServeLimits {
        ServeLimits { connections, connections_per_peer, ..ServeLimits::default() }
    }

    #[test]
    fn ipv6_addresses_of_one_network_are_one_client() {
        let network = |text: &str| client_network(text.parse().unwrap()).to_string();
        for (address, expect) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2:ffff::", "2001:db8:1:2::"),
            ("2001:db8:1:3::1", "2001:db8:1:3::"),
            ("::1", "::1"),
        ] {
            assert_eq!(network(address), expect);
        }
    }

    #[test]
    fn the_connection_idle_longest_is_evicted_at_the_limit() {
        let (one, other) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        let connections = Arc::new(Connections::new());
        let limits = limits(3, 2);
        let a = connections.acquire(one, &limits).unwrap();
        let b = connections.acquire(one, &limits).unwrap();
        let working = a.connection.begin_use();
        let c = connections.acquire(one, &limits).unwrap();
        assert!(
            !a.connection.evicted.is_cancelled() && b.connection.evicted.is_cancelled(),
            "`a` is active, so `b` is evicted"
        );
        drop(b);
        assert_eq!(connections.count(), 2);
        let busy = c.connection.begin_use();
        assert!(connections.acquire(one, &limits).is_none(), "both connections of this peer are active");
        let d = connections.acquire(other, &limits).unwrap();
        let e = connections.acquire(other, &limits).unwrap();
        assert!(d.connection.evicted.is_cancelled(), "`d` is the only idle connection");
        drop((working, busy, a, c, d, e));
        assert_eq!(connections.count(), 0);
    }

    #[test]
    fn descriptors_limit_connections_regardless_of_the_policy() {
        let (peer, limits) = (IpAddr::from([127, 0, 0, 1]), limits(1000, 1000));
        let connections = Arc::new(Connections::with_capacity(40));
        let places: Vec<ConnectionPermit> =
            (0..41).map_while(|_| connections.acquire(peer, &limits)).collect();
        assert_eq!((places.len(), connections.count(), connections.max_connections(&limits)), (41, 40, 40));
        assert!(places[0].connection.evicted.is_cancelled() && !places[1].connection.evicted.is_cancelled());
        let working: Vec<ConnectionUseGuard> =
            places[1..20].iter().map(|place| place.connection.begin_use()).collect();
        assert_eq!(
            (connections.shed_idle(), connections.shed_idle(), connections.shed_idle()),
            (16, 5, 0),
            "active connections stay"
        );
        assert_eq!(connections.count(), working.len());
        assert!(Connections::new().capacity < usize::MAX / 2 || cfg!(not(target_os = "linux")));
    }
}
