//! A server with two native tools over stdio, for trying out MCP clients: `echo` and `words`.

use std::sync::Arc;

use anyhow::Context;
use serde_json::Value;
use serde_json::value::to_raw_value;
use toolbay_core::audit::LogAudit;
use toolbay_core::call::invoke::{BoxFuture, Invoke, ToolOutcome};
use toolbay_core::call::{AdmittedCall, CallContext, ProgressAudience};
use toolbay_core::pipeline::Pipeline;
use toolbay_core::registry::view::{Filter, ToolEntry};
use toolbay_core::registry::{Bundle, Registry};
use toolbay_core::tool::content::ToolOutput;
use toolbay_core::tool::schema::Schema;
use toolbay_core::tool::{ToolDef, ToolSource, ToolTraits};
use toolbay_mcp::{Options, Server, ShutdownSignals};
use toolbay_policy::limits::Usage;
use toolbay_policy::name::{QualifiedName, ToolName};

#[derive(Debug)]
enum EchoTool {
    Echo,
    Words,
}

impl Invoke for EchoTool {
    fn invoke<'a>(&'a self, call: &'a AdmittedCall, ctx: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        let text = call.parsed().get("text").and_then(Value::as_str).unwrap_or_default();
        ctx.progress("reading", Some(50.0), ProgressAudience::User);
        let output = match self {
            Self::Echo => ToolOutput::text(text),
            Self::Words => {
                let words: Vec<_> = text.split_whitespace().collect();
                ToolOutput { structured: to_raw_value(&words).ok(), ..ToolOutput::default() }
            }
        };
        Box::pin(async move { ToolOutcome { result: Ok(output), usage: Usage::default() } })
    }
}

fn entry(name: &str, description: &str, output: Option<&str>, native: EchoTool) -> anyhow::Result<ToolEntry> {
    let input = r#"{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}"#;
    let name = QualifiedName::from_native(&ToolName::new(name)?);
    let mut def = ToolDef::new(name, description, Schema::input(input)?, ToolSource::Builtin);
    def.output_schema = output.map(Schema::output).transpose()?;
    def.traits = ToolTraits { read_only: true, closed_world: true, ..ToolTraits::default() };
    Ok(ToolEntry::new(def, Arc::new(native)))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let tools = vec![
        entry("echo", "Returns the text.", None, EchoTool::Echo)?,
        entry(
            "words",
            "Splits the text into words.",
            Some(r#"{"type":"array","items":{"type":"string"}}"#),
            EchoTool::Words,
        )?,
    ];
    let registry = Registry::default();
    registry.register(Bundle { tools, reducers: vec![] }).context("two tools have the same name")?;
    let pipeline = Pipeline::new(Arc::new(LogAudit));
    let server = Server::new(Arc::new(registry), pipeline, Filter::default(), Options::default());
    toolbay_mcp::serve_stdio(server, ShutdownSignals::default()).await
}
