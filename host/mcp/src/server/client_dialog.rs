//! Requests input from the client while its call runs: approvals, and dialogs of native tools.
//!
//! | era | mechanism |
//! |---|---|
//! | legacy | a request to the client, such as `elicitation/create`, while the call waits |
//! | modern | the call ends with `InputRequiredResult`, and the client retries it with the answers and the state ([`crate::protocol::request_state`]) |
//! | modern, as a task | the task shows its input requests and waits |
//! | legacy, as a task | the task waits; its client gets the request while it waits for the result |
//!
//! Only capabilities that the client declared are used.

#![expect(deprecated, reason = "legacy clients use sampling, roots, logging and subscriptions by request")]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rmcp::model::{
    ClientCapabilities, ErrorData, InputRequests, InputRequiredResult, LoggingLevel, RequestId,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolbay_core::approval::{ApprovalReply, ApprovalRequest, Approver};
use toolbay_core::call::dialog::{Dialog, DialogError, DialogRequest, DialogRequestKind, LogLevel};
use toolbay_core::tool::canonical;
use toolbay_policy::hidden_chars::escape_hidden;

use crate::protocol::legacy_tasks;
use crate::protocol::lifecycle::Era;
use crate::protocol::outbound::{Destination, Outbound};
use crate::protocol::request_state::{RequestStatePayload, RequestStateSigner};
use crate::server::convert;
use crate::server::input_requests::{MAX_OPEN_REQUESTS, is_valid_answer, to_input_request};
use crate::server::request::RequestContext;
use crate::server::tasks::CallTask;

/// Key of the approval request. Keys of tools cannot have this prefix.
const APPROVAL_KEY: &str = "toolbay/approve";
/// Longest arguments in an approval form, in characters.
const MAX_SHOWN_ARGS: usize = 2000;
/// Most responses in one retry.
const MAX_RESPONSES: usize = 32;
/// Longest parameters of an input request, in bytes.
const MAX_PARAMS_BYTES: usize = 64 << 10;
/// Most log messages that one call sends to its client.
const MAX_LOG_LINES: usize = 1000;
/// Longest log message, in bytes.
const MAX_LOG_BYTES: usize = 16 << 10;

/// The dialog with the client of one call.
pub(crate) struct ClientDialog {
    era: Era,
    /// The id of the `tools/call` request.
    request_id: RequestId,
    outbound: Outbound,
    client: ClientCapabilities,
    cancel: CancellationToken,
    /// The log level that the client set.
    log_level: Option<LoggingLevel>,
    round: Mutex<InputRound>,
}

/// Answers and open requests of the current round.
#[derive(Debug, Default)]
struct InputRound {
    received: BTreeMap<String, Value>,
    /// Hash of the approval request that the received answer belongs to.
    approval_id: Option<String>,
    open_requests: BTreeMap<String, DialogRequest>,
    /// Hash of the open approval request.
    pending_approval: Option<String>,
    /// A required capability that the client did not declare.
    unsupported: Option<DialogRequestKind>,
    /// The task that the call has become.
    task: Option<Arc<CallTask>>,
    lines: usize,
}

impl fmt::Debug for ClientDialog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientDialog").field("era", &self.era).finish_non_exhaustive()
    }
}

/// The input of a retried call.
#[derive(Debug, Default)]
pub(crate) struct RetryInput {
    pub(crate) responses: Option<BTreeMap<String, Value>>,
    pub(crate) state: Option<String>,
}

