//! The coordination of replicas, as state machines without I/O and without a clock.
//!
//! Each machine takes an event with its time, on the monotonic clock of its replica, and returns a request to the store.
//! The test `simulation` runs replicas of them against a store that loses replies, gets requests late or twice, and stops
//! for seconds, while replicas die, freeze and lose their network, on clocks that disagree.
//!
//! | machine | promise |
//! |---|---|
//! | [`epoch`] | a replica never goes back to an older policy, even if the store does |
//! | [`liveness`] | a revocation holds everywhere within `stale_after`, because a replica that might have missed it refuses calls |
//! | [`escrow`] | all replicas together never spend more than the budget |
//! | [`lease`] | at most one replica acts for a serial queue |
//!
//! Three rules make them safe, and none of them compares the clocks of two machines:
//!
//! 1. What a replica may do lasts from the time at which it *sent* the request, and not from the reply.
//! 2. A replica waits out what another one may still do, from the time at which its last write was *seen*.
//! 3. A write without a reply counts as whatever is worse: units are gone, a lease is not held. So does a conflict of
//!    a write that gave units back: if it arrived twice, the second one may have met the first.
//!
//! The promises about budgets and leases hold while the store keeps what it acknowledged. If an operator restores an old
//! copy of the store, only epochs and revocations are still safe.

pub mod epoch;
pub mod escrow;
pub mod lease;
pub mod liveness;

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A time on the monotonic clock of one replica. Its start is arbitrary, and it continues while the process is frozen.
pub type Moment = Duration;

/// The revision of a record: its sequence number in the store's stream. A later write has a higher one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(pub u64);

/// The result of a conditional write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The store has the value, under this revision.
    Stored(Revision),
    /// The record had another revision than expected, so nothing was stored.
    Conflict,
    /// There was no reply. The value may have been stored, or may still be.
    Unknown,
}
