//! Approvals and tasks in memory, for replicas in one process and for tests.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Approvals, FoundTask, TaskMessage, TaskRecord, TaskStore, TaskStoreError, TaskWrite};
use crate::tool::canonical::Digest;

/// Most approvals in memory. Further ones are not stored, so the host asks again.
const MAX_APPROVALS: usize = 10_000;
/// Most tasks in memory.
const MAX_TASKS: usize = 10_000;

/// The approvals of the replicas of one process. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct MemoryApprovals(Arc<Mutex<HashSet<(String, Digest)>>>);

impl Approvals for MemoryApprovals {
    fn contains<'a>(&'a self, account: &'a str, approval: Digest) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(self.0.lock().contains(&(account.to_owned(), approval))))
    }

    fn add<'a>(&'a self, account: &'a str, approval: Digest) -> BoxFuture<'a, ()> {
        let mut approvals = self.0.lock();
        if approvals.len() < MAX_APPROVALS {
            approvals.insert((account.to_owned(), approval));
        }
        Box::pin(std::future::ready(()))
    }
}

/// The tasks of the replicas of one process, as one of them sees them.
#[derive(Debug)]
pub struct MemoryTaskStore {
    replica: String,
    table: Arc<TaskTable>,
}

#[derive(Debug, Default)]
struct TaskTable {
    tasks: Mutex<HashMap<String, StoredTask>>,
    messages: Mutex<VecDeque<(String, String, TaskMessage)>>,
    arrival: Notify,
    /// The replicas that the others consider dead.
    dead: Mutex<HashSet<String>>,
}

#[derive(Debug)]
struct StoredTask {
    record: TaskRecord,
    replica: String,
    expires: Instant,
}

impl MemoryTaskStore {
    /// An empty store, for a replica with this name.
    #[must_use]
    pub fn new(replica: &str) -> Self {
        Self { replica: replica.to_owned(), table: Arc::default() }
    }

    /// The same store, for another replica.
    #[must_use]
    pub fn for_replica(&self, replica: &str) -> Self {
        Self { replica: replica.to_owned(), table: Arc::clone(&self.table) }
    }

    /// Makes the other replicas consider this one dead.
    pub fn mark_dead(&self) {
        self.table.dead.lock().insert(self.replica.clone());
    }
}

impl TaskStore for MemoryTaskStore {
    fn put(&self, record: TaskRecord) -> BoxFuture<'_, Result<TaskWrite, TaskStoreError>> {
        let mut tasks = self.table.tasks.lock();
        tasks.retain(|_, task| task.expires > Instant::now());
        let is_other = |known: &StoredTask| known.record.has_ended && known.record.state != record.state;
        if tasks.get(&record.id).is_some_and(is_other) {
            return Box::pin(std::future::ready(Ok(TaskWrite::EndedBefore)));
        }
        let is_full = tasks.len() >= MAX_TASKS && !tasks.contains_key(&record.id);
        if !is_full {
            let expires = Instant::now() + record.life;
            let replica = self.replica.clone();
            tasks.insert(record.id.clone(), StoredTask { record, replica, expires });
        }
        let full = || TaskStoreError(format!("more than {MAX_TASKS} tasks"));
        Box::pin(std::future::ready(if is_full { Err(full()) } else { Ok(TaskWrite::Stored) }))
    }

    fn end<'a>(&'a self, task: &'a FoundTask, state: String) -> BoxFuture<'a, Result<(), TaskStoreError>> {
        if let Some(known) = self.table.tasks.lock().get_mut(&task.id).filter(|known| !known.record.has_ended)
        {
            known.record = TaskRecord { state, has_ended: true, ..known.record.clone() };
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn get<'a>(
        &'a self,
        owner: &'a str,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Option<FoundTask>, TaskStoreError>> {
        let tasks = self.table.tasks.lock();
        let task = tasks.get(id).filter(|task| *task.record.owner == *owner && task.expires > Instant::now());
        let found = task.map(|task| FoundTask {
            id: id.to_owned(),
            state: task.record.state.clone(),
            has_ended: task.record.has_ended,
            replica: task.replica.clone(),
            replica_is_alive: !self.table.dead.lock().contains(&task.replica),
            revision: 0,
        });
        Box::pin(std::future::ready(Ok(found)))
    }

    fn send<'a>(
        &'a self,
        task: &'a FoundTask,
        message: TaskMessage,
    ) -> BoxFuture<'a, Result<(), TaskStoreError>> {
        self.table.messages.lock().push_back((task.replica.clone(), task.id.clone(), message));
        self.table.arrival.notify_waiters();
        Box::pin(std::future::ready(Ok(())))
    }

    fn receive(&self) -> BoxFuture<'_, (String, TaskMessage)> {
        Box::pin(async {
            loop {
                let arrival = self.table.arrival.notified();
                {
                    let mut messages = self.table.messages.lock();
                    let own = messages.iter().position(|(replica, ..)| *replica == self.replica);
                    if let Some((_, id, message)) = own.and_then(|at| messages.remove(at)) {
                        return (id, message);
                    }
                }
                arrival.await;
            }
        })
    }
}
