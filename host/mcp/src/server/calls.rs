//! One call, from its request to its answer: run in place, or as a task that outlives the request.

#![expect(deprecated, reason = "older clients speak it: sampling, roots, logging, subscriptions by request")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{CreateTaskResult, ErrorData, InputRequiredResult, LoggingLevel, RequestId};
use serde::Deserialize;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;
use toolbay_core::call::fault::FaultKind;
use toolbay_core::call::invoke::Failure;
use toolbay_core::call::{Identity, Progress, ToolCall, TurnContext};
use toolbay_core::pipeline::CallResult;
use toolbay_core::pipeline::memory::MemoryReservation;
use toolbay_core::registry::view::{Entry, View};
use toolbay_core::tool::canonical;
use toolbay_core::tool::tags;
use toolbay_policy::capability::CapabilityKind;

use crate::protocol::incoming::Request;
use crate::protocol::lifecycle::Era;
use crate::protocol::outbound::Destination;
use crate::protocol::progress::{self, ProgressScale};
use crate::server::client_dialog::{ClientDialog, RetryInput};
use crate::server::convert::{self, CallToolResult};
use crate::server::outbox::OutboxPermit;
use crate::server::request::{Answer, RequestContext};
use crate::server::tasks::Task;
use crate::server::{Server, SessionOwner};

/// How long a cancelled call may take to end by itself, so that it is still recorded, before it is dropped.
/// Shorter than the two seconds that a pipe waits for answers when it is stopped.
const CANCEL_GRACE: Duration = Duration::from_secs(1);

/// What all calls of one client share.
#[derive(Debug)]
pub(crate) struct ClientContext {
    pub(crate) server: Arc<Server>,
    pub(crate) owner: SessionOwner,
    permits: Arc<Semaphore>,
    closed: CancellationToken,
    /// The least urgent lines of the log it wants to hear, as it last said.
    log_level: Mutex<Option<LoggingLevel>>,
}

/// The parameters of `tools/call`, but for the arguments.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallParams {
    name: String,
    input_responses: Option<BTreeMap<String, Value>>,
    request_state: Option<String>,
}

/// How a call continues.
enum CallOutcome {
    Complete(Box<CallToolResult>),
    InputRequired(InputRequiredResult),
    Task(CreateTaskResult),
}

/// One call under way.
struct InFlightCall {
    client: Arc<ClientContext>,
    context: RequestContext,
    tool: String,
    /// The arguments as the client wrote them.
    arguments: Arc<str>,
    dialog: Arc<ClientDialog>,
    cancel: CancellationToken,
    /// Whether it may become a task.
    as_task: bool,
    _permit: OwnedSemaphorePermit,
    _tracked: TaskTrackerToken,
}

/// The outcome of a call, with the room for its answer.
type CallEnd = Result<(CallOutcome, Option<OutboxPermit>), ErrorData>;

impl CallOutcome {
    fn complete(result: CallToolResult, era: Era) -> Self {
        Self::Complete(Box::new(result.signed(era)))
    }

    fn answer(&self, id: &RequestId, room: Option<OutboxPermit>) -> Answer {
        match self {
            Self::Complete(result) => Answer::new(id, result, room),
            Self::InputRequired(result) => Answer::new(id, result, None),
            Self::Task(created) => Answer::new(id, created, None),
        }
    }
}

impl ClientContext {
    pub(crate) fn new(server: Arc<Server>, owner: SessionOwner, closed: CancellationToken) -> Self {
        let most = server.options.max_in_flight.min(Semaphore::MAX_PERMITS);
        let permits = Arc::new(Semaphore::new(most));
        Self { server, owner, permits, closed, log_level: Mutex::default() }
    }

