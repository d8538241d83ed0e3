//! Requests on their way: some are lost, some are late, some arrive twice. Replies are lost and late, too; of two, the first
//! counts.

use toolbay_shared::protocol::escrow::EscrowRequest;
use toolbay_shared::protocol::lease::LeaseRequest;
use toolbay_shared::protocol::{Moment, Revision};

use super::store::Millis;

/// How long a replica waits for a reply.
pub(super) const TIMEOUT: Millis = 700;

/// A request of a replica.
#[derive(Debug, Clone, Copy)]
pub(super) enum Body {
    Beat,
    Lease(LeaseRequest),
    Release(Revision),
    Escrow(EscrowRequest),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) replica: usize,
    pub(super) incarnation: u64,
    /// The connection on which it was sent. Messages on an older connection are lost.
    pub(super) connection: u64,
    pub(super) number: u64,
    /// When it was sent, on the clock of the replica.
    pub(super) sent: Moment,
    /// The nonce of the lease's claim.
    pub(super) nonce: u64,
    pub(super) body: Body,
}

/// What happens.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// A replica looks at its clock.
    Tick(usize),
    /// A replica gets what the store streams to it.
    Watch(usize),
    /// A request reaches the store.
    Arrive(Request),
    /// A reply reaches its replica.
    Reply(Request, super::replica::Reply),
    /// A replica stops waiting for a reply.
    GiveUp(Request),
    Fault(Fault),
}

/// What goes wrong, and what ends it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    Kill(usize),
    Restart(usize),
    Pause(usize),
    Resume(usize),
    Partition(usize),
    Heal(usize),
    LoseLeader,
    ElectLeader,
    /// An old copy of the store is restored.
    RollBack,
    /// An operator publishes the next epoch.
    Publish,
    /// Nothing goes wrong any more.
    Calm,
}
