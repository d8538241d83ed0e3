//! The world of one seed: replicas with their clocks, the store, what is on its way, and the truth.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use toolbay_shared::protocol::escrow::EscrowRequest;
use toolbay_shared::protocol::lease::LeaseRequest;
use toolbay_shared::protocol::{Moment, Revision};

use super::network::{Body, Event, Fault, Request, TIMEOUT};
use super::random::Random;
use super::replica::{Currency, Deeds, Disk, MOST_COST, Replica, Reply, STALE_AFTER};
use super::rules::Rules;
use super::store::{Key, Millis, Store, Value};

const REPLICAS: usize = 3;
/// Faults happen before this time.
const CALM_AT: Millis = 16_000;
const END: Millis = 26_000;
/// The time between two looks of a replica at its clock.
const TICK: Millis = 60;
/// A clock gains or loses at most this many parts in a hundred thousand: 0.1 %.
const MOST_SKEW: u64 = 100;
const HOUR: u64 = 3_600_000;

/// The clock of one replica.
#[derive(Debug, Clone, Copy)]
struct Clock {
    offset: u64,
    /// The rate, in parts of a hundred thousand.
    rate: u64,
}

impl Clock {
    fn at(self, now: Millis) -> Moment {
        Duration::from_micros(
            (self.offset + now) * 1000 / 100_000 * self.rate
                + (self.offset + now) * 1000 % 100_000 * self.rate / 100_000,
        )
    }
}

/// A place for a replica, with what its machine has.
struct Machine {
    clock: Clock,
    replica: Option<Replica>,
    disk: Disk,
    paused: bool,
    partitioned: bool,
    connection: u64,
    incarnations: u64,
    /// The highest epoch that was ever in force here.
    highest: u64,
    /// Whether a lease of the store was acted under since the calm began.
    served: bool,
}

pub(super) struct World {
    now: Millis,
    random: Random,
    rules: Rules,
    events: BinaryHeap<Reverse<(Millis, u64, usize)>>,
    scheduled: Vec<Option<Event>>,
    machines: Vec<Machine>,
    store: Store,
    /// What the store streamed: position, key and value.
    log: Vec<(u64, Key, Option<Value>)>,
    copy: Option<Store>,
    has_leader: bool,
    calm: bool,
    rolled_back: bool,
    /// Whether this seed may restore an old copy.
    may_roll_back: bool,
    currency: Currency,
    cap: u64,
    requests: u64,
    truth: Truth,
}

/// What happened.
#[derive(Debug, Default)]
struct Truth {
    /// Units that were spent since the store has the account.
    spent: u64,
    /// Calls that may have exceeded the budget: each replica, and each that died.
    overshoots: u64,
    /// When each epoch was published, from the first.
    published: Vec<Millis>,
    /// What was spent after all faults had ended.
    spent_in_calm: u64,
}

type Checked = Result<(), String>;

impl World {
    pub(super) fn new(seed: u64, rules: Rules) -> Self {
        let mut random = Random::new(seed);
        let machines = (0..REPLICAS).map(|_| Machine {
            clock: Clock {
                offset: random.below(HOUR),
                rate: 100_000 - MOST_SKEW + random.below(2 * MOST_SKEW),
            },
            replica: None,
            disk: Disk::default(),
            paused: false,
            partitioned: false,
            connection: 0,
            incarnations: 0,
            highest: 0,
            served: false,
        });
        let machines = machines.collect();
        let (may_roll_back, is_cost) = (random.chance(25), random.chance(30));
        let cap = random.between(10, 120);
        let mut world = Self {
            now: 0,
            random,
            rules,
            events: BinaryHeap::new(),
            scheduled: Vec::new(),
            machines,
            store: Store::default(),
            log: Vec::new(),
            copy: None,
            has_leader: true,
            calm: false,
            rolled_back: false,
            may_roll_back,
            currency: if is_cost { Currency::Cost } else { Currency::Calls },
            cap,
            requests: 0,
            truth: Truth { overshoots: REPLICAS as u64, ..Truth::default() },
        };
        world.publish();
        (0..REPLICAS).for_each(|at| world.start(at));
        world.plan_faults();
        world
    }

