//! Calls that take long, as tasks (`io.modelcontextprotocol/tasks`): the client gets a name at once, or after a while,
//! and asks for the result later. Most clients give a request up after sixty seconds, progress or not.
//!
//! Only for clients that say in the request that they know tasks, and only in the era of 2026-07-28. A task belongs to
//! who made it; its name cannot be guessed. What is kept is bounded in number, bytes and age: a call that finds no
//! room stays an ordinary call.

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
use toolbay_core::call::dialog::{Ask, Unanswered};

use crate::protocol::request_state::random_name;
use crate::server::client_dialog::{self, fits};
use crate::server::connection::millis;

/// Tasks of one client that are there at once, the ended ones included.
pub const MAX_TASKS: usize = 64;
/// Tasks of all clients together.
pub const MAX_ALL_TASKS: usize = 1024;
/// Bytes of results that are kept for one client.
pub const MAX_TASK_BYTES: usize = 32 << 20;
/// The same for all clients together: who may choose the names of sessions can choose many.
const MAX_ALL_TASK_BYTES: usize = 128 << 20;
/// How often a client should ask.
const POLL: Duration = Duration::from_secs(1);
/// Longest message of a status, in characters.
const MAX_MESSAGE: usize = 500;

/// Where a task is.
enum Stage {
    Working,
    Asking(BTreeMap<String, Open>),
    Done { result: Box<RawValue> },
    Failed { error: ErrorData },
    Cancelled,
}

/// A question that waits for its answer.
struct Open {
    ask: Ask,
    answer: oneshot::Sender<Value>,
}

struct Inner {
    stage: Stage,
    /// What the call said last.
    message: Option<String>,
    updated: SystemTime,
    bytes: usize,
    questions: u32,
}

