//! Escrow: a budget that several replicas spend without asking each other for each call.
//!
//! The record of an account says how many units were ever lent to replicas. A replica borrows a chunk by compare-and-set
//! and spends it on its own. Units that it cannot account for count as spent: those of a replica that died, and those of a
//! write without a reply. So the sum of what replicas spend never exceeds the cap.
//!
//! A chunk has a bounded life, from the time at which the request for it was sent. The store forgets an account a while
//! after its last write, and no chunk may outlive its account.

use std::time::Duration;

use super::{Moment, Revision, Written};

/// A chunk that was not used for this share of its life is given back.
const IDLE_SHARE: u32 = 12;
/// In the last share of its life, a chunk is given back although it is used: what is left would be lost with it.
const LAST_SHARE: u32 = 4;
/// How long a replica believes that a budget is spent before it asks again: other replicas may have given back.
const SPENT_FOR: Duration = Duration::from_secs(1);
/// How old the record may be that a chunk is given back to. A conflict is then rare.
const FRESH_FOR: Duration = Duration::from_millis(200);
/// A chunk is at most this share of what is left for each replica, so that the last units are not stuck on one of them.
const SHARES: u64 = 4;

/// One account on one replica.
#[derive(Debug, Default)]
pub struct Escrow {
    /// Units of the chunk that are not spent.
    left: u64,
    /// Until when they may be spent.
    until: Moment,
    /// Units that were spent beyond the chunk and are not in the record yet.
    overdraft: u64,
    known: Option<SeenAccount>,
    in_flight: Option<EscrowRequest>,
    used: Moment,
    life: Duration,
}

/// The record that was last read or written.
#[derive(Debug, Clone, Copy)]
struct SeenAccount {
    lent: u64,
    revision: Option<Revision>,
    at: Moment,
}

/// A request to the store. At most one of an account is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EscrowRequest {
    /// Read the record.
    Read,
    /// Write the number of lent units, if the record has this revision (`None`: if there is no record).
    Write {
        /// Units that were ever lent.
        lent: u64,
        /// The expected revision.
        revision: Option<Revision>,
        /// Units that the replica gets. They are part of `lent`.
        chunk: u64,
        /// Overdrawn units that are part of `lent`.
        overdraft: u64,
        /// Units that the replica gives back. `lent` is without them.
        returned: u64,
    },
}

/// The answer to a call that wants a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EscrowStep {
    /// The call has a unit.
    Taken,
    /// No replica has a unit.
    Spent,
    /// Send this request, pass on the reply, and ask again.
    Ask(EscrowRequest),
}

/// How much may be spent, and by how many.
#[derive(Debug, Clone, Copy)]
pub struct EscrowTerms {
    /// Most units over all replicas.
    pub cap: u64,
    /// The number of replicas that are alive.
    pub replicas: u64,
    /// Most units of a chunk.
    pub most: u64,
    /// How long a chunk may be spent. The store keeps an account for longer than that after each write.
    pub life: Duration,
}

impl Escrow {
    /// Takes `units` for a call. With zero units it only requires that one is left, which the call may exceed.
    pub fn take(&mut self, now: Moment, units: u64, terms: EscrowTerms) -> EscrowStep {
        self.used = now;
        self.life = terms.life;
        if now >= self.until {
            self.left = 0;
        }
        if self.left > 0 && self.left >= units {
            self.left -= units;
            return EscrowStep::Taken;
        }
        match self.known {
            Some(known) if terms.cap.saturating_sub(known.lent) > self.overdraft => {
                EscrowStep::Ask(self.borrow_chunk(known, units, terms))
            }
            Some(known) if now.saturating_sub(known.at) < SPENT_FOR => EscrowStep::Spent,
            _ => EscrowStep::Ask(self.send(EscrowRequest::Read)),
        }
    }

    fn borrow_chunk(&mut self, known: SeenAccount, units: u64, terms: EscrowTerms) -> EscrowRequest {
        let rest = terms.cap.saturating_sub(known.lent).saturating_sub(self.overdraft);
        let share = rest / terms.replicas.max(1).saturating_mul(SHARES);
        let chunk = share.clamp(1, terms.most.max(1)).max(units).min(rest);
        let (overdraft, returned) = (self.overdraft, 0);
        let lent = known.lent.saturating_add(chunk).saturating_add(overdraft);
        self.send(EscrowRequest::Write { lent, revision: known.revision, chunk, overdraft, returned })
    }

