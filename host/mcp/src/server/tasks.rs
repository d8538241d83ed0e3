//! Long calls as tasks: the client gets a task id, at once or after a while, and polls for the result. Most clients time
//! out requests after 60 s, even with progress.
//!
//! | revision | who decides | result |
//! |---|---|---|
//! | 2026-07-28, with the extension `io.modelcontextprotocol/tasks` | the server | in `tasks/get` |
//! | 2025-11-25 | the client, for each call | of `tasks/result`, which waits for it |
//!
//! A task belongs to its owner and has an unguessable id. The number, size and age of tasks are bounded. A call that
//! exceeds a limit stays an ordinary call, unless its client asked for a task.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rmcp::model::{ErrorData, InputRequests, Task as TaskHead, TaskStatus};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use toolbay_core::audit::timestamp;
use toolbay_core::call::dialog::{DialogError, DialogRequest};
use toolbay_core::call::shared::{TaskMessage, TaskRecord};

use crate::protocol::request_state::random_hex_name;
use crate::server::convert::to_millis;
use crate::server::input_requests::{MAX_OPEN_REQUESTS, is_valid_answer, to_input_request};

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

/// Bounds on tasks.
#[derive(Debug, Clone, Copy)]
struct TaskLimits {
    /// Most tasks of one client.
    count: usize,
    /// Most tasks of all clients.
    total_count: usize,
    /// Most bytes of stored results of one client.
    bytes: usize,
    /// Most bytes of stored results of all clients.
    total_bytes: usize,
}

impl Default for TaskLimits {
    fn default() -> Self {
        Self {
            count: MAX_TASKS,
            total_count: MAX_ALL_TASKS,
            bytes: MAX_TASK_BYTES,
            total_bytes: MAX_ALL_TASK_BYTES,
        }
    }
}

/// The stage of a task.
enum TaskStage {
    Working,
    AwaitingInput(BTreeMap<String, OpenTaskRequest>),
    Ended(Result<Box<RawValue>, ErrorData>),
    Cancelled,
}

impl TaskStage {
    fn status(&self) -> TaskStatus {
        match self {
            Self::Working => TaskStatus::Working,
            Self::AwaitingInput(_) => TaskStatus::InputRequired,
            Self::Ended(Ok(_)) => TaskStatus::Completed,
            Self::Ended(Err(_)) => TaskStatus::Failed,
            Self::Cancelled => TaskStatus::Cancelled,
        }
    }
}

/// An input request that waits for its response.
struct OpenTaskRequest {
    ask: DialogRequest,
    answer: oneshot::Sender<Result<Value, String>>,
}

struct TaskState {
    stage: TaskStage,
    /// The last progress message of the call.
    message: Option<String>,
    updated: SystemTime,
    bytes: usize,
    requests: u32,
    /// Whether the end is not shown yet: the other replicas do not know it, and it may be another one for them.
    holds_end: bool,
}

impl TaskState {
    /// The status for the client.
    fn status(&self) -> TaskStatus {
        match self.stage.status() {
            status if self.holds_end && status.is_terminal() => TaskStatus::Working,
            status => status,
        }
    }
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
    /// Notified of each new stage and each change of the open input requests.
    changes: watch::Sender<()>,
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

    /// The unguessable id.
    pub(crate) fn id(&self) -> &str {
        &self.name
    }

    /// Sets the status message.
    pub(crate) fn set_message(&self, message: &str) {
        let mut inner = self.state.lock();
        if inner.stage.status().is_terminal() {
            return;
        }
        inner.message = Some(message.chars().take(MAX_STATUS_MESSAGE).collect());
        inner.updated = SystemTime::now();
        self.changes.send_replace(());
    }

    /// The changes of the task.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// The state of the task for other replicas.
    pub(crate) fn to_record(&self) -> TaskRecord {
        let view = Self::view_of(&self.state.lock(), |inner| self.head(inner, inner.stage.status()), true);
        TaskRecord {
            id: self.name.clone(),
            owner: Arc::clone(&self.owner),
            has_ended: view.task.status.is_terminal(),
            state: serde_json::to_string(&view).unwrap_or_default(),
            life: self.expires_at.saturating_duration_since(Instant::now()),
        }
    }

