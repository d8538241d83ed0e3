//! Runs a `tools/call` request, in place or as a task that outlives the request.

#![expect(deprecated, reason = "legacy clients use sampling, roots, logging and subscriptions by request")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{
    ClientCapabilities, CreateTaskResult, ErrorCode, ErrorData, InputRequiredResult, LoggingLevel, RequestId,
    Task,
};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;
use toolbay_core::call::invoke::Failure;
use toolbay_core::call::{Identity, ToolCall, TurnContext};
use toolbay_core::pipeline::CallResult;
use toolbay_core::pipeline::memory::MemoryReservation;
use toolbay_core::registry::view::{ToolEntry, View};
use toolbay_core::tool::canonical;
use toolbay_core::tool::fault::{Fault, FaultKind};
use toolbay_core::tool::tags;
use toolbay_policy::capability::CapabilityKind;

use crate::protocol::incoming::{self, ClientRequest};
use crate::protocol::legacy_tasks::{self, LegacyCreateTaskResult, TaskMetadata};
use crate::protocol::lifecycle::Era;
use crate::protocol::message;
use crate::protocol::outbound::Destination;
use crate::protocol::progress::{ProgressQueue, ProgressScale};
use crate::server::client_dialog::{ClientDialog, RetryInput};
use crate::server::convert::{self, CallToolResult};
use crate::server::outbox::OutboxPermit;
use crate::server::request::{EncodedResult, RequestContext};
use crate::server::shared_tasks::SharedCallTask;
use crate::server::tasks::{CallTask, MAX_TASKS};
use crate::server::{Server, SessionOwner, session_attachments};

/// How long a cancelled call has to end and be recorded before it is dropped. Shorter than the 2 s that the stdio
/// transport waits for responses on shutdown.
const CANCEL_GRACE: Duration = Duration::from_secs(1);

/// State that all calls of one client share.
#[derive(Debug)]
pub(crate) struct ClientContext {
    pub(crate) server: Arc<Server>,
    pub(crate) owner: SessionOwner,
    permits: Arc<Semaphore>,
    closed: CancellationToken,
    /// The log level that the client last set.
    log_level: Mutex<Option<LoggingLevel>>,
}

/// The parameters of `tools/call` except the arguments.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallParams {
    name: String,
    input_responses: Option<BTreeMap<String, Value>>,
    request_state: Option<String>,
    /// The request of a legacy client to run the call as a task. Newer revisions ignore it.
    task: Option<Box<RawValue>>,
}

/// Whether a call becomes a task.
#[derive(Debug, Clone, Copy)]
enum TaskMode {
    /// Never: the client cannot poll.
    Never,
    /// At once if the tool is slow, else after a while.
    WhenLong,
    /// At once: the legacy client requested a task, maybe with a lifetime.
    Requested { ttl: Option<Duration> },
}

/// The outcome of a call.
enum CallOutcome {
    Complete(Box<CallToolResult>),
    InputRequired(InputRequiredResult),
    Task(Task),
}

/// One running call.
struct InFlightCall {
    client: Arc<ClientContext>,
    context: RequestContext,
    tool: String,
    /// The raw arguments.
    arguments: Arc<str>,
    idempotency_key: Option<Arc<str>>,
    dialog: Arc<ClientDialog>,
    cancel: CancellationToken,
    task_mode: TaskMode,
    _permit: OwnedSemaphorePermit,
    _tracked: TaskTrackerToken,
}

impl TaskMode {
    /// Determines the mode of a call. `requested` is its `task` parameter.
    fn new(context: &RequestContext, requested: Option<&RawValue>) -> Result<Self, serde_json::Error> {
        Ok(match (context.era, requested) {
            (Era::Modern, _) if context.capabilities.supports_tasks() => Self::WhenLong,
            (Era::Legacy, Some(task)) if legacy_tasks::are_supported(context.version.as_ref()) => {
                let TaskMetadata { ttl } = message::parse_object(task)?;
                Self::Requested { ttl: ttl.map(Duration::from_millis) }
            }
            (Era::Modern | Era::Legacy, _) => Self::Never,
        })
    }

    /// Whether the call may become a task.
    fn may_become_task(self) -> bool {
        !matches!(self, Self::Never)
    }

    /// The lifetime of the task: the requested one, but at most `most`.
    fn lifetime(self, most: Duration) -> Duration {
        match self {
            Self::Requested { ttl: Some(ttl) } => ttl.min(most),
            Self::Requested { ttl: None } | Self::WhenLong | Self::Never => most,
        }
    }
}

