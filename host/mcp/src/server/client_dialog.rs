//! Asking the client while its call runs: whether the call may happen, and what native tools want to know.
//!
//! | era | how |
//! |---|---|
//! | legacy | a request to the client, `elicitation/create` and the like, while the call waits |
//! | modern | the call ends with `InputRequiredResult`; the client calls again with the answers and the state it was given ([`crate::protocol::request_state`]) |
//! | modern, and the call has become a task | the task says what it wants to know, and waits |
//!
//! Only what the client said it offers is asked.

#![expect(deprecated, reason = "older clients speak it: sampling, roots, logging, subscriptions by request")]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rmcp::model::{
    ClientCapabilities, CreateMessageRequest, CreateMessageRequestParams, ElicitRequest, ElicitRequestParams,
    ErrorData, InputRequest, InputRequests, InputRequiredResult, ListRootsRequest, LoggingLevel, RequestId,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolbay_core::call::approval::{Answer, Approver, Question};
use toolbay_core::call::dialog::{Ask, AskKind, Dialog, LogLevel, Unanswered};
use toolbay_core::tool::canonical;
use toolbay_policy::text::visible;

use crate::protocol::lifecycle::Era;
use crate::protocol::outbound::{Destination, Outbound};
use crate::protocol::request_state::{RequestStateSigner, State};
use crate::server::convert;
use crate::server::request::RequestContext;
use crate::server::tasks::Task;

/// The key of the question whether the call may happen; those of tools cannot begin so.
const APPROVE: &str = "toolbay/approve";
/// Longest arguments that a person is shown, in characters.
const MAX_SHOWN: usize = 2000;
/// Most questions of one call that wait for answers.
const MAX_ASKS: usize = 16;
/// Most answers that come with one request.
const MAX_GIVEN: usize = 32;
/// Longest parameters of a question, in bytes.
const MAX_PARAMS: usize = 64 << 10;
/// Lines of the log that one call sends to its client.
const MAX_LOG_LINES: usize = 1000;
/// Longest line of the log, in bytes.
const MAX_LOG_BYTES: usize = 16 << 10;

/// The client of one call, as far as it can be asked.
pub(crate) struct ClientDialog {
    era: Era,
    /// The request that is the call.
    of: RequestId,
    outbound: Outbound,
    client: ClientCapabilities,
    cancel: CancellationToken,
    /// The least urgent lines it wants to hear.
    hears: Option<LoggingLevel>,
    round: Mutex<InputRound>,
}

/// What was answered and what is open.
#[derive(Debug, Default)]
struct InputRound {
    given: BTreeMap<String, Value>,
    /// For which question the answer about permission is.
    approved: Option<String>,
    open: BTreeMap<String, Ask>,
    /// Which question about permission is open.
    asked: Option<String>,
    /// What the client was to be asked and does not offer.
    missing: Option<AskKind>,
    /// The task that the call has become.
    task: Option<Arc<Task>>,
    lines: usize,
}

impl fmt::Debug for ClientDialog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientDialog").field("era", &self.era).finish_non_exhaustive()
    }
}

/// What a client brings with a call that it repeats.
#[derive(Debug, Default)]
pub(crate) struct RetryInput {
    pub(crate) responses: Option<BTreeMap<String, Value>>,
    pub(crate) state: Option<String>,
}

