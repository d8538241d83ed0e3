//! Tasks that replicas share: a record for each task, which the replica that runs it writes, and messages to that replica.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::jetstream::kv::Watch;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, mpsc};
use tokio_util::task::AbortOnDropHandle;
use toolbay_core::call::shared::{FoundTask, TaskMessage, TaskRecord, TaskStore, TaskStoreError, TaskWrite};
use toolbay_state::digest::Digest;

use crate::clock::StoreClock;
use crate::nats::{Objects, ReadError, Records, encode};
use crate::protocol::{Revision, Written};
use crate::roster::{ProcessId, Roster};

/// The start of the keys of tasks, and of messages to them.
const TASK: &str = "task.";
const MESSAGE: &str = "message.";
/// Largest state in a record, in bytes. As a string in JSON it has at most twice as many. A larger one is an object.
const MAX_INLINE: usize = 64 << 10;
/// Largest state, in bytes: results of tasks have a limit of their own.
const MAX_STATE: usize = 64 << 20;
/// Most attempts to send a message. Each conflict means that another replica sent one.
const MAX_ATTEMPTS: u32 = 20;
/// Most messages that wait for the tasks of this replica.
const MAX_MESSAGES: usize = 256;
/// The pause before a watch that failed begins again.
const PAUSE: Duration = Duration::from_millis(200);

/// The tasks of all replicas.
#[derive(Debug)]
pub(crate) struct NatsTaskStore {
    records: Records,
    states: Objects,
    clock: StoreClock,
    roster: Roster,
    messages: Mutex<mpsc::Receiver<(String, TaskMessage)>>,
    /// The last revision of each task of this replica that has not ended, by record. A late write of an older state is
    /// refused.
    revisions: parking_lot::Mutex<HashMap<String, Revision>>,
    /// Ends with the store.
    _following: AbortOnDropHandle<()>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredTask {
    /// The digest of the session that may read it.
    owner: Digest,
    process: ProcessId,
    has_ended: bool,
    /// When it expires, in milliseconds of the store's clock.
    expires: u64,
    /// The state; `None` if it is an object.
    state: Option<String>,
    /// The name of the object with the state. Another state has another object, so that a write that is refused changes
    /// nothing.
    #[serde(default)]
    object: Option<String>,
}

impl StoredTask {
    fn has_state_of(&self, other: &Self) -> bool {
        self.has_ended == other.has_ended && self.state == other.state && self.object == other.object
    }
}

impl NatsTaskStore {
    /// The tasks of all replicas, for the one of this roster.
    pub(crate) fn start(records: Records, states: Objects, clock: StoreClock, roster: Roster) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_MESSAGES);
        let inbox = format!("{MESSAGE}{}.", encode(&roster.own().replica));
        // Owned by the store, and ends with it.
        let following = AbortOnDropHandle::new(tokio::spawn(follow(records.clone(), inbox, sender)));
        Self {
            records,
            states,
            clock,
            roster,
            messages: Mutex::new(receiver),
            revisions: parking_lot::Mutex::default(),
            _following: following,
        }
    }

    async fn write(&self, task: TaskRecord) -> Result<TaskWrite, TaskStoreError> {
        let (key, life) = (record_key(&task.id), task.life);
        let stored = self.to_stored(task).await?;
        let mut expected = self.revisions.lock().get(&key).copied();
        for _ in 0..MAX_ATTEMPTS {
            match self.records.write_for(&key, expected, &stored, life).await {
                Written::Stored(revision) => {
                    let mut revisions = self.revisions.lock();
                    if stored.has_ended || life.is_zero() {
                        revisions.remove(&key);
                    } else {
                        revisions.insert(key, revision);
                    }
                    return Ok(TaskWrite::Stored);
                }
                Written::Conflict => {}
                Written::Unknown => break,
            }
            // A write of this replica whose reply was lost, or another replica took this one for dead.
            let found = self.records.read::<StoredTask>(&key).await.map_err(|error| unavailable(&error))?;
            match found {
                Some(found) if found.value.has_ended => {
                    self.revisions.lock().remove(&key);
                    let is_own = found.value.has_state_of(&stored);
                    return Ok(if is_own { TaskWrite::Stored } else { TaskWrite::EndedBefore });
                }
                found => expected = found.map(|found| found.revision),
            }
        }
        Err(TaskStoreError("the shared state does not take the task".to_owned()))
    }

    /// The record of a task. A large state is stored as an object first.
    async fn to_stored(&self, task: TaskRecord) -> Result<StoredTask, TaskStoreError> {
        let life = u64::try_from(task.life.as_millis()).unwrap_or(u64::MAX);
        let (state, object) = self.store_state(&task.id, task.state).await?;
        Ok(StoredTask {
            owner: Digest::of(task.owner.as_bytes()),
            process: self.roster.own().clone(),
            has_ended: task.has_ended,
            expires: self.clock.now().saturating_add(life),
            state,
            object,
        })
    }

    /// The state, or the name of the object that has it.
    async fn store_state(
        &self,
        id: &str,
        state: String,
    ) -> Result<(Option<String>, Option<String>), TaskStoreError> {
        if state.len() <= MAX_INLINE {
            return Ok((Some(state), None));
        }
        let name = format!("task-{}-{}", encode(id), Digest::of(state.as_bytes()));
        let written = self.states.write(&name, state.as_bytes()).await;
        written.map_err(|error| unavailable(&error))?;
        Ok((None, Some(name)))
    }

    /// Writes the final state of a task of a dead replica, unless the task changed since it was read.
    async fn write_end(&self, task: &FoundTask, state: String) -> Result<(), TaskStoreError> {
        let key = record_key(&task.id);
        let found = self.records.read::<StoredTask>(&key).await.map_err(|error| unavailable(&error))?;
        let Some(found) = found.filter(|found| found.revision == Revision(task.revision)) else {
            return Ok(());
        };
        let (state, object) = self.store_state(&task.id, state).await?;
        let life = Duration::from_millis(found.value.expires.saturating_sub(self.clock.now()));
        let ended = StoredTask { has_ended: true, state, object, ..found.value };
        match self.records.write_for(&key, Some(found.revision), &ended, life).await {
            Written::Stored(_) | Written::Conflict => Ok(()),
            Written::Unknown => {
                Err(TaskStoreError("the shared state does not take the end of the task".to_owned()))
            }
        }
    }

    async fn read(&self, owner: &str, id: &str) -> Result<Option<FoundTask>, ReadError> {
        let found = self.records.read::<StoredTask>(&record_key(id)).await?;
        let owner = Digest::of(owner.as_bytes());
        let is_readable = |task: &StoredTask| task.owner == owner && self.clock.now() < task.expires;
        let Some(record) = found.filter(|record| is_readable(&record.value)) else { return Ok(None) };
        let (task, Revision(revision)) = (record.value, record.revision);
        let state = match (task.state, task.object) {
            (Some(state), _) => state,
            (None, None) => return Ok(None),
            (None, Some(object)) => {
                let bytes = self.states.read(&object, MAX_STATE).await?;
                let Some(state) = bytes.and_then(|bytes| String::from_utf8(bytes).ok()) else {
                    return Ok(None);
                };
                state
            }
        };
        Ok(Some(FoundTask {
            id: id.to_owned(),
            state,
            has_ended: task.has_ended,
            replica_is_alive: self.roster.is_alive(&task.process),
            replica: task.process.replica,
            revision,
        }))
    }

    async fn add_message(&self, task: &FoundTask, message: TaskMessage) -> Result<(), TaskStoreError> {
        let key = format!("{MESSAGE}{}.{}", encode(&task.replica), encode(&task.id));
        for _ in 0..MAX_ATTEMPTS {
            let found = self.records.read::<TaskMessage>(&key).await.map_err(|error| unavailable(&error))?;
            let (mut waiting, revision) =
                found.map_or_else(Default::default, |record| (record.value, Some(record.revision)));
            waiting.cancel |= message.cancel;
            waiting.responses.extend(message.responses.clone());
            match self.records.write(&key, revision, &waiting).await {
                Written::Stored(_) => return Ok(()),
                Written::Conflict => {}
                Written::Unknown => break,
            }
        }
        Err(TaskStoreError("the shared state does not take the message for the task's server".to_owned()))
    }
}

