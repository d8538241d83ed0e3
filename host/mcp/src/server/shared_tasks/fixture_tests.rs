//! A task store in memory, as one of its replicas sees it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use toolbay_core::call::shared::{FoundTask, TaskMessage, TaskRecord, TaskStore, TaskStoreError, TaskWrite};

#[derive(Debug)]
pub(super) struct MemoryTaskStore {
    replica: &'static str,
    table: Arc<Mutex<StoredTasks>>,
}

#[derive(Debug, Default)]
struct StoredTasks {
    /// Each task with the replica that runs it.
    tasks: HashMap<String, (TaskRecord, &'static str)>,
    /// The replicas that the others consider dead.
    dead: HashSet<&'static str>,
}

impl MemoryTaskStore {
    pub(super) fn new(replica: &'static str) -> Self {
        Self { replica, table: Arc::default() }
    }

    /// The same store, for another replica.
    pub(super) fn for_replica(&self, replica: &'static str) -> Self {
        Self { replica, table: Arc::clone(&self.table) }
    }

    /// Makes the other replicas consider this one dead.
    pub(super) fn mark_dead(&self) {
        self.table.lock().dead.insert(self.replica);
    }
}

impl TaskStore for MemoryTaskStore {
    fn put(&self, record: TaskRecord) -> BoxFuture<'_, Result<TaskWrite, TaskStoreError>> {
        let mut table = self.table.lock();
        let before = table.tasks.get(&record.id);
        if before.is_some_and(|(before, _)| before.has_ended && before.state != record.state) {
            return Box::pin(std::future::ready(Ok(TaskWrite::EndedBefore)));
        }
        table.tasks.insert(record.id.clone(), (record, self.replica));
        Box::pin(std::future::ready(Ok(TaskWrite::Stored)))
    }

    fn end<'a>(&'a self, task: &'a FoundTask, state: String) -> BoxFuture<'a, Result<(), TaskStoreError>> {
        if let Some((record, _)) = self.table.lock().tasks.get_mut(&task.id)
            && !record.has_ended
        {
            (record.state, record.has_ended) = (state, true);
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn get<'a>(
        &'a self,
        owner: &'a str,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Option<FoundTask>, TaskStoreError>> {
        let table = self.table.lock();
        let task = table.tasks.get(id).filter(|(record, _)| *record.owner == *owner);
        let found = task.map(|(record, replica)| FoundTask {
            id: id.to_owned(),
            state: record.state.clone(),
            has_ended: record.has_ended,
            replica: (*replica).to_owned(),
            replica_is_alive: !table.dead.contains(replica),
            revision: 0,
        });
        Box::pin(std::future::ready(Ok(found)))
    }

    fn send<'a>(&'a self, _: &'a FoundTask, _: TaskMessage) -> BoxFuture<'a, Result<(), TaskStoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn receive(&self) -> BoxFuture<'_, (String, TaskMessage)> {
        Box::pin(std::future::pending())
    }
}