/// The outcome of a call, with the outbox reservation of its response.
type CallCompletion = Result<(CallOutcome, Option<OutboxPermit>), ErrorData>;

impl CallOutcome {
    fn complete(result: CallToolResult, era: Era, server: &Server) -> Self {
        Self::Complete(Box::new(result.finish(era, server.shows_usage_meta())))
    }

    fn answer(self, id: &RequestId, era: Era, room: Option<OutboxPermit>) -> EncodedResult {
        match (self, era) {
            (Self::Complete(result), _) => EncodedResult::new(id, &result, room),
            (Self::InputRequired(result), _) => EncodedResult::new(id, &result, None),
            (Self::Task(task), Era::Modern) => EncodedResult::new(id, &CreateTaskResult::new(task), None),
            (Self::Task(task), Era::Legacy) => {
                EncodedResult::new(id, &LegacyCreateTaskResult { task: task.into() }, None)
            }
        }
    }
}

impl ClientContext {
    pub(crate) fn new(server: Arc<Server>, owner: SessionOwner, closed: CancellationToken) -> Self {
        let most = server.options.max_in_flight.min(Semaphore::MAX_PERMITS);
        let permits = Arc::new(Semaphore::new(most));
        Self { server, owner, permits, closed, log_level: Mutex::default() }
    }

    /// Handles one `tools/call` request.
    pub(crate) async fn call(
        self: &Arc<Self>,
        request: ClientRequest,
        context: RequestContext,
    ) -> Result<EncodedResult, ErrorData> {
        let CallParams { name: tool, input_responses, request_state, task } = request.params()?;
        let era = context.era;
        let idempotency_key = context.idempotency_key()?;
        let task_mode = TaskMode::new(&context, task.as_deref());
        let task_mode = task_mode.map_err(|error| request.invalid_params(&format!("`task`: {error}")))?;
        if request.arguments.as_ref().is_some_and(|arguments| !arguments.starts_with('{')) {
            return Err(request.invalid_params("`arguments` is not an object"));
        }
        let arguments = request.arguments.unwrap_or_default();
        let id = context.id.clone();
        let refused =
            |result: CallToolResult| CallOutcome::complete(result, era, &self.server).answer(&id, era, None);
        tokio::select! {
            () = self.server.wait_callable(&tool) => {}
            () = self.server.calls.shutdown.cancelled() => return Ok(refused(convert::shutdown_result())),
        }
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            let most = self.server.options.max_in_flight;
            tracing::warn!(most, "a call was refused: too many calls in flight");
            let busy = convert::busy_fault(most);
            self.record_refused(&context, &tool, &arguments, busy.clone());
            return Ok(refused(convert::fault_result(busy)));
        };
        // A task continues after its request has ended.
        let ended = context.cancel.clone();
        let cancel = match task_mode.may_become_task() {
            true => CancellationToken::new(),
            false => ended.child_token(),
        };
        let dialog = self.dialog(&context, cancel.clone());
        let input = RetryInput { responses: input_responses, state: request_state };
        dialog.accept_input(input, &self.server.state_signer, || {
            self.state_context_of_call(&tool, &arguments)
        })?;
        let call = InFlightCall {
            client: Arc::clone(self),
            context,
            tool,
            arguments,
            idempotency_key,
            dialog,
            cancel,
            task_mode,
            _permit: permit,
            _tracked: self.server.calls.tracker.token(),
        };
        let (outcome, room) = match task_mode.may_become_task() {
            // Boxed to keep the common future small.
            true => Box::pin(call.run_as_task(&ended)).await?,
            false => call.run().await?,
        };
        Ok(outcome.answer(&id, era, room))
    }

    /// Records a call that is refused because its connection has reached a limit.
    fn record_refused(&self, context: &RequestContext, tool: &str, arguments: &str, fault: Fault) {
        let call = ToolCall::new(context.id.to_string(), tool, arguments);
        let session = Arc::clone(&self.owner.session);
        let turn = TurnContext { identity: self.identity(context), session, ..TurnContext::default() };
        drop(self.server.pipeline.refuse(&self.server.view(), call, turn, fault));
    }

    /// The identity of the agent, with the facts that the request adds.
    fn identity(&self, context: &RequestContext) -> Identity {
        Identity {
            traceparent: context.traceparent(),
            client: context.client.as_deref().map(str::to_owned),
            ..self.owner.identity()
        }
    }

    /// Creates the dialog with the client of a request.
    pub(crate) fn dialog(&self, context: &RequestContext, cancel: CancellationToken) -> Arc<ClientDialog> {
        let level = match context.era {
            _ if !self.server.options.logging => None,
            Era::Legacy => *self.log_level.lock(),
            Era::Modern => context.meta.log_level(),
        };
        Arc::new(ClientDialog::new(context, level, cancel))
    }

    /// Sets the log level of the client.
    pub(crate) fn set_log_level(&self, level: LoggingLevel) {
        *self.log_level.lock() = Some(level);
    }

    /// The context that binds a `requestState` to a call.
    fn state_context_of_call(&self, tool: &str, arguments: &str) -> String {
        self.state_context("tools/call", tool, &serde_json::from_str(arguments).unwrap_or_default())
    }

    /// The context that binds a `requestState` to a client and its request.
    pub(crate) fn state_context(&self, method: &str, name: &str, arguments: &Value) -> String {
        canonical::sha256(&json!([self.owner.session_id, method, name, arguments])).to_string()
    }
}

