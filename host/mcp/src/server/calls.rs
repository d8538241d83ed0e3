//! One call, from its request to its answer: run in place, or as a task that outlives the request.

#![expect(deprecated, reason = "older clients speak it: sampling, roots, logging, subscriptions by request")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, LoggingLevel,
    ProgressNotificationParam, ProgressToken,
};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
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

use crate::auth::Standing;
use crate::protocol::message::RawArguments;
use crate::protocol::progress::{self, Meter};
use crate::protocol::trace;
use crate::server::asking::{Asker, Brought};
use crate::server::convert::{self, Era};
use crate::server::outbox::{AnswerSlot, Outbox, Permit};
use crate::server::tasks::Task;
use crate::server::{Server, Whose};

/// How long a cancelled call may take to end by itself, so that it is still recorded, before it is dropped.
/// Shorter than the two seconds rmcp waits for answers when it is stopped.
const CANCEL_GRACE: Duration = Duration::from_secs(1);

/// Who calls: what all calls of one client share.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) server: Server,
    pub(crate) whose: Whose,
    permits: Arc<Semaphore>,
    closed: CancellationToken,
    /// Where answers wait that go out over one pipe.
    pub(crate) outbox: Option<Arc<Outbox>>,
    /// The least urgent lines of the log it wants to hear, as it last said.
    hears: Mutex<Option<LoggingLevel>>,
}

/// One call under way.
struct Job {
    caller: Arc<Caller>,
    request: CallToolRequestParams,
    id: String,
    era: Era,
    links: bool,
    asker: Arc<Asker>,
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    cancel: CancellationToken,
    /// Over HTTP, on what the request stands.
    standing: Option<Standing>,
    /// Whether it may become a task.
    as_task: bool,
    raw: Option<RawArguments>,
    trace: Option<String>,
    slot: AnswerSlot,
    _permit: OwnedSemaphorePermit,
    _works: TaskTrackerToken,
}

impl Caller {
    pub(crate) fn new(server: Server, whose: Whose, closed: CancellationToken) -> Self {
        let most = server.options().max_in_flight.min(Semaphore::MAX_PERMITS);
        let permits = Arc::new(Semaphore::new(most));
        Self { server, whose, permits, closed, outbox: None, hears: Mutex::default() }
    }

    /// Answers one call.
    pub(crate) async fn call(
        self: &Arc<Self>,
        mut request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let version = context.protocol_version();
        let era = Era::of(version.as_ref());
        tokio::select! {
            () = self.server.callable(&request.name) => {}
            () = self.server.cut_off().cancelled() => return Ok(signed(convert::cut_off(), era)),
        }
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            let most = self.server.options().max_in_flight;
            tracing::warn!(most, "a call was refused: too many in flight");
            return Ok(signed(convert::busy(most), era));
        };
        let brought =
            Brought { responses: request.input_responses.take(), state: request.request_state.take() };
        let as_task =
            era == Era::Modern && context.client_capabilities().is_some_and(|it| it.supports_tasks());
        // A task goes on when its request has ended.
        let cancel = if as_task { CancellationToken::new() } else { context.ct.child_token() };
        let asker = self.asker(&context, era, cancel.clone());
        let raw = RawArguments::of(&context);
        asker.take(brought, self.server.seals(), || self.about_call(&request, raw.as_ref()))?;
        let job = Job {
            caller: Arc::clone(self),
            id: context.id.to_string(),
            era,
            links: convert::knows_links(version.as_ref()),
            asker,
            peer: context.peer.clone(),
            token: context.meta.get_progress_token(),
            cancel,
            standing: Standing::of(&context),
            as_task,
            trace: trace::of_request(&context),
            raw,
            slot: AnswerSlot::of(&context, self.outbox.as_ref()),
            request,
            _permit: permit,
            _works: self.server.works(),
        };
        match as_task {
            // In a box: few calls are, and all would have room for it.
            true => Box::pin(job.run_as_task(&context.ct)).await,
            false => job.run().await,
        }
    }

    /// The client of a request, for what it may be asked.
    pub(crate) fn asker(
        &self,
        context: &RequestContext<RoleServer>,
        era: Era,
        cancel: CancellationToken,
    ) -> Arc<Asker> {
        let hears = match era {
            _ if !self.server.options().logging => None,
            Era::Legacy => *self.hears.lock().unwrap_or_else(PoisonError::into_inner),
            Era::Modern => context.meta.log_level(),
        };
        Arc::new(Asker::new(context, era, hears, cancel))
    }

    /// From now on the client wants to hear lines of the log that are as urgent as that.
    pub(crate) fn hear(&self, level: LoggingLevel) {
        *self.hears.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
    }

    /// For what a state is good that a client brings back with a call.
    fn about_call(&self, request: &CallToolRequestParams, raw: Option<&RawArguments>) -> String {
        // What was understood of it is missing where nobody has read it yet.
        let read = |raw: &RawArguments| serde_json::from_str(&raw.0).ok();
        let understood = || request.arguments.as_ref().map(|arguments| json!(arguments));
        let arguments = raw.map_or_else(understood, read).unwrap_or_default();
        self.about("tools/call", &request.name, &arguments)
    }

    /// For what a state is good: who asked, what, with which arguments.
    pub(crate) fn about(&self, method: &str, name: &str, arguments: &Value) -> String {
        canonical::sha256(&json!([self.whose.session_id, method, name, arguments])).to_string()
    }
}

