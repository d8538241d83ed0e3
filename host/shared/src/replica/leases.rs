//! The leases of serial queues.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use toolbay_core::call::shared::{Lease, LeaseError, Leases};
use toolbay_policy::quantity;

use super::{ReplicaSettings, StatusError};
use crate::clock::{as_micros, now, random_name};
use crate::nats::{Bucket, Connection, Records, decode, encode};
use crate::protocol::Written;
use crate::protocol::lease::{Holder, LEASE_TTL, LeaseClaim, LeaseRequest, LeaseStep};

/// The pause before a waiting call looks again.
const LOOK: Duration = Duration::from_millis(100);

/// The leases of a replica.
#[derive(Debug)]
pub(super) struct NatsLeases {
    records: Records,
    replica: String,
    patience: Duration,
    held: Arc<AtomicUsize>,
}

/// A lease that this replica has.
#[derive(Debug)]
struct HeldLease {
    /// Until when the replica may act, in microseconds of its clock; zero once it is released.
    until: AtomicU64,
    claim: Mutex<Option<LeaseClaim>>,
    records: Records,
    key: String,
    cancel: CancellationToken,
    /// The number of leases of this replica.
    held: Arc<AtomicUsize>,
    /// Ends with the lease.
    renewing: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl NatsLeases {
    pub(super) fn new(records: Records, settings: &ReplicaSettings) -> Self {
        Self {
            records,
            replica: settings.name.clone(),
            patience: settings.queue_timeout,
            held: Arc::default(),
        }
    }

    async fn claim(&self, queue: &str) -> LeaseClaim {
        let own = Holder { replica: self.replica.clone(), nonce: random_name() };
        let (mut claim, key) = (LeaseClaim::new(own, LEASE_TTL), encode(queue));
        loop {
            match claim.pursue(now()) {
                LeaseStep::Held => return claim,
                LeaseStep::Ask(request) => send(&self.records, &key, &mut claim, request).await,
                LeaseStep::Wait(_) => {
                    tokio::time::sleep(LOOK).await;
                    send(&self.records, &key, &mut claim, LeaseRequest::Read).await;
                }
            }
        }
    }

    fn hold(&self, queue: &str, claim: LeaseClaim, cancel: &CancellationToken) -> Arc<HeldLease> {
        self.held.fetch_add(1, Ordering::Relaxed);
        let lease = Arc::new(HeldLease {
            held: Arc::clone(&self.held),
            until: AtomicU64::new(claim.held_until().map_or(0, as_micros)),
            claim: Mutex::new(Some(claim)),
            records: self.records.clone(),
            key: encode(queue),
            cancel: cancel.clone(),
            renewing: Mutex::default(),
        });
        let renewing = AbortOnDropHandle::new(tokio::spawn(renew(Arc::downgrade(&lease))));
        *lease.renewing.lock() = Some(renewing);
        lease
    }
}

/// The replica that has the lease of each queue. A lease of a replica that died is shown until another one takes it.
///
/// # Errors
/// The bucket cannot be opened or read.
pub async fn held_queues(connection: &Connection) -> Result<BTreeMap<String, String>, StatusError> {
    let records = connection.records(Bucket::Leases).await?;
    let mut queues = BTreeMap::new();
    for key in records.keys("").await? {
        let Some(queue) = decode(&key) else { continue };
        if let Some(holder) = records.read::<Holder>(&key).await? {
            queues.insert(queue, holder.value.replica);
        }
    }
    Ok(queues)
}

/// Sends a request and passes on the reply.
async fn send(records: &Records, key: &str, claim: &mut LeaseClaim, request: LeaseRequest) {
    let sent = now();
    match request {
        LeaseRequest::Read => match records.read::<Holder>(key).await {
            Ok(found) => {
                let found = found.as_ref().map(|record| (&record.value, record.revision));
                claim.read(now(), found);
            }
            Err(error) => {
                tracing::debug!(%error, key, "a lease cannot be read");
                claim.read_failed();
                tokio::time::sleep(LOOK).await;
            }
        },
        LeaseRequest::Write(expected) => {
            let written = records.write(key, expected, claim.holder()).await;
            claim.written(sent, written);
            if written != Written::Conflict {
                return;
            }
            tokio::time::sleep(LOOK / 4).await;
        }
    }
}

/// Renews a lease until it is released or lost.
async fn renew(lease: std::sync::Weak<HeldLease>) {
    loop {
        let Some(held) = lease.upgrade() else { return };
        let due = held.claim.lock().as_ref().and_then(LeaseClaim::next_renewal);
        let Some(due) = due.filter(|_| held.is_held()) else {
            // It is lost, or it was released and nobody asks any more.
            return held.cancel_if_lost();
        };
        drop(held);
        tokio::time::sleep(due.saturating_sub(now()).max(LOOK / 4)).await;
        let Some(held) = lease.upgrade() else { return };
        held.renew_once().await;
    }
}

impl HeldLease {
    async fn renew_once(&self) {
        // Taken out while the request is on its way; a release meanwhile finds nothing to remove, and the others wait.
        let Some(mut claim) = self.claim.lock().take() else { return };
        if let Some(request) = claim.renew(now()) {
            send(&self.records, &self.key, &mut claim, request).await;
        }
        let until = claim.held_until().map_or(1, as_micros);
        let renewed = |before: u64| (before != 0).then_some(until);
        if self.until.fetch_update(Ordering::AcqRel, Ordering::Acquire, renewed).is_ok() {
            *self.claim.lock() = Some(claim);
        } else if let Some(revision) = claim.release() {
            // It was released meanwhile.
            self.records.remove(&self.key, revision).await;
        }
    }

    fn cancel_if_lost(&self) {
        if self.until.load(Ordering::Acquire) != 0 {
            tracing::warn!(queue = self.key, "the lease of a serial queue is lost: its call is cancelled");
            self.cancel.cancel();
        }
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.held.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lease for HeldLease {
    fn is_held(&self) -> bool {
        as_micros(now()) < self.until.load(Ordering::Acquire)
    }

    fn release(&self) {
        self.until.store(0, Ordering::Release);
        let Some(revision) = self.claim.lock().take().and_then(LeaseClaim::release) else { return };
        let (records, key) = (self.records.clone(), self.key.clone());
        // Ends after one request. Without it, the next holder waits for the end of the lease.
        tokio::spawn(async move { records.remove(&key, revision).await });
    }
}

impl Leases for NatsLeases {
    fn acquire<'a>(
        &'a self,
        queue: &'a str,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Arc<dyn Lease>, LeaseError>> {
        Box::pin(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => Err(LeaseError::Cancelled),
                claim = tokio::time::timeout(self.patience, self.claim(queue)) => match claim {
                    Ok(claim) => Ok(self.hold(queue, claim, cancel) as Arc<dyn Lease>),
                    Err(_) => {
                        let waited = quantity::show_duration(self.patience);
                        Err(LeaseError::Busy(format!(
                            "busy: another server runs calls of `{queue}`, and this one got no turn within {waited}"
                        )))
                    }
                },
            }
        })
    }

    fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}