impl InFlightCall {
    /// Runs the call as a task: at once if the tool is slow or the client asked for it, else after
    /// [`Options::task_after`](crate::Options::task_after).
    async fn run_as_task(self, request: &CancellationToken) -> CallCompletion {
        let (client, dialog, cancel) =
            (Arc::clone(&self.client), Arc::clone(&self.dialog), self.cancel.clone());
        let (options, era) = (&client.server.options, self.context.era);
        let life = self.task_mode.lifetime(options.task_ttl);
        let open = || {
            let tasks = &client.server.tasks;
            let opened = tasks.create(&client.owner.session_id, cancel.clone(), life);
            if opened.is_none() {
                tracing::warn!("a long call did not become a task: the limit on tasks is reached");
            }
            opened
        };
        let requested = matches!(self.task_mode, TaskMode::Requested { .. });
        let at_once = requested || self.has_tag(tags::SLOW);
        // Promoted before it starts, so that its first input request already belongs to the task.
        let mut task = if at_once { dialog.promote_to_task(open) } else { None };
        if requested && task.is_none() {
            return Err(too_many_tasks());
        }
        // `supervise_task` or this future owns the call.
        let mut running = tokio::spawn(self.run());
        // Dropping this future cancels the call.
        let cancel_guard = cancel.clone().drop_guard();
        if !at_once {
            tokio::select! {
                biased;
                ended = &mut running => return ended.unwrap_or_else(|_| Err(panic_error())),
                () = request.cancelled() => {
                    cancel.cancel();
                    return running.await.unwrap_or_else(|_| Err(panic_error()));
                }
                () = tokio::time::sleep(options.task_after) => {}
            }
            task = dialog.promote_to_task(open);
        }
        let Some(task) = task else {
            tokio::select! {
                ended = &mut running => return ended.unwrap_or_else(|_| Err(panic_error())),
                () = request.cancelled() => cancel.cancel(),
            }
            return running.await.unwrap_or_else(|_| Err(panic_error()));
        };
        let created = task.summary();
        cancel_guard.disarm();
        // Ends when the task expires or the client disconnects.
        tokio::spawn(supervise_task(Arc::clone(&client), Arc::clone(&task), era, running));
        // Before the client knows the task, so that its next request finds it on any server.
        if let Some(shared) = SharedCallTask::share(&client.server, &client.owner, &task).await {
            // Ends with the task.
            tokio::spawn(shared.publish());
        }
        Ok((CallOutcome::Task(created), None))
    }

    fn has_tag(&self, tag: &str) -> bool {
        self.client.server.view().get_callable(&self.tool).is_some_and(|entry| entry.has_tag(tag))
    }