impl ClientDialog {
    /// Creates the dialog for a request.
    pub(crate) fn new(
        context: &RequestContext,
        log_level: Option<LoggingLevel>,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            era: context.era,
            request_id: context.id.clone(),
            outbound: context.outbound.clone(),
            client: context.capabilities.clone(),
            cancel,
            log_level,
            round: Mutex::default(),
        }
    }

    /// Accepts the input of a retried call. `about` is the context that its state must be bound to.
    ///
    /// # Errors
    /// The state is forged, expired, already used, or bound to another request.
    pub(crate) fn accept_input(
        &self,
        input: RetryInput,
        signer: &RequestStateSigner,
        about: impl FnOnce() -> String,
    ) -> Result<(), ErrorData> {
        if self.era == Era::Legacy {
            return Ok(());
        }
        let state = input.state.map(|state| signer.open(&about(), &state)).transpose()?.unwrap_or_default();
        let mut round = self.round.lock();
        let RequestStatePayload { approval, answers, .. } = state;
        round.approval_id = approval;
        round.received = answers;
        let responses = input.responses.unwrap_or_default();
        if responses.len() > MAX_RESPONSES {
            return Err(ErrorData::invalid_params(
                format!("more than {MAX_RESPONSES} entries in `inputResponses`"),
                None,
            ));
        }
        round.received.extend(responses);
        Ok(())
    }

    /// Whether the client can be asked for approval.
    pub(crate) fn can_approve(&self) -> bool {
        self.supports(DialogRequestKind::Elicit)
    }

    /// Makes the call a task, which `open` creates, unless it is about to end with an input request.
    pub(crate) fn promote_to_task(
        &self,
        open: impl FnOnce() -> Option<Arc<CallTask>>,
    ) -> Option<Arc<CallTask>> {
        let mut round = self.round.lock();
        if round.open_requests.is_empty() {
            round.task = open();
        }
        round.task.clone()
    }

    /// Sends an input request of the host itself.
    pub(crate) async fn ask_as_host(&self, ask: DialogRequest) -> Result<Value, DialogError> {
        let mut answers = self.collect_answers(vec![ask], None).await?;
        answers.pop().ok_or(DialogError::InputRequired)
    }

    /// The task that the call has become, if any.
    pub(crate) fn task(&self) -> Option<Arc<CallTask>> {
        self.round.lock().task.clone()
    }

    /// Takes the open requests as the result that ends this round. `None` if there are none.
    pub(crate) fn take_required_input(
        &self,
        signer: &RequestStateSigner,
        about: impl FnOnce() -> String,
        life: Duration,
    ) -> Option<Result<InputRequiredResult, ErrorData>> {
        let (open, state) = {
            let mut round = self.round.lock();
            if round.open_requests.is_empty() {
                return None;
            }
            let open = std::mem::take(&mut round.open_requests);
            let mut answers = round.received.clone();
            answers.remove(APPROVAL_KEY);
            (open, RequestStatePayload::new(round.pending_approval.take(), answers))
        };
        Some(signer.seal(&about(), state, life).and_then(|state| {
            let requests = open.into_values().map(|ask| Ok((ask.key.clone(), to_input_request(&ask)?)));
            let requests: InputRequests = requests
                .collect::<Result<_, String>>()
                .map_err(|problem| ErrorData::internal_error(problem, None))?;
            let mut required = InputRequiredResult::new(Some(requests), Some(state));
            required.meta = Some(convert::server_info_meta().clone());
            Ok(required)
        }))
    }

    /// The capability that the client lacks, for the error that 2026-07-28 defines.
    pub(crate) fn missing_capability(&self) -> Option<ClientCapabilities> {
        let kind = self.round.lock().unsupported.filter(|_| self.era == Era::Modern)?;
        let mut wanted = ClientCapabilities::default();
        match kind {
            DialogRequestKind::Elicit => wanted.elicitation = Some(Default::default()),
            DialogRequestKind::Sample => wanted.sampling = Some(Default::default()),
            DialogRequestKind::Roots => wanted.roots = Some(Default::default()),
        }
        Some(wanted)
    }

    async fn collect_answers(
        &self,
        asks: Vec<DialogRequest>,
        proof: Option<String>,
    ) -> Result<Vec<Value>, DialogError> {
        if asks.len() > MAX_OPEN_REQUESTS {
            return Err(DialogError::Failed(format!("more than {MAX_OPEN_REQUESTS} input requests at once")));
        }
        for ask in &asks {
            if !self.supports(ask.kind) {
                self.round.lock().unsupported = Some(ask.kind);
                return Err(DialogError::Unsupported(ask.kind));
            }
            if ask.params.to_string().len() > MAX_PARAMS_BYTES {
                return Err(DialogError::Failed(format!(
                    "an input request has more than {MAX_PARAMS_BYTES} bytes"
                )));
            }
            to_input_request(ask).map_err(DialogError::Failed)?;
        }
        match (self.era, self.task()) {
            (Era::Legacy, Some(task)) => task.ask(asks).await,
            (Era::Legacy, None) => self.ask_client(asks).await,
            (Era::Modern, _) => self.lookup_answers(asks, proof).await,
        }
    }

    /// Sends requests to a legacy client one after the other, and waits for the responses.
    async fn ask_client(&self, asks: Vec<DialogRequest>) -> Result<Vec<Value>, DialogError> {
        let mut answers = Vec::with_capacity(asks.len());
        for ask in asks {
            let answer = tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Err(DialogError::Failed("the call was cancelled".to_owned())),
                answer = send_input_request(&self.outbound, &ask, None, &self.request_id) => answer,
            };
            answers.push(answer.map_err(DialogError::Failed)?);
        }
        Ok(answers)
    }

    /// Returns the answers that the client sent, or registers the missing ones as open requests.
    async fn lookup_answers(
        &self,
        asks: Vec<DialogRequest>,
        proof: Option<String>,
    ) -> Result<Vec<Value>, DialogError> {
        let (task, found) = {
            let mut round = self.round.lock();
            let proven = proof.is_none() || round.approval_id == proof;
            let given = |ask: &DialogRequest| {
                let answer = round.received.get(&ask.key).filter(|_| proven)?;
                is_valid_answer(ask.kind, answer).then(|| answer.clone())
            };
            let found: Vec<Option<Value>> = asks.iter().map(given).collect();
            if round.task.is_none() && found.iter().any(Option::is_none) {
                let open = asks.iter().zip(&found).filter(|(_, found)| found.is_none());
                let open: Vec<_> = open.map(|(ask, _)| (ask.key.clone(), ask.clone())).collect();
                if round.open_requests.len() + open.len() > MAX_OPEN_REQUESTS {
                    return Err(DialogError::Failed(format!(
                        "more than {MAX_OPEN_REQUESTS} input requests at once"
                    )));
                }
                round.open_requests.extend(open);
                round.pending_approval = proof;
                return Err(DialogError::InputRequired);
            }
            (round.task.clone(), found)
        };
        let mut answers = Vec::with_capacity(asks.len());
        let (mut open, mut places) = (Vec::new(), Vec::new());
        for (place, (ask, found)) in asks.into_iter().zip(found).enumerate() {
            if found.is_none() {
                open.push(ask);
                places.push(place);
            }
            answers.push(found.unwrap_or_default());
        }
        if let (Some(task), false) = (task, open.is_empty()) {
            for (place, answer) in places.into_iter().zip(task.ask(open).await?) {
                if let Some(slot) = answers.get_mut(place) {
                    *slot = answer;
                }
            }
        }
        Ok(answers)
    }
}

