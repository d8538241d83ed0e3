//! How the time of a call grows with plugins, tools, the sizes of arguments and results, concurrent calls, and
//! the size of a batch.
//!
//! `cargo bench --bench all -- curves` prints tables. The variable `TOOLBAY_PLOTS` names a folder for plots.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Runtime;
use toolbay::core::tool::content::ToolOutput;
use toolbay::{HostBuilder, ToolCall, TurnContext, native_tool};

use crate::figures::{keep, median, rounds};
use crate::floor::{ARGS, BareStore};
use crate::library::LibraryBench;
use crate::plot::{Curve, Plot};

/// No result is truncated or refused for its size.
const POLICY: &str = "[limits]\nargs_bytes = \"16MiB\"\nhost_call_bytes = \"64MiB\"\nmemory = \"256MiB\"\n[host]\nparallel_calls = 256\n";
const COUNTS: [usize; 5] = [1, 10, 100, 1_000, 10_000];
/// The size of arguments and result. The first are `{"text":""}`, without text.
const SIZES: [usize; 7] = [11, 100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 10 << 20];
const AT_ONCE: [usize; 4] = [1, 10, 100, 1_000];
const BATCHES: [usize; 7] = [1, 3, 10, 30, 100, 300, 1_000];

pub(crate) fn run() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    by_plugins(&runtime);
    by_tools(&runtime);
    by_size(&runtime);
    by_calls(&runtime);
    by_batch(&runtime);
}

fn library(runtime: &Runtime) -> LibraryBench {
    LibraryBench::new(runtime, guest_artifacts::BENCH_ECHO, POLICY)
}

/// Microseconds of one call, in a task as in a server.
fn one(runtime: &Runtime, library: &LibraryBench, args: &str, times: usize) -> Vec<f64> {
    let (library, args) = (library.clone(), args.to_owned());
    let task = runtime.spawn(async move {
        let mut taken = Vec::with_capacity(times);
        for _ in 0..times {
            let start = Instant::now();
            let text = library.call("bench__echo", &args).await;
            taken.push(start.elapsed().as_secs_f64() * 1e6);
            assert_eq!(text.len(), args.len());
        }
        taken
    });
    runtime.block_on(task).unwrap()
}

/// Hosts with a growing number of plugins, whose calls alternate.
fn by_plugins(runtime: &Runtime) {
    let dir = tempfile::tempdir().unwrap();
    let hosts = COUNTS.map(|count| {
        let cached = |builder: HostBuilder| builder.cache_dir(dir.path().join("cache"));
        let library = LibraryBench::of(guest_artifacts::BENCH_ECHO, POLICY, Path::new("/"), cached);
        let library = runtime.block_on(library);
        let folder = crate::scale::plugins(dir.path(), &format!("of{count}"), count);
        let report = runtime.block_on(library.host.load_dir(&folder)).unwrap();
        assert_eq!(report.loaded.len(), count, "{report:?}");
        library.renewed()
    });
    let points = compared(runtime, &hosts);
    keep("plugins_10000_to_1", points[4].1 / points[0].1);
    let curve = Curve { name: "one call".to_owned(), points };
    Plot { name: "plugins", x: "plugins", y: "µs", curves: vec![curve] }.show();
}

fn by_tools(runtime: &Runtime) {
    let hosts = COUNTS.map(|count| {
        let library = library(runtime);
        let tool = |n| {
            let tool = native_tool(format!("tool_{n}")).description("Does nothing, as others do.");
            tool.run(|_, _| async { Ok(ToolOutput::text("")) }).unwrap()
        };
        library.host.register((0..count).map(tool).collect::<Vec<_>>()).unwrap();
        library.renewed()
    });
    let curve = Curve { name: "one call".to_owned(), points: compared(runtime, &hosts) };
    Plot { name: "tools", x: "tools", y: "µs", curves: vec![curve] }.show();
}

fn compared(runtime: &Runtime, hosts: &[LibraryBench; 5]) -> Vec<(f64, f64)> {
    let mut times: [Vec<f64>; 5] = Default::default();
    for _ in 0..rounds(15) {
        for (library, times) in hosts.iter().zip(&mut times) {
            times.extend(one(runtime, library, ARGS, 500));
        }
    }
    COUNTS.iter().zip(times).map(|(count, mut times)| (*count as f64, median(&mut times))).collect()
}

