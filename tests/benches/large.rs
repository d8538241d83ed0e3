//! Large results: what a mebibyte takes, beside bare wasmtime, and how much memory, in a process of its own.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Runtime;
use toolbay::{Filter, Host, PluginId, Policy, ToolCall, TurnContext, View};

use crate::apart::{self, Peak};
use crate::figures::{keep, median, rounds};
use crate::floor::Bare;

const ROOMY: &str =
    "version = 1\n[limits]\nargs_bytes = \"16MiB\"\nhost_call_bytes = \"64MiB\"\nmemory = \"256MiB\"\n";
const MIB: usize = 1 << 20;
/// A tool of this guest that answers at length.
const TEXT: &str = guest_artifacts::BENCH_COMPUTE;

pub(crate) fn run() {
    if let Some(part) = apart::asked() {
        return peak(&part);
    }
    let runtime = runtime();
    println!("\n| fresh instance | bare wasmtime, µs | `call_all`, µs | ratio |\n|---|---|---|---|");
    let text = |n: usize| format!(r#"{{"text":"{}"}}"#, "x".repeat(n - 11));
    for (what, guest, tool, args, key) in [
        ("1 MiB in and out", guest_artifacts::BENCH_ECHO, "echo", text(MIB), "large_echo_ratio"),
        ("1 MiB out", TEXT, "text", format!(r#"{{"n":{MIB}}}"#), "large_result_ratio"),
        ("10 MiB out", TEXT, "text", format!(r#"{{"n":{}}}"#, 10 * MIB), "large_result_10_ratio"),
    ] {
        let (bare, library) = (Bare::over(guest, |_| {}), Library::new(&runtime, guest));
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..rounds(60) {
            times[0].push(timed(|| assert!(runtime.block_on(bare.roomy(tool, &args)).len() >= MIB)));
            times[1].push(timed(|| assert!(runtime.block_on(library.call(tool, &args)) >= MIB)));
        }
        let [bare, library] = times.map(|mut times| median(&mut times));
        println!("| {what} | {bare:.0} | {library:.0} | {:.2} |", library / bare);
        keep(key, library / bare);
    }
    println!(
        "\n| most resident, a process each | bare wasmtime, to the result | `call_all` | to the result |\n|---|---|---|---|"
    );
    for mib in [1, 10] {
        let kib = ["bare", "library"].map(|side| apart::figure("large", &format!("{side} {mib}")));
        let [bare, library] = kib.map(|kib| kib / 1024.0 / f64::from(mib));
        println!("| {mib} MiB out | {bare:.2} | {:.1} MiB | {library:.2} |", library * f64::from(mib));
        keep(&format!("large_peak_{mib}"), library);
    }
}

/// One side and the size of its result in MiB.
fn peak(part: &str) {
    let (side, mib) = part.split_once(' ').unwrap();
    let args = |n: usize| format!(r#"{{"n":{n}}}"#);
    let (small, large) = (args(100), args(mib.parse::<usize>().unwrap() * MIB));
    let runtime = runtime();
    let kib = match side {
        "bare" => {
            let bare = Bare::over(TEXT, |_| {});
            (0..3).for_each(|_| drop(runtime.block_on(bare.roomy("text", &small))));
            let peak = Peak::from_here();
            runtime.block_on(bare.roomy("text", &large));
            peak.kib()
        }
        _ => {
            let library = Library::new(&runtime, TEXT);
            (0..3).for_each(|_| assert!(runtime.block_on(library.call("text", &small)) >= 100));
            let peak = Peak::from_here();
            runtime.block_on(library.call("text", &large));
            peak.kib()
        }
    };
    apart::tell(kib);
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

fn timed(run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_secs_f64() * 1e6
}

struct Library {
    host: Host,
    view: View,
}

impl Library {
    fn new(runtime: &Runtime, guest: &str) -> Self {
        let policy = Policy::parse(ROOMY, Path::new("/"), None).unwrap();
        let host = Host::builder(policy).audit(Arc::new(crate::calls::Counted::default())).build().unwrap();
        let bytes = std::fs::read(guest).unwrap();
        runtime.block_on(host.load_bytes(PluginId::new("bench").unwrap(), bytes)).unwrap();
        let view = host.view(Filter::default());
        Self { host, view }
    }

    /// How long the result is.
    async fn call(&self, tool: &str, args: &str) -> usize {
        let calls = vec![ToolCall::new("1", format!("bench__{tool}"), args)];
        let turn = TurnContext { budget_chars: 32 << 20, ..TurnContext::default() };
        let results = self.host.call_all(&self.view, calls, turn).await;
        results[0].result.as_ref().unwrap().value.len()
    }
}