/// Sends an input request to a legacy client while serving its request `of`, and waits for a valid response. `task` is
/// the id of the task that requests the input.
///
/// # Errors
/// The client disconnected, or answered with an error or nonsense.
pub(crate) async fn send_input_request(
    outbound: &Outbound,
    ask: &DialogRequest,
    task: Option<&str>,
    of: &RequestId,
) -> Result<Value, String> {
    let request = serde_json::to_value(to_input_request(ask)?).unwrap_or_default();
    let method = request.get("method").and_then(Value::as_str).unwrap_or_default();
    let mut params = request.get("params").cloned().unwrap_or_else(|| json!({}));
    if let (Some(task), Some(params)) = (task, params.as_object_mut()) {
        let meta = params.entry("_meta").or_insert_with(|| json!({}));
        if let Some(meta) = meta.as_object_mut() {
            meta.insert(legacy_tasks::RELATED_TASK.to_owned(), legacy_tasks::related_task(task));
        }
    }
    let answer = outbound.request(method, &params, of).await;
    let answer = answer.map_err(|problem| escape_hidden(&problem).into_owned())?;
    match is_valid_answer(ask.kind, &answer) {
        true => Ok(answer),
        false => Err("the client sent an invalid response".to_owned()),
    }
}

impl Dialog for ClientDialog {
    fn supports(&self, kind: DialogRequestKind) -> bool {
        match kind {
            // A client that declares no mode supports forms, as before the modes were introduced.
            DialogRequestKind::Elicit => {
                self.client.elicitation.as_ref().is_some_and(|it| it.form.is_some() || it.url.is_none())
            }
            DialogRequestKind::Sample => self.client.sampling.is_some(),
            DialogRequestKind::Roots => self.client.roots.is_some(),
        }
    }