/// The tool returns its text.
fn by_size(runtime: &Runtime) {
    let library = library(runtime);
    let bare = Arc::new(BareStore::new());
    let (mut floor, mut ours) = (Vec::new(), Vec::new());
    for size in SIZES {
        let args = format!(r#"{{"text":"{}"}}"#, "x".repeat(size - SIZES[0]));
        let times = (20 << 20 >> 5) / size.max(10 << 10) / 8 + 5;
        let mut taken = [Vec::new(), Vec::new()];
        for _ in 0..rounds(9) {
            let (bare, args_of_bare) = (Arc::clone(&bare), args.clone());
            let round = runtime.spawn(async move {
                let mut taken = Vec::new();
                for _ in 0..times {
                    let start = Instant::now();
                    let text = bare.roomy("echo", &args_of_bare).await;
                    taken.push(start.elapsed().as_secs_f64() * 1e6);
                    assert_eq!(text.len(), args_of_bare.len());
                }
                taken
            });
            taken[0].extend(runtime.block_on(round).unwrap());
            taken[1].extend(one(runtime, &library, &args, times));
        }
        let [bare, library] = taken.map(|mut taken| median(&mut taken));
        floor.push((size as f64, bare));
        ours.push((size as f64, library));
    }
    keep("echo_1mib_ratio", ours[5].1 / floor[5].1);
    let curves = vec![
        Curve { name: "bare wasmtime".to_owned(), points: floor },
        Curve { name: "call_all".to_owned(), points: ours },
    ];
    Plot { name: "sizes", x: "bytes in and out", y: "µs", curves }.show();
}

/// Calls per second of concurrent calls, each in its own task or all in one batch.
fn by_calls(runtime: &Runtime) {
    let library = library(runtime);
    let (mut tasks, mut batches) = (Vec::new(), Vec::new());
    for count in AT_ONCE {
        let mut taken = [Vec::new(), Vec::new()];
        for _ in 0..rounds(9) {
            taken[0].push(in_tasks(runtime, &library, count));
            taken[1].push(in_batches(runtime, &library, "bench__echo", count));
        }
        let [task, batch] = taken.map(|mut taken| median(&mut taken));
        tasks.push((count as f64, task));
        batches.push((count as f64, batch));
    }
    let curves = vec![
        Curve { name: "tasks with a call each".to_owned(), points: tasks },
        Curve { name: "one batch".to_owned(), points: batches },
    ];
    Plot { name: "calls", x: "calls at once", y: "calls/s", curves }.show();
}

/// The time of one call of a batch, in the sandbox and of a native tool.
fn by_batch(runtime: &Runtime) {
    let library = library(runtime);
    let native = native_tool("native").description("Says the text again.");
    let native =
        native.run(|args, _| async move { Ok(ToolOutput::text(args["text"].as_str().unwrap_or_default())) });
    library.host.register(vec![native.unwrap()]).unwrap();
    let library = library.renewed();
    let (mut sandboxed, mut native) = (Vec::new(), Vec::new());
    for count in BATCHES {
        let mut taken = [Vec::new(), Vec::new()];
        for _ in 0..rounds(9) {
            for (taken, tool) in taken.iter_mut().zip(["bench__echo", "native"]) {
                taken.push(1e6 / in_batches(runtime, &library, tool, count));
            }
        }
        let [sandbox, plain] = taken.map(|mut taken| median(&mut taken));
        sandboxed.push((count as f64, sandbox));
        native.push((count as f64, plain));
    }
    keep("batch_1000_call_us", sandboxed[BATCHES.len() - 1].1);
    let curves = vec![
        Curve { name: "a fresh instance each".to_owned(), points: sandboxed },
        Curve { name: "a native tool".to_owned(), points: native },
    ];
    Plot { name: "batch", x: "calls in a batch", y: "µs a call", curves }.show();
}

const CALLS: usize = 10_000;

fn in_tasks(runtime: &Runtime, library: &LibraryBench, count: usize) -> f64 {
    let start = Instant::now();
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let library = library.clone();
            runtime.spawn(async move {
                for _ in 0..CALLS / count {
                    library.call("bench__echo", ARGS).await;
                }
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    CALLS as f64 / start.elapsed().as_secs_f64()
}

fn in_batches(runtime: &Runtime, library: &LibraryBench, tool: &'static str, count: usize) -> f64 {
    let LibraryBench { host, view } = library.clone();
    let start = Instant::now();
    let task = runtime.spawn(async move {
        for _ in 0..CALLS / count {
            let calls = (0..count).map(|n| ToolCall::new(n.to_string(), tool, ARGS)).collect();
            // No result is truncated, however large the batch.
            let turn = TurnContext { budget_chars: 32 << 20, ..TurnContext::default() };
            let results = host.call_all(&view, calls, turn).await;
            assert!(results.iter().all(|r| r.result.is_ok()));
        }
    });
    runtime.block_on(task).unwrap();
    (CALLS / count * count) as f64 / start.elapsed().as_secs_f64()
}

/// The folder for plots.
pub(crate) fn pictures() -> Option<PathBuf> {
    std::env::var_os("TOOLBAY_PLOTS").map(PathBuf::from)
}