impl Job {
    /// Runs the call; it becomes a task at once if the tool is slow, else when it takes long.
    async fn run_as_task(self, request: &CancellationToken) -> Result<CallToolResponse, ErrorData> {
        let (caller, asker, cancel) =
            (Arc::clone(&self.caller), Arc::clone(&self.asker), self.cancel.clone());
        let options = caller.server.options();
        let open = || {
            let tasks = caller.server.tasks();
            let opened = tasks.open(&caller.whose.owner(), cancel.clone(), options.task_life);
            if opened.is_none() {
                tracing::warn!("a long call did not become a task: there is no room for one more");
            }
            opened
        };
        let slow = self.is_slow();
        // Before it begins: what it asks at once it asks as a task.
        let mut task = if slow { asker.becomes(open) } else { None };
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
            task = asker.becomes(open);
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
        tokio::spawn(keep(caller, task, running));
        Ok(CallToolResponse::Task(created))
    }

    fn is_slow(&self) -> bool {
        self.caller
            .server
            .view()
            .get_callable(&self.request.name)
            .is_some_and(|entry| entry.has_tag(tags::SLOW))
    }

    async fn run(self) -> Result<CallToolResponse, ErrorData> {
        let server = &self.caller.server;
        // The guest gets text: that of the client, if it is known, else what rmcp has understood.
        let args = match (&self.raw, &self.request.arguments) {
            (Some(RawArguments(raw)), _) => raw.to_string(),
            (None, Some(arguments)) => serde_json::to_string(arguments)
                .map_err(|error| ErrorData::internal_error(error.to_string(), None))?,
            (None, None) => String::new(),
        };
        let view = server.view();
        let entry = view.get(&self.request.name);
        // Before anything is done for the call: a client that does not read has nothing made for it.
        let room = tokio::select! {
            biased;
            room = self.slot.acquire(entry.map_or(0, |entry| entry.expected_result_bytes())) => room,
            () = self.cancel.cancelled() => return Ok(signed(convert::abandoned(), self.era)),
        };
        let room = match room {
            Ok(room) => room,
            Err(full) => return Ok(signed(convert::failed(full), self.era)),
        };
        let (sink, events) = (self.token.is_some() || self.as_task).then(progress::channel).unzip();
        let turn = TurnContext {
            budget_chars: server.options().budget_chars,
            cancel: self.cancel.clone(),
            progress: sink,
            identity: Identity { traceparent: self.trace.clone(), ..self.caller.whose.identity() },
            session: Arc::clone(&self.caller.whose.session),
            dialog: Some(Arc::clone(&self.asker) as _),
            // Results of such turns are not kept for equal calls: only where they are wanted.
            attachments: entry
                .filter(|entry| hands_back(entry))
                .and_then(|_| server.handed().of_call(&self.caller.whose.session)),
            approver: (server.options().ask && server.seals().work() && self.asker.can_approve())
                .then(|| Arc::clone(&self.asker) as _),
            ..TurnContext::default()
        };
        let call = ToolCall::new(self.id.clone(), self.request.name.as_ref(), args);
        let ended = CancellationToken::new();
        let run = async {
            let delivered = self.deliver(&view, call, turn).await;
            ended.cancel();
            delivered
        };
        let (mut delivered, ()) = tokio::join!(run, self.forward(events, &ended));
        self.hold(room, delivered.as_mut());
        let about = || self.caller.about_call(&self.request, self.raw.as_ref());
        if let Some(required) = self.asker.required(server.seals(), about, server.options().ask_life) {
            return required.map(|mut required| {
                convert::sign(&mut required.meta, self.era);
                CallToolResponse::InputRequired(required)
            });
        }
        let is_cut_off = server.cut_off().is_cancelled();
        let mut result = match delivered {
            Some(CallResult { result: Err(Failure::Fault(fault)), .. })
                if is_cut_off && fault.kind == FaultKind::Cancelled =>
            {
                convert::cut_off()
            }
            None if is_cut_off => convert::cut_off(),
            None => convert::abandoned(),
            Some(CallResult { result: Err(_), .. }) if self.asker.missing().is_some() => {
                let wanted = self.asker.missing().unwrap_or_default();
                return Err(ErrorData::missing_required_client_capability(wanted));
            }
            Some(delivered) => convert::answer(delivered, entry.map(AsRef::as_ref), self.era, self.links)?,
        };
        server.handed().complete(&self.caller.whose.session, &mut result.content);
        Ok(signed(result, self.era))
    }

