//! Liveness: whether a revocation would have reached this replica, and which other replicas are alive.
//!
//! A replica writes its heartbeat into the stream that also holds the epochs. The store acknowledges a write with its
//! position in the stream, so a replica that has processed everything up to its own heartbeat has missed no epoch that was
//! published before it sent that heartbeat. From then on it is fresh for `stale_after`.
//!
//! Losing the store is never read as the death of another replica: while this one is not fresh, the others stay as they
//! were.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Moment;

/// Heartbeats in each `stale_after`. Several can be lost before calls are refused.
const BEATS: u32 = 8;
/// Most heartbeats that wait for the watch. More would mean that the watch has stopped.
const MAX_WAITING: usize = 64;
/// Most replicas that are remembered.
const MAX_PEERS: usize = 1024;

/// The heartbeat of a replica: what the store has under its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// Random for each start of a process.
    pub incarnation: String,
    /// The highest epoch that the replica has seen. It applies this one, unless it refuses calls.
    pub epoch: u64,
    /// Whether the replica still accepts calls.
    pub accepts_calls: bool,
}

/// The liveness of one replica and of those that it sees.
#[derive(Debug)]
pub struct Liveness {
    name: String,
    incarnation: String,
    stale_after: Duration,
    last_sent: Option<Moment>,
    /// The position that was processed when the last heartbeat was sent.
    sent_after: u64,
    /// Acknowledged heartbeats that the watch has not reached: position and time of sending.
    waiting: VecDeque<(u64, Moment)>,
    processed: u64,
    fresh_until: Option<Moment>,
    peers: BTreeMap<String, Peer>,
    /// Whether the watch has shown a heartbeat of this process.
    is_seen: bool,
    /// When another process last beat under this name.
    clash: Option<Moment>,
}

#[derive(Debug)]
struct Peer {
    beat: Beat,
    seen: Moment,
}

impl Liveness {
    /// A replica that is not fresh yet.
    #[must_use]
    pub fn new(name: &str, incarnation: &str, stale_after: Duration) -> Self {
        Self {
            name: name.to_owned(),
            incarnation: incarnation.to_owned(),
            stale_after,
            last_sent: None,
            sent_after: 0,
            waiting: VecDeque::new(),
            processed: 0,
            fresh_until: None,
            peers: BTreeMap::new(),
            is_seen: false,
            clash: None,
        }
    }

    /// The time of the next heartbeat.
    #[must_use]
    pub fn next_beat(&self) -> Moment {
        self.last_sent.map_or(Moment::ZERO, |sent| sent + self.stale_after / BEATS)
    }

    /// A heartbeat is sent now.
    pub fn beat_sent(&mut self, now: Moment) {
        self.last_sent = Some(now);
        self.sent_after = self.processed;
    }

    /// The heartbeat that was sent at `sent` has this position in the stream. Returns whether the stream continues: a
    /// position that was processed before means that the store went back, and the caller watches from the start.
    #[must_use]
    pub fn beat_stored(&mut self, sent: Moment, position: u64) -> bool {
        if position <= self.sent_after {
            return false;
        }
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back((position, sent));
        self.refresh();
        true
    }

    /// Everything up to this position is processed, and each epoch in it is applied or calls are refused.
    pub fn processed(&mut self, position: u64) {
        self.processed = self.processed.max(position);
        self.refresh();
    }

    fn refresh(&mut self) {
        let processed = self.processed;
        let confirmed = self.waiting.iter().filter(|(position, _)| *position <= processed);
        if let Some(sent) = confirmed.map(|(_, sent)| *sent).max() {
            let until = sent + self.stale_after;
            self.fresh_until = self.fresh_until.max(Some(until));
            self.waiting.retain(|(position, _)| *position > processed);
        }
    }

    /// The store may have gone back: earlier positions mean nothing any more.
    pub fn reset(&mut self) {
        self.waiting.clear();
        self.processed = 0;
    }

    /// Until when the replica is fresh; `None` if it never was.
    #[must_use]
    pub fn fresh_until(&self) -> Option<Moment> {
        self.fresh_until
    }

    /// Whether the replica is fresh.
    #[must_use]
    pub fn is_fresh(&self, now: Moment) -> bool {
        self.fresh_until.is_some_and(|until| now < until)
    }

