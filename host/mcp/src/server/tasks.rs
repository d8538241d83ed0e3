//! Long calls as tasks (`io.modelcontextprotocol/tasks`): the client gets a task id, at once or after a while, and
//! polls for the result. Most clients time out requests after 60 s, even with progress.
//!
//! Only clients of 2026-07-28 that declare the capability get tasks. A task belongs to its owner and has an unguessable
//! id. The number, size and age of tasks are bounded. A call that exceeds a limit stays an ordinary call.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rmcp::model::{CreateTaskResult, ErrorData, InputRequests, Task as TaskHead, TaskStatus};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use toolbay_core::audit::timestamp;
use toolbay_core::call::dialog::{DialogError, DialogRequest};

use crate::protocol::request_state::random_hex_name;
use crate::server::client_dialog::{self, is_valid_answer};
use crate::server::connection::to_millis;

/// Most tasks of one client, including finished ones.
pub const MAX_TASKS: usize = 64;
/// Most tasks of all clients together.
pub const MAX_ALL_TASKS: usize = 1024;
/// Most bytes of stored results of one client.
pub const MAX_TASK_BYTES: usize = 32 << 20;
/// Most bytes of stored results of all clients together, since a client that chooses session names can have many.
const MAX_ALL_TASK_BYTES: usize = 128 << 20;
/// Suggested polling interval for clients.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Longest status message, in characters.
const MAX_STATUS_MESSAGE: usize = 500;

/// The stage of a task.
enum TaskStage {
    Working,
    AwaitingInput(BTreeMap<String, OpenTaskRequest>),
    Done { result: Box<RawValue> },
    Failed { error: ErrorData },
    Cancelled,
}

/// An input request that waits for its response.
struct OpenTaskRequest {
    ask: DialogRequest,
    answer: oneshot::Sender<Value>,
}

struct TaskState {
    stage: TaskStage,
    /// The last progress message of the call.
    message: Option<String>,
    updated: SystemTime,
    bytes: usize,
    requests: u32,
}

/// A call that has become a task.
pub(crate) struct CallTask {
    name: String,
    owner: Arc<str>,
    created: SystemTime,
    expires_at: Instant,
    ttl: Duration,
    /// Cancels the call.
    pub(crate) cancel: CancellationToken,
    state: Mutex<TaskState>,
}

impl fmt::Debug for CallTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallTask").field("name", &self.name).finish_non_exhaustive()
    }
}

impl CallTask {
    /// When the task is removed, in any stage.
    pub(crate) fn expires_at(&self) -> Instant {
        self.expires_at
    }

    /// Sets the status message.
    pub(crate) fn set_message(&self, message: &str) {
        let mut inner = self.state.lock();
        inner.message = Some(message.chars().take(MAX_STATUS_MESSAGE).collect());
        inner.updated = SystemTime::now();
    }

    /// Adds input requests, which the client sees when it polls the task, and waits for all responses.
    pub(crate) async fn ask(&self, asks: Vec<DialogRequest>) -> Result<Vec<Value>, DialogError> {
        let mut answers = Vec::with_capacity(asks.len());
        {
            let mut inner = self.state.lock();
            let mut open = match std::mem::replace(&mut inner.stage, TaskStage::Working) {
                TaskStage::Working => BTreeMap::new(),
                TaskStage::AwaitingInput(open) => open,
                ended @ (TaskStage::Done { .. } | TaskStage::Failed { .. } | TaskStage::Cancelled) => {
                    inner.stage = ended;
                    return Err(DialogError::Failed("the task has ended".to_owned()));
                }
            };
            for ask in asks {
                inner.requests = inner.requests.saturating_add(1);
                let (answer, receiver) = oneshot::channel();
                // Keys are unique over the lifetime of the task.
                open.insert(format!("{}-{}", ask.key, inner.requests), OpenTaskRequest { ask, answer });
                answers.push(receiver);
            }
            inner.stage = TaskStage::AwaitingInput(open);
            inner.updated = SystemTime::now();
        }
        let mut values = Vec::with_capacity(answers.len());
        for answer in answers {
            let gone = |_| DialogError::Failed("the task has ended".to_owned());
            values.push(answer.await.map_err(gone)?);
        }
        Ok(values)
    }

    /// Accepts responses. Those without an open request, or of the wrong shape, are ignored.
    fn accept_responses(&self, responses: BTreeMap<String, Value>) {
        let mut inner = self.state.lock();
        let TaskStage::AwaitingInput(open) = &mut inner.stage else { return };
        for (key, value) in responses {
            if open.get(&key).is_some_and(|open| is_valid_answer(open.ask.kind, &value))
                && let Some(open) = open.remove(&key)
                && open.answer.send(value).is_err()
            {
                tracing::debug!("a response arrived for an input request that is no longer pending");
            }
        }
        if open.is_empty() {
            inner.stage = TaskStage::Working;
        }
        inner.updated = SystemTime::now();
    }

    /// The result of `tasks/get`.
    fn view(&self) -> TaskView {
        let inner = self.state.lock();
        let mut view = TaskView { task: self.head(&inner), input_requests: None, result: None, error: None };
        view.task.status = match &inner.stage {
            TaskStage::Working => TaskStatus::Working,
            TaskStage::AwaitingInput(open) => {
                let requests = open.iter().filter_map(|(key, open)| {
                    client_dialog::to_input_request(&open.ask).ok().map(|request| (key.clone(), request))
                });
                view.input_requests = Some(requests.collect());
                TaskStatus::InputRequired
            }
            TaskStage::Done { result } => {
                view.result = Some(result.clone());
                TaskStatus::Completed
            }
            TaskStage::Failed { error } => {
                view.error = Some(error.clone());
                TaskStatus::Failed
            }
            TaskStage::Cancelled => TaskStatus::Cancelled,
        };
        view
    }

