//! The ports to the state that several replicas share. A host without replicas has none of them.
//!
//! | port | question |
//! |---|---|
//! | [`Heartbeat`] | would a revocation have reached this replica by now? |
//! | [`Leases`] | which replica runs a call of this serial queue? |
//! | [`Ledger`] | has any replica spent the budget of this session? |
//! | [`Approvals`] | has a person approved such calls for the rest of this session? |
//! | [`CallKeys`] | did a call under this idempotency key begin on any replica? |
//! | [`AttachmentStore`] | which files did tools create for this session? |
//! | [`TaskStore`] | what is the state of a call that outlives its request, on any replica? |

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::idempotency::CallKeys;
use crate::session::attachment_store::AttachmentStore;
use crate::session::ledger::Ledger;
use crate::tool::canonical::Digest;

/// Knows whether this replica is in contact with the others. A replica without contact must neither begin a call nor let one
/// act.
pub trait Heartbeat: Send + Sync + fmt::Debug {
    /// Checks the contact. Every call and every host call of a guest asks, so it must be fast and must not block.
    ///
    /// # Errors
    /// The reason why calls are refused, for models and operators.
    fn check(&self) -> Result<(), LostContact>;

    /// The number of times that the contact was lost. A call that began before the last loss must not act, even if the
    /// contact is back: the replica may have been frozen, so that nothing cancelled the call.
    fn losses(&self) -> u64;

    /// The number of live replicas that this one knows, at least 1 for itself. It must be fast, as [`Heartbeat::check`].
    fn replica_count(&self) -> usize;

    /// The status of this replica and the others. The fields for leases and budgets stay empty: other ports have them.
    fn status(&self) -> SharedStatus;
}

/// The status of the shared state as one replica sees it, for operators.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedStatus {
    /// The name of this replica.
    pub name: String,
    /// Why calls are refused; `None` if they are not.
    pub refusing: Option<String>,
    /// The epoch in force.
    pub epoch: Option<u64>,
    /// The other replicas that are alive, with the highest epoch that each has seen.
    pub others: BTreeMap<String, u64>,
    /// The number of serial queues whose lease this replica has.
    pub queues: usize,
    /// The number of budgets that this replica takes part in.
    pub budgets: usize,
}

/// The reason why a replica without contact refuses calls.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct LostContact {
    /// What is wrong, for models and people.
    pub reason: Arc<str>,
    /// What the operator can do.
    pub hint: Option<Arc<str>>,
}

/// The right to run a call of a serial queue.
pub trait Lease: Send + Sync + fmt::Debug {
    /// Whether the lease is still held. Once it is lost or released, it stays so. Every host call of a guest asks.
    fn is_held(&self) -> bool;

    /// Gives the queue to the next call. It must not block.
    fn release(&self);
}

/// Gives each serial queue to one replica at a time.
pub trait Leases: Send + Sync + fmt::Debug {
    /// Waits for the lease of a queue. The caller releases it. If the lease is lost before that, `cancel` is cancelled.
    ///
    /// # Errors
    /// The store cannot be reached, the wait was too long, or the call was cancelled.
    fn acquire<'a>(
        &'a self,
        queue: &'a str,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Arc<dyn Lease>, LeaseError>>;

    /// The number of leases that this replica has.
    fn held(&self) -> usize;
}

/// The reason why there is no lease.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// Another replica has it. A later attempt may succeed.
    #[error("{0}")]
    Busy(String),
    /// The call was cancelled meanwhile.
    #[error("the call was cancelled before it ran")]
    Cancelled,
}

/// Stores the standing approvals of sessions for all replicas. If an approval is lost, the host asks again.
pub trait Approvals: Send + Sync + fmt::Debug {
    /// Whether the session of this account has the approval. `false` if the store does not answer.
    fn contains<'a>(&'a self, account: &'a str, approval: Digest) -> BoxFuture<'a, bool>;

    /// Adds an approval.
    fn add<'a>(&'a self, account: &'a str, approval: Digest) -> BoxFuture<'a, ()>;
}

/// Stores the tasks of all replicas: calls that outlive their request. The replica that runs a task writes its state. The
/// other replicas send it the messages of their clients.
pub trait TaskStore: Send + Sync + fmt::Debug {
    /// Writes the state of a task of this replica. A final state is never replaced.
    fn put(&self, task: TaskRecord) -> BoxFuture<'_, Result<TaskWrite, TaskStoreError>>;

