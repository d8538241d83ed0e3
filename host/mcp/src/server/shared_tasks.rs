//! Tasks on a replica that shares its state: the others see those of this replica, and this one answers for theirs.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::ErrorData;
use serde_json::{Value, json};
use tokio_util::task::task_tracker::TaskTrackerToken;
use toolbay_core::call::shared::{FoundTask, TaskMessage, TaskStore, TaskStoreError, TaskWrite};

use crate::server::tasks::{CallTask, unknown_task};
use crate::server::{Server, SessionOwner};

/// The pause after a state was written: progress in quick succession is one write.
const PAUSE: Duration = Duration::from_millis(100);
/// The pause before a state that was not written is written again.
const RETRY: Duration = Duration::from_secs(1);

/// A task of this replica that the others see.
pub(crate) struct SharedCallTask {
    store: Arc<dyn TaskStore>,
    task: Arc<CallTask>,
    /// The server waits for the final state when it shuts down.
    _tracked: TaskTrackerToken,
}

impl SharedCallTask {
    /// Shares a task. `None` on a server that shares no state, and for a session that belongs to its server. If the first
    /// write fails, other replicas know the task a little later.
    pub(crate) async fn share(server: &Server, owner: &SessionOwner, task: &Arc<CallTask>) -> Option<Self> {
        let store = Arc::clone(server.shared_tasks(owner)?);
        task.hold_end();
        if let Err(error) = store.put(task.to_record()).await {
            report(&error);
        }
        let tracked = server.calls.tracker.token();
        Some(Self { store, task: Arc::clone(task), _tracked: tracked })
    }