/// One call that has become a task.
pub(crate) struct Task {
    name: String,
    owner: Arc<str>,
    created: SystemTime,
    ends: Instant,
    life: Duration,
    /// Ends the call.
    pub(crate) cancel: CancellationToken,
    inner: Mutex<Inner>,
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Task {
    /// When it goes, whatever has become of it.
    pub(crate) fn ends(&self) -> Instant {
        self.ends
    }

    /// What the call says of how far it is.
    pub(crate) fn say(&self, message: &str) {
        let mut inner = self.inner.lock();
        inner.message = Some(message.chars().take(MAX_MESSAGE).collect());
        inner.updated = SystemTime::now();
    }

    /// Puts questions to the client, who finds them when it looks at the task, and waits for all answers.
    pub(crate) async fn ask(&self, asks: Vec<Ask>) -> Result<Vec<Value>, Unanswered> {
        let mut answers = Vec::with_capacity(asks.len());
        {
            let mut inner = self.inner.lock();
            let mut open = match std::mem::replace(&mut inner.stage, Stage::Working) {
                Stage::Working => BTreeMap::new(),
                Stage::Asking(open) => open,
                ended @ (Stage::Done { .. } | Stage::Failed { .. } | Stage::Cancelled) => {
                    inner.stage = ended;
                    return Err(Unanswered::Failed("the task has ended".to_owned()));
                }
            };
            for ask in asks {
                inner.questions = inner.questions.saturating_add(1);
                let (answer, receiver) = oneshot::channel();
                // Each name stands for one question in the whole life of the task.
                open.insert(format!("{}-{}", ask.key, inner.questions), Open { ask, answer });
                answers.push(receiver);
            }
            inner.stage = Stage::Asking(open);
            inner.updated = SystemTime::now();
        }
        let mut values = Vec::with_capacity(answers.len());
        for answer in answers {
            let gone = |_| Unanswered::Failed("the task has ended".to_owned());
            values.push(answer.await.map_err(gone)?);
        }
        Ok(values)
    }

    /// Takes answers; those to nothing that is open, or of another form, are left.
    fn answer(&self, responses: BTreeMap<String, Value>) {
        let mut inner = self.inner.lock();
        let Stage::Asking(open) = &mut inner.stage else { return };
        for (key, value) in responses {
            if open.get(&key).is_some_and(|open| fits(open.ask.kind, &value))
                && let Some(open) = open.remove(&key)
                && open.answer.send(value).is_err()
            {
                tracing::debug!("an answer came for a question that nobody waits for");
            }
        }
        if open.is_empty() {
            inner.stage = Stage::Working;
        }
        inner.updated = SystemTime::now();
    }

    /// The answer to `tasks/get`.
    fn view(&self) -> TaskView {
        let inner = self.inner.lock();
        let mut view = TaskView { task: self.head(&inner), input_requests: None, result: None, error: None };
        view.task.status = match &inner.stage {
            Stage::Working => TaskStatus::Working,
            Stage::Asking(open) => {
                let requests = open.iter().filter_map(|(key, open)| {
                    client_dialog::request(&open.ask).ok().map(|request| (key.clone(), request))
                });
                view.input_requests = Some(requests.collect());
                TaskStatus::InputRequired
            }
            Stage::Done { result } => {
                view.result = Some(result.clone());
                TaskStatus::Completed
            }
            Stage::Failed { error } => {
                view.error = Some(error.clone());
                TaskStatus::Failed
            }
            Stage::Cancelled => TaskStatus::Cancelled,
        };
        view
    }

    fn head(&self, inner: &Inner) -> TaskHead {
        let head =
            TaskHead::new(self.name.clone(), TaskStatus::Working, utc(self.created), utc(inner.updated));
        let head = head.with_ttl_ms(millis(self.life)).with_poll_interval_ms(millis(POLL));
        match &inner.message {
            Some(message) => head.with_status_message(message.clone()),
            None => head,
        }
    }

    /// The answer to the request that became this task.
    pub(crate) fn created(&self) -> CreateTaskResult {
        CreateTaskResult::new(self.head(&self.inner.lock()))
    }
}

/// Where a task is, as its client sees it.
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

fn utc(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    timestamp::rfc3339(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// The tasks of a server.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    tasks: Mutex<HashMap<String, Arc<Task>>>,
}

impl Tasks {
    /// A new task for a call that `cancel` ends; `None`: there is no room for one more.
    pub(crate) fn open(
        &self,
        owner: &Arc<str>,
        cancel: CancellationToken,
        life: Duration,
    ) -> Option<Arc<Task>> {
        let mut tasks = self.tasks.lock();
        let of_owner = || tasks.values().filter(|task| task.owner == *owner);
        let bytes: usize = of_owner().map(|task| task.inner.lock().bytes).sum();
        let all: usize = tasks.values().map(|task| task.inner.lock().bytes).sum();
        if all >= MAX_ALL_TASK_BYTES {
            return None;
        }
        if tasks.len() >= MAX_ALL_TASKS || of_owner().count() >= MAX_TASKS || bytes >= MAX_TASK_BYTES {
            return None;
        }
        let now = SystemTime::now();
        let inner = Inner { stage: Stage::Working, message: None, updated: now, bytes: 0, questions: 0 };
        let task = Arc::new(Task {
            name: random_name()?,
            owner: Arc::clone(owner),
            created: now,
            ends: Instant::now() + life,
            life,
            cancel,
            inner: Mutex::new(inner),
        });
        tasks.insert(task.name.clone(), Arc::clone(&task));
        Some(task)
    }

    /// Keeps how a call ended.
    pub(crate) fn end(&self, task: &Task, result: Result<Box<RawValue>, ErrorData>) {
        let bytes = result.as_ref().map_or(0, |result| result.get().len());
        let tasks = self.tasks.lock();
        let count = |of: &dyn Fn(&Task) -> bool| {
            tasks.values().filter(|one| of(one)).map(|one| one.inner.lock().bytes).sum::<usize>()
        };
        let (others, all) = (count(&|one| one.owner == task.owner), count(&|_| true));
        // With the lock on all: two that end at once see each other.
        let mut inner = task.inner.lock();
        inner.stage = match result {
            _ if task.cancel.is_cancelled() => Stage::Cancelled,
            Ok(result) if others + bytes <= MAX_TASK_BYTES && all + bytes <= MAX_ALL_TASK_BYTES => {
                inner.bytes = bytes;
                Stage::Done { result }
            }
            Ok(_) => {
                let text = format!(
                    "the result has {bytes} bytes; {MAX_TASK_BYTES} are kept for all tasks of a client, and \
                     {MAX_ALL_TASK_BYTES} for all clients"
                );
                Stage::Failed { error: ErrorData::internal_error(text, None) }
            }
            Err(error) => Stage::Failed { error },
        };
        inner.updated = SystemTime::now();
    }

    /// Forgets a task, and ends its call if it runs.
    pub(crate) fn forget(&self, task: &Task) {
        task.cancel.cancel();
        self.tasks.lock().remove(&task.name);
    }

    /// Bytes of a task's result; 0 where there is none.
    pub(crate) fn bytes(&self, owner: &str, name: &str) -> u64 {
        self.find(owner, name).map_or(0, |task| task.inner.lock().bytes as u64)
    }

    /// Where a task is.
    pub(crate) fn get(&self, owner: &str, name: &str) -> Result<TaskView, ErrorData> {
        self.find(owner, name).map(|task| task.view())
    }

    /// Answers what a task asked.
    pub(crate) fn update(
        &self,
        owner: &str,
        name: &str,
        responses: BTreeMap<String, Value>,
    ) -> Result<(), ErrorData> {
        self.find(owner, name).map(|task| task.answer(responses))
    }

    /// Ends a task's call; one that has ended stays as it is.
    pub(crate) fn cancel(&self, owner: &str, name: &str) -> Result<(), ErrorData> {
        let task = self.find(owner, name)?;
        let mut inner = task.inner.lock();
        if matches!(inner.stage, Stage::Working | Stage::Asking(_)) {
            inner.stage = Stage::Cancelled;
            inner.updated = SystemTime::now();
            task.cancel.cancel();
        }
        Ok(())
    }

    /// A task of another client is none.
    fn find(&self, owner: &str, name: &str) -> Result<Arc<Task>, ErrorData> {
        let task = self.tasks.lock().get(name).filter(|task| *task.owner == *owner).cloned();
        task.filter(|task| task.ends > Instant::now()).ok_or_else(|| {
            ErrorData::invalid_params(
                "there is no task of this name; it may have been there for too long",
                None,
            )
        })
    }
}