    /// Adds input requests, which the client sees when it polls the task, and waits for all responses.
    pub(crate) async fn ask(&self, asks: Vec<DialogRequest>) -> Result<Vec<Value>, DialogError> {
        let answers = self.open_requests(asks)?;
        let mut values = Vec::with_capacity(answers.len());
        for answer in answers {
            let ended = |_| DialogError::Failed("the task has ended".to_owned());
            values.push(answer.await.map_err(ended)?.map_err(DialogError::Failed)?);
        }
        Ok(values)
    }

    fn open_requests(
        &self,
        asks: Vec<DialogRequest>,
    ) -> Result<Vec<oneshot::Receiver<Result<Value, String>>>, DialogError> {
        let mut answers = Vec::with_capacity(asks.len());
        let mut inner = self.state.lock();
        let TaskState { stage, requests, updated, .. } = &mut *inner;
        let mut open = match stage {
            TaskStage::Working => BTreeMap::new(),
            TaskStage::AwaitingInput(open) => std::mem::take(open),
            TaskStage::Ended(_) | TaskStage::Cancelled => {
                return Err(DialogError::Failed("the task has ended".to_owned()));
            }
        };
        // A tool that gave up on a response leaves its request behind.
        open.retain(|_, one| !one.answer.is_closed());
        let too_many = open.len() + asks.len() > MAX_OPEN_REQUESTS;
        for ask in asks.into_iter().filter(|_| !too_many) {
            *requests = requests.saturating_add(1);
            let (answer, receiver) = oneshot::channel();
            // Keys are unique over the lifetime of the task.
            open.insert(format!("{}-{requests}", ask.key), OpenTaskRequest { ask, answer });
            answers.push(receiver);
        }
        *stage = if open.is_empty() { TaskStage::Working } else { TaskStage::AwaitingInput(open) };
        *updated = SystemTime::now();
        self.changes.send_replace(());
        if too_many {
            return Err(DialogError::Failed(format!("more than {MAX_OPEN_REQUESTS} input requests at once")));
        }
        Ok(answers)
    }

    /// Accepts responses. Those without an open request, or of the wrong shape, are ignored.
    fn accept_responses(&self, responses: BTreeMap<String, Value>) {
        for (key, value) in responses {
            if self.open_request(&key).is_some_and(|ask| is_valid_answer(ask.kind, &value)) {
                self.close_request(&key, Ok(value));
            }
        }
    }

    /// Passes an answer, or the reason why there is none, to the tool of an input request. Does nothing if the request is
    /// no longer open.
    pub(crate) fn close_request(&self, key: &str, answer: Result<Value, String>) {
        let mut inner = self.state.lock();
        let TaskStage::AwaitingInput(open) = &mut inner.stage else { return };
        if let Some(open) = open.remove(key)
            && open.answer.send(answer).is_err()
        {
            tracing::debug!("a response arrived for an input request that is no longer pending");
        }
        if open.is_empty() {
            inner.stage = TaskStage::Working;
        }
        inner.updated = SystemTime::now();
        self.changes.send_replace(());
    }

    /// Handles a message of the client to its task.
    pub(crate) fn accept_message(&self, message: TaskMessage) {
        self.accept_responses(message.responses);
        if message.cancel {
            self.cancel();
        }
    }

    /// Cancels the task and its call. Returns whether it was running; a finished task stays unchanged.
    fn cancel(&self) -> bool {
        let mut inner = self.state.lock();
        let runs = matches!(inner.stage, TaskStage::Working | TaskStage::AwaitingInput(_));
        if runs {
            inner.stage = TaskStage::Cancelled;
            inner.updated = SystemTime::now();
            self.cancel.cancel();
            self.changes.send_replace(());
        }
        runs
    }

    /// An input request without a response.
    fn open_request(&self, key: &str) -> Option<DialogRequest> {
        match &self.state.lock().stage {
            TaskStage::AwaitingInput(open) => open.get(key).map(|open| open.ask.clone()),
            _ => None,
        }
    }

    /// The first input request without a response, with its key.
    pub(crate) fn next_request(&self) -> Option<(String, DialogRequest)> {
        match &self.state.lock().stage {
            TaskStage::AwaitingInput(open) => {
                open.iter().next().map(|(key, open)| (key.clone(), open.ask.clone()))
            }
            _ => None,
        }
    }

