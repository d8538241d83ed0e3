//! Calls of an event loop: batches, the native tools of the language, and its approver.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use toolbay::core::call::invoke::{Invoke, ToolOutcome};
use toolbay::core::call::trace::TraceParent;
use toolbay::core::call::{AdmittedCall, DEFAULT_BUDGET_CHARS};
use toolbay::policy::limits::Usage;
use toolbay::policy::quantity;
use toolbay::{
    ApprovalReply, ApprovalRequest, Approver, BoxFuture, CallContext, Failure, Fault, FaultKind, Host,
    Identity, ProgressAudience, ProgressEvent, ProgressSink, Session, ToolCall, ToolEntry, ToolError,
    ToolOutput, TurnContext, View, native_tool,
};

use crate::error::BridgeError;
use crate::event::Event;
use crate::mailbox::{Mailbox, Question};
use crate::number;
use crate::request::{
    ApprovalAnswer, AudienceName, CallAllRequest, CallRequest, IdentityRequest, OutputReply, Reply,
    ToolRequest,
};
use crate::result::{ResultDocument, error_code, raw_value};

/// The batch that a call belongs to. Native tools find it in [`TurnContext::extension`], so they run on the event loop that
/// made the call.
#[derive(Debug)]
struct BatchCaller {
    mailbox: Arc<Mailbox>,
    batch: u64,
}

/// Calls that are ready to run.
pub(crate) struct Batch {
    caller: Arc<BatchCaller>,
    host: Host,
    view: View,
    calls: Vec<ToolCall>,
    turn: TurnContext,
    streams: bool,
}

impl Batch {
    /// Prepares the calls of a request, with `turn.cancel` as the token that cancels them.
    pub(crate) fn new(
        mailbox: &Arc<Mailbox>,
        id: u64,
        request: CallAllRequest,
        host: Host,
        view: View,
        session: Option<Arc<Session>>,
        asks: bool,
    ) -> Self {
        let caller = Arc::new(BatchCaller { mailbox: Arc::clone(mailbox), batch: id });
        let CallAllRequest { calls, progress, stream, budget_chars, dry_run, identity, .. } = request;
        let turn = TurnContext {
            budget_chars: budget_chars.unwrap_or(DEFAULT_BUDGET_CHARS),
            dry_run,
            progress: progress.then(|| Arc::clone(&caller) as Arc<dyn ProgressSink>),
            identity: identity.into(),
            approver: asks.then(|| Arc::clone(&caller) as Arc<dyn Approver>),
            session: session.unwrap_or_default(),
            extension: Some(Arc::clone(&caller) as _),
            ..TurnContext::default()
        };
        let calls = calls.into_iter().map(ToolCall::from).collect();
        Self { caller, host, view, calls, turn, streams: stream }
    }

    pub(crate) fn with_cancel(mut self, cancel: toolbay::CancellationToken) -> Self {
        self.turn.cancel = cancel;
        self
    }

    /// Runs the calls, and sends their results to the mailbox.
    pub(crate) async fn run(self) {
        let Self { caller, host, view, calls, turn, streams } = self;
        let (mailbox, id) = (&caller.mailbox, caller.batch);
        let (mut results, mut memory) = (Vec::new(), Vec::new());
        if streams {
            let send = |index, result| {
                let (result, memory) = ResultDocument::new(result);
                let event = Event::Result { id, index, result: Box::new(result) };
                mailbox.push_with(&event, memory.into_iter().collect());
            };
            host.call_each(&view, calls, turn, send).await;
        } else {
            for result in host.call_all(&view, calls, turn).await {
                let (result, held) = ResultDocument::new(result);
                results.push(result);
                memory.extend(held);
            }
        }
        mailbox.end_batch(id);
        mailbox.push_with(&Event::Results { id, results }, memory);
    }
}

impl From<CallRequest> for ToolCall {
    fn from(request: CallRequest) -> Self {
        let CallRequest { id, tool, args, idempotency_key } = request;
        Self::new(id, tool, args).with_idempotency_key(idempotency_key.map(Into::into))
    }
}

impl From<IdentityRequest> for Identity {
    fn from(request: IdentityRequest) -> Self {
        Self {
            session_key: request.session_key,
            platform: request.platform,
            client: request.client,
            agent_id: request.agent_id,
            personality_id: request.personality_id,
            team_id: request.team_id,
            turn: request.turn,
            message_count: request.message_count,
            traceparent: request.traceparent.as_deref().and_then(TraceParent::parse),
            attributes: request.attributes,
        }
    }
}

impl ProgressSink for BatchCaller {
    fn progress(&self, event: ProgressEvent) {
        self.mailbox.push(&Event::progress(self.batch, &event));
    }
}

impl Approver for BatchCaller {
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalReply> {
        let (id, (answer, answered)) = (number::next(), oneshot::channel());
        let event = Event::Approval { id, batch: self.batch, request: Box::new(request.into()) };
        let guard = self.mailbox.ask(id, Question::Approval { answer }, &event);
        Box::pin(async move {
            let _withdraw = guard;
            answered.await.unwrap_or_else(|_| {
                ApprovalReply::Unanswered("the event loop of the program has ended".to_owned())
            })
        })
    }
}

/// A tool of the language: each call becomes an event of the mailbox that made the call.
#[derive(Debug)]
struct LanguageTool {
    timeout: Duration,
}