impl ClientDialog {
    /// The client of a request, with what it brought. `about` is what its state must have been given for.
    pub(crate) fn new(
        context: &RequestContext,
        hears: Option<LoggingLevel>,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            era: context.era,
            of: context.id.clone(),
            outbound: context.outbound.clone(),
            client: context.capabilities.clone(),
            cancel,
            hears,
            round: Mutex::default(),
        }
    }

    /// Takes what the client brought.
    ///
    /// # Errors
    /// A state that is not this server's, not for this request, too old or used.
    pub(crate) fn take(
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
        let State { approval, answers, .. } = state;
        round.approved = approval;
        round.given = answers;
        let responses = input.responses.unwrap_or_default();
        if responses.len() > MAX_GIVEN {
            return Err(ErrorData::invalid_params(format!("more than {MAX_GIVEN} `inputResponses`"), None));
        }
        round.given.extend(responses);
        Ok(())
    }

    /// Whether there is anybody to ask whether the call may happen.
    pub(crate) fn can_approve(&self) -> bool {
        self.offers(AskKind::Elicit)
    }

    /// From now on the call is a task, which `open` makes; unless it has asked something that its client is to answer
    /// first, with which it is about to end.
    pub(crate) fn promote_to_task(&self, open: impl FnOnce() -> Option<Arc<Task>>) -> Option<Arc<Task>> {
        let mut round = self.round.lock();
        if round.open.is_empty() {
            round.task = open();
        }
        round.task.clone()
    }

    /// Asks what the host itself wants to know.
    pub(crate) async fn of_host(&self, ask: Ask) -> Result<Value, Unanswered> {
        let mut answers = self.answers(vec![ask], None).await?;
        answers.pop().ok_or(Unanswered::Later)
    }

    /// The task that the call has become.
    pub(crate) fn task(&self) -> Option<Arc<Task>> {
        self.round.lock().task.clone()
    }

    /// What the client is to answer before the call can go on, if anything.
    pub(crate) fn required(
        &self,
        signer: &RequestStateSigner,
        about: impl FnOnce() -> String,
        life: Duration,
    ) -> Option<Result<InputRequiredResult, ErrorData>> {
        let (open, state) = {
            let mut round = self.round.lock();
            if round.open.is_empty() {
                return None;
            }
            let open = std::mem::take(&mut round.open);
            let mut answers = round.given.clone();
            answers.remove(APPROVE);
            (open, State::new(round.asked.take(), answers))
        };
        Some(signer.seal(&about(), state, life).and_then(|state| {
            let requests = open.into_values().map(|ask| Ok((ask.key.clone(), request(&ask)?)));
            let requests: InputRequests = requests
                .collect::<Result<_, String>>()
                .map_err(|problem| ErrorData::internal_error(problem, None))?;
            let mut required = InputRequiredResult::new(Some(requests), Some(state));
            required.meta = Some(convert::signature().clone());
            Ok(required)
        }))
    }

    /// What the client should have offered: 2026-07-28 wants that as an error of its own.
    pub(crate) fn missing(&self) -> Option<ClientCapabilities> {
        let kind = self.round.lock().missing.filter(|_| self.era == Era::Modern)?;
        let mut wanted = ClientCapabilities::default();
        match kind {
            AskKind::Elicit => wanted.elicitation = Some(Default::default()),
            AskKind::Sample => wanted.sampling = Some(Default::default()),
            AskKind::Roots => wanted.roots = Some(Default::default()),
        }
        Some(wanted)
    }

    async fn answers(&self, asks: Vec<Ask>, proof: Option<String>) -> Result<Vec<Value>, Unanswered> {
        if asks.len() > MAX_ASKS {
            return Err(Unanswered::Failed(format!("more than {MAX_ASKS} questions at once")));
        }
        for ask in &asks {
            if !self.offers(ask.kind) {
                self.round.lock().missing = Some(ask.kind);
                return Err(Unanswered::NotOffered(ask.kind));
            }
            if ask.params.to_string().len() > MAX_PARAMS {
                return Err(Unanswered::Failed(format!("a question of more than {MAX_PARAMS} bytes")));
            }
            request(ask).map_err(Unanswered::Failed)?;
        }
        match self.era {
            Era::Legacy => self.push(asks).await,
            Era::Modern => self.look_up(asks, proof).await,
        }
    }

    /// Asks the client and waits, one after the other.
    async fn push(&self, asks: Vec<Ask>) -> Result<Vec<Value>, Unanswered> {
        let mut answers = Vec::with_capacity(asks.len());
        for ask in asks {
            let request = request(&ask).map_err(Unanswered::Failed)?;
            let request = serde_json::to_value(request).unwrap_or_default();
            let method = request.get("method").and_then(Value::as_str).unwrap_or_default();
            let none = json!({});
            let params = request.get("params").unwrap_or(&none);
            let answer = tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Err(Unanswered::Failed("the call was cancelled".to_owned())),
                answer = self.outbound.request(method, params, &self.of) => answer,
            };
            let answer = answer.map_err(|problem| Unanswered::Failed(visible(&problem).into_owned()))?;
            if !fits(ask.kind, &answer) {
                return Err(Unanswered::Failed("it answered something else".to_owned()));
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    /// The answers that the client brought, or the wish for them.
    async fn look_up(&self, asks: Vec<Ask>, proof: Option<String>) -> Result<Vec<Value>, Unanswered> {
        let (task, found) = {
            let mut round = self.round.lock();
            let proven = proof.is_none() || round.approved == proof;
            let given = |ask: &Ask| {
                let answer = round.given.get(&ask.key).filter(|_| proven)?;
                fits(ask.kind, answer).then(|| answer.clone())
            };
            let found: Vec<Option<Value>> = asks.iter().map(given).collect();
            if round.task.is_none() && found.iter().any(Option::is_none) {
                let open = asks.iter().zip(&found).filter(|(_, found)| found.is_none());
                let open: Vec<_> = open.map(|(ask, _)| (ask.key.clone(), ask.clone())).collect();
                if round.open.len() + open.len() > MAX_ASKS {
                    return Err(Unanswered::Failed(format!("more than {MAX_ASKS} questions at once")));
                }
                round.open.extend(open);
                round.asked = proof;
                return Err(Unanswered::Later);
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

/// A question as the protocol has it.
pub(crate) fn request(ask: &Ask) -> Result<InputRequest, String> {
    let read = |error: serde_json::Error| format!("the question `{}` is none of MCP: {error}", ask.key);
    let params = ask.params.clone();
    Ok(match ask.kind {
        AskKind::Elicit => InputRequest::Elicitation(ElicitRequest::new(
            serde_json::from_value::<ElicitRequestParams>(params).map_err(read)?,
        )),
        AskKind::Sample => InputRequest::CreateMessage(CreateMessageRequest::new(
            serde_json::from_value::<CreateMessageRequestParams>(params).map_err(read)?,
        )),
        AskKind::Roots => InputRequest::ListRoots(ListRootsRequest::default()),
    })
}

/// Whether an answer is one of this kind.
pub(crate) fn fits(kind: AskKind, answer: &Value) -> bool {
    match kind {
        AskKind::Elicit => {
            matches!(answer.get("action").and_then(Value::as_str), Some("accept" | "decline" | "cancel"))
                && answer.get("content").is_none_or(|content| content.is_object() || content.is_null())
        }
        AskKind::Sample => answer.get("role").is_some() && answer.get("content").is_some(),
        AskKind::Roots => answer.get("roots").is_some_and(Value::is_array),
    }
}

impl Dialog for ClientDialog {
    fn offers(&self, kind: AskKind) -> bool {
        match kind {
            // Without a mode it is the form, as before there were two.
            AskKind::Elicit => {
                self.client.elicitation.as_ref().is_some_and(|it| it.form.is_some() || it.url.is_none())
            }
            AskKind::Sample => self.client.sampling.is_some(),
            AskKind::Roots => self.client.roots.is_some(),
        }
    }

    fn ask(&self, asks: Vec<Ask>) -> BoxFuture<'_, Result<Vec<Value>, Unanswered>> {
        Box::pin(async move {
            if let Some(ask) = asks.iter().find(|ask| ask.key.starts_with("toolbay/")) {
                return Err(Unanswered::Failed(format!("the key `{}` is the host's", ask.key)));
            }
            self.answers(asks, None).await
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
            // They are declared from the least urgent to the most.
            let heard = self.hears.is_some_and(|least| level as u8 >= least as u8);
            if !heard || data.to_string().len() > MAX_LOG_BYTES {
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
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let ask = Ask::new(APPROVE, AskKind::Elicit, form(question));
            match self.answers(vec![ask], Some(proof(question))).await {
                Ok(answers) => understood(answers.first()),
                Err(Unanswered::Later) => Answer::Later,
                Err(why) => Answer::No(Some(why.to_string())),
            }
        })
    }
}

/// Which question it is: the answer to another is none to this one.
fn proof(question: &Question) -> String {
    canonical::sha256(&json!([question.tool, question.source, question.reason, question.args])).to_string()
}

/// The question as a form. The arguments are a model's: nothing in them moves or hides.
fn form(question: &Question) -> Value {
    let args = question.args.to_string();
    let total = args.chars().count();
    let mut shown: String = args.chars().take(MAX_SHOWN).collect();
    if total > MAX_SHOWN {
        shown.push_str(&format!("… ({total} characters)"));
    }
    let line = |text: &str| visible(text).replace('\n', " ");
    let message = format!(
        "{} ({}) wants to run: {}\nArguments: {}\nAllow it?",
        line(&question.tool),
        line(&question.source),
        line(&question.reason),
        line(&shown),
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

fn understood(answer: Option<&Value>) -> Answer {
    let field = |key: &str| answer.and_then(|answer| answer.get(key));
    match field("action").and_then(Value::as_str) {
        Some("accept") => {
            let remember = field("content").and_then(|content| content.get("remember"));
            if remember == Some(&Value::Bool(true)) { Answer::Always } else { Answer::Yes }
        }
        Some("decline") => Answer::No(None),
        Some("cancel") => Answer::No(Some("the question was dismissed".to_owned())),
        _ => Answer::No(Some("the client answered something else".to_owned())),
    }
}
