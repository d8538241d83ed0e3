//! The cost of a registry with many tools: a view, its definitions, a change, memory; and a call among many and among few.
//!
//! `cargo bench --bench all -- registry` prints the table. The sides of a ratio alternate in short rounds, so that a slow
//! machine slows both.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use toolbay::core::registry::ToolEntry;
use toolbay::core::tool::content::ToolOutput;
use toolbay::{Filter, Host, OnCollision, Policy, ToolCall, TurnContext, View, native_tool};

use crate::figures::median;

pub(crate) const MANY: usize = 5000;
const FEW: usize = 10;
const ROUNDS: usize = 40;
/// The limits (docs/explanation/performance.md).
const VIEW_US: f64 = 20.0;
const REBUILD_MS: f64 = 30.0;
const MEMORY_MB: f64 = 40.0;
const CALL_RATIO: f64 = 1.05;

pub(crate) fn run() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let few = host(FEW);
    let before = resident_mb();
    let many = host(MANY);
    let listed = many
        .view(Filter::default())
        .definitions()
        .filter(|entry| entry.def.name.as_str() != "read_output")
        .count();
    assert_eq!(listed, MANY);
    row("memory of the registry, MB", resident_mb() - before, MEMORY_MB);
    views(&many);
    changes(&many);
    calls(&runtime, &few, &many);
}

/// A typical tool: five parameters, each with a description.
pub(crate) fn tool(number: usize) -> ToolEntry {
    let parameters: serde_json::Map<_, _> = ["path", "pattern", "limit", "offset", "format"]
        .map(|name| (name.to_owned(), json!({"type": ["string", "integer"], "description": format!("The {name} to use, as the service of this tool knows it.")})))
        .into_iter()
        .collect();
    native_tool(format!("tool_{number:04}"))
        .namespace(format!("space{}", number % 50))
        .toolset(format!("set{}", number % 7))
        .description(format!(
            "Does what tool number {number} does, with a sentence or two that a model reads to decide."
        ))
        .input_schema(json!({"type": "object", "properties": parameters}))
        .run(|_, _| async { Ok(ToolOutput::text("ok")) })
        .unwrap()
}

pub(crate) fn host(count: usize) -> Host {
    let host =
        Host::builder(Policy::deny_all(Path::new("/"))).audit(Arc::new(UnavailableTool)).build().unwrap();
    host.register((0..count).map(tool).collect::<Vec<_>>()).unwrap();
    host
}

#[derive(Debug)]
struct UnavailableTool;

impl toolbay::core::audit::AuditSink for UnavailableTool {
    fn record(&self, _: toolbay::core::audit::AuditRecord) {}
    fn record_grant(&self, _: toolbay::core::audit::GrantRecord) {}
}

fn resident_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kilobytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes / 1000.0
}

pub(crate) fn row(what: &str, value: f64, most: f64) {
    println!("{what:44} {value:10.3}   at most {most:6.2}   ratio {:.3}", value / most);
}

/// The median of many rounds, in microseconds.
pub(crate) fn time(mut round: impl FnMut()) -> f64 {
    let once = |_| {
        let start = Instant::now();
        round();
        start.elapsed().as_secs_f64() * 1e6
    };
    median(&mut (0..ROUNDS).map(once).collect::<Vec<_>>())
}

fn filter() -> Filter {
    let names =
        |prefix: &str, count: usize| (0..count).map(|n| format!("{prefix}{n}")).collect::<BTreeSet<_>>();
    Filter {
        allowed_toolsets: Some(names("set", 4)),
        exclude_tools: (0..20).map(|n| format!("space{n}__tool_{n:04}")).collect(),
        ..Filter::default()
    }
}

fn views(host: &Host) {
    let shared = Arc::new(filter());
    let made = time(|| drop(std::hint::black_box(host.view(Arc::clone(&shared)))));
    row("a view with filters, us", made, VIEW_US);
    let lookup =
        time(|| _ = std::hint::black_box(host.view(Arc::clone(&shared)).find("space21__tool_0021").is_ok()));
    row("a view and one admission, us", lookup, VIEW_US);
    let first = time(|| _ = std::hint::black_box(host.view(filter()).definitions().count()));
    row("definitions of a new filter, ms", first / 1e3, REBUILD_MS);
    let again = time(|| _ = std::hint::black_box(host.view(Arc::clone(&shared)).definitions().count()));
    println!(
        "{:44} {again:10.3}   {:.0} times faster than a new one",
        "definitions of a known filter, us",
        first / again
    );
    let base = host.view(Arc::clone(&shared));
    let with =
        time(|| drop(std::hint::black_box(base.with_bundle(vec![tool(9999)], OnCollision::Fail).unwrap())));
    println!("{:44} {with:10.3}   the tool's own making included", "a view with a tool of its own, us");
}

fn changes(host: &Host) {
    let shared = Arc::new(filter());
    let mut off = false;
    let change = time(|| {
        off = !off;
        let registry = host.registry();
        if off {
            registry.disable("space21__tool_0021", "bench").unwrap();
        } else {
            drop(registry.enable("space21__tool_0021"));
        }
        std::hint::black_box(host.view(Arc::clone(&shared)).definitions().count());
    });
    row("one change, and the definitions anew, ms", change / 1e3, REBUILD_MS);
    let status = time(|| drop(std::hint::black_box(host.registry().snapshot().status())));
    println!("{:44} {:10.3}", "status of all tools, ms", status / 1e3);
    let merged = time(|| {
        let halves = ["set1", "set2"].map(|set| {
            let set = Some(BTreeSet::from([set.to_owned()]));
            host.view(Filter { allowed_toolsets: set, ..Filter::default() })
        });
        drop(std::hint::black_box(View::merge(&halves, OnCollision::Fail).unwrap()));
    });
    println!("{:44} {:10.3}", "two views merged, ms", merged / 1e3);
}

/// One call of `call_all` among many tools and among few, alternating.
fn calls(runtime: &tokio::runtime::Runtime, few: &Host, many: &Host) {
    let name = "space3__tool_0003";
    let one = |host: &Host| {
        let start = Instant::now();
        runtime.block_on(async {
            for _ in 0..200 {
                let view = host.view(Filter::default());
                let calls = vec![ToolCall::new("1", name, r#"{"path": "a"}"#)];
                let results = host.call_all(&view, calls, TurnContext::default()).await;
                assert!(results[0].result.is_ok());
            }
        });
        start.elapsed()
    };
    let (mut among_few, mut among_many): (Vec<Duration>, Vec<Duration>) = Default::default();
    for _ in 0..ROUNDS {
        among_few.push(one(few));
        among_many.push(one(many));
    }
    let us = |times: Vec<Duration>| {
        let mut times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e6 / 200.0).collect();
        median(&mut times)
    };
    let (few, many) = (us(among_few), us(among_many));
    println!("{:44} {few:10.3}", format!("one call among {FEW} tools, us"));
    println!("{:44} {many:10.3}", format!("one call among {MANY} tools, us"));
    row("ratio of the two", many / few, CALL_RATIO);
}
