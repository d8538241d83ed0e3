//! The cost of the pipeline without a guest: a native tool, one call after the other, and its allocations.
//!
//! `cargo bench --bench all -- native`. Targets: under 3 µs and under 12 allocations.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use toolbay::core::tool::content::ToolOutput;
use toolbay::{Filter, Host, Policy, ToolCall, TurnContext, View, native_tool};

use crate::figures::{FigureSpread, keep, rounds};
use crate::floor::ARGS;

const CALLS: usize = 2000;

pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let audit = Arc::new(crate::library::CountedCall::default());
    let host = runtime.block_on(async {
        let host = Host::builder(Policy::deny_all(Path::new("/"))).audit(audit).build().unwrap();
        let echo = native_tool("echo")
            .description("Says the text again.")
            .input_schema(serde_json::json!({"type": "object", "properties": {"text": {"type": "string"}}}))
            .run(|args, _| async move { Ok(ToolOutput::text(args["text"].as_str().unwrap_or_default())) })
            .unwrap();
        host.register(vec![echo]).unwrap();
        host
    });
    let view = host.view(Filter::default());
    let mut times = Vec::new();
    for _ in 0..rounds(30) {
        for _ in 0..CALLS {
            // The texts of a call belong to the caller and are created before.
            let calls = vec![ToolCall::new("1", "echo", ARGS)];
            let start = Instant::now();
            runtime.block_on(call(&host, &view, calls));
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    let each = allocations();
    let FigureSpread { p50, p99 } = FigureSpread::of(times);
    println!("\n| a native tool, one thread | p50 µs | p99 µs | allocations |\n|---|---|---|---|");
    println!("| `call_all` of one call | {p50:.2} | {p99:.2} | {each} |");
    keep("native_tool_us", p50);
    keep("native_tool_p99_us", p99);
    keep("native_tool_allocations", each);
}

/// The allocations of the pipeline for a call, without the caller's texts. A separate program counts them, because a
/// counting allocator would slow this measurement.
fn allocations() -> f64 {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/examples/hot_path");
    let out = Command::new(&program).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    text.split_whitespace().next().and_then(|count| count.parse().ok()).unwrap()
}

async fn call(host: &Host, view: &View, calls: Vec<ToolCall>) {
    let results = host.call_all(view, calls, TurnContext::default()).await;
    assert!(results[0].result.is_ok());
}