    /// Keeps the room for the answer until that is written. The result of a task is kept with the task.
    fn hold(&self, room: Option<Permit>, delivered: Option<&mut CallResult>) {
        let Some(mut room) = room.filter(|_| self.asker.task().is_none()) else { return };
        let memory = delivered.and_then(|delivered| delivered.memory.take());
        room.answered(memory.as_ref().map_or(0, MemoryReservation::bytes), memory);
        self.slot.hold(room);
    }

    /// Runs one call to its end, which is soon after it was cancelled.
    async fn deliver(&self, view: &View, call: ToolCall, turn: TurnContext) -> Option<CallResult> {
        let overdue = async {
            tokio::select! {
                () = self.cancel.cancelled() => {}
                () = self.standing_over() => {}
                () = self.caller.server.cut_off().cancelled() => {}
            }
            self.cancel.cancel();
            tokio::time::sleep(CANCEL_GRACE).await;
        };
        tokio::select! {
            biased;
            mut delivered = self.caller.server.pipeline().call_all(view, vec![call], turn) => delivered.pop(),
            () = overdue => {
                tracing::warn!("a cancelled call did not end by itself and was dropped");
                None
            }
        }
    }

    /// Waits until the caller may not have it any more. A task goes on when a token has expired: its client asks for the
    /// result with the next one.
    async fn standing_over(&self) {
        match &self.standing {
            Some(standing) if self.as_task => standing.revoked().await,
            Some(standing) => standing.over().await,
            None => std::future::pending().await,
        }
    }

    /// Sends progress on until the call has ended and what it said before is sent; to the task, too, if it is one.
    async fn forward(&self, events: Option<mpsc::Receiver<Progress>>, ended: &CancellationToken) {
        let Some(mut events) = events else { return };
        let mut meter = Meter::default();
        let mut token = self.token.clone();
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
            if let Some(task) = self.asker.task() {
                task.say(&event.message);
            }
            let Some(to) = &token else { continue };
            let Some((progress, total)) = meter.next(event.percent) else { continue };
            let mut notification =
                ProgressNotificationParam::new(to.clone(), progress).with_message(event.message);
            notification.total = total;
            if self.peer.notify_progress(notification).await.is_err() {
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

impl Drop for Caller {
    /// What a session was handed goes with it; one that others hold goes on.
    fn drop(&mut self) {
        if Arc::strong_count(&self.whose.session) == 1 {
            self.server.handed().forget(&self.whose.session);
        }
    }
}

/// Keeps the result of a call that has become a task, for as long as the task lasts.
async fn keep(
    caller: Arc<Caller>,
    task: Arc<Task>,
    mut running: JoinHandle<Result<CallToolResponse, ErrorData>>,
) {
    let ends = tokio::time::sleep_until(task.ends().into());
    tokio::pin!(ends);
    let ended = tokio::select! {
        ended = &mut running => ended,
        () = &mut ends => {
            task.cancel.cancel();
            running.await
        }
        () = caller.closed.cancelled() => {
            task.cancel.cancel();
            running.await
        }
    };
    let result = ended.unwrap_or_else(|_| Err(lost())).and_then(|response| match response {
        CallToolResponse::Complete(result) => {
            serde_json::to_value(result).map_err(|error| ErrorData::internal_error(error.to_string(), None))
        }
        // What asks first becomes no task.
        _ => Err(ErrorData::internal_error("the call needs an answer first: call again", None)),
    });
    let tasks = caller.server.tasks();
    tasks.end(&task, result);
    tokio::select! {
        () = &mut ends => {}
        () = caller.closed.cancelled() => {}
    }
    tasks.forget(&task);
}

fn signed(mut result: CallToolResult, era: Era) -> CallToolResponse {
    convert::sign(&mut result.meta, era);
    result.into()
}

/// What is answered when a panic ended a call.
pub(crate) fn lost() -> ErrorData {
    ErrorData::internal_error("the call's task failed; see the log", None)
}

/// What a server knows of whoever it talks to.
impl Whose {
    pub(crate) fn identity(&self) -> Identity {
        Identity {
            session_id: Some(self.session_id.clone()),
            platform: Some("mcp".to_owned()),
            agent_id: self.agent_id.clone(),
            ..Identity::default()
        }
    }

    /// Whose tasks are whose.
    pub(crate) fn owner(&self) -> Arc<str> {
        self.session_id.as_str().into()
    }
}