    /// Writes each new state, until the final one is stored or the task has expired.
    pub(crate) async fn publish(self) {
        let mut changes = self.task.subscribe();
        loop {
            changes.mark_unchanged();
            let record = self.task.to_record();
            let (has_ended, has_expired) = (record.has_ended, record.life.is_zero());
            match self.store.put(record).await {
                Ok(TaskWrite::Stored) if has_ended => return self.task.show_end(),
                Ok(TaskWrite::EndedBefore) => return self.task.end_as_seen(lost_server()),
                _ if has_expired => return,
                Ok(TaskWrite::Stored) => {
                    // The task owns the sender.
                    drop(changes.changed().await);
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => {
                    report(&error);
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}

fn report(error: &TaskStoreError) {
    tracing::warn!(%error, "other servers do not see the state of a task yet");
}

impl Server {
    /// The store of tasks that this owner shares among servers.
    fn shared_tasks(&self, owner: &SessionOwner) -> Option<&Arc<dyn TaskStore>> {
        self.pipeline.shared_state_of(&owner.session).map(|(shared, _)| &shared.tasks)
    }

    /// Passes the messages of other replicas to the tasks of this one, forever.
    pub(crate) async fn receive_task_messages(&self) {
        let Some(shared) = self.pipeline.shared_state() else { return std::future::pending().await };
        loop {
            let (id, message) = shared.tasks.receive().await;
            self.tasks.accept_message(&id, message);
        }
    }

    /// The state of a task of another server, as its client sees it.
    pub(crate) async fn shared_task_state(&self, owner: &SessionOwner, id: &str) -> Result<Value, ErrorData> {
        let (_, task) = self.find_shared_task(owner, id).await?;
        to_state(&task)
    }

    /// Sends a message to a task of another server. One that has ended ignores it.
    pub(crate) async fn send_to_task(
        &self,
        owner: &SessionOwner,
        id: &str,
        message: TaskMessage,
    ) -> Result<(), ErrorData> {
        let (store, task) = self.find_shared_task(owner, id).await?;
        if task.has_ended || !task.replica_is_alive {
            return Ok(());
        }
        store.send(&task, message).await.map_err(|error| unavailable(&error))
    }

    async fn find_shared_task(
        &self,
        owner: &SessionOwner,
        id: &str,
    ) -> Result<(&Arc<dyn TaskStore>, FoundTask), ErrorData> {
        let store = self.shared_tasks(owner).ok_or_else(unknown_task)?;
        let find = async || store.get(&owner.session_id, id).await.map_err(|error| unavailable(&error));
        let found = find().await?.ok_or_else(unknown_task)?;
        if found.has_ended || found.replica_is_alive {
            return Ok((store, found));
        }
        // A state that a client has seen stays, also if that replica was frozen and wakes up.
        let ended = store.end(&found, failed_state(&found)?).await;
        ended.map_err(|error| unavailable(&error))?;
        let found = find().await?.ok_or_else(unknown_task)?;
        Ok((store, found))
    }
}

fn unavailable(error: &TaskStoreError) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

/// The error of a task whose server has died: nobody knows whether its call had its effects.
fn lost_server() -> ErrorData {
    let text = "the server that ran this task has ended: check whether the call had its effects before you repeat it";
    ErrorData::internal_error(text, None)
}

/// The state of a task.
fn to_state(task: &FoundTask) -> Result<Value, ErrorData> {
    let state: Value = serde_json::from_str(&task.state).map_err(|_| damaged())?;
    if state.is_object() { Ok(state) } else { Err(damaged()) }
}

/// The final state of a task whose server has died.
fn failed_state(task: &FoundTask) -> Result<String, ErrorData> {
    let mut state = to_state(task)?;
    let members = state.as_object_mut().ok_or_else(damaged)?;
    members.insert("status".to_owned(), json!("failed"));
    members.insert("error".to_owned(), json!(lost_server()));
    members.remove("inputRequests");
    Ok(state.to_string())
}

fn damaged() -> ErrorData {
    ErrorData::internal_error("the shared state of the task is damaged", None)
}

#[cfg(test)]
#[path = "shared_tasks/fixture_tests.rs"]
mod fixture;

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use super::fixture::MemoryTaskStore;
    use super::*;
    use crate::server::tasks::TaskTable;

    fn record(task: &FoundTask) -> Value {
        to_state(task).unwrap()
    }

    #[test]
    fn a_damaged_state_is_named() {
        let task = |state: &str| FoundTask {
            id: "t".to_owned(),
            state: state.to_owned(),
            has_ended: false,
            replica: "a".to_owned(),
            replica_is_alive: false,
            revision: 0,
        };
        for state in ["[]", "{", ""] {
            assert!(to_state(&task(state)).unwrap_err().message.contains("damaged"), "{state}");
        }
        let failed =
            failed_state(&task(r#"{"taskId": "t", "status": "working", "inputRequests": {}}"#)).unwrap();
        let failed: Value = serde_json::from_str(&failed).unwrap();
        assert_eq!((&failed["status"], failed.get("inputRequests")), (&json!("failed"), None));
        assert!(failed["error"]["message"].as_str().unwrap().contains("check whether"));
    }

    /// Another server took the server of the task for dead, and reported to the client that the task failed. Then the
    /// first server woke up and completed the task.
    #[tokio::test]
    async fn a_task_that_failed_for_its_client_stays_failed_when_its_server_wakes_up() {
        let own = MemoryTaskStore::new("a");
        let other = own.for_replica("b");
        let table = TaskTable::default();
        let task = table.create(&"s".into(), CancellationToken::new(), Duration::from_secs(60)).unwrap();
        task.hold_end();
        own.put(task.to_record()).await.unwrap();
        own.mark_dead();
        let found = other.get("s", task.id()).await.unwrap().unwrap();
        assert!(!found.replica_is_alive && record(&found)["status"] == "working");
        other.end(&found, failed_state(&found).unwrap()).await.unwrap();

        table.finish(&task, Ok(RawValue::from_string("{}".to_owned()).unwrap()));
        assert_eq!(
            serde_json::to_value(task.view()).unwrap()["status"],
            "working",
            "the others do not know it"
        );
        let tracked = TaskTracker::new().token();
        SharedCallTask { store: Arc::new(own), task: Arc::clone(&task), _tracked: tracked }.publish().await;
        let shown = serde_json::to_value(task.view()).unwrap();
        let seen = record(&other.get("s", task.id()).await.unwrap().unwrap());
        assert_eq!((&shown["status"], &seen["status"]), (&json!("failed"), &json!("failed")));
        assert_eq!(shown["error"], seen["error"]);
    }

    #[tokio::test]
    async fn an_end_that_the_others_know_is_shown_and_never_changes() {
        let (own, table) = (MemoryTaskStore::new("a"), TaskTable::default());
        let task = table.create(&"s".into(), CancellationToken::new(), Duration::from_secs(60)).unwrap();
        task.hold_end();
        table.finish(&task, Ok(RawValue::from_string("{}".to_owned()).unwrap()));
        let tracked = TaskTracker::new().token();
        SharedCallTask { store: Arc::new(own), task: Arc::clone(&task), _tracked: tracked }.publish().await;
        let before = serde_json::to_value(task.view()).unwrap();
        assert_eq!(before["status"], "completed");
        task.set_message("late progress");
        table.finish(&task, Err(ErrorData::internal_error("late", None)));
        task.end_as_seen(lost_server());
        assert_eq!(serde_json::to_value(task.view()).unwrap(), before);
    }
}