    /// Waits until an input request is no longer open.
    pub(crate) async fn request_closed(&self, key: &str) {
        let mut changes = self.changes.subscribe();
        while self.open_request(key).is_some() {
            // The task owns the sender.
            drop(changes.changed().await);
        }
    }

    /// Waits until the task has ended or has an input request.
    pub(crate) async fn wait_result_or_request(&self) {
        let mut changes = self.changes.subscribe();
        while self.state.lock().stage.status() == TaskStatus::Working {
            drop(changes.changed().await);
        }
    }

    /// The result of the request that became this task, or its error. `None` until the task has ended.
    pub(crate) fn result(&self) -> Option<Result<Box<RawValue>, ErrorData>> {
        match &self.state.lock().stage {
            TaskStage::Working | TaskStage::AwaitingInput(_) => None,
            TaskStage::Ended(result) => Some(result.clone()),
            TaskStage::Cancelled => {
                Some(Err(ErrorData::invalid_request("the task was cancelled and has no result", None)))
            }
        }
    }

    /// Whether the task has its result, or none.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().stage.status().is_terminal()
    }

    /// Size of the result in bytes; 0 without a result.
    pub(crate) fn result_bytes(&self) -> u64 {
        self.state.lock().bytes as u64
    }

    /// Holds the end back until the other replicas know it.
    pub(crate) fn hold_end(&self) {
        self.state.lock().holds_end = true;
    }

    /// Shows the end, which the other replicas know.
    pub(crate) fn show_end(&self) {
        self.state.lock().holds_end = false;
        self.changes.send_replace(());
    }

    /// Replaces an end that was held back by the one that the other replicas have seen.
    pub(crate) fn end_as_seen(&self, error: ErrorData) {
        self.cancel.cancel();
        let mut inner = self.state.lock();
        if inner.holds_end {
            inner.stage = TaskStage::Ended(Err(error));
            (inner.updated, inner.bytes, inner.holds_end) = (SystemTime::now(), 0, false);
            self.changes.send_replace(());
        }
    }

    /// The result of `tasks/get` of 2026-07-28.
    pub(crate) fn view(&self) -> TaskView {
        let inner = self.state.lock();
        Self::view_of(&inner, |inner| self.head(inner, inner.status()), !inner.holds_end)
    }

    fn view_of(inner: &TaskState, head: impl Fn(&TaskState) -> TaskHead, shows_end: bool) -> TaskView {
        let mut view = TaskView { task: head(inner), input_requests: None, result: None, error: None };
        match &inner.stage {
            TaskStage::Working | TaskStage::Cancelled => {}
            TaskStage::Ended(_) if !shows_end => {}
            TaskStage::AwaitingInput(open) => {
                let requests = open.iter().filter_map(|(key, open)| {
                    to_input_request(&open.ask).ok().map(|request| (key.clone(), request))
                });
                view.input_requests = Some(requests.collect());
            }
            TaskStage::Ended(Ok(result)) => view.result = Some(result.clone()),
            TaskStage::Ended(Err(error)) => view.error = Some(error.clone()),
        }
        view
    }

    /// The status without result and input requests.
    pub(crate) fn summary(&self) -> TaskHead {
        let inner = self.state.lock();
        self.head(&inner, inner.status())
    }

    fn head(&self, inner: &TaskState, status: TaskStatus) -> TaskHead {
        let head = TaskHead::new(self.name.clone(), status, to_utc(self.created), to_utc(inner.updated));
        let head = head.with_ttl_ms(to_millis(self.ttl)).with_poll_interval_ms(to_millis(POLL_INTERVAL));
        match &inner.message {
            Some(message) => head.with_status_message(message.clone()),
            None => head,
        }
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
pub(crate) struct TaskTable {
    limits: TaskLimits,
    tasks: Mutex<HashMap<String, Arc<CallTask>>>,
}

impl TaskTable {
    /// Creates a task for a call that `cancel` ends. `None` if a limit is reached.
    pub(crate) fn create(
        &self,
        owner: &Arc<str>,
        cancel: CancellationToken,
        life: Duration,
    ) -> Option<Arc<CallTask>> {
        let (mut tasks, limits) = (self.tasks.lock(), self.limits);
        let (used, total) = stored_bytes(&tasks, owner);
        let count = tasks.values().filter(|task| task.owner == *owner).count();
        if tasks.len() >= limits.total_count
            || count >= limits.count
            || used >= limits.bytes
            || total >= limits.total_bytes
        {
            return None;
        }
        let now = SystemTime::now();
        let inner = TaskState {
            stage: TaskStage::Working,
            message: None,
            updated: now,
            bytes: 0,
            requests: 0,
            holds_end: false,
        };
        let task = Arc::new(CallTask {
            name: random_hex_name()?,
            owner: Arc::clone(owner),
            created: now,
            expires_at: Instant::now() + life,
            ttl: life,
            cancel,
            state: Mutex::new(inner),
            changes: watch::Sender::new(()),
        });
        tasks.insert(task.name.clone(), Arc::clone(&task));
        Some(task)
    }

    /// Stores the result of a call, unless the task has ended: a final state never changes.
    pub(crate) fn finish(&self, task: &CallTask, result: Result<Box<RawValue>, ErrorData>) {
        let bytes = result.as_ref().map_or(0, |result| result.get().len());
        let (tasks, limits) = (self.tasks.lock(), self.limits);
        let (used, total) = stored_bytes(&tasks, &task.owner);
        // Under the lock of all tasks, so that two tasks that finish at once see each other's bytes.
        let mut inner = task.state.lock();
        if inner.stage.status().is_terminal() {
            return;
        }
        inner.stage = match result {
            _ if task.cancel.is_cancelled() => TaskStage::Cancelled,
            Ok(result) if used + bytes <= limits.bytes && total + bytes <= limits.total_bytes => {
                inner.bytes = bytes;
                TaskStage::Ended(Ok(result))
            }
            Ok(_) => {
                let text = format!(
                    "the result of {bytes} bytes does not fit: results of tasks are limited to {} bytes per client \
                     and {} bytes for all clients",
                    limits.bytes, limits.total_bytes
                );
                TaskStage::Ended(Err(ErrorData::internal_error(text, None)))
            }
            Err(error) => TaskStage::Ended(Err(error)),
        };
        inner.updated = SystemTime::now();
        task.changes.send_replace(());
    }

    /// Removes a task, and cancels its call.
    pub(crate) fn remove(&self, task: &CallTask) {
        task.cancel.cancel();
        self.tasks.lock().remove(&task.name);
    }

    /// Cancels a task. A finished task stays unchanged. Returns the task, and whether it was still running.
    pub(crate) fn cancel(&self, owner: &str, name: &str) -> Result<(Arc<CallTask>, bool), ErrorData> {
        let task = self.find(owner, name)?;
        let was_running = task.cancel();
        Ok((task, was_running))
    }

    /// The tasks of this owner.
    pub(crate) fn list(&self, owner: &str) -> Vec<Arc<CallTask>> {
        let now = Instant::now();
        let tasks = self.tasks.lock();
        tasks.values().filter(|task| *task.owner == *owner && task.expires_at > now).cloned().collect()
    }

    /// Finds a task of this owner. Tasks of other clients count as unknown.
    pub(crate) fn find(&self, owner: &str, name: &str) -> Result<Arc<CallTask>, ErrorData> {
        let task = self.tasks.lock().get(name).filter(|task| *task.owner == *owner).cloned();
        task.filter(|task| task.expires_at > Instant::now()).ok_or_else(unknown_task)
    }

    /// Handles a message that another server has checked. A task that has ended or expired ignores it.
    pub(crate) fn accept_message(&self, id: &str, message: TaskMessage) {
        let task = self.tasks.lock().get(id).cloned();
        if let Some(task) = task {
            task.accept_message(message);
        }
    }
}

/// The error for a task that does not exist, or belongs to another client.
pub(crate) fn unknown_task() -> ErrorData {
    ErrorData::invalid_params("unknown task; it may have expired", None)
}

/// Bytes of the stored results of one owner, and of all.
fn stored_bytes(tasks: &HashMap<String, Arc<CallTask>>, owner: &Arc<str>) -> (usize, usize) {
    tasks.values().fold((0, 0), |(used, total), task| {
        let bytes = task.state.lock().bytes;
        (used + if task.owner == *owner { bytes } else { 0 }, total + bytes)
    })
}

#[cfg(test)]
#[path = "tasks_tests.rs"]
mod tests;
