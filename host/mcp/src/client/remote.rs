//! A tool of another server, as the pipeline runs it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use toolbay_core::call::fault::{Fault, FaultKind};
use toolbay_core::call::invoke::{BoxFuture, Failure, Invoke, ToolOutcome};
use toolbay_core::call::{AdmittedCall, CallContext};
use toolbay_core::tool::content::{ErrorCode, ToolError, ToolOutput};
use toolbay_policy::limits::LimitHit;
use toolbay_policy::limits::Usage;
use toolbay_policy::quantity;
use toolbay_policy::refusal::Refusal;
use toolbay_policy::text::one_line;

use super::bounds::MAX_ROUNDS;
use super::elicit;
use super::link::{Link, LinkError};
use super::resources;
use super::result::{self, Came, InputRequest};
use super::session::{Extra, Session};
use super::supervisor::Supervisor;
use crate::protocol::message::INVALID_PARAMS;
use crate::protocol::mirror::{self, HeaderMirror};

/// Longest message of a server's error, in characters.
const MAX_MESSAGE_OF_ERROR: usize = 8_000;

/// A tool behind a supervisor.
#[derive(Debug)]
pub(super) struct RemoteTool {
    pub(super) supervisor: Arc<Supervisor>,
    /// What the server calls it.
    pub(super) own_name: String,
    pub(super) mirror: HeaderMirror,
    pub(super) timeout: Duration,
}

impl Invoke for RemoteTool {
    fn invoke<'a>(&'a self, call: &'a AdmittedCall, ctx: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let start = Instant::now();
            let result = tokio::select! {
                biased;
                () = ctx.cancel().cancelled() => {
                    Err(Fault::new(FaultKind::Cancelled, "the call was cancelled").into())
                }
                result = tokio::time::timeout(self.timeout, self.call(call, ctx)) => match result {
                    Ok(result) => result,
                    Err(_) => Err(self.overdue().into()),
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
    async fn call(&self, call: &AdmittedCall, ctx: &Arc<CallContext>) -> Result<ToolOutput, Failure> {
        let session = self.supervisor.session(self.timeout).await?;
        ctx.note("mcp", self.supervisor.name(), true);
        let mut more = Map::new();
        for _ in 0..MAX_ROUNDS {
            let raw = self.round(&session, call, ctx, more).await.map_err(|error| self.failure(error))?;
            match result::read(&raw).map_err(|what| self.broken(&what))? {
                Came::Output(mut output) => {
                    resources::rename(self.server(), &mut output.content);
                    return Ok(output);
                }
                Came::Error(error) => return Err(error.into()),
                Came::Inputs { requests, state } => more = self.inputs(&session, requests, state).await?,
            }
        }
        Err(self.broken(&format!("it asked for more input {MAX_ROUNDS} times")).into())
    }

    async fn round(
        &self,
        session: &Arc<Session>,
        call: &AdmittedCall,
        ctx: &Arc<CallContext>,
        more: Map<String, Value>,
    ) -> Result<Box<serde_json::value::RawValue>, LinkError> {
        let mut params = Map::new();
        params.insert("name".to_owned(), json!(self.own_name));
        params.insert("arguments".to_owned(), Value::clone(call.parsed()));
        params.extend(more);
        let mut headers = Vec::new();
        if session.known.modern && matches!(session.link, Link::Web(_)) {
            headers.push(("mcp-name".to_owned(), mirror::encode(&self.own_name)));
            headers.extend(self.mirror.headers(call.parsed()));
        }
        session.ask("tools/call", params, Extra { headers, call: Some(ctx), ..Extra::default() }).await
    }

    /// Answers what a server wants to know before it goes on; returns what the next round carries.
    async fn inputs(
        &self,
        session: &Session,
        requests: Vec<(String, InputRequest)>,
        state: Option<String>,
    ) -> Result<Map<String, Value>, Failure> {
        let mut responses = Map::new();
        for (key, InputRequest { method, params }) in requests {
            if method != "elicitation/create" {
                let method = one_line(&method, 100);
                let text = format!("it wants `{method}` of its client, which this host does not offer");
                return Err(self.broken(&text).into());
            }
            let (of, outside) = (session.inbox.elicit.as_deref(), &*session.inbox.outside);
            let answer = elicit::answer(of, outside, self.supervisor.name(), params.as_deref()).await;
            responses.insert(key, answer);
        }
        let mut more = Map::new();
        more.insert("inputResponses".to_owned(), Value::Object(responses));
        // As it came, and only if it came.
        if let Some(state) = state {
            more.insert("requestState".to_owned(), Value::String(state));
        }
        Ok(more)
    }

    fn server(&self) -> &str {
        self.supervisor.name()
    }

    fn broken(&self, what: &str) -> Fault {
        let what = self.supervisor.heard(what);
        Fault::new(
            FaultKind::BadOutput,
            format!("the MCP server `{}` broke the protocol: {what}", self.server()),
        )
    }

    fn overdue(&self) -> Fault {
        if let Some(session) = self.supervisor.now() {
            session.inbox.late();
        }
        let limit = LimitHit {
            name: "timeout",
            value: quantity::show_duration(self.timeout),
            setting: format!("[mcp.{}] timeout = …", self.server()),
        };
        Fault::by_limit(
            FaultKind::Deadline,
            &format!("the MCP server `{}` did not answer in time", self.server()),
            limit,
        )
    }

    fn failure(&self, error: LinkError) -> Failure {
        let server = self.server();
        match error {
            LinkError::Rpc(error) => {
                let code = if error.code == INVALID_PARAMS {
                    ErrorCode::InputInvalid
                } else {
                    ErrorCode::ExecutionFailed
                };
                // The message is the server's, and goes the way of all that it says.
                let message = self.supervisor.ports.outside.redacted(&error.message);
                let message: String = message.chars().take(MAX_MESSAGE_OF_ERROR).collect();
                ToolError::new(code, format!("the MCP server answered with error {}: {message}", error.code))
                    .into()
            }
            LinkError::Bad(what) => self.broken(&what).into(),
            LinkError::Status(..) => {
                let why = Refusal::of_operator(&self.supervisor.heard(&error.to_string()));
                let text = format!("MCP server `{server}`: {}", why.text);
                ToolError::new(ErrorCode::ExecutionFailed, text).with_hint(why.hint).into()
            }
            LinkError::Denied(why) => {
                let why = Refusal::of_operator(&why);
                let text = format!("the MCP server `{server}`: {}", why.text);
                ToolError::new(ErrorCode::NotAvailable, text).with_hint(why.hint).into()
            }
            LinkError::Busy(why) => {
                let fault = Fault::new(FaultKind::Busy, format!("the MCP server `{server}` is busy: {why}"));
                fault.retry_after(Duration::from_secs(1)).into()
            }
            LinkError::Closed(why) => Fault::new(
                FaultKind::Trap,
                format!(
                    "the MCP server `{server}` ended in the middle of the call: {}",
                    self.supervisor.heard(&why)
                ),
            )
            .into(),
        }
    }
}
