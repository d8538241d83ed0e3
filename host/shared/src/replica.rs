//! A replica: carries out what the machines of [`crate::protocol`] decide, and gives the host its ports.

mod contact;
mod leases;
mod ledger;

use std::sync::Arc;
use std::time::Duration;

use toolbay_core::call::shared::{SharedState, SharedStatus};
use toolbay_core::session::output_store::OutputQuota;

use crate::audit::AuditStream;
use crate::nats::{Bucket, Connection, ConnectionError, ReadError};
use crate::storage::{
    NatsApprovals, NatsAttachmentStore, NatsCallKeys, NatsKvStore, NatsOutputStore, NatsTaskStore,
};
use contact::Contact;
pub use contact::ContactObserver;
use leases::NatsLeases;
pub use leases::held_queues;
use ledger::NatsLedger;
pub use ledger::{LentBudget, MAX_LENT_BUDGETS, lent_budgets};

/// The reason why queues and budgets are not known.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// The bucket cannot be opened.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The store does not answer, or a record is damaged.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// The settings of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaSettings {
    /// The name of the replica. No two that run have the same.
    pub name: String,
    /// How long a replica accepts calls without contact with the store.
    pub stale_after: Duration,
    /// How long a call waits for the lease of a serial queue.
    pub queue_timeout: Duration,
    /// How long a standing approval lasts.
    pub approval_life: Duration,
}

/// A replica that is connected. Dropping it ends its tasks; the others notice after `stale_after`.
#[derive(Debug)]
pub struct Replica {
    name: String,
    connection: Connection,
    contact: Contact,
    ledger: Arc<NatsLedger>,
    leases: Arc<NatsLeases>,
    approvals: Arc<NatsApprovals>,
    calls: Arc<NatsCallKeys>,
    tasks: Arc<NatsTaskStore>,
    attachments: Arc<NatsAttachmentStore>,
}

impl Replica {
    /// Opens the buckets and begins to beat.
    ///
    /// # Errors
    /// A bucket cannot be opened.
    pub async fn start(
        connection: Connection,
        settings: ReplicaSettings,
        observer: Arc<dyn ContactObserver>,
    ) -> Result<Self, ConnectionError> {
        let (ledger, leases) =
            (connection.records(Bucket::Ledger).await?, connection.records(Bucket::Leases).await?);
        let epochs = connection.records(Bucket::Epochs).await?;
        let (calls, results) =
            (connection.records(Bucket::Calls).await?, connection.objects(Bucket::Results).await?);
        let contact = Contact::start(epochs, connection.connections(), &settings, observer);
        let ledger = NatsLedger::start(ledger, contact.roster());
        let leases = NatsLeases::new(leases, &settings);
        let approvals = NatsApprovals::new(calls.clone(), settings.approval_life);
        let keys = NatsCallKeys::new(calls.clone(), contact.clock(), contact.roster());
        let attachments = NatsAttachmentStore::new(calls.clone(), results.clone(), contact.clock());
        let tasks = NatsTaskStore::start(calls, results, contact.clock(), contact.roster());
        Ok(Self {
            name: settings.name,
            connection,
            contact,
            ledger,
            leases: Arc::new(leases),
            approvals: Arc::new(approvals),
            calls: Arc::new(keys),
            tasks: Arc::new(tasks),
            attachments: Arc::new(attachments),
        })
    }

    /// The ports for the host.
    #[must_use]
    pub fn shared_state(&self) -> SharedState {
        SharedState {
            heartbeat: self.contact.heartbeat(),
            leases: Arc::clone(&self.leases) as _,
            ledger: Arc::clone(&self.ledger) as _,
            approvals: Arc::clone(&self.approvals) as _,
            calls: Arc::clone(&self.calls) as _,
            tasks: Arc::clone(&self.tasks) as _,
            attachments: Arc::clone(&self.attachments) as _,
        }
    }

    /// The storage of plugins.
    #[must_use]
    pub fn kv_store(&self) -> NatsKvStore {
        NatsKvStore::new(self.connection.clone(), self.contact.clock())
    }

    /// The saved outputs of sessions.
    ///
    /// # Errors
    /// Fails if the buckets of the outputs cannot be opened.
    pub async fn output_store(&self, quota: OutputQuota) -> Result<NatsOutputStore, ConnectionError> {
        let (lists, texts) = self.connection.outputs().await?;
        Ok(NatsOutputStore::new(lists, texts, self.contact.clock(), quota))
    }

    /// The stream of audit lines, for those of this replica.
    ///
    /// # Errors
    /// Fails if the stream cannot be opened.
    pub async fn audit_stream(&self) -> Result<AuditStream, ConnectionError> {
        AuditStream::open(&self.connection, &self.name).await
    }

    /// What this replica knows about itself and the others.
    #[must_use]
    pub fn status(&self) -> SharedStatus {
        self.shared_state().status()
    }

    /// Waits until the replica is fresh.
    pub async fn ready(&self) {
        self.contact.ready().await;
    }

    /// Gives back what the replica borrowed, tells the others that it ends, and closes the connection.
    pub async fn shut_down(self) {
        self.ledger.drain().await;
        self.contact.leave().await;
        self.connection.close().await;
    }
}
