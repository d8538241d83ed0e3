//! Large results: the time and the memory of a mebibyte beside bare wasmtime, in a separate process.

use tokio::runtime::Runtime;

use crate::apart::{self, PeakMemory};
use crate::figures::{keep, median, rounds, timed};
use crate::floor::BareStore;
use crate::library::LibraryBench;

const ROOMY: &str = "[limits]\nargs_bytes = \"16MiB\"\nhost_call_bytes = \"64MiB\"\nmemory = \"256MiB\"\n";
const MIB: usize = 1 << 20;
/// A tool of this guest with a long result.
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
        let (bare, library) = (BareStore::over(guest, |_| {}), LibraryBench::new(&runtime, guest, ROOMY));
        let (mut times, called) = ([Vec::new(), Vec::new()], format!("bench__{tool}"));
        for _ in 0..rounds(60) {
            times[0].push(timed(|| assert!(runtime.block_on(bare.roomy(tool, &args)).len() >= MIB)));
            times[1].push(timed(|| assert!(runtime.block_on(library.call(&called, &args)).len() >= MIB)));
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

/// One side, and the size of its result in MiB.
fn peak(part: &str) {
    let (side, mib) = part.split_once(' ').unwrap();
    let args = |n: usize| format!(r#"{{"n":{n}}}"#);
    let (small, large) = (args(100), args(mib.parse::<usize>().unwrap() * MIB));
    let runtime = runtime();
    let kib = match side {
        "bare" => {
            let bare = BareStore::over(TEXT, |_| {});
            (0..3).for_each(|_| drop(runtime.block_on(bare.roomy("text", &small))));
            let peak = PeakMemory::from_here();
            runtime.block_on(bare.roomy("text", &large));
            peak.kib()
        }
        _ => {
            let library = LibraryBench::new(&runtime, TEXT, ROOMY);
            (0..3).for_each(|_| assert!(runtime.block_on(library.call("bench__text", &small)).len() >= 100));
            let peak = PeakMemory::from_here();
            drop(runtime.block_on(library.call("bench__text", &large)));
            peak.kib()
        }
    };
    apart::print_figure(kib);
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}
