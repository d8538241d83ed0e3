//! A tool of another server, as the pipeline invokes it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use toolbay_core::call::invoke::{BoxFuture, Failure, Invoke, ToolOutcome};
use toolbay_core::call::{AdmittedCall, CallContext};
use toolbay_core::tool::content::{ErrorCode, ErrorDetails, ToolError, ToolOutput};
use toolbay_core::tool::fault::{Fault, FaultKind};
use toolbay_policy::excerpt::one_line;
use toolbay_policy::hint::Hint;
use toolbay_policy::limits::{LimitHit, LimitSetting, Usage};
use toolbay_policy::quantity;
use toolbay_policy::refusal::PolicyRefusal;

use super::bounds::MAX_ROUNDS;
use super::elicit;
use super::link::Link;
use super::link_request::{self, LinkError};
use super::resources;
use super::result::{self, CallReply, InputRequest};
use super::session::{ClientSession, RequestExtra};
use super::supervisor::Supervisor;
use super::unusable_output::OutputNotes;
use crate::protocol::message::INVALID_PARAMS;
use crate::protocol::mirror::{self, HeaderMirror};

/// Longest message of a server's error, in characters.
const MAX_MESSAGE_OF_ERROR: usize = 8_000;
/// Steps to parse a byte of a result.
const PARSE_STEPS: u64 = 2;

/// A tool of a server.
#[derive(Debug)]
pub(super) struct RemoteTool {
    pub(super) supervisor: Arc<Supervisor>,
    /// The tool's name on the server.
    pub(super) remote_name: String,
    pub(super) mirror: HeaderMirror,
    pub(super) timeout: Duration,
}

impl Invoke for RemoteTool {
    fn invoke<'a>(&'a self, call: &'a AdmittedCall, ctx: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let start = Instant::now();
            let notes = Arc::default();
            let result = tokio::select! {
                biased;
                () = ctx.cancel().cancelled() => {
                    Err(Fault::new(FaultKind::Cancelled, "the call was cancelled").into())
                }
                result = tokio::time::timeout(self.timeout, self.call_server(call, ctx, &notes)) => match result {
                    Ok(result) => result,
                    Err(_) => Err(self.timeout_fault(&notes).into()),
                },
            };
            let usage = Usage {
                args_bytes: call.args().len() as u64,
                wall_us: u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX),
                ..Usage::default()
            };
            ToolOutcome { result, usage }
        })
    }
}

impl RemoteTool {
    async fn call_server(
        &self,
        call: &AdmittedCall,
        ctx: &Arc<CallContext>,
        notes: &Arc<OutputNotes>,
    ) -> Result<ToolOutput, Failure> {
        let mut session = self.supervisor.session(self.timeout).await?;
        ctx.record_use("mcp", self.supervisor.name(), true);
        let connector = &*self.supervisor.context.connector;
        let mut more = Map::new();
        for _ in 0..MAX_ROUNDS {
            let mut sent = self.send_round(&session, call, (ctx, notes), more.clone()).await;
            if let Err(LinkError::SessionLost(_)) = sent {
                session = self.supervisor.session(self.timeout).await?;
                sent = self.send_round(&session, call, (ctx, notes), more).await;
            }
            let raw = sent.map_err(|error| self.failure_from(error, ctx))?;
            // A value that was guessed is no result. The reason has what arrived.
            if let Some(repair) = notes.take_repair() {
                let what = format!(
                    "its answer is not valid JSON: {repair}{}",
                    link_request::quote(raw.get().as_bytes())
                );
                return Err(self.protocol_error(&what).into());
            }
            let steps = (raw.get().len() as u64).saturating_mul(PARSE_STEPS);
            let parsed = ctx.compute(steps, move || result::parse_call_result(&raw)).await?;
            match parsed.map_err(|what| self.protocol_error(&what))? {
                CallReply::Output(mut output) => {
                    result::fit_empty_list(&mut output.structured, call.tool());
                    resources::rewrite_links(self.server_name(), connector, &mut output.content);
                    return Ok(output);
                }
                CallReply::Error(mut error) => {
                    if let Some(details) = &mut error.details {
                        resources::rewrite_links(self.server_name(), connector, &mut details.content);
                    }
                    return Err(self.with_path_hint(error).into());
                }
                CallReply::InputRequired { requests, state } => {
                    more = self.answer_input_requests(&session, requests, state).await?;
                }
            }
        }
        Err(self.protocol_error(&format!("it requested more input {MAX_ROUNDS} times")).into())
    }

    async fn send_round(
        &self,
        session: &Arc<ClientSession>,
        call: &AdmittedCall,
        (ctx, notes): (&Arc<CallContext>, &Arc<OutputNotes>),
        more: Map<String, Value>,
    ) -> Result<Box<serde_json::value::RawValue>, LinkError> {
        let mut params = Map::new();
        params.insert("name".to_owned(), json!(self.remote_name));
        params.insert("arguments".to_owned(), Value::clone(call.parsed()));
        params.extend(more);
        let mut headers = Vec::new();
        if session.negotiated.modern && matches!(session.link, Link::Http(_)) {
            headers.push(("mcp-name".to_owned(), mirror::encode_value(&self.remote_name)));
            headers.extend(self.mirror.headers(call.parsed()));
        }
        let extra = RequestExtra { headers, call: Some(ctx), notes: Some(notes), ..RequestExtra::default() };
        session.request("tools/call", params, extra).await
    }