impl TaskStore for NatsTaskStore {
    fn put(&self, task: TaskRecord) -> BoxFuture<'_, Result<TaskWrite, TaskStoreError>> {
        Box::pin(self.write(task))
    }

    fn end<'a>(&'a self, task: &'a FoundTask, state: String) -> BoxFuture<'a, Result<(), TaskStoreError>> {
        Box::pin(self.write_end(task, state))
    }

    fn get<'a>(
        &'a self,
        owner: &'a str,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Option<FoundTask>, TaskStoreError>> {
        Box::pin(async move { self.read(owner, id).await.map_err(|error| unavailable(&error)) })
    }

    fn send<'a>(
        &'a self,
        task: &'a FoundTask,
        message: TaskMessage,
    ) -> BoxFuture<'a, Result<(), TaskStoreError>> {
        Box::pin(self.add_message(task, message))
    }

    fn receive(&self) -> BoxFuture<'_, (String, TaskMessage)> {
        Box::pin(async {
            match self.messages.lock().await.recv().await {
                Some(message) => message,
                // The sender lives as long as this store.
                None => std::future::pending().await,
            }
        })
    }
}

/// Passes on the messages to this replica. Each is removed when it is passed on; until then, it is shown again after an
/// interruption, and a message has the same effect twice as once.
async fn follow(records: Records, inbox: String, messages: mpsc::Sender<(String, TaskMessage)>) {
    loop {
        match records.watch_below(&inbox).await {
            Ok(watching) => pass_on(&records, &inbox, watching, &messages).await,
            Err(error) => tracing::debug!(%error, "messages to tasks cannot be watched"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn pass_on(
    records: &Records,
    inbox: &str,
    mut watching: Watch,
    messages: &mpsc::Sender<(String, TaskMessage)>,
) {
    while let Some(Ok(entry)) = watching.next().await {
        let Some(id) = entry.key.strip_prefix(inbox) else { continue };
        match records.parse::<TaskMessage>(&entry) {
            Ok(Some(message)) => {
                if messages.send((id.to_owned(), message.value)).await.is_err() {
                    return;
                }
                records.remove(&entry.key, message.revision).await;
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "a message to a task"),
        }
    }
}

fn record_key(id: &str) -> String {
    format!("{TASK}{}", encode(id))
}

fn unavailable(error: &ReadError) -> TaskStoreError {
    TaskStoreError(error.to_string())
}