    fn schedule(&mut self, after: Millis, event: Event) {
        let at = self.scheduled.len();
        self.scheduled.push(Some(event));
        self.events.push(Reverse((self.now + after, at as u64, at)));
    }

    fn plan_faults(&mut self) {
        for _ in 0..self.random.between(4, 16) {
            let (start, at) =
                (self.random.below(CALM_AT - 1_000), self.random.below(REPLICAS as u64) as usize);
            let lasts = self.random.between(50, 4_000);
            let (begin, end) = match self.random.below(8) {
                0 => (Fault::Kill(at), Some(Fault::Restart(at))),
                1 | 2 => (Fault::Pause(at), Some(Fault::Resume(at))),
                3 | 4 => (Fault::Partition(at), Some(Fault::Heal(at))),
                5 => (Fault::LoseLeader, Some(Fault::ElectLeader)),
                6 if self.may_roll_back => (Fault::RollBack, None),
                _ => (Fault::Publish, None),
            };
            self.schedule(start, Event::Fault(begin));
            if let Some(end) = end {
                self.schedule(start + lasts, Event::Fault(end));
            }
        }
        self.schedule(CALM_AT, Event::Fault(Fault::Calm));
    }

    fn start(&mut self, at: usize) {
        let (currency, cap, rules) = (self.currency, self.cap, self.rules);
        let machine = &mut self.machines[at];
        if machine.replica.is_some() {
            return;
        }
        machine.incarnations += 1;
        machine.connection += 1;
        machine.paused = false;
        let incarnation = at as u64 * 1_000 + machine.incarnations;
        machine.replica = Some(Replica::new(at, incarnation, machine.disk.clone(), currency, cap, rules));
        self.schedule(1, Event::Tick(at));
        self.schedule(1, Event::Watch(at));
    }

    /// Runs to the end.
    pub(super) fn run(mut self) -> Checked {
        while let Some(Reverse((time, _, at))) = self.events.pop() {
            if time > END {
                break;
            }
            self.now = time;
            let Some(event) = self.scheduled[at].take() else { continue };
            if self.store.expire(time) {
                self.truth.spent = 0;
            }
            self.handle(event)?;
            self.check_leases()?;
        }
        self.check_progress()
    }

    fn handle(&mut self, event: Event) -> Checked {
        match event {
            Event::Tick(at) => return self.tick(at),
            Event::Watch(at) => return self.watch(at),
            Event::Arrive(request) => self.arrive(request),
            Event::Reply(request, reply) => self.deliver(request, Some(reply)),
            Event::GiveUp(request) => self.deliver(request, None),
            Event::Fault(fault) => self.fail(fault),
        }
        Ok(())
    }

    fn tick(&mut self, at: usize) -> Checked {
        let (now, calm) = (self.now, self.calm);
        let jitter = self.random.below(TICK / 2);
        let machine = &mut self.machines[at];
        let Some(replica) = &mut machine.replica else { return Ok(()) };
        if machine.paused {
            self.schedule(TICK, Event::Tick(at));
            return Ok(());
        }
        let clock = machine.clock.at(now);
        let deeds = replica.tick(clock, &mut self.random, calm);
        machine.served |= calm && replica.may_act(clock);
        let epoch = replica.applied.unwrap_or(0);
        self.judge(at, epoch, &deeds)?;
        let nonce = self.machines[at].replica.as_ref().map_or(0, |replica| replica.nonce);
        for body in deeds.requests {
            self.send(at, clock, nonce, body);
        }
        self.schedule(TICK + jitter, Event::Tick(at));
        Ok(())
    }

    fn send(&mut self, at: usize, sent: Moment, nonce: u64, body: Body) {
        self.requests += 1;
        let machine = &self.machines[at];
        let Some(replica) = &machine.replica else { return };
        let request = Request {
            replica: at,
            incarnation: replica.incarnation,
            connection: machine.connection,
            number: self.requests,
            sent,
            nonce,
            body,
        };
        self.schedule(TIMEOUT, Event::GiveUp(request));
        if !self.is_lost() {
            let delay = self.delay();
            self.schedule(delay, Event::Arrive(request));
        }
        if !self.calm && self.random.chance(3) {
            let delay = self.delay();
            self.schedule(delay, Event::Arrive(request));
        }
    }

    fn is_lost(&mut self) -> bool {
        !self.calm && self.random.chance(4)
    }

