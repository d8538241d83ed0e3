//! A replica: the state machines, and a driver that carries out what they ask for.

use std::collections::HashSet;
use std::time::Duration;

use toolbay_state::digest::Digest;

use toolbay_shared::protocol::epoch::{Epoch, EpochLog, EpochStep};
use toolbay_shared::protocol::escrow::{Escrow, EscrowRequest, EscrowStep, EscrowTerms};
use toolbay_shared::protocol::lease::{Holder, LeaseClaim, LeaseRequest, LeaseStep};
use toolbay_shared::protocol::liveness::{Beat, Liveness};
use toolbay_shared::protocol::{Moment, Revision, Written};

use super::network::{Body, Request};
use super::random::Random;
use super::rules::{Mutation, Rules};
use super::store::{Key, Value};

pub(super) const STALE_AFTER: Duration = Duration::from_millis(1_000);
pub(super) const LEASE_TTL: Duration = Duration::from_millis(1_500);
const CHUNK_LIFE: Duration = Duration::from_millis(3_000);
/// Most units of a call that may exceed the budget.
pub(super) const MOST_COST: u64 = 5;

/// The reply of the store.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    Record(Option<(Value, Revision)>),
    Written(Written),
    /// The position of a heartbeat.
    Position(u64),
}

/// What survives the death of a process: its disk.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    pub(super) epoch: Option<Epoch>,
}

/// What the calls of a replica spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Currency {
    /// One unit for each call, taken before.
    Calls,
    /// An amount that is known after the call.
    Cost,
}

pub(super) struct Replica {
    pub(super) name: usize,
    pub(super) incarnation: u64,
    rules: Rules,
    pub(super) disk: Disk,
    epochs: EpochLog,
    /// The epoch in force.
    pub(super) applied: Option<u64>,
    went_back: bool,
    liveness: Liveness,
    lease: LeaseClaim,
    /// The nonce of the claim.
    pub(super) nonce: u64,
    wants_lease: bool,
    queue: Option<Revision>,
    escrow: Escrow,
    pending: PendingReplies,
    answered: HashSet<u64>,
    currency: Currency,
    pub(super) cap: u64,
    /// The entries that the watch has shown.
    pub(super) watched: u64,
}

/// Which machines wait for a reply.
#[derive(Default)]
struct PendingReplies {
    beat: bool,
    lease: bool,
    escrow: bool,
}

/// What a replica did.
#[derive(Debug, Default)]
pub(super) struct Deeds {
    pub(super) requests: Vec<Body>,
    /// Whether a call began.
    pub(super) began: bool,
    /// What it spent.
    pub(super) spent: u64,
}

pub(super) fn digest(of: u64) -> Digest {
    format!("{of:064x}").parse().unwrap()
}

impl Replica {
    pub(super) fn new(
        name: usize,
        incarnation: u64,
        disk: Disk,
        currency: Currency,
        cap: u64,
        rules: Rules,
    ) -> Self {
        let nonce = incarnation * 1_000_000;
        let disk = if rules.broken == Some(Mutation::ForgottenEpoch) { Disk::default() } else { disk };
        Self {
            name,
            incarnation,
            rules,
            epochs: EpochLog::new(disk.epoch.clone()),
            disk,
            applied: None,
            went_back: false,
            liveness: Liveness::new(&name.to_string(), &incarnation.to_string(), STALE_AFTER),
            lease: claim(name, nonce),
            nonce,
            wants_lease: false,
            queue: None,
            escrow: Escrow::default(),
            pending: PendingReplies::default(),
            answered: HashSet::new(),
            currency,
            cap,
            watched: 0,
        }
    }

    fn breaks(&self, rule: Mutation) -> bool {
        self.rules.broken == Some(rule)
    }

    /// Whether calls may begin.
    pub(super) fn is_open(&self, now: Moment) -> bool {
        self.liveness.is_fresh(now) && !self.went_back && self.applied.is_some()
    }

