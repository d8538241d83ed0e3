//! Fakes for the tests of this crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use toolbay_policy::limits::Usage;
use toolbay_policy::name::{PluginId, QualifiedName, ToolName};

use crate::call::fault::{Fault, FaultKind};
use crate::call::invoke::{BoxFuture, Failure, Invoke, ToolOutcome};
use crate::call::{AdmittedCall, CallContext};
use crate::output::reduce::{Reduce, ReduceContext};
use crate::registry::{Bundle, Choice, Collision, Entry, ReducerEntry, Registry, Step};
use crate::tool::content::{ErrorCode, ToolError, ToolOutput, ToolResult};
use crate::tool::schema::Schema;
use crate::tool::{ToolDef, ToolSource};

/// Does what its argument `do` says.
#[derive(Debug, Default)]
pub(crate) struct Puppet {
    pub(crate) ran: AtomicUsize,
}

impl Invoke for Puppet {
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

fn def(name: QualifiedName, source: ToolSource) -> Entry {
    let schema = r#"{"type":"object","properties":{"do":{"type":"string"},"n":{"type":"integer"}}}"#;
    let def = ToolDef::new(name, "A puppet.", Schema::input(schema).unwrap(), source);
    let mut entry = Entry::new(def, Arc::new(Puppet::default()));
    entry.call.args_bytes = 10_000;
    entry
}

pub(crate) fn plugin_tool(plugin: &str, tool: &str) -> Entry {
    let id = PluginId::new(plugin).unwrap();
    let name = QualifiedName::join(&id, &ToolName::new(tool).unwrap()).unwrap();
    def(name, ToolSource::Plugin { id, version: None, digest: "00".into() })
}

pub(crate) fn mcp_tool(server: &str, tool: &str) -> Entry {
    let name = QualifiedName::mcp(&PluginId::new(server).unwrap(), &ToolName::new(tool).unwrap()).unwrap();
    def(name, ToolSource::Mcp { server: server.into(), version: None })
}

pub(crate) fn native_tool(tool: &str) -> Entry {
    def(QualifiedName::native(&ToolName::new(tool).unwrap()), ToolSource::Builtin)
}

/// Returns what it was made with.
#[derive(Debug)]
pub(crate) struct Canned(pub(crate) Result<Option<ToolResult>, Fault>);

impl Reduce for Canned {
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
        reducer: Arc::new(Canned(Ok(None))),
    }
}

/// Puts a plugin in, in place of what it brought before: whole, or not at all.
pub(crate) fn install(registry: &Registry, plugin: &PluginId, bundle: Bundle) -> Result<(), Collision> {
    let choices = vec![Choice::Put(bundle), Choice::Keep];
    let placed = registry.update(&[], vec![Step { plugin: plugin.clone(), choices }], None);
    registry.tell();
    placed.into_iter().flat_map(|one| one.refused).next().map_or(Ok(()), Err)
}