    fn ask(&self, asks: Vec<DialogRequest>) -> BoxFuture<'_, Result<Vec<Value>, DialogError>> {
        Box::pin(async move {
            if let Some(ask) = asks.iter().find(|ask| ask.key.starts_with("toolbay/")) {
                return Err(DialogError::Failed(format!("the key `{}` is reserved for the host", ask.key)));
            }
            self.collect_answers(asks, None).await
        })
    }

    fn log(&self, level: LogLevel, logger: Option<&str>, data: Value) -> BoxFuture<'_, ()> {
        let level = match level {
            LogLevel::Debug => LoggingLevel::Debug,
            LogLevel::Info => LoggingLevel::Info,
            LogLevel::Warning => LoggingLevel::Warning,
            LogLevel::Error => LoggingLevel::Error,
        };
        let logger = logger.map(str::to_owned);
        Box::pin(async move {
            // The levels are declared in order of severity.
            let is_logged = self.log_level.is_some_and(|least| level as u8 >= least as u8);
            if !is_logged || data.to_string().len() > MAX_LOG_BYTES {
                return;
            }
            {
                let mut round = self.round.lock();
                round.lines += 1;
                if round.lines > MAX_LOG_LINES {
                    return;
                }
            }
            let mut line = json!({"level": level, "data": data});
            if let (Some(logger), Some(line)) = (logger, line.as_object_mut()) {
                line.insert("logger".to_owned(), logger.into());
            }
            self.outbound.notify("notifications/message", Some(&line), Destination::Session).await;
        })
    }
}

impl Approver for ClientDialog {
    fn ask<'a>(&'a self, question: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalReply> {
        Box::pin(async move {
            let ask = DialogRequest::new(APPROVAL_KEY, DialogRequestKind::Elicit, approval_form(question));
            match self.collect_answers(vec![ask], Some(approval_hash(question))).await {
                Ok(answers) => parse_approval(answers.first()),
                Err(DialogError::InputRequired) => ApprovalReply::Deferred,
                Err(why) => ApprovalReply::Unanswered(why.to_string()),
            }
        })
    }
}

/// Hash of an approval request, so that the answer to another request is not accepted.
fn approval_hash(question: &ApprovalRequest) -> String {
    let args = question.preview.sha256.to_string();
    canonical::sha256(&json!([question.tool, question.source, question.reason, args])).to_string()
}

/// The form of an approval request. The arguments come from a model, so hidden characters and line breaks are escaped.
fn approval_form(question: &ApprovalRequest) -> Value {
    let line = |text: &str| escape_hidden(text).replace('\n', " ");
    let message = format!(
        "{} ({}) wants to run: {}\nArguments: {}\nAllow it?",
        line(&question.tool),
        line(&question.source),
        line(&question.reason),
        line(&question.preview.cut(MAX_SHOWN_ARGS)),
    );
    let remember = json!({
        "type": "boolean",
        "title": "Do not ask again",
        "description": "Allow this tool for the rest of this session, whatever the arguments.",
        "default": false,
    });
    let schema = json!({"type": "object", "properties": {"remember": remember}});
    json!({"message": message, "requestedSchema": schema})
}

fn parse_approval(answer: Option<&Value>) -> ApprovalReply {
    let field = |key: &str| answer.and_then(|answer| answer.get(key));
    match field("action").and_then(Value::as_str) {
        Some("accept") => {
            let remember = field("content").and_then(|content| content.get("remember"));
            if remember == Some(&Value::Bool(true)) { ApprovalReply::Always } else { ApprovalReply::Yes }
        }
        Some("decline") => ApprovalReply::No(None),
        Some("cancel") => ApprovalReply::No(Some("the user dismissed the approval request".to_owned())),
        _ => ApprovalReply::Unanswered("the client sent an invalid response".to_owned()),
    }
}