    /// Returns units that were taken and not needed.
    pub fn put_back(&mut self, now: Moment, units: u64) {
        if now < self.until {
            self.left = self.left.saturating_add(units);
        }
    }

    /// Spends units that a call used beyond what it took.
    pub fn overdraw(&mut self, now: Moment, units: u64) {
        let of_chunk = if now < self.until { self.left.min(units) } else { 0 };
        self.left -= of_chunk;
        self.overdraft = self.overdraft.saturating_add(units - of_chunk);
    }

    /// What to send although no call asks: an overdraft, or a chunk that is idle. On drain, every chunk is idle.
    pub fn settle(&mut self, now: Moment, is_draining: bool) -> Option<EscrowRequest> {
        let is_idle = is_draining
            || now.saturating_sub(self.used) >= self.life / IDLE_SHARE
            || now + self.life / LAST_SHARE >= self.until;
        let returned = if is_idle && now < self.until { self.left } else { 0 };
        if self.in_flight.is_some() || (returned == 0 && self.overdraft == 0) {
            return None;
        }
        let is_fresh = |known: &SeenAccount| returned == 0 || now.saturating_sub(known.at) < FRESH_FOR;
        let Some(known) = self.known.filter(is_fresh) else { return Some(self.send(EscrowRequest::Read)) };
        // From here on, they may be lent to others.
        self.left -= returned;
        let overdraft = self.overdraft;
        // The record may have been written anew with less; it never counts below zero.
        let lent = known.lent.saturating_add(overdraft).saturating_sub(returned);
        let request = EscrowRequest::Write { lent, revision: known.revision, chunk: 0, overdraft, returned };
        Some(self.send(request))
    }

    fn send(&mut self, request: EscrowRequest) -> EscrowRequest {
        self.in_flight = Some(request);
        request
    }

    /// The record, as an answer to [`EscrowRequest::Read`]; `None` if there is none.
    pub fn read(&mut self, now: Moment, record: Option<(u64, Revision)>) {
        self.in_flight = None;
        let (lent, revision) = record.map_or((0, None), |(lent, revision)| (lent, Some(revision)));
        self.known = Some(SeenAccount { lent, revision, at: now });
    }

    /// There was no answer to a read.
    pub fn read_failed(&mut self) {
        self.in_flight = None;
        self.known = None;
    }

    /// The result of the write that was sent at `sent`.
    pub fn written(&mut self, sent: Moment, now: Moment, result: Written) {
        let Some(EscrowRequest::Write { lent, chunk, overdraft, .. }) = self.in_flight.take() else {
            return;
        };
        match result {
            Written::Stored(revision) => {
                self.known = Some(SeenAccount { lent, revision: Some(revision), at: now });
                self.overdraft = self.overdraft.saturating_sub(overdraft);
                if chunk > 0 {
                    self.left = chunk;
                    self.until = sent + self.life;
                }
            }
            // The chunk may be lent to us, and the returned units may be lent to others: both are gone. The overdraft is
            // written again, although it may then count twice. A conflict says no more: if the request arrived twice, it is
            // that of the second one with the first.
            Written::Conflict | Written::Unknown => self.known = None,
        }
    }

    /// Units that can be spent without a request.
    #[must_use]
    pub fn left(&self, now: Moment) -> u64 {
        if now < self.until { self.left } else { 0 }
    }

