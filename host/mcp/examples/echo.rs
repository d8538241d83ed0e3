//! A server of two native tools over stdio, to try MCP clients on: `echo` and `words`.

use std::sync::Arc;

use anyhow::Context;
use serde_json::Value;
use serde_json::value::to_raw_value;
use toolbay_core::audit::LogAudit;
use toolbay_core::call::invoke::{BoxFuture, Invoke, ToolOutcome};
use toolbay_core::call::{AdmittedCall, Audience, CallContext};
use toolbay_core::pipeline::Pipeline;
use toolbay_core::registry::view::{Entry, Filter};
use toolbay_core::registry::{Bundle, Registry};
use toolbay_core::tool::content::ToolOutput;
use toolbay_core::tool::schema::Schema;
use toolbay_core::tool::{ToolDef, ToolSource, ToolTraits};
use toolbay_mcp::{Ends, Options, Server};
use toolbay_policy::limits::Usage;
use toolbay_policy::name::{QualifiedName, ToolName};

#[derive(Debug)]
enum Native {
    Echo,
    Words,
}

impl Invoke for Native {
    fn invoke<'a>(&'a self, call: &'a AdmittedCall, ctx: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        let text = call.parsed().get("text").and_then(Value::as_str).unwrap_or_default();
        ctx.progress("reading", Some(50.0), Audience::User);
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

fn entry(name: &str, description: &str, output: Option<&str>, native: Native) -> anyhow::Result<Entry> {
    let input = r#"{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}"#;
    let name = QualifiedName::native(&ToolName::new(name)?);
    let mut def = ToolDef::new(name, description, Schema::input(input)?, ToolSource::Builtin);
    def.output_schema = output.map(Schema::output).transpose()?;
    def.traits = ToolTraits { read_only: true, closed_world: true, ..ToolTraits::default() };
    Ok(Entry::new(def, Arc::new(native)))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let tools = vec![
        entry("echo", "Returns the text.", None, Native::Echo)?,
        entry(
            "words",
            "Splits the text into words.",
            Some(r#"{"type":"array","items":{"type":"string"}}"#),
            Native::Words,
        )?,
    ];
    let registry = Registry::default();
    registry.register(Bundle { tools, reducers: vec![] }).context("two tools of one name")?;
    let pipeline = Pipeline::new(Arc::new(LogAudit));
    let server = Server::new(Arc::new(registry), pipeline, Filter::default(), Options::default());
    toolbay_mcp::serve_stdio(server, Ends::default()).await
}
