//! The fixture of the gate tests: a pipeline with a tool that records its calls.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use toolbay_policy::limits::Usage;
use toolbay_policy::permission::Permissions;
use toolbay_policy::session::SessionLimits;

use super::{CallResult, Pipeline};
use crate::approval::{ApprovalReply, ApprovalRequest, Approver};
use crate::audit::MemoryAudit;
use crate::call::invoke::{BoxFuture, Failure, Invoke, ToolOutcome};
use crate::call::{AdmittedCall, CallContext, ToolCall, TurnContext};
use crate::pipeline::CallPolicy;
use crate::registry::fixture::plugin_tool;
use crate::registry::view::{Filter, ToolEntry, View};
use crate::registry::{Bundle, Registry};
use crate::session::Session;
use crate::tool::content::{ErrorCode, ToolError, ToolOutput};

/// A tool that records its number of runs, its highest concurrency and its arguments.
#[derive(Debug, Default)]
pub(super) struct RecordingTool {
    pub(super) ran: AtomicUsize,
    now: AtomicUsize,
    pub(super) most: AtomicUsize,
    pub(super) seen: Mutex<Vec<String>>,
}

impl Invoke for RecordingTool {
    fn invoke<'a>(&'a self, call: &'a AdmittedCall, ctx: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let ran = self.ran.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            self.seen.lock().unwrap().push(call.args().clone());
            let cost_usd = Some(0.25);
            ctx.progress("at work", None, crate::call::ProgressAudience::User);
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

pub(super) struct GateFixture {
    pub(super) registry: Registry,
    pub(super) pipeline: Pipeline,
    pub(super) audit: Arc<MemoryAudit>,
    pub(super) tool: Arc<RecordingTool>,
    pub(super) filter: Filter,
}

/// A fixture with the tool `p__t`, which `change` modifies.
pub(super) fn fixture(gates: CallPolicy, change: impl FnOnce(&mut ToolEntry)) -> GateFixture {
    let (audit, tool) = (Arc::<MemoryAudit>::default(), Arc::<RecordingTool>::default());
    let mut entry = plugin_tool("p", "t");
    entry.invoker = Arc::clone(&tool) as _;
    change(&mut entry);
    let registry = Registry::default();
    registry.register(Bundle { tools: vec![entry, plugin_tool("q", "other")], reducers: vec![] }).unwrap();
    let pipeline = Pipeline::new(Arc::clone(&audit) as _).with_call_policy(gates);
    GateFixture { registry, pipeline, audit, tool, filter: Filter::default() }
}

impl GateFixture {
    pub(super) fn map_pipeline(mut self, change: impl FnOnce(Pipeline) -> Pipeline) -> Self {
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
        self.tool.ran.load(Ordering::SeqCst)
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

pub(super) fn limited(session: SessionLimits) -> CallPolicy {
    CallPolicy { session, ..CallPolicy::default() }
}

/// The call policy with the rules of a TOML text.
pub(super) fn ruled(rules: &str) -> CallPolicy {
    #[derive(serde::Deserialize)]
    struct RuleFile {
        rule: Vec<toolbay_policy::permission::PermissionRule>,
    }
    let rules = toml::from_str::<RuleFile>(rules).unwrap().rule;
    CallPolicy { permissions: Permissions { rules, ..Permissions::default() }, ..CallPolicy::default() }
}

/// An approver with a fixed reply that records its requests.
#[derive(Debug)]
pub(super) struct ScriptedApprover {
    answer: Option<ApprovalReply>,
    pub(super) asked: Mutex<Vec<ApprovalRequest>>,
}

impl ScriptedApprover {
    /// An approver with this reply; `None` makes it panic.
    pub(super) fn replying(answer: Option<ApprovalReply>) -> Arc<Self> {
        Arc::new(Self { answer, asked: Mutex::default() })
    }

    pub(super) fn count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

impl Approver for ScriptedApprover {
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalReply> {
        self.asked.lock().unwrap().push(request.clone());
        let answer = self.answer.clone().expect("an approver that panics before it returns a future");
        Box::pin(async move { answer })
    }
}