    pub(super) fn may_act(&self, now: Moment) -> bool {
        self.lease.may_act(now)
    }

    /// Looks at the clock and at what users want.
    pub(super) fn tick(&mut self, now: Moment, random: &mut Random, calm: bool) -> Deeds {
        let mut deeds = Deeds::default();
        if !self.pending.beat && now >= self.liveness.next_beat() {
            self.liveness.beat_sent(now);
            self.pending.beat = true;
            deeds.requests.push(Body::Beat);
        }
        self.pursue_lease(now, random, calm, &mut deeds);
        self.spend(now, random, &mut deeds);
        deeds
    }

    fn pursue_lease(&mut self, now: Moment, random: &mut Random, calm: bool, deeds: &mut Deeds) {
        if random.chance(10) {
            self.wants_lease = calm || random.chance(70);
            if !self.wants_lease && !self.pending.lease && self.may_act(now) {
                self.nonce += 1;
                let ended = std::mem::replace(&mut self.lease, claim(self.name, self.nonce));
                deeds.requests.extend(ended.release().map(Body::Release));
                return;
            }
        }
        if self.pending.lease || !self.wants_lease {
            return;
        }
        let request = if self.may_act(now) {
            self.lease.renew(now)
        } else {
            match (self.lease.pursue(now), self.queue) {
                (LeaseStep::Ask(request), _) => Some(request),
                (LeaseStep::Wait(_), queue) if self.breaks(Mutation::ImpatientTakeover) => {
                    Some(LeaseRequest::Write(queue))
                }
                _ => None,
            }
        };
        if let Some(request) = request {
            self.pending.lease = true;
            deeds.requests.push(Body::Lease(request));
        }
    }

    fn terms(&self, now: Moment) -> EscrowTerms {
        let life = if self.breaks(Mutation::EndlessChunk) { CHUNK_LIFE * 10 } else { CHUNK_LIFE };
        EscrowTerms { cap: self.cap, replicas: self.liveness.peers(now).count() as u64 + 1, most: 20, life }
    }

    fn spend(&mut self, now: Moment, random: &mut Random, deeds: &mut Deeds) {
        if self.is_open(now) {
            deeds.began = true;
            if random.chance(60) && !self.pending.escrow {
                self.take(now, random, deeds);
            }
        }
        if !self.pending.escrow
            && let Some(request) = self.escrow.settle(now, false)
        {
            self.ask_ledger(request, deeds);
        }
    }

    fn take(&mut self, now: Moment, random: &mut Random, deeds: &mut Deeds) {
        let (units, terms) = (u64::from(self.currency == Currency::Calls), self.terms(now));
        match self.escrow.take(now, units, terms) {
            EscrowStep::Taken if self.currency == Currency::Calls => deeds.spent = 1,
            EscrowStep::Taken => {
                deeds.spent = random.between(1, MOST_COST);
                self.escrow.overdraw(now, deeds.spent);
            }
            EscrowStep::Spent => {}
            EscrowStep::Ask(request) => self.ask_ledger(request, deeds),
        }
    }

    fn ask_ledger(&mut self, request: EscrowRequest, deeds: &mut Deeds) {
        self.pending.escrow = true;
        deeds.requests.push(Body::Escrow(request));
    }

    /// A reply, or none in time. A reply after that changes nothing.
    pub(super) fn reply_once(&mut self, request: Request, now: Moment, reply: Option<Reply>) {
        if self.answered.insert(request.number) {
            self.reply(request.sent, now, request.body, reply);
        }
    }