    /// Answers one call.
    pub(crate) async fn call(
        self: &Arc<Self>,
        request: Request,
        context: RequestContext,
    ) -> Result<Answer, ErrorData> {
        let CallParams { name: tool, input_responses, request_state } = request.params()?;
        let era = context.era;
        if request.arguments.as_ref().is_some_and(|arguments| !arguments.starts_with('{')) {
            return Err(request.invalid_params());
        }
        let arguments = request.arguments.unwrap_or_default();
        let id = context.id.clone();
        let refused = |result: CallToolResult| CallOutcome::complete(result, era).answer(&id, None);
        tokio::select! {
            () = self.server.callable(&tool) => {}
            () = self.server.calls.cut_off.cancelled() => return Ok(refused(convert::cut_off())),
        }
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            let most = self.server.options.max_in_flight;
            tracing::warn!(most, "a call was refused: too many in flight");
            return Ok(refused(convert::busy(most)));
        };
        let as_task = era == Era::Modern && context.capabilities.supports_tasks();
        // A task goes on when its request has ended.
        let ended = context.cancel.clone();
        let cancel = if as_task { CancellationToken::new() } else { ended.child_token() };
        let dialog = self.dialog(&context, cancel.clone());
        let input = RetryInput { responses: input_responses, state: request_state };
        dialog.take(input, &self.server.state_signer, || self.about_call(&tool, &arguments))?;
        let call = InFlightCall {
            client: Arc::clone(self),
            context,
            tool,
            arguments,
            dialog,
            cancel,
            as_task,
            _permit: permit,
            _tracked: self.server.calls.tracker.token(),
        };
        let (outcome, room) = match as_task {
            // In a box: few calls are, and all would have room for it.
            true => Box::pin(call.run_as_task(&ended)).await?,
            false => call.run().await?,
        };
        Ok(outcome.answer(&id, room))
    }

    /// The client of a request, for what it may be asked.
    pub(crate) fn dialog(&self, context: &RequestContext, cancel: CancellationToken) -> Arc<ClientDialog> {
        let level = match context.era {
            _ if !self.server.options.logging => None,
            Era::Legacy => *self.log_level.lock(),
            Era::Modern => context.meta.log_level(),
        };
        Arc::new(ClientDialog::new(context, level, cancel))
    }

    /// From now on the client wants to hear lines of the log that are as urgent as that.
    pub(crate) fn set_log_level(&self, level: LoggingLevel) {
        *self.log_level.lock() = Some(level);
    }

    /// For what a state is good that a client brings back with a call.
    fn about_call(&self, tool: &str, arguments: &str) -> String {
        self.about("tools/call", tool, &serde_json::from_str(arguments).unwrap_or_default())
    }

    /// For what a state is good: who asked, what, with which arguments.
    pub(crate) fn about(&self, method: &str, name: &str, arguments: &Value) -> String {
        canonical::sha256(&json!([self.owner.session_id, method, name, arguments])).to_string()
    }
}

impl InFlightCall {
    /// Runs the call; it becomes a task at once if the tool is slow, else when it takes long.
    async fn run_as_task(self, request: &CancellationToken) -> CallEnd {
        let (client, dialog, cancel) =
            (Arc::clone(&self.client), Arc::clone(&self.dialog), self.cancel.clone());
        let options = &client.server.options;
        let open = || {
            let tasks = &client.server.tasks;
            let opened = tasks.open(&client.owner.session_id, cancel.clone(), options.task_life);
            if opened.is_none() {
                tracing::warn!("a long call did not become a task: there is no room for one more");
            }
            opened
        };
        let slow = self.is_slow();
        // Before it begins: what it asks at once it asks as a task.
        let mut task = if slow { dialog.promote_to_task(open) } else { None };
        let mut running = tokio::spawn(self.run());
        // Whoever drops this future gives the call up.
        let gone = cancel.clone().drop_guard();
        if !slow {
            tokio::select! {
                biased;
                ended = &mut running => return ended.unwrap_or_else(|_| Err(lost())),
                () = request.cancelled() => {
                    cancel.cancel();
                    return running.await.unwrap_or_else(|_| Err(lost()));
                }
                () = tokio::time::sleep(options.task_after) => {}
            }
            task = dialog.promote_to_task(open);
        }
        let Some(task) = task else {
            tokio::select! {
                ended = &mut running => return ended.unwrap_or_else(|_| Err(lost())),
                () = request.cancelled() => cancel.cancel(),
            }
            return running.await.unwrap_or_else(|_| Err(lost()));
        };
        let created = task.created();
        gone.disarm();
        tokio::spawn(keep(client, task, running));
        Ok((CallOutcome::Task(created), None))
    }

