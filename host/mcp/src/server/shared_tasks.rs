//! Tasks on a server that shares its state: the others see those of this server, and this one answers for theirs.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::ErrorData;
use serde_json::{Value, json};
use tokio_util::task::task_tracker::TaskTrackerToken;
use toolbay_core::call::shared::{FoundTask, TaskMessage, TaskStore, TaskStoreError};

use crate::server::calls::ClientContext;
use crate::server::tasks::{CallTask, unknown_task};
use crate::server::{Server, SessionOwner};

/// The pause after a state was written: progress in quick succession is one write.
const PAUSE: Duration = Duration::from_millis(100);
/// The pause before a state that was not written is written again.
const RETRY: Duration = Duration::from_secs(1);

/// A task of this server that the others see.
pub(crate) struct SharedCallTask {
    store: Arc<dyn TaskStore>,
    task: Arc<CallTask>,
    /// The server waits for the final state when it shuts down.
    _tracked: TaskTrackerToken,
}

impl SharedCallTask {
    /// Shares a task. `None` on a server of its own, and for a session that belongs to its server. If the first write
    /// fails, other servers know the task a little later.
    pub(crate) async fn share(client: &ClientContext, task: &Arc<CallTask>) -> Option<Self> {
        let store = Arc::clone(client.server.shared_tasks(&client.owner)?);
        if let Err(error) = store.put(task.to_record()).await {
            report(&error);
        }
        let tracked = client.server.calls.tracker.token();
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
                Ok(()) if has_ended => return,
                _ if has_expired => return,
                Ok(()) => {
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

    /// Passes the messages of other servers to the tasks of this one, forever.
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
        if task.has_ended || !task.host_is_alive {
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
        let found = store.get(&owner.session_id, id).await.map_err(|error| unavailable(&error))?;
        found.map(|task| (store, task)).ok_or_else(unknown_task)
    }
}

fn unavailable(error: &TaskStoreError) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

/// The state of a task. One whose server has died has failed, and nobody knows whether its call had its effects.
fn to_state(task: &FoundTask) -> Result<Value, ErrorData> {
    let damaged = || ErrorData::internal_error("the shared state of the task is damaged", None);
    let mut state: Value = serde_json::from_str(&task.state).map_err(|_| damaged())?;
    let members = state.as_object_mut().ok_or_else(damaged)?;
    if !task.has_ended && !task.host_is_alive {
        let text = "the server that ran this task has ended: check whether the call had its effects before you repeat it";
        members.insert("status".to_owned(), json!("failed"));
        members.insert("error".to_owned(), json!(ErrorData::internal_error(text, None)));
        members.remove("inputRequests");
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_whose_server_died_has_failed_unless_it_had_ended() {
        let task = |has_ended, host_is_alive| FoundTask {
            id: "t".to_owned(),
            state: json!({"taskId": "t", "status": "working", "inputRequests": {}}).to_string(),
            has_ended,
            host: "a".to_owned(),
            host_is_alive,
        };
        for (has_ended, is_alive, status) in
            [(false, true, "working"), (false, false, "failed"), (true, false, "working")]
        {
            let state = to_state(&task(has_ended, is_alive)).unwrap();
            assert_eq!(state["status"], status);
            assert_eq!(state.get("error").is_some(), status == "failed");
        }
        let damaged = FoundTask { state: "[]".to_owned(), ..task(false, true) };
        assert!(to_state(&damaged).unwrap_err().message.contains("damaged"));
    }
}