impl Invoke for LanguageTool {
    fn invoke<'a>(&'a self, call: &'a AdmittedCall, ctx: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let result = tokio::select! {
                biased;
                () = ctx.cancel().cancelled() => Err(cancelled("the call was cancelled")),
                ended = tokio::time::timeout(self.timeout, ask(call, ctx)) => ended.unwrap_or_else(|_| {
                    let most = quantity::show_duration(self.timeout);
                    let text = format!("the native tool exceeded its timeout of {most}");
                    Err(Fault::new(FaultKind::Deadline, text).into())
                }),
            };
            ToolOutcome { result, usage: Usage { args_bytes: call.args().len() as u64, ..Usage::default() } }
        })
    }
}

/// Sends a call to the language and waits for its reply. Dropping the future withdraws the call.
async fn ask(call: &AdmittedCall, ctx: &Arc<CallContext>) -> Result<ToolOutput, Failure> {
    let caller = ctx.turn.extension.as_ref().and_then(|one| one.downcast_ref::<BatchCaller>());
    let Some(BatchCaller { mailbox, batch }) = caller else {
        return Err(Failure::Host(
            "the tool runs in the event loop of a call, and this call has none".to_owned(),
        ));
    };
    let (id, (answer, answered)) = (number::next(), oneshot::channel());
    let context = Box::new((&**ctx).into());
    let event = Event::Call { id, batch: *batch, tool: &ctx.tool, args: call.args(), context };
    let question = Question::Call { context: Arc::clone(ctx), answer };
    let gone = || cancelled("the event loop of the call has ended");
    let _withdraw = mailbox.ask(id, question, &event).ok_or_else(gone)?;
    answered.await.unwrap_or_else(|_| Err(gone()))
}

fn cancelled(message: &str) -> Failure {
    Fault::new(FaultKind::Cancelled, message).into()
}

/// The registry's entry for a tool of the language.
pub(crate) fn tool_entry(request: ToolRequest) -> Result<ToolEntry, BridgeError> {
    let traits = request.traits()?;
    let mut tool =
        native_tool(request.name).description(request.description).input_schema(request.input_schema);
    tool = tool.traits(traits);
    if let Some(namespace) = request.namespace {
        tool = tool.namespace(namespace);
    }
    if let Some(title) = request.title {
        tool = tool.title(title);
    }
    if let Some(schema) = request.output_schema {
        tool = tool.output_schema(schema);
    }
    if let Some(toolset) = request.toolset {
        tool = tool.toolset(toolset);
    }
    if let Some(words) = request.search_hint {
        tool = tool.search_hint(words);
    }
    if let Some(most) = request.max_result_chars {
        tool = tool.max_result_chars(most);
    }
    if let Some(queue) = request.serial {
        tool = tool.serial(queue);
    }
    if let Some(age) = request.cache_ms {
        tool = tool.cache(Duration::from_millis(age));
    }
    if let Some(timeout) = request.timeout_ms {
        tool = tool.timeout(Duration::from_millis(timeout));
    }
    tool = request.tags.into_iter().fold(tool, |tool, tag| tool.tag(tag));
    // The invoker below gets the arguments as text, which keeps large integers exact.
    let entry = tool.run(async |_, _| Ok(ToolOutput::default()));
    let entry = entry.map_err(|error| BridgeError::argument(error.to_string()))?;
    let timeout = entry.def.timeout.unwrap_or_default();
    Ok(ToolEntry { invoker: Arc::new(LanguageTool { timeout }), ..entry })
}

/// Takes a reply of the language. A reply to what was withdrawn is dropped.
pub(crate) fn reply(mailbox: &Mailbox, id: u64, reply: Reply) -> Result<(), BridgeError> {
    let result = match reply {
        Reply::Progress { message, percent, audience } => {
            if let Some(context) = mailbox.context(id) {
                context.progress(&message, percent, audience.into());
            }
            return Ok(());
        }
        Reply::Approval { answer, comment } => {
            if let Some(Question::Approval { answer: waiting }) = mailbox.take_question(id) {
                // The call can have ended in the meantime.
                drop(waiting.send(approval(answer, comment)));
            }
            return Ok(());
        }
        Reply::Output(output) => Ok(output_of(*output)?),
        Reply::Error { code, message, subject, cost_usd } => {
            Err(ToolError { subject, cost_usd, ..ToolError::new(error_code(&code), message) }.into())
        }
        Reply::Busy { message } => Err(Fault::new(FaultKind::Busy, message).into()),
        Reply::Cancelled { message } => Err(cancelled(&message)),
    };
    if let Some(Question::Call { answer, .. }) = mailbox.take_question(id) {
        // The call can have ended in the meantime.
        drop(answer.send(result));
    }
    Ok(())
}

fn approval(answer: ApprovalAnswer, comment: Option<String>) -> ApprovalReply {
    match answer {
        ApprovalAnswer::Yes => ApprovalReply::Yes,
        ApprovalAnswer::Always => ApprovalReply::Always,
        ApprovalAnswer::No => ApprovalReply::No(comment),
        ApprovalAnswer::Unanswered => ApprovalReply::Unanswered(comment.unwrap_or_default()),
        ApprovalAnswer::Deferred => ApprovalReply::Deferred,
    }
}

fn output_of(reply: OutputReply) -> Result<ToolOutput, BridgeError> {
    let OutputReply { value, structured, content, cost_usd, meta } = reply;
    let meta = raw_value(meta)?;
    let output = ToolOutput { content, cost_usd, meta, ..ToolOutput::text(value) };
    Ok(match raw_value(structured)? {
        Some(structured) => output.with_structured(&structured)?,
        None => output,
    })
}

impl From<AudienceName> for ProgressAudience {
    fn from(name: AudienceName) -> Self {
        match name {
            AudienceName::Internal => Self::Internal,
            AudienceName::User => Self::User,
            AudienceName::Dashboard => Self::Dashboard,
        }
    }
}