    fn delay(&mut self) -> Millis {
        match !self.calm && self.random.chance(6) {
            true => self.random.between(100, 3_000),
            false => self.random.between(1, 30),
        }
    }

    fn arrive(&mut self, request: Request) {
        let machine = &self.machines[request.replica];
        if !self.has_leader || machine.partitioned || machine.connection != request.connection {
            return;
        }
        let reply = self.answer(&request);
        if !self.is_lost() {
            let delay = self.delay();
            self.schedule(delay, Event::Reply(request, reply));
        }
    }

    fn answer(&mut self, request: &Request) -> Reply {
        let at = request.replica;
        match request.body {
            Body::Beat => Reply::Position(self.put(Key::Beat(at), Value::Beat(request.incarnation)).0),
            Body::Lease(LeaseRequest::Read) => self.record(Key::Queue),
            Body::Lease(LeaseRequest::Write(expected)) => {
                self.write(Key::Queue, expected, Value::Holder(at, request.nonce))
            }
            Body::Release(expected) => Reply::Written(self.store.remove(Key::Queue, expected)),
            Body::Escrow(EscrowRequest::Read) => self.record(Key::Account),
            Body::Escrow(EscrowRequest::Write { lent, revision, .. }) => {
                self.write(Key::Account, revision, Value::Lent(lent))
            }
        }
    }

    fn record(&self, key: Key) -> Reply {
        Reply::Record(self.store.read(key).map(|(value, revision)| (value.clone(), revision)))
    }

    fn write(&mut self, key: Key, expected: Option<Revision>, value: Value) -> Reply {
        Reply::Written(self.store.write(self.now, key, expected, value))
    }

    /// Writes into the stream that replicas watch.
    fn put(&mut self, key: Key, value: Value) -> Revision {
        let revision = self.store.put(self.now, key, value.clone());
        self.log.push((revision.0, key, Some(value)));
        revision
    }

    fn deliver(&mut self, request: Request, reply: Option<Reply>) {
        let now = self.now;
        let machine = &mut self.machines[request.replica];
        let Some(replica) =
            machine.replica.as_mut().filter(|replica| replica.incarnation == request.incarnation)
        else {
            return;
        };
        if machine.paused {
            self.schedule(
                40,
                match reply {
                    Some(reply) => Event::Reply(request, reply),
                    None => Event::GiveUp(request),
                },
            );
            return;
        }
        let connected = !machine.partitioned && machine.connection == request.connection;
        if reply.is_some() && !connected {
            return;
        }
        replica.reply_once(request, machine.clock.at(now), reply);
    }

    /// Streams what the store has to a replica, some of it at a time.
    fn watch(&mut self, at: usize) -> Checked {
        let wait = 20 + self.delay();
        self.schedule(wait, Event::Watch(at));
        let last = self.store.last();
        let upto = last - self.random.below(4).min(last);
        let machine = &mut self.machines[at];
        let Some(replica) = &mut machine.replica else { return Ok(()) };
        if machine.paused || machine.partitioned || !self.has_leader {
            return Ok(());
        }
        let clock = machine.clock.at(self.now);
        if replica.watched == 0 {
            for (key, value, _) in self.store.records() {
                replica.seen(clock, key, Some(value));
            }
            replica.processed(last);
        } else if upto > replica.watched {
            let from = self.log.partition_point(|(position, ..)| *position <= replica.watched);
            for (_, key, value) in self.log[from..].iter().take_while(|(position, ..)| *position <= upto) {
                replica.seen(clock, *key, value.as_ref());
            }
            replica.processed(upto);
        }
        machine.disk = replica.disk.clone();
        if let Some(applied) = replica.applied {
            if applied < machine.highest {
                return Err(format!("replica {at} went back from epoch {} to {applied}", machine.highest));
            }
            machine.highest = applied;
        }
        Ok(())
    }

    fn publish(&mut self) {
        let number = match self.store.read(Key::Epoch) {
            Some((Value::Epoch(number, _), _)) => number + 1,
            _ => 1,
        };
        let of = self.random.below(u64::MAX);
        self.put(Key::Epoch, Value::Epoch(number, of));
        self.truth.published.push(self.now);
    }

