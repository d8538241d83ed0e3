//! Runs calls of a native tool in a loop, for profilers such as `valgrind --tool=callgrind`. It prints the allocations
//! per call.
//!
//! The argument is the number of calls, after 100 warm-up calls.

#![allow(clippy::print_stdout, reason = "it is its output")]

use std::sync::Arc;

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolbay_core::audit::{AuditRecord, AuditSink, GrantRecord};
use toolbay_core::call::{ToolCall, TurnContext};
use toolbay_core::pipeline::Pipeline;
use toolbay_core::registry::Registry;
use toolbay_core::registry::native;
use toolbay_core::registry::view::{Filter, View};
use toolbay_core::tool::content::ToolOutput;

const ARGS: &str =
    r#"{"text":"Lorem ipsum dolor sit amet, consetetur sadipscing elitr, sed diam nonumy eirmod temp"}"#;

/// Discards all records.
#[derive(Debug)]
struct DiscardAudit;

impl AuditSink for DiscardAudit {
    fn record(&self, record: AuditRecord) {
        std::hint::black_box(record);
    }
    fn record_grant(&self, _: GrantRecord) {}
}

fn main() -> anyhow::Result<()> {
    let calls: u64 = std::env::args().nth(1).map_or(Ok(1000), |n| n.parse()).context("a number of calls")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let registry = Arc::new(Registry::default());
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let echo = native::tool("echo").description("Says the text again.").input_schema(schema).run(
        |args, _| async move {
            let text = args.get("text").and_then(Value::as_str);
            Ok(ToolOutput::text(text.unwrap_or_default()))
        },
    )?;
    registry.register(vec![echo])?;
    let pipeline = Pipeline::new(Arc::new(DiscardAudit));
    let view = View::new(registry.snapshot(), Filter::default());

    // All turns belong to one conversation; each turn has a new cancellation token.
    let conversation = TurnContext::default();
    let one = || {
        let calls = vec![ToolCall::new("1", "echo", ARGS)];
        let turn = TurnContext { cancel: CancellationToken::new(), ..conversation.clone() };
        let results = runtime.block_on(pipeline.call_all(&view, calls, turn));
        std::hint::black_box(results);
    };
    (0..100).for_each(|_| one());
    let counted = allocation_counter::measure(|| (0..calls).for_each(|_| one()));
    // The allocations of the caller for the call itself are subtracted.
    let given = allocation_counter::measure(|| drop(vec![ToolCall::new("1", "echo", ARGS)]));
    println!(
        "{:.1} allocations and {:.0} bytes a call",
        counted.count_total as f64 / calls as f64 - given.count_total as f64,
        counted.bytes_total as f64 / calls as f64 - given.bytes_total as f64
    );
    Ok(())
}
