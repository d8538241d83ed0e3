//! What the tests of the gates have in common: a pipeline with a tool that tells what happens to it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use toolbay_policy::limits::Usage;
use toolbay_policy::permission::Permissions;
use toolbay_policy::session::SessionLimits;

use super::{CallResult, Pipeline};
use crate::audit::MemoryAudit;
use crate::call::approval::{Answer, Approver, Question};
use crate::call::invoke::{BoxFuture, Failure, Invoke, ToolOutcome};
use crate::call::{AdmittedCall, CallContext, ToolCall, TurnContext};
use crate::pipeline::Gates;
use crate::registry::view::{Entry, Filter, View};
use crate::registry::{Bundle, Registry};
use crate::session::Session;
use crate::testing::plugin_tool;
use crate::tool::content::{ErrorCode, ToolError, ToolOutput};

/// Tells how often it ran, how many of it at once at most, and with what.
#[derive(Debug, Default)]
pub(super) struct Actor {
    pub(super) ran: AtomicUsize,
    now: AtomicUsize,
    pub(super) most: AtomicUsize,
    pub(super) seen: Mutex<Vec<String>>,
}

impl Invoke for Actor {
    fn invoke<'a>(&'a self, call: &'a AdmittedCall, ctx: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let ran = self.ran.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            self.seen.lock().unwrap().push(call.args().clone());
            let cost_usd = Some(0.25);
            ctx.progress("at work", None, crate::call::Audience::User);
            tokio::time::sleep(Duration::from_millis(5)).await;
            self.now.fetch_sub(1, Ordering::SeqCst);
            let result = match call.parsed().get("do").and_then(|v| v.as_str()) {
                Some("fail") => Err(Failure::Refused(ToolError {
                    cost_usd,
                    ..ToolError::new(ErrorCode::ExecutionFailed, "no luck")
                })),
                Some("panic") => panic!("the tool panicked"),
                _ => Ok(ToolOutput { cost_usd, ..ToolOutput::text(format!("run {ran}: {}", call.args())) }),
            };
            ToolOutcome { result, usage: Usage { fuel: Some(7), ..Usage::default() } }
        })
    }
}

pub(super) struct Stage {
    pub(super) registry: Registry,
    pub(super) pipeline: Pipeline,
    pub(super) audit: Arc<MemoryAudit>,
    pub(super) actor: Arc<Actor>,
    pub(super) filter: Filter,
}

/// A stage with the tool `p__t`, changed as the test wants it.
pub(super) fn stage(gates: Gates, change: impl FnOnce(&mut Entry)) -> Stage {
    let (audit, actor) = (Arc::<MemoryAudit>::default(), Arc::<Actor>::default());
    let mut entry = plugin_tool("p", "t");
    entry.invoker = Arc::clone(&actor) as _;
    change(&mut entry);
    let registry = Registry::default();
    registry.register(Bundle { tools: vec![entry, plugin_tool("q", "other")], reducers: vec![] }).unwrap();
    let pipeline = Pipeline::new(Arc::clone(&audit) as _).with_gates(gates);
    Stage { registry, pipeline, audit, actor, filter: Filter::default() }
}

impl Stage {
    pub(super) fn with(mut self, change: impl FnOnce(Pipeline) -> Pipeline) -> Self {
        self.pipeline = change(self.pipeline);
        self
    }

    pub(super) async fn all(&self, calls: Vec<ToolCall>, turn: TurnContext) -> Vec<CallResult> {
        let view = View::new(self.registry.snapshot(), self.filter.clone());
        self.pipeline.call_all(&view, calls, turn).await
    }

    /// Calls `p__t` in a session.
    pub(super) async fn call(&self, session: &Arc<Session>, args: &str) -> CallResult {
        let turn = TurnContext { session: Arc::clone(session), ..TurnContext::default() };
        self.all(vec![ToolCall::new("1", "p__t", args)], turn).await.pop().unwrap()
    }

    pub(super) fn ran(&self) -> usize {
        self.actor.ran.load(Ordering::SeqCst)
    }
}

pub(super) fn calls(count: usize, args: impl Fn(usize) -> String) -> Vec<ToolCall> {
    (0..count).map(|n| ToolCall::new(n.to_string(), "p__t", args(n))).collect()
}

pub(super) fn text(delivered: &CallResult) -> &str {
    match &delivered.result {
        Ok(output) => &output.value,
        Err(Failure::Refused(error)) => &error.message,
        Err(Failure::Fault(fault)) => &fault.message,
        Err(Failure::Host(message)) => message,
    }
}

pub(super) fn limited(session: SessionLimits) -> Gates {
    Gates { session, ..Gates::default() }
}

/// Gates with the rules of a TOML text.
pub(super) fn ruled(rules: &str) -> Gates {
    #[derive(serde::Deserialize)]
    struct File {
        rule: Vec<toolbay_policy::permission::Rule>,
    }
    let rules = toml::from_str::<File>(rules).unwrap().rule;
    Gates { permissions: Permissions { rules, ..Permissions::default() }, ..Gates::default() }
}

/// Answers as it is told, and remembers what it was asked.
#[derive(Debug)]
pub(super) struct Person {
    answer: Option<Answer>,
    pub(super) asked: Mutex<Vec<Question>>,
}

impl Person {
    /// One who says this; `None`: who panics.
    pub(super) fn who(answer: Option<Answer>) -> Arc<Self> {
        Arc::new(Self { answer, asked: Mutex::default() })
    }

    pub(super) fn count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

impl Approver for Person {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Answer> {
        self.asked.lock().unwrap().push(question.clone());
        let answer = self.answer.clone().expect("an approver that panics before it makes a future");
        Box::pin(async move { answer })
    }
}