    fn head(&self, inner: &TaskState) -> TaskHead {
        let head = TaskHead::new(
            self.name.clone(),
            TaskStatus::Working,
            to_utc(self.created),
            to_utc(inner.updated),
        );
        let head = head.with_ttl_ms(to_millis(self.ttl)).with_poll_interval_ms(to_millis(POLL_INTERVAL));
        match &inner.message {
            Some(message) => head.with_status_message(message.clone()),
            None => head,
        }
    }

    /// The result of the request that became this task.
    pub(crate) fn create_result(&self) -> CreateTaskResult {
        CreateTaskResult::new(self.head(&self.state.lock()))
    }
}

/// The state of a task, as its client sees it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskView {
    #[serde(flatten)]
    task: TaskHead,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_requests: Option<InputRequests>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorData>,
}

fn to_utc(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    timestamp::rfc3339(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// The tasks of a server.
#[derive(Debug, Default)]
pub(crate) struct TaskStore {
    tasks: Mutex<HashMap<String, Arc<CallTask>>>,
}

impl TaskStore {
    /// Creates a task for a call that `cancel` ends. `None` if a limit is reached.
    pub(crate) fn create(
        &self,
        owner: &Arc<str>,
        cancel: CancellationToken,
        life: Duration,
    ) -> Option<Arc<CallTask>> {
        let mut tasks = self.tasks.lock();
        let of_owner = || tasks.values().filter(|task| task.owner == *owner);
        let bytes: usize = of_owner().map(|task| task.state.lock().bytes).sum();
        let all: usize = tasks.values().map(|task| task.state.lock().bytes).sum();
        if all >= MAX_ALL_TASK_BYTES {
            return None;
        }
        if tasks.len() >= MAX_ALL_TASKS || of_owner().count() >= MAX_TASKS || bytes >= MAX_TASK_BYTES {
            return None;
        }
        let now = SystemTime::now();
        let inner =
            TaskState { stage: TaskStage::Working, message: None, updated: now, bytes: 0, requests: 0 };
        let task = Arc::new(CallTask {
            name: random_hex_name()?,
            owner: Arc::clone(owner),
            created: now,
            expires_at: Instant::now() + life,
            ttl: life,
            cancel,
            state: Mutex::new(inner),
        });
        tasks.insert(task.name.clone(), Arc::clone(&task));
        Some(task)
    }

    /// Stores the result of a call.
    pub(crate) fn finish(&self, task: &CallTask, result: Result<Box<RawValue>, ErrorData>) {
        let bytes = result.as_ref().map_or(0, |result| result.get().len());
        let tasks = self.tasks.lock();
        let count = |of: &dyn Fn(&CallTask) -> bool| {
            tasks.values().filter(|one| of(one)).map(|one| one.state.lock().bytes).sum::<usize>()
        };
        let (others, all) = (count(&|one| one.owner == task.owner), count(&|_| true));
        // Under the lock of all tasks, so that two tasks that finish at once see each other's bytes.
        let mut inner = task.state.lock();
        inner.stage = match result {
            _ if task.cancel.is_cancelled() => TaskStage::Cancelled,
            Ok(result) if others + bytes <= MAX_TASK_BYTES && all + bytes <= MAX_ALL_TASK_BYTES => {
                inner.bytes = bytes;
                TaskStage::Done { result }
            }
            Ok(_) => {
                let text = format!(
                    "the result of {bytes} bytes does not fit: results of tasks are limited to {MAX_TASK_BYTES} bytes \
                     per client and {MAX_ALL_TASK_BYTES} bytes for all clients"
                );
                TaskStage::Failed { error: ErrorData::internal_error(text, None) }
            }
            Err(error) => TaskStage::Failed { error },
        };
        inner.updated = SystemTime::now();
    }

    /// Removes a task, and cancels its call.
    pub(crate) fn remove(&self, task: &CallTask) {
        task.cancel.cancel();
        self.tasks.lock().remove(&task.name);
    }

    /// Size of a task's result in bytes; 0 without a result.
    pub(crate) fn result_bytes(&self, owner: &str, name: &str) -> u64 {
        self.find(owner, name).map_or(0, |task| task.state.lock().bytes as u64)
    }

    /// The state of a task.
    pub(crate) fn view(&self, owner: &str, name: &str) -> Result<TaskView, ErrorData> {
        self.find(owner, name).map(|task| task.view())
    }

    /// Passes responses to the input requests of a task.
    pub(crate) fn accept_responses(
        &self,
        owner: &str,
        name: &str,
        responses: BTreeMap<String, Value>,
    ) -> Result<(), ErrorData> {
        self.find(owner, name).map(|task| task.accept_responses(responses))
    }

    /// Cancels a task. A finished task stays unchanged.
    pub(crate) fn cancel(&self, owner: &str, name: &str) -> Result<(), ErrorData> {
        let task = self.find(owner, name)?;
        let mut inner = task.state.lock();
        if matches!(inner.stage, TaskStage::Working | TaskStage::AwaitingInput(_)) {
            inner.stage = TaskStage::Cancelled;
            inner.updated = SystemTime::now();
            task.cancel.cancel();
        }
        Ok(())
    }

    /// Finds a task of this owner. Tasks of other clients count as unknown.
    fn find(&self, owner: &str, name: &str) -> Result<Arc<CallTask>, ErrorData> {
        let task = self.tasks.lock().get(name).filter(|task| *task.owner == *owner).cloned();
        task.filter(|task| task.expires_at > Instant::now())
            .ok_or_else(|| ErrorData::invalid_params("unknown task; it may have expired", None))
    }
}