    fn is_slow(&self) -> bool {
        self.client.server.view().get_callable(&self.tool).is_some_and(|entry| entry.has_tag(tags::SLOW))
    }

    async fn run(self) -> CallEnd {
        let (server, era) = (&self.client.server, self.context.era);
        let complete = |result: CallToolResult| (CallOutcome::complete(result, era), None);
        let view = server.view();
        let entry = view.get(&self.tool);
        // Before anything is done for the call: a client that does not read has nothing made for it.
        let outbox = &self.context.origin.outbox;
        let room = tokio::select! {
            biased;
            room = outbox.acquire(entry.map_or(0, |entry| entry.expected_result_bytes())) => room,
            () = self.cancel.cancelled() => return Ok(complete(convert::abandoned())),
        };
        let room = match room {
            Ok(room) => room,
            Err(full) => return Ok(complete(convert::failed(full))),
        };
        let (sink, events) = (self.context.meta.get_progress_token().is_some() || self.as_task)
            .then(progress::channel)
            .unzip();
        let turn = TurnContext {
            budget_chars: server.options.budget_chars,
            cancel: self.cancel.clone(),
            progress: sink,
            identity: Identity { traceparent: self.context.traceparent(), ..self.client.owner.identity() },
            session: Arc::clone(&self.client.owner.session),
            dialog: Some(Arc::clone(&self.dialog) as _),
            // Results of such turns are not kept for equal calls: only where they are wanted.
            attachments: entry
                .filter(|entry| hands_back(entry))
                .and_then(|_| server.attachments.of_call(&self.client.owner.session)),
            approver: (server.options.ask && server.state_signer.is_ready() && self.dialog.can_approve())
                .then(|| Arc::clone(&self.dialog) as _),
            ..TurnContext::default()
        };
        let call = ToolCall::new(self.context.id.to_string(), self.tool.as_str(), &*self.arguments);
        let ended = CancellationToken::new();
        let run = async {
            let delivered = self.deliver(&view, call, turn).await;
            ended.cancel();
            delivered
        };
        let (mut delivered, ()) = tokio::join!(run, self.forward(events, &ended));
        let room = self.claim(room, delivered.as_mut());
        let about = || self.client.about_call(&self.tool, &self.arguments);
        if let Some(required) = self.dialog.required(&server.state_signer, about, server.options.ask_life) {
            return Ok((CallOutcome::InputRequired(required?), None));
        }
        let is_cut_off = server.calls.cut_off.is_cancelled();
        let mut result = match delivered {
            Some(CallResult { result: Err(Failure::Fault(fault)), .. })
                if is_cut_off && fault.kind == FaultKind::Cancelled =>
            {
                convert::cut_off()
            }
            None if is_cut_off => convert::cut_off(),
            None => convert::abandoned(),
            Some(CallResult { result: Err(_), .. }) if self.dialog.missing().is_some() => {
                let wanted = self.dialog.missing().unwrap_or_default();
                return Err(ErrorData::missing_required_client_capability(wanted));
            }
            Some(delivered) => {
                let links = convert::knows_links(self.context.version.as_ref());
                convert::answer(delivered, entry.map(AsRef::as_ref), era, links)?
            }
        };
        server.attachments.complete(&self.client.owner.session, &mut result.content);
        Ok((CallOutcome::complete(result, era), room))
    }

    /// The room for the answer until that is written. The result of a task is kept with the task.
    fn claim(&self, mut room: OutboxPermit, delivered: Option<&mut CallResult>) -> Option<OutboxPermit> {
        let memory = delivered.and_then(|delivered| delivered.memory.take());
        room.answered(memory.as_ref().map_or(0, MemoryReservation::bytes), memory);
        self.dialog.task().is_none().then_some(room)
    }