    fn fail(&mut self, fault: Fault) {
        if self.calm {
            return;
        }
        match fault {
            Fault::Kill(at) => {
                let machine = &mut self.machines[at];
                self.truth.overshoots += u64::from(machine.replica.take().is_some());
            }
            Fault::Restart(at) => self.start(at),
            Fault::Pause(at) => self.machines[at].paused = true,
            Fault::Resume(at) => self.machines[at].paused = false,
            Fault::Partition(at) => self.machines[at].partitioned = true,
            Fault::Heal(at) => self.reconnect(at),
            Fault::LoseLeader => {
                self.has_leader = false;
                self.copy.get_or_insert(self.store.clone());
            }
            Fault::ElectLeader => self.has_leader = true,
            Fault::RollBack => self.roll_back(),
            Fault::Publish => {
                if self.has_leader {
                    self.publish();
                }
            }
            Fault::Calm => self.begin_calm(),
        }
    }

    fn reconnect(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        machine.partitioned = false;
        machine.connection += 1;
        if let Some(replica) = &mut machine.replica {
            replica.disconnected();
        }
    }

    fn roll_back(&mut self) {
        let Some(copy) = self.copy.take() else {
            self.copy = Some(self.store.clone());
            return;
        };
        self.store = copy;
        self.log.clear();
        self.rolled_back = true;
        (0..REPLICAS).for_each(|at| self.reconnect(at));
    }

    fn begin_calm(&mut self) {
        self.has_leader = true;
        for at in 0..REPLICAS {
            self.machines[at].paused = false;
            self.reconnect(at);
            self.start(at);
        }
        // An epoch beyond all that were seen ends the refusals after an old copy was restored.
        let highest = self.machines.iter().map(|machine| machine.highest).max().unwrap_or(0);
        let of = self.random.below(u64::MAX);
        self.put(Key::Epoch, Value::Epoch(highest + 1, of));
        self.truth.published = vec![self.now; usize::try_from(highest).unwrap_or(0) + 1];
        self.calm = true;
    }

    /// Compares what a replica did with the truth.
    fn judge(&mut self, at: usize, epoch: u64, deeds: &Deeds) -> Checked {
        self.truth.spent += deeds.spent;
        self.truth.spent_in_calm += if self.calm { deeds.spent } else { 0 };
        if self.rolled_back {
            return Ok(());
        }
        let beyond = match self.currency {
            Currency::Calls => 0,
            Currency::Cost => self.truth.overshoots * (MOST_COST - 1),
        };
        let (spent, cap) = (self.truth.spent, self.cap);
        if spent > cap + beyond {
            return Err(format!(
                "the budget is {cap}, and {spent} were spent (replica {at}, {} ms)",
                self.now
            ));
        }
        let newer = self.truth.published.get(usize::try_from(epoch).unwrap_or(0));
        let latest = STALE_AFTER.as_millis() as u64 * 1_002 / 1_000 + 1;
        match newer {
            Some(published) if deeds.began && self.now > published + latest => Err(format!(
                "a call began on replica {at} at {} ms under epoch {epoch}, which was revoked at {published} ms",
                self.now
            )),
            _ => Ok(()),
        }
    }

    fn check_leases(&self) -> Checked {
        if self.rolled_back {
            return Ok(());
        }
        let acts = |machine: &&Machine| {
            let clock = machine.clock.at(self.now);
            !machine.paused && machine.replica.as_ref().is_some_and(|replica| replica.may_act(clock))
        };
        match self.machines.iter().filter(acts).count() {
            0 | 1 => Ok(()),
            _ => Err(format!("two replicas act for the queue at {} ms", self.now)),
        }
    }

    /// After all faults have ended, everything works.
    fn check_progress(&self) -> Checked {
        for machine in &self.machines {
            let open =
                machine.replica.as_ref().is_some_and(|replica| replica.is_open(machine.clock.at(self.now)));
            if !open {
                return Err("a replica stays closed after all faults have ended".to_owned());
            }
        }
        if self.truth.spent_in_calm == 0 {
            return Err("nothing can be spent after all faults have ended".to_owned());
        }
        match self.machines.iter().any(|machine| machine.served) {
            true => Ok(()),
            false => Err("no replica gets the lease after all faults have ended".to_owned()),
        }
    }
}
