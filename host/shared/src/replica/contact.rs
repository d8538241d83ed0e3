//! The contact with the other replicas: beats, watches the epochs and the other heartbeats, and refuses calls while a
//! revocation could have been missed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_nats::jetstream::kv::{Entry, Watch};
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, OptionFuture};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use toolbay_core::call::shared::{Heartbeat, LostContact, SharedStatus};

use super::ReplicaSettings;

use crate::clock::{StoreClock, as_micros, now, random_name};
use crate::nats::{Records, decode, encode};
use crate::protocol::epoch::{Epoch, EpochLog, EpochStep};
use crate::protocol::liveness::{Beat, Liveness};
use crate::protocol::{Moment, Revision};
use crate::publication::{BEAT, EPOCH};
use crate::roster::Roster;

/// How long the heartbeat of a replica that died stays in the store.
const BEAT_LIFE: Duration = Duration::from_secs(3600);
/// The pause before a watch that failed begins again.
const PAUSE: Duration = Duration::from_millis(200);
/// The pause before an epoch that could not be applied is tried again: the store, or what the epoch needs here, may be back.
const RETRY: Duration = Duration::from_secs(5);
/// How often calls without contact are looked for. Each host call of a guest looks, too.
const LOOK: Duration = Duration::from_millis(100);

/// Applies what the shared state says.
pub trait ContactObserver: Send + Sync + fmt::Debug {
    /// The highest epoch on this replica's disk.
    fn persisted_epoch(&self) -> Option<Epoch>;

    /// Persists an epoch, and then applies it. Until it has ended, later entries do not count. `superseded` is cancelled when there is
    /// a newer epoch: what has not begun to apply is not worth any more time. An error is tried again while there is none.
    fn apply(&self, epoch: Epoch, superseded: CancellationToken) -> BoxFuture<'_, Result<(), String>>;

    /// Calls are refused from now on: cancel those that run. Called again and again until the contact is back.
    fn lost(&self);
}

/// The contact of a replica.
#[derive(Debug)]
pub(super) struct Contact {
    state: Arc<ContactState>,
    records: Records,
    key: String,
    changes: watch::Receiver<()>,
    /// They end with this value.
    _tasks: [AbortOnDropHandle<()>; 2],
}

#[derive(Debug)]
struct ContactState {
    /// Until when the replica is fresh, in microseconds of its clock.
    fresh_until: AtomicU64,
    stale_after: Duration,
    /// Why calls are refused although the replica is fresh.
    refusal: Mutex<Option<LostContact>>,
    is_refusing: AtomicBool,
    losses: AtomicU64,
    clock: StoreClock,
    roster: Roster,
    status: Mutex<SharedStatus>,
}

impl Heartbeat for ContactState {
    fn check(&self) -> Result<(), LostContact> {
        if self.is_refusing.load(Ordering::Acquire)
            && let Some(refusal) = &*self.refusal.lock()
        {
            return Err(refusal.clone());
        }
        if as_micros(now()) < self.fresh_until.load(Ordering::Acquire) {
            return Ok(());
        }
        let seconds = self.stale_after.as_secs_f64();
        Err(LostContact {
            reason: format!("this server has had no contact with the shared state for {seconds} s").into(),
            hint: Some("check NATS, the network to it, and `[shared] stale_after`".into()),
        })
    }

    fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    fn replica_count(&self) -> usize {
        self.roster.len()
    }

    fn status(&self) -> SharedStatus {
        let refusing = self.check().err().map(|lost| lost.to_string());
        SharedStatus { refusing, ..self.status.lock().clone() }
    }
}

