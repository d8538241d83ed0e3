//! Leases: at most one replica acts for a serial queue.
//!
//! The record of a queue names its holder. The holder may act until `ttl` after it *sent* its last write. Another replica
//! takes over when it has *seen* no other write for `ttl` and a margin: it saw the write after it was sent, so the
//! holder has stopped by then, however long the network took. The margin covers clocks whose rates differ.
//!
//! A host call that is in progress when the lease is lost is not undone. So the promise is: at most one host call of the
//! former holder may still be in progress.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Moment, Revision, Written};

/// How long a holder may act after its last write.
pub const LEASE_TTL: Duration = Duration::from_secs(6);
/// A holder writes again after this share of the time.
const RENEWALS: u32 = 3;
/// The share of the time that clocks may differ by: 2 %. Those of computers differ by less than 0.1 %.
const MARGIN: u32 = 50;

/// The holder of a queue: what the store has under the name of the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The replica.
    pub replica: String,
    /// Random for each lease, so that a replica knows its own writes.
    pub nonce: String,
}

/// One replica that wants or holds the lease of one queue.
#[derive(Debug)]
pub struct LeaseClaim {
    own: Holder,
    ttl: Duration,
    state: ClaimState,
    in_flight: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimState {
    /// The record is not known.
    Unknown,
    /// There is no record.
    Free,
    /// Another replica has it, and this revision has been there since then.
    Foreign { revision: Revision, since: Moment },
    /// This replica holds the lease.
    Held { revision: Revision, sent: Moment },
    /// This replica holds the lease, but its revision is not known: a renewal has no reply.
    Unsure { sent: Moment },
}

/// A request to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseRequest {
    /// Read the record.
    Read,
    /// Write the own name, if the record has this revision (`None`: if there is no record).
    Write(Option<Revision>),
}

/// What a replica that waits for a lease does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseStep {
    /// The replica has the lease.
    Held,
    /// Send this request, pass on the reply, and ask again.
    Ask(LeaseRequest),
    /// Ask again at this time, or when the record changes.
    Wait(Moment),
}

impl LeaseClaim {
    /// A claim that has not been sent.
    #[must_use]
    pub fn new(own: Holder, ttl: Duration) -> Self {
        Self { own, ttl, state: ClaimState::Unknown, in_flight: false }
    }

    /// What to do to get the lease.
    pub fn pursue(&mut self, now: Moment) -> LeaseStep {
        match self.state {
            ClaimState::Held { .. } | ClaimState::Unsure { .. } if self.may_act(now) => LeaseStep::Held,
            ClaimState::Free => self.ask(LeaseRequest::Write(None)),
            ClaimState::Foreign { revision, since } => {
                let free = since + self.ttl + self.ttl / MARGIN;
                if now >= free {
                    self.ask(LeaseRequest::Write(Some(revision)))
                } else {
                    LeaseStep::Wait(free)
                }
            }
            ClaimState::Unknown | ClaimState::Held { .. } | ClaimState::Unsure { .. } => {
                self.state = ClaimState::Unknown;
                self.ask(LeaseRequest::Read)
            }
        }
    }

    /// What to send to keep the lease; `None` if it is not time yet.
    pub fn renew(&mut self, now: Moment) -> Option<LeaseRequest> {
        let request = match self.state {
            _ if self.in_flight || !self.may_act(now) => return None,
            ClaimState::Held { revision, sent } if now >= sent + self.ttl / RENEWALS => {
                LeaseRequest::Write(Some(revision))
            }
            ClaimState::Unsure { .. } => LeaseRequest::Read,
            _ => return None,
        };
        self.in_flight = true;
        Some(request)
    }

    fn ask(&mut self, request: LeaseRequest) -> LeaseStep {
        self.in_flight = true;
        LeaseStep::Ask(request)
    }

    /// The reply to a read.
    pub fn read(&mut self, now: Moment, record: Option<(&Holder, Revision)>) {
        self.in_flight = false;
        self.state = match (record, self.state) {
            (Some((holder, revision)), ClaimState::Unsure { sent }) if *holder == self.own => {
                ClaimState::Held { revision, sent }
            }
            // An own write that had no reply: nobody else writes this nonce, and it does not extend the lease.
            (Some((holder, revision)), ClaimState::Held { revision: known, sent }) if *holder == self.own => {
                ClaimState::Held { revision: revision.max(known), sent }
            }
            (Some((_, revision)), ClaimState::Foreign { revision: known, since }) if revision == known => {
                ClaimState::Foreign { revision, since }
            }
            (Some((_, revision)), ClaimState::Held { revision: known, sent }) if revision < known => {
                ClaimState::Held { revision: known, sent }
            }
            (Some((_, revision)), _) => ClaimState::Foreign { revision, since: now },
            (None, _) => ClaimState::Free,
        };
    }

    /// There was no reply to a read.
    pub fn read_failed(&mut self) {
        self.in_flight = false;
    }

    /// The result of the write that was sent at `sent`.
    pub fn written(&mut self, sent: Moment, result: Written) {
        self.in_flight = false;
        self.state = match (result, self.state) {
            (Written::Stored(revision), _) => ClaimState::Held { revision, sent },
            (
                Written::Unknown,
                ClaimState::Held { sent: before, .. } | ClaimState::Unsure { sent: before },
            ) => ClaimState::Unsure { sent: before },
            (Written::Unknown | Written::Conflict, _) => ClaimState::Unknown,
        };
    }

    /// Whether the replica may act under the lease. Every host call asks.
    #[must_use]
    pub fn may_act(&self, now: Moment) -> bool {
        self.held_until().is_some_and(|until| now < until)
    }

    /// Until when the replica may act.
    #[must_use]
    pub fn held_until(&self) -> Option<Moment> {
        self.last_sent().map(|sent| sent + self.ttl)
    }

    /// The time of the next renewal.
    #[must_use]
    pub fn next_renewal(&self) -> Option<Moment> {
        self.last_sent().map(|sent| sent + self.ttl / RENEWALS)
    }

    /// When the last write of a lease that is held was sent.
    fn last_sent(&self) -> Option<Moment> {
        match self.state {
            ClaimState::Held { sent, .. } | ClaimState::Unsure { sent } => Some(sent),
            ClaimState::Unknown | ClaimState::Free | ClaimState::Foreign { .. } => None,
        }
    }

    /// Gives the lease up. Removing the record, if it has this revision, tells the others at once; without that, they wait.
    pub fn release(self) -> Option<Revision> {
        match self.state {
            ClaimState::Held { revision, .. } => Some(revision),
            _ => None,
        }
    }

    /// What the record says about the holder.
    #[must_use]
    pub fn holder(&self) -> &Holder {
        &self.own
    }
}