    /// Writes the final state of a task whose replica has died. Does nothing if its state changed since it was read.
    fn end<'a>(&'a self, task: &'a FoundTask, state: String) -> BoxFuture<'a, Result<(), TaskStoreError>>;

    /// Reads a task of this owner, from any replica. Tasks of other owners count as unknown.
    fn get<'a>(
        &'a self,
        owner: &'a str,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Option<FoundTask>, TaskStoreError>>;

    /// Sends a message to the replica that runs a task.
    fn send<'a>(
        &'a self,
        task: &'a FoundTask,
        message: TaskMessage,
    ) -> BoxFuture<'a, Result<(), TaskStoreError>>;

    /// The next message of another replica to a task of this replica.
    fn receive(&self) -> BoxFuture<'_, (String, TaskMessage)>;
}

/// The state of a task, for the other replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRecord {
    /// The unguessable id.
    pub id: String,
    /// The session that may read it.
    pub owner: Arc<str>,
    /// Its state, as its client sees it: a JSON text.
    pub state: String,
    /// Whether the state is final.
    pub has_ended: bool,
    /// How long the task is kept from now on.
    pub life: Duration,
}

/// The outcome of writing a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskWrite {
    /// The other replicas see the state.
    Stored,
    /// The other replicas have seen another final state, because they took this replica for dead.
    EndedBefore,
}

/// A task that another replica runs, or ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundTask {
    /// The id.
    pub id: String,
    /// The state that its replica wrote last.
    pub state: String,
    /// Whether the state is final.
    pub has_ended: bool,
    /// The replica that runs it.
    pub replica: String,
    /// Whether that replica is alive. If it is not and the task has not ended, the outcome of the call is unknown.
    pub replica_is_alive: bool,
    /// Its revision in the store.
    pub revision: u64,
}

/// A message of a client to a task on another replica.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskMessage {
    /// Whether the client cancels the task.
    #[serde(default)]
    pub cancel: bool,
    /// The client's responses to input requests, by their keys.
    #[serde(default)]
    pub responses: BTreeMap<String, Value>,
}

/// The reason why a task was not written or read: for people and models.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TaskStoreError(pub String);

/// The shared state of a replica.
#[derive(Debug, Clone)]
pub struct SharedState {
    /// The contact with the other replicas.
    pub heartbeat: Arc<dyn Heartbeat>,
    /// The leases of serial queues.
    pub leases: Arc<dyn Leases>,
    /// The budgets of sessions with a name. Other sessions stay on their replica.
    pub ledger: Arc<dyn Ledger>,
    /// The standing approvals of sessions with a name.
    pub approvals: Arc<dyn Approvals>,
    /// The idempotency keys of sessions with a name.
    pub calls: Arc<dyn CallKeys>,
    /// The tasks of sessions with a name.
    pub tasks: Arc<dyn TaskStore>,
    /// The files that tools create for sessions with a name.
    pub attachments: Arc<dyn AttachmentStore>,
}

impl SharedState {
    /// The status of the shared state as this replica sees it.
    #[must_use]
    pub fn status(&self) -> SharedStatus {
        SharedStatus { queues: self.leases.held(), budgets: self.ledger.budgets(), ..self.heartbeat.status() }
    }
}

/// The rights of a running call, which it loses with the contact of its replica or a lease of its own or its callers.
#[derive(Debug, Clone, Default)]
pub struct CallRights {
    heartbeat: Option<(Arc<dyn Heartbeat>, u64)>,
    leases: Vec<Arc<dyn Lease>>,
}

impl CallRights {
    /// The rights of a call on a replica with shared state.
    pub(crate) fn new(heartbeat: Arc<dyn Heartbeat>) -> Self {
        let losses = heartbeat.losses();
        Self { heartbeat: Some((heartbeat, losses)), leases: Vec::new() }
    }

    /// Adds a lease.
    pub(crate) fn add(&mut self, lease: Arc<dyn Lease>) {
        self.leases.push(lease);
    }

    /// Checks that the call may act.
    ///
    /// # Errors
    /// The reason why it must not.
    pub fn check(&self) -> Result<(), String> {
        if let Some((heartbeat, losses)) = &self.heartbeat {
            heartbeat.check().map_err(|lost| lost.to_string())?;
            if heartbeat.losses() != *losses {
                return Err("this server lost the contact with the shared state during the call".to_owned());
            }
        }
        match self.leases.iter().all(|lease| lease.is_held()) {
            true => Ok(()),
            false => Err("another replica may have the lease of its serial queue by now".to_owned()),
        }
    }
}