impl Contact {
    /// Begins to beat and to watch.
    pub(super) fn start(
        records: Records,
        connections: watch::Receiver<u64>,
        settings: &ReplicaSettings,
        observer: Arc<dyn ContactObserver>,
    ) -> Self {
        let incarnation = random_name();
        let state = Arc::new(ContactState {
            fresh_until: AtomicU64::new(0),
            stale_after: settings.stale_after,
            refusal: Mutex::new(None),
            is_refusing: false.into(),
            losses: AtomicU64::new(0),
            clock: StoreClock::default(),
            roster: Roster::new(&settings.name, &incarnation),
            status: Mutex::default(),
        });
        let key = format!("{BEAT}{}", encode(&settings.name));
        let (changed, changes) = watch::channel(());
        let follower = Follower {
            liveness: Liveness::new(&settings.name, &incarnation, settings.stale_after),
            epochs: EpochLog::new(observer.persisted_epoch()),
            applied: None,
            applying: None,
            newest: None,
            retry: None,
            seen: 0,
            saw_epoch: false,
            problem: None,
            name: settings.name.clone(),
            incarnation,
            key: key.clone(),
            records: records.clone(),
            state: Arc::clone(&state),
            observer: Arc::clone(&observer),
            changed,
        };
        // Owned by the contact, and end with it.
        let following = AbortOnDropHandle::new(tokio::spawn(follower.run(connections)));
        let cancelling =
            AbortOnDropHandle::new(tokio::spawn(cancel_without_contact(Arc::clone(&state), observer)));
        Self { state, records, key, changes, _tasks: [following, cancelling] }
    }

    pub(super) fn heartbeat(&self) -> Arc<dyn Heartbeat> {
        Arc::clone(&self.state) as _
    }

    /// The clock of the store.
    pub(super) fn clock(&self) -> StoreClock {
        self.state.clock.clone()
    }

    /// The processes that are alive.
    pub(super) fn roster(&self) -> Roster {
        self.state.roster.clone()
    }

    /// Waits until calls are accepted.
    pub(super) async fn ready(&self) {
        let mut changes = self.changes.clone();
        while self.state.check().is_err() && changes.changed().await.is_ok() {}
    }

    /// Tells the others that this replica ends.
    pub(super) async fn leave(self) {
        let Self { records, key, .. } = self;
        if let Ok(Some(own)) = records.read::<Beat>(&key).await {
            records.remove(&key, own.revision).await;
        }
    }
}

/// Cancels the calls that run without contact. Those that slip in between the checks are found the next time.
async fn cancel_without_contact(state: Arc<ContactState>, observer: Arc<dyn ContactObserver>) {
    let (mut had_contact, mut was_lost) = (false, false);
    loop {
        tokio::time::sleep(LOOK).await;
        let has_contact = state.check().is_ok();
        if had_contact && !has_contact {
            tracing::warn!("no contact with the shared state: calls are refused");
        }
        if has_contact && was_lost {
            tracing::warn!("the contact with the shared state is back: calls are accepted");
        }
        was_lost = (was_lost || had_contact) && !has_contact;
        had_contact = has_contact;
        if !has_contact {
            observer.lost();
        }
    }
}

/// Follows the stream of epochs and heartbeats.
struct Follower {
    liveness: Liveness,
    epochs: EpochLog,
    applied: Option<u64>,
    /// The epoch that is being applied, beside the watch.
    applying: Option<ApplyingEpoch>,
    /// What the store has had since then: an epoch, or none.
    newest: Option<Option<Epoch>>,
    /// The epoch that could not be applied, and when it is tried again.
    retry: Option<(Moment, Epoch)>,
    /// The position of the last entry that the watch has shown.
    seen: u64,
    /// Whether this watch has shown an epoch.
    saw_epoch: bool,
    /// Why the epoch of the store cannot be in force.
    problem: Option<LostContact>,
    name: String,
    incarnation: String,
    key: String,
    records: Records,
    state: Arc<ContactState>,
    observer: Arc<dyn ContactObserver>,
    changed: watch::Sender<()>,
}

type SentBeat = BoxFuture<'static, (Moment, Option<Revision>)>;

/// An epoch that is being applied.
struct ApplyingEpoch {
    epoch: Epoch,
    superseded: CancellationToken,
    result: BoxFuture<'static, Result<(), String>>,
}

/// The result of the epoch that is being applied; never without one. Dropping the future loses nothing.
async fn applied(applying: &mut Option<ApplyingEpoch>) -> Result<(), String> {
    match applying {
        Some(applying) => (&mut applying.result).await,
        None => std::future::pending().await,
    }
}

