//! Test doubles for this crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use toolbay_core::call::invoke::{BoxFuture, Invoke, ToolOutcome};
use toolbay_core::call::{AdmittedCall, CallContext};
use toolbay_core::registry::ToolEntry;
use toolbay_core::tool::content::ToolOutput;
use toolbay_core::tool::fault::{Fault, FaultKind};
use toolbay_core::tool::schema::Schema;
use toolbay_core::tool::{ToolDef, ToolSource};
use toolbay_policy::limits::Usage;
use toolbay_policy::name::{PluginId, QualifiedName, ToolName};

/// A tool that counts its runs. Its argument `do` selects its behaviour.
#[derive(Debug, Default)]
pub(crate) struct CountingTool {
    pub(crate) ran: AtomicUsize,
}

impl Invoke for CountingTool {
    fn invoke<'a>(&'a self, call: &'a AdmittedCall, _: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        self.ran.fetch_add(1, Ordering::Relaxed);
        let action = call.parsed().get("do").and_then(|value| value.as_str()).unwrap_or("echo");
        let result = match action {
            "fault" => Err(Fault::new(FaultKind::Trap, "trapped").into()),
            "long" => Ok(ToolOutput::text("🙂".repeat(1000))),
            _ => Ok(ToolOutput::text(call.args())),
        };
        Box::pin(async { ToolOutcome { result, usage: Usage::default() } })
    }
}

fn tool(name: QualifiedName, source: ToolSource) -> ToolEntry {
    let schema = r#"{"type":"object","properties":{"do":{"type":"string"},"n":{"type":"integer"}}}"#;
    let def = ToolDef::new(name, "A puppet.", Schema::input(schema).unwrap(), source);
    let mut entry = ToolEntry::new(def, Arc::new(CountingTool::default()));
    entry.call.args_bytes = 10_000;
    entry
}

pub(crate) fn plugin_tool(plugin: &str, name: &str) -> ToolEntry {
    let id = PluginId::new(plugin).unwrap();
    let name = QualifiedName::join(&id, &ToolName::new(name).unwrap()).unwrap();
    tool(name, ToolSource::Plugin { id, version: None, digest: "00".into(), origin: None })
}

pub(crate) fn native_tool(name: &str) -> ToolEntry {
    tool(QualifiedName::from_native(&ToolName::new(name).unwrap()), ToolSource::Builtin)
}