    fn reply(&mut self, sent: Moment, now: Moment, body: Body, reply: Option<Reply>) {
        match (body, reply) {
            (Body::Beat, reply) => {
                self.pending.beat = false;
                if let Some(Reply::Position(position)) = reply {
                    let sent = if self.breaks(Mutation::FreshFromReply) { now } else { sent };
                    if !self.liveness.beat_stored(sent, position) {
                        self.disconnected();
                    }
                    if self.breaks(Mutation::FreshWithoutWatch) {
                        self.liveness.processed(position);
                    }
                }
            }
            // Its claim is gone.
            (Body::Release(_), _) => {}
            (Body::Lease(_), reply) => self.lease_reply(sent, now, reply),
            (Body::Escrow(request), reply) => self.ledger_reply(sent, now, request, reply),
        }
    }

    fn lease_reply(&mut self, sent: Moment, now: Moment, reply: Option<Reply>) {
        self.pending.lease = false;
        match reply {
            Some(Reply::Record(record)) => {
                let record = record.as_ref().and_then(|(value, revision)| Some((holder(value)?, *revision)));
                self.queue = record.as_ref().map(|(_, revision)| *revision);
                self.lease.read(now, record.as_ref().map(|(holder, revision)| (holder, *revision)));
            }
            Some(Reply::Written(written)) => {
                let sent = if self.breaks(Mutation::LeaseFromReply) { now } else { sent };
                self.lease.written(sent, written);
            }
            Some(Reply::Position(_)) => {}
            None => self.lease.written(sent, Written::Unknown),
        }
    }

    fn ledger_reply(&mut self, sent: Moment, now: Moment, request: EscrowRequest, reply: Option<Reply>) {
        self.pending.escrow = false;
        match (request, reply) {
            (EscrowRequest::Read, Some(Reply::Record(record))) => {
                let lent = record.and_then(|(value, revision)| match value {
                    Value::Lent(lent) => Some((lent, revision)),
                    _ => None,
                });
                self.escrow.read(now, lent);
            }
            (EscrowRequest::Read, _) => self.escrow.read_failed(),
            (EscrowRequest::Write { .. }, Some(Reply::Written(written))) => {
                self.escrow.written(sent, now, written);
            }
            (EscrowRequest::Write { chunk, returned, .. }, _) => {
                let written = match chunk {
                    1.. if self.breaks(Mutation::SpentUnknown) => Written::Stored(Revision(0)),
                    _ => Written::Unknown,
                };
                self.escrow.written(sent, now, written);
                if self.breaks(Mutation::SpentReturned) {
                    self.escrow.put_back(now, returned);
                }
            }
        }
    }

    /// The watch shows a record.
    pub(super) fn seen(&mut self, now: Moment, key: Key, value: Option<&Value>) {
        match (key, value) {
            (Key::Epoch, Some(Value::Epoch(number, of))) => {
                let epoch = Epoch { number: *number, digest: digest(*of) };
                let step = self.epochs.judge(Some(&epoch));
                self.went_back = matches!(step, EpochStep::WentBack(_));
                if !self.went_back {
                    self.disk.epoch = Some(epoch.clone());
                    self.applied = Some(epoch.number);
                    self.epochs.record(epoch);
                }
            }
            (Key::Beat(of), Some(Value::Beat(incarnation))) => {
                let beat = Beat {
                    incarnation: incarnation.to_string(),
                    epoch: self.applied.unwrap_or(0),
                    accepts_calls: true,
                };
                self.liveness.beat_seen(now, &of.to_string(), beat);
            }
            _ => {}
        }
    }

    pub(super) fn processed(&mut self, position: u64) {
        self.watched = position;
        self.liveness.processed(position);
    }

    /// The connection broke. The watch begins anew, and what was sent has no reply.
    pub(super) fn disconnected(&mut self) {
        self.watched = 0;
        self.liveness.reset();
    }
}

fn claim(name: usize, nonce: u64) -> LeaseClaim {
    LeaseClaim::new(Holder { replica: name.to_string(), nonce: nonce.to_string() }, LEASE_TTL)
}

fn holder(value: &Value) -> Option<Holder> {
    match value {
        Value::Holder(replica, nonce) => {
            Some(Holder { replica: replica.to_string(), nonce: nonce.to_string() })
        }
        _ => None,
    }
}
