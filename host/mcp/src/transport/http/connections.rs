//! Which connections are open, and which one goes when there are too many.
//!
//! A connection costs a client nothing and the server a descriptor and some memory. When there is no place, the one
//! goes that has been idle longest: who holds many open loses them, and who has something to ask is answered. Idle is one
//! that has no request and to which nothing is written; one that uploads or reads slowly is not, and has deadlines of its
//! own.
//!
//! Each connection is also a descriptor of the process, of which calls, files and other servers need theirs. Therefore
//! connections take at most half of what the process may have, whatever the policy allows, and when the process runs out of
//! them all the same, idle connections are closed first.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolbay_policy::serve::ServeLimits;

/// How long a connection on which nothing is worked may stay when the server ends: what was answered goes out first.
const SETTLING: Duration = Duration::from_millis(500);

/// Idle connections that are closed at once when the process has no descriptor left: enough for the next few connections
/// and calls, few enough that most clients notice nothing.
const SHED: usize = 16;

/// The open connections.
#[derive(Debug)]
pub(super) struct Connections {
    /// How many the process can hold at all.
    capacity: usize,
    open: Mutex<Open>,
    start: Instant,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    all: HashMap<u64, Arc<HttpConnection>>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct HttpConnection {
    peer: IpAddr,
    /// Requests of it that are worked on, and one more while what is written to it waits.
    busy: AtomicU32,
    /// Since when it has none, in milliseconds.
    idle_since: AtomicU64,
    start: Instant,
    /// Fires when it has to go.
    pub(super) gone: CancellationToken,
}

/// A place among the connections, until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    connections: Arc<Connections>,
    id: u64,
    pub(super) connection: Arc<HttpConnection>,
}

/// Work on a connection, until it is dropped: it does not have to go.
#[derive(Debug)]
pub(super) struct ConnectionUseGuard(Arc<HttpConnection>);

/// From where a client comes, as far as it cannot choose: whoever has one address of IPv6 has the 2^64 of its network.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
        address => address,
    }
}

impl Connections {
    /// For as many as this process may have descriptors for.
    pub(super) fn new() -> Self {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let half = descriptors.and_then(|most| usize::try_from(most / 2).ok());
        Self::with_capacity(half.unwrap_or(usize::MAX))
    }

    fn with_capacity(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), open: Mutex::default(), start: Instant::now() }
    }

    /// How many there may be under these limits.
    pub(super) fn most(&self, limits: &ServeLimits) -> usize {
        usize::try_from(limits.connections).unwrap_or(usize::MAX).min(self.capacity)
    }

    /// Closes some of the connections that have been idle longest; returns how many.
    pub(super) fn shed(&self) -> usize {
        let mut open = self.open.lock();
        (0..SHED).map_while(|_| open.make_room(None)).count()
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.open.lock().all.len()
    }

    /// Gives a place to one more; `None`: all of them are at work.
    pub(super) fn enter(self: &Arc<Self>, peer: IpAddr, limits: &ServeLimits) -> Option<ConnectionPermit> {
        let mut open = self.open.lock();
        let of_peer = open.all.values().filter(|one| one.peer == peer).count();
        if u64::try_from(of_peer).is_ok_and(|count| count >= limits.connections_per_peer.into()) {
            open.make_room(Some(peer))?;
        }
        if open.all.len() >= self.most(limits) {
            open.make_room(None)?;
        }
        let id = open.next;
        open.next = open.next.wrapping_add(1);
        let connection = Arc::new(HttpConnection {
            peer,
            busy: AtomicU32::new(0),
            idle_since: AtomicU64::new(millis(self.start)),
            start: self.start,
            gone: CancellationToken::new(),
        });
        open.all.insert(id, Arc::clone(&connection));
        drop(open);
        Some(ConnectionPermit { connections: Arc::clone(self), id, connection })
    }
}

impl Open {
    /// Closes the connection that has been idle longest, of one address or of all.
    fn make_room(&mut self, of: Option<IpAddr>) -> Option<()> {
        let idle = self.all.iter().filter(|(_, one)| {
            of.is_none_or(|peer| one.peer == peer) && one.busy.load(Ordering::Acquire) == 0
        });
        let (id, _) = idle.min_by_key(|(id, one)| (one.idle_since.load(Ordering::Relaxed), **id))?;
        let id = *id;
        self.all.remove(&id)?.gone.cancel();
        Some(())
    }
}

impl HttpConnection {
    /// Waits until no request of it is worked on; at the end, who still writes one is not waited for.
    pub(super) async fn is_settled(&self) {
        loop {
            tokio::time::sleep(SETTLING).await;
            if self.busy.load(Ordering::Acquire) == 0 {
                return;
            }
        }
    }

    /// Until when it may be idle, if it is: so long after its last request, or its beginning.
    pub(super) fn idle_until(&self, patience: Duration) -> Option<Instant> {
        if self.busy.load(Ordering::Acquire) > 0 {
            return None;
        }
        let since = Duration::from_millis(self.idle_since.load(Ordering::Relaxed));
        self.start.checked_add(since)?.checked_add(patience)
    }

    /// Says that it is worked on.
    pub(super) fn work(self: &Arc<Self>) -> ConnectionUseGuard {
        self.busy.fetch_add(1, Ordering::AcqRel);
        ConnectionUseGuard(Arc::clone(self))
    }
}

impl Drop for ConnectionUseGuard {
    fn drop(&mut self) {
        self.0.idle_since.store(millis(self.0.start), Ordering::Relaxed);
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
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
    fn addresses_of_one_network_are_one() {
        let network = |text: &str| network(text.parse().unwrap()).to_string();
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
    fn for_one_too_many_the_one_goes_that_was_idle_longest() {
        let (one, other) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        let connections = Arc::new(Connections::new());
        let limits = limits(3, 2);
        let a = connections.enter(one, &limits).unwrap();
        let b = connections.enter(one, &limits).unwrap();
        let working = a.connection.work();
        let c = connections.enter(one, &limits).unwrap();
        assert!(!a.connection.gone.is_cancelled() && b.connection.gone.is_cancelled(), "a works, b goes");
        drop(b);
        assert_eq!(connections.count(), 2);
        let busy = c.connection.work();
        assert!(connections.enter(one, &limits).is_none(), "both of this address work");
        let d = connections.enter(other, &limits).unwrap();
        let e = connections.enter(other, &limits).unwrap();
        assert!(d.connection.gone.is_cancelled(), "the only one that is idle");
        drop((working, busy, a, c, d, e));
        assert_eq!(connections.count(), 0);
    }

    #[test]
    fn descriptors_bound_connections_whatever_the_policy_says() {
        let (peer, limits) = (IpAddr::from([127, 0, 0, 1]), limits(1000, 1000));
        let connections = Arc::new(Connections::with_capacity(40));
        let places: Vec<ConnectionPermit> = (0..41).map_while(|_| connections.enter(peer, &limits)).collect();
        assert_eq!((places.len(), connections.count(), connections.most(&limits)), (41, 40, 40));
        assert!(places[0].connection.gone.is_cancelled() && !places[1].connection.gone.is_cancelled());
        let working: Vec<ConnectionUseGuard> =
            places[1..20].iter().map(|place| place.connection.work()).collect();
        assert_eq!(
            (connections.shed(), connections.shed(), connections.shed()),
            (16, 5, 0),
            "what works stays"
        );
        assert_eq!(connections.count(), working.len());
        assert!(Connections::new().capacity < usize::MAX / 2 || cfg!(not(target_os = "linux")));
    }
}
