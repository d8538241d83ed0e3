//! The client for the client scenarios of the MCP conformance suite: a host with a bridge to the server whose URL is the
//! last argument. It lists the tools and calls each of them through the whole pipeline, as a model would.
//!
//! `MCP_CONFORMANCE_SCENARIO` names the scenario, `MCP_CONFORMANCE_PROTOCOL_VERSION` the protocol revision, and
//! `MCP_CONFORMANCE_CONTEXT` holds the calls that the scenario requires.

#![allow(
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a program of the tests: a failure is to stop it"
)]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use toolbay::core::call::invoke::BoxFuture;
use toolbay::{Filter, Host, Policy, ToolCall, TurnContext};
use toolbay_mcp::Bridge;
use toolbay_mcp::client::{Elicitation, ElicitationHandler, ElicitationOutcome, ServerState};

/// Accepts every elicitation with the defaults of its form.
#[derive(Debug)]
struct AcceptDefaults;

impl ElicitationHandler for AcceptDefaults {
    fn elicit<'a>(&'a self, question: &'a Elicitation) -> BoxFuture<'a, ElicitationOutcome> {
        let mut form = Map::new();
        let fields = question.schema.get("properties").and_then(Value::as_object);
        for (name, field) in fields.into_iter().flatten() {
            // Fields with a default are left out; the bridge fills them in.
            if field.get("default").is_none() {
                form.insert(name.clone(), sample(field));
            }
        }
        Box::pin(async { ElicitationOutcome::Accept(form) })
    }
}

/// A value that fits a simple schema.
fn sample(schema: &Value) -> Value {
    match schema.get("type").and_then(Value::as_str) {
        Some("integer" | "number") => json!(2),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("text"),
    }
}

/// The arguments that a tool's schema requires.
fn arguments(schema: &Value) -> Value {
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let property = |name: &str| schema.pointer(&format!("/properties/{name}")).cloned().unwrap_or_default();
    let all =
        required.iter().filter_map(Value::as_str).map(|name| (name.to_owned(), sample(&property(name))));
    Value::Object(all.collect())
}

/// The calls that the scenario requires. A null argument is omitted.
fn wanted() -> Option<Vec<(String, Value)>> {
    let context: Value = serde_json::from_str(&std::env::var("MCP_CONFORMANCE_CONTEXT").ok()?).ok()?;
    let calls = context.get("toolCalls")?.as_array()?;
    let call = |call: &Value| {
        let mut args = call.get("arguments").cloned().unwrap_or_else(|| json!({}));
        if let Some(args) = args.as_object_mut() {
            args.retain(|_, value| !value.is_null());
        }
        Some((call.get("name")?.as_str()?.to_owned(), args))
    };
    calls.iter().map(call).collect()
}

#[tokio::main]
async fn main() -> ExitCode {
    let url = std::env::args().next_back().expect("a URL");
    let legacy = std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION")
        .is_ok_and(|version| version.as_str() < "2026-07-28");
    let protocol = if legacy { "legacy" } else { "modern" };
    let here = std::env::current_dir().unwrap();
    let text = format!("version = 1\n[mcp.s]\nurl = {url:?}\nprotocol = \"{protocol}\"\ntimeout = \"20s\"");
    let host = Host::builder(Policy::parse(&text, &here, None).unwrap()).build().unwrap();
    let bridge = Bridge::new(Arc::clone(host.registry()), host.server_connector())
        .with_elicitation_handler(Arc::new(AcceptDefaults));
    bridge.apply(&host.policy());
    bridge.wait_settled(Duration::from_secs(25)).await;
    let status = bridge.status().remove(0);
    for problem in &status.problems {
        eprintln!("problem: {problem}");
    }
    if status.state != ServerState::Ready {
        eprintln!("not ready: {:?}", status.reason);
        return ExitCode::FAILURE;
    }
    let view = host.view(Filter::default());
    let own = |name: &str| format!("mcp__s__{name}");
    let calls = wanted().map(|calls| calls.into_iter().map(|(name, args)| (own(&name), args)).collect());
    let calls: Vec<(String, Value)> = calls.unwrap_or_else(|| {
        let bridged = view.definitions().filter(|entry| entry.def.name.as_str().starts_with("mcp__"));
        bridged.map(|entry| (entry.def.name.to_string(), arguments(entry.def.input_schema.value()))).collect()
    });
    for (name, args) in calls {
        let call = ToolCall::new("1", name.as_str(), args.to_string());
        for delivered in host.call_all(&view, vec![call], TurnContext::default()).await {
            eprintln!("{name}: {:?}", delivered.result);
        }
    }
    bridge.close().await;
    ExitCode::SUCCESS
}