    /// Runs one call to its end, which is soon after it was cancelled.
    async fn deliver(&self, view: &View, call: ToolCall, turn: TurnContext) -> Option<CallResult> {
        let overdue = async {
            tokio::select! {
                () = self.cancel.cancelled() => {}
                () = self.credential_expired() => {}
                () = self.client.server.calls.cut_off.cancelled() => {}
            }
            self.cancel.cancel();
            tokio::time::sleep(CANCEL_GRACE).await;
        };
        tokio::select! {
            biased;
            mut delivered = self.client.server.pipeline.call_all(view, vec![call], turn) => delivered.pop(),
            () = overdue => {
                tracing::warn!("a cancelled call did not end by itself and was dropped");
                None
            }
        }
    }

    /// Waits until the caller may not have it any more. A task goes on when a token has expired: its client asks for the
    /// result with the next one.
    async fn credential_expired(&self) {
        match &self.context.origin.validity {
            Some(validity) if self.as_task => validity.revoked().await,
            Some(validity) => validity.expired().await,
            None => std::future::pending().await,
        }
    }

    /// Sends progress on until the call has ended and what it said before is sent; to the task, too, if it is one.
    async fn forward(&self, events: Option<mpsc::Receiver<Progress>>, ended: &CancellationToken) {
        let Some(mut events) = events else { return };
        let mut scale = ProgressScale::default();
        let mut token = self.context.meta.get_progress_token();
        loop {
            let event = tokio::select! {
                biased;
                event = events.recv() => event,
                () = ended.cancelled(), if !ended.is_cancelled() => {
                    events.close();
                    continue;
                }
            };
            let Some(event) = event else { return };
            if let Some(task) = self.dialog.task() {
                task.say(&event.message);
            }
            let Some(to) = &token else { continue };
            let Some((progress, total)) = scale.next(event.percent) else { continue };
            let mut params = json!({"progressToken": to, "progress": progress, "message": event.message});
            if let (Some(total), Some(params)) = (total, params.as_object_mut()) {
                params.insert("total".to_owned(), json!(total));
            }
            let destination = Destination::Progress(&self.context.id);
            if !self.context.outbound.notify("notifications/progress", Some(&params), destination).await {
                // Nobody hears it any more; a task goes on.
                token = None;
            }
        }
    }
}

/// Whether a tool may make files.
fn hands_back(entry: &Entry) -> bool {
    entry.def.capabilities.iter().any(|one| one.kind == CapabilityKind::Attachments)
}

impl Drop for ClientContext {
    /// The attachments of a session go with it; those of one that others hold stay.
    fn drop(&mut self) {
        if Arc::strong_count(&self.owner.session) == 1 {
            self.server.attachments.forget(&self.owner.session);
        }
    }
}

/// Keeps the result of a call that has become a task, for as long as the task lasts.
async fn keep(client: Arc<ClientContext>, task: Arc<Task>, mut running: JoinHandle<CallEnd>) {
    let ends = tokio::time::sleep_until(task.ends().into());
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
    let result = ended.unwrap_or_else(|_| Err(lost())).and_then(|(outcome, _)| match outcome {
        CallOutcome::Complete(result) => {
            to_raw_value(&result).map_err(|error| ErrorData::internal_error(error.to_string(), None))
        }
        // What asks first becomes no task.
        CallOutcome::InputRequired(_) | CallOutcome::Task(_) => {
            Err(ErrorData::internal_error("the call needs an answer first: call again", None))
        }
    });
    let tasks = &client.server.tasks;
    tasks.end(&task, result);
    tokio::select! {
        () = &mut ends => {}
        () = client.closed.cancelled() => {}
    }
    tasks.forget(&task);
}

/// What is answered when a panic ended a call.
pub(crate) fn lost() -> ErrorData {
    ErrorData::internal_error("the call's task failed; see the log", None)
}

/// What a server knows of whoever it talks to.
impl SessionOwner {
    pub(crate) fn identity(&self) -> Identity {
        Identity {
            session_id: Some(self.session_id.to_string()),
            platform: Some("mcp".to_owned()),
            agent_id: self.agent_id.clone(),
            ..Identity::default()
        }
    }
}