    /// Whether the account can be forgotten: nothing of it is here.
    #[must_use]
    pub fn is_empty(&self, now: Moment) -> bool {
        self.left(now) == 0 && self.overdraft == 0 && self.in_flight.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: EscrowTerms = EscrowTerms { cap: 100, replicas: 3, most: 20, life: Duration::from_secs(60) };

    fn at(seconds: u64) -> Moment {
        Duration::from_secs(seconds)
    }

    /// Borrows the first chunk of an empty account.
    fn lent() -> Escrow {
        let mut escrow = Escrow::default();
        assert_eq!(escrow.take(at(0), 1, TERMS), EscrowStep::Ask(EscrowRequest::Read));
        escrow.read(at(0), None);
        let EscrowStep::Ask(EscrowRequest::Write { lent: 8, revision: None, chunk: 8, .. }) =
            escrow.take(at(0), 1, TERMS)
        else {
            panic!("{escrow:?}")
        };
        escrow.written(at(0), at(1), Written::Stored(Revision(1)));
        escrow
    }

    #[test]
    fn a_chunk_is_spent_without_requests() {
        let mut escrow = lent();
        for _ in 0..8 {
            assert_eq!(escrow.take(at(1), 1, TERMS), EscrowStep::Taken);
        }
        let EscrowStep::Ask(EscrowRequest::Write { lent: 15, chunk: 7, .. }) = escrow.take(at(1), 1, TERMS)
        else {
            panic!("{escrow:?}")
        };
    }

    #[test]
    fn a_chunk_ends_with_its_life() {
        let mut escrow = lent();
        assert_eq!((escrow.left(at(59)), escrow.left(at(60))), (8, 0));
        escrow.put_back(at(60), 1);
        assert_eq!(escrow.left(at(60)), 0);
        assert!(matches!(escrow.take(at(60), 1, TERMS), EscrowStep::Ask(_)));
    }

    #[test]
    fn units_without_an_account_of_them_are_gone() {
        let mut escrow = lent();
        assert_eq!(escrow.settle(at(3), false), None, "it is in use");
        assert_eq!(escrow.settle(at(6), false), Some(EscrowRequest::Read), "the record is old");
        escrow.read(at(6), Some((8, Revision(1))));
        let EscrowRequest::Write { lent: 0, returned: 8, .. } = escrow.settle(at(6), false).unwrap() else {
            panic!("{escrow:?}")
        };
        assert_eq!(escrow.left(at(6)), 0, "others may have them by now");
        escrow.written(at(6), at(8), Written::Unknown);
        assert_eq!(escrow.left(at(8)), 0);
        let mut escrow = lent();
        escrow.take(at(44), 1, TERMS);
        assert_eq!(escrow.settle(at(44), false), None);
        escrow.take(at(45), 1, TERMS);
        assert_eq!(escrow.settle(at(45), false), Some(EscrowRequest::Read));
        escrow.read(at(45), Some((8, Revision(1))));
        let EscrowRequest::Write { returned: 6, .. } = escrow.settle(at(45), false).unwrap() else {
            panic!("in the last quarter of its life, what is left is given back: {escrow:?}")
        };
        let mut escrow = lent();
        escrow.read(at(6), Some((8, Revision(1))));
        escrow.settle(at(6), true).unwrap();
        escrow.written(at(6), at(8), Written::Conflict);
        assert_eq!(escrow.left(at(8)), 0, "it may have been stored, if it arrived twice");
    }

    #[test]
    fn a_spent_budget_is_asked_for_again_after_a_while() {
        let mut escrow = Escrow::default();
        escrow.take(at(0), 1, TERMS);
        escrow.read(at(0), Some((100, Revision(9))));
        assert_eq!(escrow.take(at(0), 1, TERMS), EscrowStep::Spent);
        assert_eq!(escrow.take(at(1), 1, TERMS), EscrowStep::Ask(EscrowRequest::Read));
        // A cap that was lowered below what is lent lends nothing.
        escrow.read(at(1), Some((400, Revision(10))));
        assert_eq!(escrow.take(at(1), 1, TERMS), EscrowStep::Spent);
    }

    #[test]
    fn a_cost_beyond_the_chunk_is_written_down() {
        let mut escrow = lent();
        assert_eq!(escrow.take(at(1), 0, TERMS), EscrowStep::Taken);
        escrow.overdraw(at(1), 30);
        assert_eq!(escrow.left(at(1)), 0);
        let request = escrow.settle(at(1), false).unwrap();
        assert!(matches!(request, EscrowRequest::Write { lent: 30, overdraft: 22, .. }), "{request:?}");
        escrow.written(at(1), at(2), Written::Unknown);
        assert_eq!(
            escrow.settle(at(2), false),
            Some(EscrowRequest::Read),
            "it is written until there is a reply"
        );
        escrow.read(at(2), Some((30, Revision(2))));
        assert!(matches!(escrow.settle(at(2), false), Some(EscrowRequest::Write { lent: 52, .. })));
    }
}
