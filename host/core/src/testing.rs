//! Test doubles for this crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use toolbay_policy::limits::Usage;
use toolbay_policy::name::{PluginId, QualifiedName, ToolName};

use crate::call::fault::{Fault, FaultKind};
use crate::call::invoke::{BoxFuture, Failure, Invoke, ToolOutcome};
use crate::call::{AdmittedCall, CallContext};
use crate::output::reduce::{Reduce, ReduceContext};
use crate::registry::{Bundle, Collision, PluginUpdate, ReducerEntry, Registry, ToolEntry, UpdateChoice};
use crate::tool::content::{ErrorCode, ToolError, ToolOutput, ToolResult};
use crate::tool::schema::Schema;
use crate::tool::{ToolDef, ToolSource};

/// A tool whose argument `do` selects its behaviour.
#[derive(Debug, Default)]
pub(crate) struct ScriptedTool {
    pub(crate) ran: AtomicUsize,
}

impl Invoke for ScriptedTool {
    fn invoke<'a>(&'a self, call: &'a AdmittedCall, ctx: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        self.ran.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let action = call.parsed().get("do").and_then(|v| v.as_str()).unwrap_or("echo");
            let result = match action {
                "fail" => Err(Failure::Refused(ToolError::new(ErrorCode::ExecutionFailed, "e".repeat(300)))),
                "fault" => Err(Failure::Fault(Fault::new(FaultKind::Trap, "trapped"))),
                "panic" => panic!("the invoker panicked"),
                "sleep" => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    Ok(ToolOutput::text("slept"))
                }
                "hang" => {
                    ctx.cancel().cancelled().await;
                    Err(Failure::Fault(Fault::new(FaultKind::Cancelled, "cancelled")))
                }
                "long" => Ok(ToolOutput {
                    structured: serde_json::value::to_raw_value(&vec![1, 2, 3]).ok(),
                    cost_usd: Some(0.5),
                    ..ToolOutput::text("🙂".repeat(1000))
                }),
                _ => Ok(ToolOutput::text(call.args())),
            };
            ToolOutcome { result, usage: Usage::default() }
        })
    }
}

fn def(name: QualifiedName, source: ToolSource) -> ToolEntry {
    let schema = r#"{"type":"object","properties":{"do":{"type":"string"},"n":{"type":"integer"}}}"#;
    let def = ToolDef::new(name, "A puppet.", Schema::input(schema).unwrap(), source);
    let mut entry = ToolEntry::new(def, Arc::new(ScriptedTool::default()));
    entry.call.args_bytes = 10_000;
    entry
}

pub(crate) fn plugin_tool(plugin: &str, tool: &str) -> ToolEntry {
    let id = PluginId::new(plugin).unwrap();
    let name = QualifiedName::join(&id, &ToolName::new(tool).unwrap()).unwrap();
    def(name, ToolSource::Plugin { id, version: None, digest: "00".into(), origin: None })
}

pub(crate) fn mcp_tool(server: &str, tool: &str) -> ToolEntry {
    let name =
        QualifiedName::join_mcp(&PluginId::new(server).unwrap(), &ToolName::new(tool).unwrap()).unwrap();
    def(name, ToolSource::Mcp { server: server.into(), version: None })
}

pub(crate) fn native_tool(tool: &str) -> ToolEntry {
    def(QualifiedName::from_native(&ToolName::new(tool).unwrap()), ToolSource::Builtin)
}

/// A reducer with a fixed result.
#[derive(Debug)]
pub(crate) struct FixedReducer(pub(crate) Result<Option<ToolResult>, Fault>);

impl Reduce for FixedReducer {
    fn reduce<'a>(
        &'a self,
        _: &'a ToolResult,
        _: ReduceContext<'a>,
    ) -> BoxFuture<'a, Result<Option<ToolResult>, Fault>> {
        let answer = self.0.clone();
        Box::pin(async move { answer })
    }
}

pub(crate) fn reducer(target: &str, owner: Option<&str>) -> ReducerEntry {
    ReducerEntry {
        target: target.to_owned(),
        declared: target.to_owned(),
        owner: owner.map(|id| PluginId::new(id).unwrap()),
        reducer: Arc::new(FixedReducer(Ok(None))),
    }
}

/// Registers a plugin in place of its current version, completely or not at all.
pub(crate) fn install(registry: &Registry, plugin: &PluginId, bundle: Bundle) -> Result<(), Collision> {
    let choices = vec![UpdateChoice::Put(bundle), UpdateChoice::Keep];
    let placed = registry.update(&[], vec![PluginUpdate { plugin: plugin.clone(), choices }], None);
    registry.flush_events();
    placed.into_iter().flat_map(|one| one.refused).next().map_or(Ok(()), Err)
}
