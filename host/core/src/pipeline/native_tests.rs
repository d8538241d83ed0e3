//! Native tools: their calls pass the gates, and a bug in one ends its call only.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::Pipeline;
use crate::audit::LogAudit;
use crate::call::invoke::Failure;
use crate::call::{ToolCall, TurnContext};
use crate::registry::native::{NativeTool, tool};
use crate::registry::view::{Filter, View};
use crate::registry::{Registry, ToolEntry};
use crate::tool::content::{ErrorCode, ToolError, ToolOutput, ToolResult};

async fn call(entry: ToolEntry, args: &str) -> Result<ToolOutput, Failure> {
    let name = entry.def.name.to_string();
    let registry = Registry::default();
    registry.register(entry).unwrap();
    let view = View::new(registry.snapshot(), Filter::default());
    let calls = vec![ToolCall::new("1", name, args)];
    let pipeline = Pipeline::new(Arc::new(LogAudit));
    pipeline.call_all(&view, calls, TurnContext::default()).await.remove(0).result
}

fn described(name: &str) -> NativeTool {
    tool(name).description("Does something.")
}

#[tokio::test]
async fn a_function_is_a_tool() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let double = described("double").namespace("math").input_schema(schema).run(async |args, ctx| {
        let n = args.get("n").and_then(Value::as_i64).unwrap_or_default();
        Ok(ToolOutput::text(format!("{} {}", ctx.tool, n * 2)))
    });
    let double = double.unwrap();
    assert_eq!(call(double.clone(), r#"{"n": 21}"#).await.unwrap().value, "math__double 42");
    let error = call(double, r#"{"n": "x"}"#).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InputInvalid, "the arguments are checked before the tool runs");
    let no = described("no").run(async |_, _| Err(ToolError::new(ErrorCode::StaleWrite, "changed")));
    assert_eq!(call(no.unwrap(), "").await.unwrap_err().code(), ErrorCode::StaleWrite);
}

#[tokio::test(start_paused = true)]
async fn a_panic_or_a_hang_ends_its_call_only() {
    fn bug(args: &Value) -> ToolResult {
        panic!("a bug with {args}")
    }
    let panics = [
        described("t").run(|args, _| async move { bug(&args) }).unwrap(),
        described("t").run(|args, _| std::future::ready(bug(&args))).unwrap(),
    ];
    for entry in panics {
        let error = call(entry, "{}").await.unwrap_err();
        assert_eq!(error.to_string(), "the host failed: the native tool `t` panicked");
    }
    let hangs = described("t").timeout(Duration::from_secs(2)).run(|_, _| std::future::pending()).unwrap();
    let error = call(hangs, "{}").await.unwrap_err();
    assert_eq!(error.to_string(), "the native tool exceeded its timeout of 2s");
}
