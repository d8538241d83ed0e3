//! Handlers of the `tasks/…` requests in both eras.

use std::sync::Arc;

use rmcp::model::{
    CancelTaskParams, ClientCapabilities, ErrorData, GetTaskParams, PaginatedRequestParams, TaskAckResult,
    UpdateTaskParams,
};
use toolbay_core::call::shared::TaskMessage;

use super::listing::into_named;
use super::{McpConnection, unknown_method};
use crate::protocol::incoming::ClientRequest;
use crate::protocol::legacy_tasks::{self, LegacyTask};
use crate::protocol::lifecycle::Era;
use crate::protocol::pages::Cursor;
use crate::server::client_dialog::send_input_request;
use crate::server::request::{EncodedResult, RequestContext};
use crate::server::tasks::CallTask;

impl McpConnection {
    /// Handles a `tasks/…` request.
    pub(super) async fn handle_task_request(
        &self,
        request: &ClientRequest,
        context: &RequestContext,
    ) -> Result<EncodedResult, ErrorData> {
        match context.era {
            Era::Modern => self.handle_extension_request(request, context).await,
            Era::Legacy if legacy_tasks::are_supported(context.version.as_ref()) => {
                self.handle_legacy_task_request(request, context).await
            }
            Era::Legacy => Err(unknown_method(&request.method)),
        }
    }

    /// Handles a request of the extension of 2026-07-28.
    async fn handle_extension_request(
        &self,
        request: &ClientRequest,
        context: &RequestContext,
    ) -> Result<EncodedResult, ErrorData> {
        let (tasks, owner) = (&self.server().tasks, &self.client.owner.session_id);
        let method = request.method.as_str();
        if !matches!(method, "tasks/get" | "tasks/update" | "tasks/cancel") {
            return Err(unknown_method(method));
        }
        if !context.capabilities.supports_tasks() {
            let wanted = ClientCapabilities::builder().enable_tasks().build();
            return Err(ErrorData::missing_required_client_capability(wanted));
        }
        match method {
            "tasks/get" => {
                let GetTaskParams { task_id, .. } = request.params()?;
                let Ok(task) = tasks.find(owner, &task_id) else {
                    let state = self.server().shared_task_state(&self.client.owner, &task_id).await?;
                    let room = self.reserve_outbox(context, state.to_string().len() as u64).await?;
                    return Ok(context.complete_response(state, None, Some(room)));
                };
                let room = self.reserve_outbox(context, task.result_bytes()).await?;
                return Ok(context.complete_response(task.view(), None, Some(room)));
            }
            "tasks/update" => {
                let UpdateTaskParams { task_id, input_responses, .. } = request.params()?;
                let message = TaskMessage { responses: input_responses, ..TaskMessage::default() };
                self.pass_to_task(&task_id, message).await?;
            }
            _ => {
                let CancelTaskParams { task_id, .. } = request.params()?;
                self.pass_to_task(&task_id, TaskMessage { cancel: true, ..TaskMessage::default() }).await?;
            }
        }
        Ok(EncodedResult::new(&context.id, &TaskAckResult::new(), None))
    }

    /// Passes a message to a task of this replica or another one.
    async fn pass_to_task(&self, id: &str, message: TaskMessage) -> Result<(), ErrorData> {
        let owner = &self.client.owner;
        match self.server().tasks.find(&owner.session_id, id) {
            Ok(task) => {
                task.accept_message(message);
                Ok(())
            }
            Err(_) => self.server().send_to_task(owner, id, message).await,
        }
    }

    /// Handles a request of 2025-11-25.
    async fn handle_legacy_task_request(
        &self,
        request: &ClientRequest,
        context: &RequestContext,
    ) -> Result<EncodedResult, ErrorData> {
        let (tasks, owner) = (&self.server().tasks, &self.client.owner.session_id);
        match request.method.as_str() {
            "tasks/get" => {
                let GetTaskParams { task_id, .. } = request.params()?;
                let task = LegacyTask::from(tasks.find(owner, &task_id)?.summary());
                Ok(EncodedResult::new(&context.id, &task, None))
            }
            "tasks/result" => {
                let GetTaskParams { task_id, .. } = request.params()?;
                self.wait_for_task(tasks.find(owner, &task_id)?, context).await
            }
            "tasks/list" => {
                let cursor = Cursor::from_request(request.params::<PaginatedRequestParams>()?)?;
                let all = tasks
                    .list(owner)
                    .into_iter()
                    .map(|task| (task.id().to_owned(), LegacyTask::from(task.summary())));
                Ok(self.encode_page("tasks", into_named(all.collect()), &cursor, context, self.cache_hints()))
            }
            "tasks/cancel" => {
                let CancelTaskParams { task_id, .. } = request.params()?;
                let (task, was_running) = tasks.cancel(owner, &task_id)?;
                if !was_running {
                    return Err(ErrorData::invalid_params("the task has already ended", None));
                }
                Ok(EncodedResult::new(&context.id, &LegacyTask::from(task.summary()), None))
            }
            method => Err(unknown_method(method)),
        }
    }

    /// Waits for the result of a task. Input requests of the task are sent while the client waits.
    async fn wait_for_task(
        &self,
        task: Arc<CallTask>,
        context: &RequestContext,
    ) -> Result<EncodedResult, ErrorData> {
        let cancelled = || ErrorData::internal_error("the request was cancelled", None);
        loop {
            tokio::select! {
                biased;
                () = context.cancel.cancelled() => return Err(cancelled()),
                () = task.wait_result_or_request() => {}
            }
            if let Some((key, ask)) = task.next_request() {
                let answer = tokio::select! {
                    biased;
                    () = context.cancel.cancelled() => return Err(cancelled()),
                    // Answered by another request for the result, or the task has ended.
                    () = task.request_closed(&key) => continue,
                    answer = send_input_request(&self.outbound, &ask, Some(task.id()), &context.id) => answer,
                };
                task.close_request(&key, answer);
            } else if task.has_ended() {
                let room = self.reserve_outbox(context, task.result_bytes()).await?;
                let ended = || Err(ErrorData::internal_error("the task has no result", None));
                let result = task.result().unwrap_or_else(ended)?;
                return Ok(EncodedResult::new(&context.id, &result, Some(room)));
            }
        }
    }
}
