//! Tasks of 2025-11-25, an experimental part of that revision. The client decides which call becomes a task, and fetches
//! the result with a second request.

use rmcp::model::{ProtocolVersion, Task, TaskStatus};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Metadata key that names the task of a result or a request.
pub(crate) const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// Whether a legacy version has tasks.
pub(crate) fn are_supported(version: Option<&ProtocolVersion>) -> bool {
    version == Some(&ProtocolVersion::V_2025_11_25)
}

/// Declares tasks in the result of `initialize`.
pub(crate) fn declare(initialized: &mut Value) {
    if let Some(capabilities) = initialized.get_mut("capabilities").and_then(Value::as_object_mut) {
        let tasks = json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
        capabilities.insert("tasks".to_owned(), tasks);
    }
}

/// The `task` parameter of `tools/call`.
#[derive(Debug, Deserialize)]
pub(crate) struct TaskMetadata {
    /// The requested life of the task, in milliseconds.
    pub(crate) ttl: Option<u64>,
}

/// A task on the wire.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LegacyTask {
    task_id: String,
    status: TaskStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_message: Option<String>,
    created_at: String,
    last_updated_at: String,
    ttl: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    poll_interval: Option<u64>,
}

impl From<Task> for LegacyTask {
    fn from(task: Task) -> Self {
        Self {
            task_id: task.task_id,
            status: task.status,
            status_message: task.status_message,
            created_at: task.created_at,
            last_updated_at: task.last_updated_at,
            ttl: task.ttl_ms,
            poll_interval: task.poll_interval_ms,
        }
    }
}

/// The result of a call that became a task.
#[derive(Debug, Serialize)]
pub(crate) struct LegacyCreateTaskResult {
    pub(crate) task: LegacyTask,
}

/// Whether a tool runs as a task.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TaskSupport {
    /// If the client asks for it.
    Optional,
    /// Always.
    Required,
}

/// The `execution` member of a tool.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolExecution {
    pub(crate) task_support: TaskSupport,
}

/// The `_meta` member that names a task.
pub(crate) fn related_task(id: &str) -> Value {
    json!({"taskId": id})
}