impl Follower {
    /// Follows connection after connection, since each may lead to a store that went back.
    async fn run(mut self, mut connections: watch::Receiver<u64>) {
        loop {
            connections.mark_unchanged();
            self.liveness.reset();
            self.state.clock.reset();
            self.saw_epoch = false;
            self.seen = 0;
            let watching = self.records.watch().await;
            match watching {
                Ok(watching) => {
                    tokio::select! {
                        () = self.follow(watching) => {}
                        _ = connections.changed() => continue,
                    }
                }
                Err(error) => tracing::debug!(%error, "the shared state cannot be watched"),
            }
            self.publish();
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Beats and watches until the watch fails.
    async fn follow(&mut self, mut watching: Watch) {
        let mut beat: OptionFuture<SentBeat> = None.into();
        let mut is_beating = false;
        loop {
            let pause = self.liveness.next_beat().saturating_sub(now());
            let retry = self.retry.as_ref().map(|(at, _)| at.saturating_sub(now()));
            tokio::select! {
                result = applied(&mut self.applying) => self.end_applying(result),
                () = tokio::time::sleep(retry.unwrap_or_default()), if retry.is_some() => {
                    if let Some((_, epoch)) = self.retry.take() {
                        self.judge(Some(epoch));
                    }
                }
                () = tokio::time::sleep(pause), if !is_beating => {
                    beat = Some(self.send_beat()).into();
                    is_beating = true;
                }
                Some((sent, stored)) = &mut beat, if is_beating => {
                    is_beating = false;
                    if let Some(Revision(position)) = stored
                        && !self.liveness.beat_stored(sent, position)
                    {
                        tracing::warn!("the shared state has an older history than before");
                        return;
                    }
                }
                entry = watching.next() => match entry {
                    Some(Ok(entry)) => self.process(&entry),
                    Some(Err(error)) => {
                        tracing::debug!(%error, "the watch of the shared state failed");
                        return;
                    }
                    None => return,
                },
            }
            self.publish();
        }
    }

    fn send_beat(&mut self) -> SentBeat {
        let sent = now();
        self.liveness.beat_sent(sent);
        let (records, key) = (self.records.clone(), self.key.clone());
        let value = Beat {
            incarnation: self.incarnation.clone(),
            epoch: self.epochs.highest().map_or(0, |epoch| epoch.number),
            accepts_calls: self.state.check().is_ok(),
        };
        Box::pin(async move { (sent, records.put(&key, &value, BEAT_LIFE).await) })
    }

    fn process(&mut self, entry: &Entry) {
        let written = entry.created.unix_timestamp_nanos() / 1_000_000;
        self.state.clock.seen(i64::try_from(written).unwrap_or(0));
        if entry.key == EPOCH {
            self.process_epoch(entry);
        } else if let Some(name) = entry.key.strip_prefix(BEAT).and_then(decode) {
            match self.records.parse::<Beat>(entry) {
                Ok(Some(beat)) => self.liveness.beat_seen(now(), &name, beat.value),
                Ok(None) => self.liveness.left(&name),
                Err(error) => tracing::warn!(%error, "a heartbeat"),
            }
        }
        // Everything that was there when the watch began has been shown.
        if entry.delta == 0 && !self.saw_epoch {
            self.saw_epoch = true;
            self.judge(None);
        }
        self.seen = self.seen.max(entry.revision);
        self.count_processed();
    }

    /// What the watch has shown is processed, unless an epoch in it is not in force yet.
    fn count_processed(&mut self) {
        if self.applying.is_none() {
            self.liveness.processed(self.seen);
        }
    }

    fn process_epoch(&mut self, entry: &Entry) {
        self.saw_epoch = true;
        match self.records.parse::<Epoch>(entry) {
            Ok(found) => self.judge(found.map(|record| record.value)),
            Err(error) => self.refuse(&error.to_string(), "publish the policy again"),
        }
    }

    /// Judges what the store has. While an epoch is being applied, the newest one waits for its end.
    fn judge(&mut self, found: Option<Epoch>) {
        if let Some(applying) = &self.applying {
            let is_same = found.as_ref() == Some(&applying.epoch);
            if !is_same {
                applying.superseded.cancel();
            }
            self.newest = (!is_same).then_some(found);
            return;
        }
        let is_failed = self.retry.as_ref().is_some_and(|(_, epoch)| found.as_ref() == Some(epoch));
        if is_failed {
            // Another watch shows it again. It is tried at its time.
            return;
        }
        self.retry = None;
        match (self.epochs.judge(found.as_ref()), found) {
            (EpochStep::Apply, Some(epoch)) => self.begin_applying(epoch),
            (EpochStep::Current | EpochStep::Apply, found) => {
                self.applied = found.map(|epoch| epoch.number);
                self.problem = None;
            }
            (EpochStep::WentBack(highest), _) => self.refuse(
                &format!("the shared state went back: this server has seen epoch {}", highest.number),
                "an old copy of NATS was restored: check what was lost, and publish the policy again",
            ),
        }
    }

    /// Applies an epoch beside the watch, so that beats and later entries do not wait for a transfer.
    fn begin_applying(&mut self, epoch: Epoch) {
        let (superseded, observer) = (CancellationToken::new(), Arc::clone(&self.observer));
        let (wanted, cancelled) = (epoch.clone(), superseded.clone());
        let result = Box::pin(async move { observer.apply(wanted, cancelled).await });
        self.applying = Some(ApplyingEpoch { epoch, superseded, result });
    }

    fn end_applying(&mut self, result: Result<(), String>) {
        let Some(ApplyingEpoch { epoch, .. }) = self.applying.take() else { return };
        let newest = self.newest.take();
        match result {
            Ok(()) => {
                self.applied = Some(epoch.number);
                self.epochs.record(epoch);
                self.problem = None;
            }
            // The newer one is judged next.
            Err(_) if newest.is_some() => {}
            Err(problem) => {
                let what = format!("epoch {} cannot be applied: {problem}", epoch.number);
                self.refuse(&what, "publish a policy that this server can apply");
                self.retry = Some((now() + RETRY, epoch));
            }
        }
        if let Some(found) = newest {
            self.judge(found);
        }
        self.count_processed();
    }

    fn refuse(&mut self, reason: &str, hint: &str) {
        if self.problem.as_ref().is_none_or(|problem| *problem.reason != *reason) {
            tracing::error!(reason, "calls are refused");
        }
        self.problem = Some(LostContact { reason: reason.into(), hint: Some(hint.into()) });
    }

    /// Why calls are refused although the replica is fresh.
    fn refusal(&self, now: Moment) -> Option<LostContact> {
        let clash = || LostContact {
            reason: format!("another server runs under the name `{}`", self.name).into(),
            hint: Some("give each server another name with `--replica`".into()),
        };
        let is_late = |_: &&ApplyingEpoch| !self.liveness.is_fresh(now);
        let applying = |applying: &ApplyingEpoch| LostContact {
            reason: format!("epoch {} of the policy is not in force here yet", applying.epoch.number).into(),
            hint: Some("its files are still being read from NATS, or applied".into()),
        };
        let late = || self.applying.as_ref().filter(is_late).map(applying);
        self.liveness.has_clash(now).then(clash).or_else(|| self.problem.clone()).or_else(late)
    }

    /// Shows the host what is known now.
    fn publish(&self) {
        let now = now();
        let refusal = self.refusal(now);
        let until = self.liveness.fresh_until().map_or(0, as_micros);
        let before = self.state.fresh_until.load(Ordering::Acquire);
        let has_lapsed = before != 0 && as_micros(now) >= before && until > before;
        let is_refused_anew = refusal.is_some() && !self.state.is_refusing.load(Ordering::Acquire);
        if has_lapsed || is_refused_anew {
            // Before the contact is back for the calls that it left behind.
            self.state.losses.fetch_add(1, Ordering::AcqRel);
        }
        self.state.is_refusing.store(refusal.is_some(), Ordering::Release);
        *self.state.refusal.lock() = refusal;
        self.state.fresh_until.store(until, Ordering::Release);
        let peers = self.liveness.peers(now);
        let (others, incarnations): (BTreeMap<_, _>, BTreeMap<_, _>) = peers
            .map(|(name, beat)| ((name.to_owned(), beat.epoch), (name.to_owned(), beat.incarnation.clone())))
            .unzip();
        self.state.roster.set_peers(incarnations);
        *self.state.status.lock() =
            SharedStatus { name: self.name.clone(), epoch: self.applied, others, ..SharedStatus::default() };
        // Those who wait look again.
        self.changed.send_replace(());
    }
}