    /// A heartbeat was seen in the store.
    pub fn beat_seen(&mut self, now: Moment, name: &str, beat: Beat) {
        if name == self.name {
            // Before that, it is the last heartbeat of a process that ended.
            match beat.incarnation == self.incarnation {
                true => self.is_seen = true,
                false if self.is_seen => self.clash = Some(now),
                false => {}
            }
            return;
        }
        if self.peers.len() < MAX_PEERS || self.peers.contains_key(name) {
            self.peers.insert(name.to_owned(), Peer { beat, seen: now });
        }
    }

    /// A replica said that it ended.
    pub fn left(&mut self, name: &str) {
        self.peers.remove(name);
    }

    /// Whether another process has the name of this one and is alive.
    #[must_use]
    pub fn has_clash(&self, now: Moment) -> bool {
        self.clash.is_some_and(|seen| now.saturating_sub(seen) < self.stale_after)
    }

    /// The other replicas that are alive, by name. While this replica is not fresh, it cannot know, and all stay.
    pub fn peers(&self, now: Moment) -> impl Iterator<Item = (&str, &Beat)> {
        let knows = self.is_fresh(now);
        let alive = move |peer: &&Peer| !knows || now.saturating_sub(peer.seen) < self.stale_after;
        self.peers.iter().filter(move |(_, peer)| alive(peer)).map(|(name, peer)| (name.as_str(), &peer.beat))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALE: Duration = Duration::from_secs(2);

    fn at(millis: u64) -> Moment {
        Duration::from_millis(millis)
    }

    fn beat(incarnation: &str) -> Beat {
        Beat { incarnation: incarnation.to_owned(), epoch: 1, accepts_calls: true }
    }

    #[test]
    fn a_replica_is_fresh_from_the_time_at_which_it_sent_its_heartbeat() {
        let mut own = Liveness::new("a", "1", STALE);
        assert_eq!((own.next_beat(), own.is_fresh(at(0))), (at(0), false));
        own.beat_sent(at(1000));
        assert_eq!(own.next_beat(), at(1250));
        assert!(own.beat_stored(at(1000), 7));
        assert!(!own.is_fresh(at(1100)), "the watch has not reached the heartbeat");
        own.processed(6);
        assert!(!own.is_fresh(at(1100)));
        own.processed(7);
        assert!(own.is_fresh(at(2999)) && !own.is_fresh(at(3000)));
        // An older heartbeat, whose reply comes late, takes nothing away.
        assert!(own.beat_stored(at(500), 5));
        assert!(own.is_fresh(at(2999)));
        // A position that the watch has passed before: an old copy of the store.
        own.beat_sent(at(2500));
        assert!(!own.beat_stored(at(2500), 7));
        assert!(!own.is_fresh(at(3000)));
    }

    #[test]
    fn a_lost_store_kills_no_replica() {
        let mut own = Liveness::new("a", "1", STALE);
        assert!(own.beat_stored(at(0), 1));
        own.processed(1);
        own.beat_seen(at(100), "b", beat("2"));
        own.beat_seen(at(1500), "c", beat("3"));
        assert_eq!(own.peers(at(1000)).count(), 2);
        assert_eq!(own.peers(at(60_000)).count(), 2, "not fresh: it cannot know");
        assert!(own.beat_stored(at(60_000), 2));
        own.processed(2);
        own.beat_seen(at(60_100), "c", beat("3"));
        assert_eq!(own.peers(at(60_200)).map(|(name, _)| name).collect::<Vec<_>>(), ["c"]);
        own.left("c");
        assert_eq!(own.peers(at(60_200)).count(), 0);
    }

    #[test]
    fn two_processes_with_one_name_are_noticed() {
        let mut own = Liveness::new("a", "1", STALE);
        own.beat_seen(at(0), "a", beat("0"));
        assert!(!own.has_clash(at(1)), "it was the process before this one");
        own.beat_seen(at(10), "a", beat("1"));
        assert!(!own.has_clash(at(11)));
        own.beat_seen(at(5000), "a", beat("0"));
        assert!(own.has_clash(at(6999)) && !own.has_clash(at(7000)));
    }
}