    async fn run(self) -> CallCompletion {
        let (server, era) = (&self.client.server, self.context.era);
        let complete = |result: CallToolResult| (CallOutcome::complete(result, era, server), None);
        let view = server.view();
        let entry = view.get(&self.tool);
        if !self.task_mode.may_become_task()
            && entry.is_some_and(|entry| entry.has_tag(tags::TASK_REQUIRED))
            && view.get_callable(&self.tool).is_some()
        {
            return Err(task_required(&self.tool, era));
        }
        // Reserved before any work, so that results for a client that does not read are bounded.
        let outbox = &self.context.origin.outbox;
        let room = tokio::select! {
            biased;
            room = outbox.acquire(entry.map_or(0, |entry| entry.expected_result_bytes())) => room,
            () = self.cancel.cancelled() => return Ok(complete(convert::cancelled_result())),
        };
        let room = match room {
            Ok(room) => room,
            Err(full) => {
                self.client.record_refused(&self.context, &self.tool, &self.arguments, full.clone());
                return Ok(complete(convert::fault_result(full)));
            }
        };
        let wants_progress =
            self.context.meta.get_progress_token().is_some() || self.task_mode.may_become_task();
        let events = wants_progress.then(ProgressQueue::new);
        let store = server.attachment_store(&self.client.owner.session);
        let turn = TurnContext {
            budget_chars: server.options.budget_chars,
            cancel: self.cancel.clone(),
            progress: events.clone().map(|queue| queue as _),
            identity: self.client.identity(&self.context),
            session: Arc::clone(&self.client.owner.session),
            request: server.pipeline.traces_calls().then(|| Arc::new(self.context.trace())),
            dialog: Some(Arc::clone(&self.dialog) as _),
            // Only for tools that create attachments, since results of such turns are not cached.
            attachments: entry
                .filter(|entry| creates_attachments(entry))
                .and_then(|_| session_attachments::for_call(store, &self.client.owner.session)),
            approver: (server.options.ask && server.state_signer.is_ready() && self.dialog.can_approve())
                .then(|| Arc::clone(&self.dialog) as _),
            ..TurnContext::default()
        };
        let call = ToolCall::new(self.context.id.to_string(), self.tool.as_str(), &*self.arguments)
            .with_idempotency_key(self.idempotency_key.clone());
        let ended = CancellationToken::new();
        let run = async {
            let delivered = self.invoke_pipeline(&view, call, turn).await;
            ended.cancel();
            delivered
        };
        let (mut delivered, ()) = tokio::join!(run, self.forward_progress(events.as_deref(), &ended));
        let room = self.settle_permit(room, delivered.as_mut());
        let about = || self.client.state_context_of_call(&self.tool, &self.arguments);
        if let Some(required) =
            self.dialog.take_required_input(&server.state_signer, about, server.options.ask_timeout)
        {
            return Ok((CallOutcome::InputRequired(required?), None));
        }
        let is_cut_off = server.calls.shutdown.is_cancelled();
        let mut result = match delivered {
            Some(CallResult { result: Err(Failure::Fault(fault)), .. })
                if is_cut_off && fault.kind == FaultKind::Cancelled =>
            {
                convert::shutdown_result()
            }
            None if is_cut_off => convert::shutdown_result(),
            None => convert::cancelled_result(),
            Some(CallResult { result: Err(_), .. }) if self.dialog.missing_capability().is_some() => {
                let wanted = self.dialog.missing_capability().unwrap_or_default();
                return Err(ErrorData::missing_required_client_capability(wanted));
            }
            Some(delivered) => {
                let links = convert::supports_resource_links(self.context.version.as_ref());
                convert::call_result(delivered, entry.map(AsRef::as_ref), era, links)?
            }
        };
        session_attachments::fill_links(&**store, &self.client.owner.session, &mut result.content).await;
        Ok((CallOutcome::complete(result, era, server), room))
    }

    /// Adjusts the reservation to the size of the result, and returns it. The result of a task is stored with the task
    /// and needs none.
    fn settle_permit(
        &self,
        mut room: OutboxPermit,
        delivered: Option<&mut CallResult>,
    ) -> Option<OutboxPermit> {
        let memory = delivered.and_then(|delivered| delivered.memory.take());
        room.set_response_size(memory.as_ref().map_or(0, MemoryReservation::bytes), memory);
        self.dialog.task().is_none().then_some(room)
    }

    /// Runs the pipeline. A cancelled call has `CANCEL_GRACE` to end.
    async fn invoke_pipeline(&self, view: &View, call: ToolCall, turn: TurnContext) -> Option<CallResult> {
        let overdue = async {
            tokio::select! {
                () = self.cancel.cancelled() => {}
                () = self.credential_expired() => {}
                () = self.client.server.calls.shutdown.cancelled() => {}
            }
            self.cancel.cancel();
            tokio::time::sleep(CANCEL_GRACE).await;
        };
        tokio::select! {
            biased;
            mut delivered = self.client.server.pipeline.call_all(view, vec![call], turn) => delivered.pop(),
            () = overdue => {
                tracing::warn!("a cancelled call did not end in time and was dropped");
                None
            }
        }
    }

    /// Waits until the credential is no longer valid. A task survives the expiry of a token, since the client fetches
    /// the result with a new one, but not its revocation.
    async fn credential_expired(&self) {
        match &self.context.origin.validity {
            Some(validity) if self.task_mode.may_become_task() => validity.revoked().await,
            Some(validity) => validity.expired().await,
            None => std::future::pending().await,
        }
    }