    /// Answers the input requests of a server. Returns the parameters to add in the next round.
    async fn answer_input_requests(
        &self,
        session: &ClientSession,
        requests: Vec<(String, InputRequest)>,
        state: Option<String>,
    ) -> Result<Map<String, Value>, Failure> {
        let mut responses = Map::new();
        for (key, InputRequest { method, params }) in requests {
            if method != "elicitation/create" {
                let method = one_line(&method, 100);
                let text = format!("it requested `{method}`, which this host does not support");
                return Err(self.protocol_error(&text).into());
            }
            let (of, connector) = (session.inbox.elicitation_handler.as_deref(), &*session.inbox.connector);
            let answer =
                elicit::run_elicitation(of, connector, self.supervisor.name(), params.as_deref()).await;
            responses.insert(key, answer);
        }
        let mut more = Map::new();
        more.insert("inputResponses".to_owned(), Value::Object(responses));
        // Returned unchanged, and only if the server sent it.
        if let Some(state) = state {
            more.insert("requestState".to_owned(), Value::String(state));
        }
        Ok(more)
    }

    /// Adds the policy line that would allow a path, if the error says that the sandbox denied one.
    fn with_path_hint(&self, error: ToolError) -> ToolError {
        let hint = self.supervisor.denied_path_hint(&error.message);
        if hint.is_some() { error.with_hint(hint) } else { error }
    }

    fn server_name(&self) -> &str {
        self.supervisor.name()
    }

    fn protocol_error(&self, what: &str) -> Fault {
        let what = self.supervisor.sanitize(what);
        Fault::new(
            FaultKind::BadOutput,
            format!("the MCP server `{}` violated the protocol: {what}", self.server_name()),
        )
    }

    fn timeout_fault(&self, notes: &OutputNotes) -> Fault {
        if let Some(session) = self.supervisor.current_session() {
            session.inbox.record_timeout();
        }
        let unusable = notes.describe().map(|what| format!("; {}", self.supervisor.sanitize(&what)));
        let limit = LimitHit {
            name: "timeout",
            value: quantity::show_duration(self.timeout),
            setting: LimitSetting::key(format_args!("mcp.{}", self.server_name()), "timeout"),
        };
        Fault::by_limit(
            FaultKind::Deadline,
            &format!(
                "the MCP server `{}` did not answer in time{}",
                self.server_name(),
                unusable.unwrap_or_default()
            ),
            limit,
        )
    }

    fn failure_from(&self, error: LinkError, ctx: &CallContext) -> Failure {
        let server = self.server_name();
        match error {
            LinkError::Rpc(error) => {
                let code = if error.code == INVALID_PARAMS {
                    ErrorCode::InputInvalid
                } else {
                    ErrorCode::ExecutionFailed
                };
                // The message is untrusted: redact and truncate it.
                let head: String = error.message.chars().take(2 * MAX_MESSAGE_OF_ERROR).collect();
                let message = self.supervisor.context.connector.redact(&head);
                let message: String = message.chars().take(MAX_MESSAGE_OF_ERROR).collect();
                let text = format!("the MCP server answered with error {}: {message}", error.code);
                let details = ErrorDetails { structured: error.data, content: Vec::new() };
                self.with_path_hint(ToolError::new(code, text).with_details(details)).into()
            }
            LinkError::InvalidResponse(what) => {
                add_hint(ctx, what.hint);
                self.protocol_error(&what.text).into()
            }
            LinkError::SessionLost(refusal) => self.failure_from(*refusal, ctx),
            LinkError::Status(..) => {
                let PolicyRefusal { text, hint } = self.supervisor.sanitize_refusal(&error.refusal());
                let text = format!("the MCP server `{server}`: {text}");
                ToolError::new(ErrorCode::ExecutionFailed, text).with_hint(hint).into()
            }
            LinkError::Denied(PolicyRefusal { text, hint }) => {
                let text = format!("the MCP server `{server}`: {text}");
                ToolError::new(ErrorCode::NotAvailable, text).with_hint(hint).into()
            }
            LinkError::Busy(why) => {
                let fault = Fault::new(FaultKind::Busy, format!("the MCP server `{server}` is busy: {why}"));
                fault.retry_after(Duration::from_secs(1)).into()
            }
            LinkError::Closed(why) => {
                let PolicyRefusal { text, hint } = self.supervisor.sanitize_refusal(&why);
                add_hint(ctx, hint);
                let text = format!("the MCP server `{server}` disconnected during the call: {text}");
                Fault::new(FaultKind::Trap, text).into()
            }
        }
    }
}

/// Keeps the hint of a fault, which has no field for it.
fn add_hint(ctx: &CallContext, hint: Option<Hint>) {
    if let Some(hint) = hint {
        ctx.add_hint(hint);
    }
}
