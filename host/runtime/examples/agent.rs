//! An agent: a model answers a question with the tools of a host.
//!
//! `cargo run -p toolbay --example agent -- openai-chat 127.0.0.1:8080 MODEL toolbay.toml plugins QUESTION`

#![allow(
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    reason = "an example, which a test runs"
)]

use std::path::Path;
use std::sync::Arc;

use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use toolbay::serde_json::{self, Value, json};
use toolbay::vendor::{self, Vendor};
use toolbay::{
    AdmittedCall, ApprovalReply, ApprovalRequest, Approver, BoxFuture, CallContext, Failure, Filter, Host,
    Interceptor, InterceptorScope, Policy, ProgressAudience, ProgressEvent, ProgressSink, Session,
    ToolOutput, ToolResult, TurnContext,
};

pub type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Most answers of the model to one question.
const MAX_TURNS: u32 = 20;

/// A model, and the server that runs it. Beyond your own network, use a client with TLS and a key.
pub struct Model {
    pub vendor: Vendor,
    pub server: String,
    pub name: String,
}

impl Model {
    /// Sends the conversation and the tools. Returns the model's message.
    async fn ask(&self, messages: &[Value], tools: Value) -> Result<Value> {
        let is_anthropic = self.vendor == Vendor::Anthropic;
        let path = if is_anthropic { "v1/messages" } else { "v1/chat/completions" };
        let body = json!({"model": self.name, "max_tokens": 4096, "messages": messages, "tools": tools});
        let request = Request::post(format!("http://{}/{path}", self.server))
            .header("content-type", "application/json")
            .body(Full::<Bytes>::from(body.to_string()))?;
        let response = Client::builder(TokioExecutor::new()).build_http().request(request).await?;
        let status = response.status();
        let answer = response.into_body().collect().await?.to_bytes();
        if !status.is_success() {
            return Err(format!("{status}: {}", String::from_utf8_lossy(&answer)).into());
        }
        let answer: Value = serde_json::from_slice(&answer)?;
        Ok(if is_anthropic {
            json!({"role": "assistant", "content": answer["content"]})
        } else {
            answer["choices"][0]["message"].clone()
        })
    }
}

/// Answers a question. In each turn the model sees the tools that it may call.
pub async fn answer(
    host: &Host,
    model: &Model,
    filter: &Arc<Filter>,
    turn: &TurnContext,
    question: &str,
) -> Result<String> {
    let mut messages = vec![json!({"role": "user", "content": question})];
    for _ in 0..MAX_TURNS {
        let view = host.view(Arc::clone(filter));
        let tools = vendor::view_definitions(model.vendor, &view, false).tools;
        // The token of the turn ends the calls. The program ends its own waiting.
        let asked = turn.cancel.run_until_cancelled(model.ask(&messages, tools)).await;
        let message = asked.ok_or("the turn was cancelled")??;
        let calls = vendor::parse_calls(model.vendor, &message)?;
        if calls.is_empty() {
            return Ok(text(&message));
        }
        messages.push(message);
        // Each call gets a result, also one that was refused or failed: the model reads why.
        let results = host.call_all(&view, calls, turn.clone()).await;
        messages.extend(vendor::result_messages(model.vendor, &results));
    }
    Err(format!("no answer after {MAX_TURNS} turns").into())
}

fn text(message: &Value) -> String {
    match &message["content"] {
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        other => other.as_str().unwrap_or_default().to_owned(),
    }
}

/// Sends a note to the team.
#[toolbay::tool(needs_approval)]
pub async fn send_note(
    /// The note, without a greeting.
    #[arg(length(max = 2000))]
    text: String,
    context: &CallContext,
) -> String {
    context.progress("sending the note", Some(50.0), ProgressAudience::User);
    format!("sent {} characters", text.chars().count())
}

/// A person at a terminal, who approves calls and sees their progress.
#[derive(Debug)]
struct Terminal;

impl Approver for Terminal {
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalReply> {
        // `{:?}` escapes: the model wrote the arguments.
        eprintln!("{} {:?}: {} [y/N]", request.tool, request.args.to_string(), request.reason);
        // Reading blocks, so it has a thread.
        let line = tokio::task::spawn_blocking(|| std::io::stdin().lines().next());
        Box::pin(async move {
            match line.await {
                Ok(Some(Ok(line))) if line.trim() == "y" => ApprovalReply::Yes,
                _ => ApprovalReply::No(None),
            }
        })
    }
}

impl ProgressSink for Terminal {
    fn progress(&self, event: ProgressEvent) {
        eprintln!("{}: {:?}", event.tool, event.message);
    }
}

/// Prints the calls that ran. An interceptor may also change arguments before a call, and results after it.
#[derive(Debug)]
struct CallPrinter;

impl Interceptor for CallPrinter {
    fn after<'a>(
        &'a self,
        call: &'a AdmittedCall,
        _: &'a Arc<CallContext>,
        result: &'a Result<ToolOutput, Failure>,
    ) -> BoxFuture<'a, Option<ToolResult>> {
        eprintln!("{}: {}", call.tool().name, if result.is_ok() { "done" } else { "failed" });
        // `None` leaves the result as it is.
        Box::pin(std::future::ready(None))
    }
}

async fn run(args: &[String]) -> Result<()> {
    let [vendor, server, name, policy, plugins, question] = args else {
        return Err("usage: agent VENDOR SERVER MODEL POLICY PLUGINS QUESTION".into());
    };
    let model = Model { vendor: vendor.parse()?, server: server.clone(), name: name.clone() };
    let file = Path::new(policy).canonicalize()?;
    // A relative `workspace` in the policy is resolved against the policy's folder.
    let base = file.parent().unwrap_or(Path::new("/"));
    let policy = Policy::parse(&std::fs::read_to_string(&file)?, base, None)?;
    let host = Host::builder(policy)
        .approver(Arc::new(Terminal))
        .interceptor(InterceptorScope::All, Arc::new(CallPrinter))
        .start(Path::new(plugins))
        .await?;
    for problem in host.problems() {
        eprintln!("{}: {}", problem.file.display(), problem.error);
    }
    host.register(send_note::tool()?)?;
    // With `[profile.agent]` in the policy, the model sees and reaches only what that profile allows.
    let filter = Arc::new(Filter::for_profile(host.policy().profile("agent").cloned()));
    let session = Arc::new(Session::with_random_key());
    let turn = TurnContext { session, progress: Some(Arc::new(Terminal)), ..TurnContext::default() };
    // Ctrl-C cancels the turn: its calls end, and the audit records them as `cancelled`.
    let cancel = turn.cancel.clone();
    let interrupt = tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            cancel.cancel();
        }
    });
    let answer = answer(&host, &model, &filter, &turn, question).await;
    interrupt.abort();
    host.close().await;
    println!("{}", answer?);
    Ok(())
}

fn main() -> Result<()> {
    // The host starts this program again to compile plugins and to watch over MCP servers.
    if let Some(done) = toolbay::run_worker() {
        return Ok(done?);
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Runtime::new()?;
    let done = runtime.block_on(run(&args));
    // A question of a cancelled call may still wait for a line.
    runtime.shutdown_background();
    done
}