    /// Forwards progress to the client and the task, until the call has ended and all events are sent.
    async fn forward_progress(&self, events: Option<&ProgressQueue>, ended: &CancellationToken) {
        let Some(events) = events else { return };
        let mut scale = ProgressScale::default();
        let mut token = incoming::progress_token(&self.context.meta);
        loop {
            // Read before the queue: no event comes after the end.
            let is_over = ended.is_cancelled();
            let Some(event) = events.pop() else {
                if is_over {
                    return;
                }
                tokio::select! {
                    () = events.wait() => {}
                    () = ended.cancelled() => {}
                }
                continue;
            };
            if let Some(task) = self.dialog.task() {
                task.set_message(&event.message);
            }
            let Some(to) = &token else { continue };
            let Some((progress, total)) = scale.next_value(event.percent) else { continue };
            let mut params = json!({"progressToken": to, "progress": progress, "message": event.message});
            if let (Some(total), Some(params)) = (total, params.as_object_mut()) {
                params.insert("total".to_owned(), json!(total));
            }
            let destination = Destination::Progress(&self.context.id);
            if !self.context.outbound.notify("notifications/progress", Some(&params), destination).await {
                // The client has disconnected. A task continues.
                token = None;
            }
        }
    }
}

/// Whether a tool may create attachments.
fn creates_attachments(entry: &ToolEntry) -> bool {
    entry.def.capabilities.iter().any(|one| one.kind == CapabilityKind::Attachments)
}

impl Drop for ClientContext {
    /// Removes the attachments of a session when its last user is dropped.
    fn drop(&mut self) {
        if Arc::strong_count(&self.owner.session) == 1 {
            let session = &self.owner.session;
            if let Some(key) = session.key() {
                self.server.attachment_store(session).remove_session(key);
            }
        }
    }
}

/// Waits for a call that has become a task, and stores its result until the task expires.
async fn supervise_task(
    client: Arc<ClientContext>,
    task: Arc<CallTask>,
    era: Era,
    mut running: JoinHandle<CallCompletion>,
) {
    let ends = tokio::time::sleep_until(task.expires_at().into());
    tokio::pin!(ends);
    let ended = tokio::select! {
        ended = &mut running => ended,
        () = &mut ends => {
            task.cancel.cancel();
            running.await
        }
        () = client.closed.cancelled() => {
            task.cancel.cancel();
            running.await
        }
    };
    let result = ended.unwrap_or_else(|_| Err(panic_error())).and_then(|(outcome, _)| match outcome {
        CallOutcome::Complete(mut result) => {
            if era == Era::Legacy {
                result.set_related_task(task.id());
            }
            to_raw_value(&result).map_err(|error| ErrorData::internal_error(error.to_string(), None))
        }
        // A call with an open input request is never promoted to a task.
        CallOutcome::InputRequired(_) | CallOutcome::Task(_) => {
            Err(ErrorData::internal_error("the call requires input: call again", None))
        }
    });
    let tasks = &client.server.tasks;
    tasks.finish(&task, result);
    tokio::select! {
        () = &mut ends => {}
        () = client.closed.cancelled() => {}
    }
    tasks.remove(&task);
}

/// The error for a tool that runs only as a task, if the client cannot poll or did not ask for a task.
fn task_required(tool: &str, era: Era) -> ErrorData {
    match era {
        Era::Modern => ErrorData::missing_required_client_capability(
            ClientCapabilities::builder().enable_tasks().build(),
        ),
        // The code that 2025-11-25 defines for this case.
        Era::Legacy => {
            let text = format!(
                "`{tool}` runs only as a task: call it with `task`, in protocol version 2025-11-25 or later"
            );
            ErrorData::new(ErrorCode::METHOD_NOT_FOUND, text, None)
        }
    }
}

/// The error for a client that asked for a task and gets none.
fn too_many_tasks() -> ErrorData {
    let text = format!(
        "no task is available: a client may have {MAX_TASKS} tasks, and their results are bounded; call without \
         `task`, or retry when earlier tasks have expired"
    );
    ErrorData::internal_error(text, None)
}

/// The error after a call has panicked.
pub(crate) fn panic_error() -> ErrorData {
    ErrorData::internal_error("the call panicked; see the log", None)
}

impl SessionOwner {
    pub(crate) fn identity(&self) -> Identity {
        Identity { platform: Some("mcp".to_owned()), agent_id: self.agent_id.clone(), ..Identity::default() }
    }
}
