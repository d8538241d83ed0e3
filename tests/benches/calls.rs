//! The cost of a call, as a ratio to bare wasmtime with the same component and settings, in one run.
//!
//! `cargo bench --bench all -- calls` prints the table of `docs/explanation/performance.md`. The two sides alternate in
//! short rounds, so that a slow machine slows both.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::figures::{FigureSpread, keep, median, quick, rounds, timed};
use crate::floor::{ARGS, BareStore};
use crate::library::LibraryBench;

const ROUNDS: usize = 30;
const CALLS: usize = 1000;
/// How long each side of a throughput round runs.
const SPAN: Duration = Duration::from_millis(300);

pub(crate) fn run() {
    fresh_call();
    async_call();
    two_threads();
    // This compiles for a minute.
    if !quick() {
        start_of_list();
    }
}

fn library(runtime: &Runtime) -> LibraryBench {
    LibraryBench::new(runtime, guest_artifacts::BENCH_ECHO, "")
}

async fn echo(library: &LibraryBench) {
    assert_eq!(library.call("bench__echo", ARGS).await, ARGS);
}

/// One thread, one call after the other: fresh instance and echo.
fn fresh_call() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let bare = BareStore::new();
    let library = library(&runtime);
    let mut rows = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds(ROUNDS) {
        rows[0].extend((0..CALLS).map(|_| timed(|| runtime.block_on(bare.call(false)))));
        rows[1].extend((0..CALLS).map(|_| timed(|| runtime.block_on(bare.call(true)))));
        rows[2].extend((0..CALLS).map(|_| timed(|| runtime.block_on(echo(&library)))));
    }
    let [floor, metered, library] = rows.map(FigureSpread::of);
    println!(
        "\n| one thread, fresh instance, echo of 100 bytes | p50 µs | p99 µs | ratio of p50 |\n|---|---|---|---|"
    );
    println!("| bare wasmtime, same settings | {:.1} | {:.1} | 1 |", floor.p50, floor.p99);
    println!(
        "| bare, with limiter, fuel and epoch callback set | {:.1} | {:.1} | {:.2} |",
        metered.p50,
        metered.p99,
        metered.p50 / floor.p50
    );
    println!(
        "| `call_all`: all limits, validation, audit | {:.1} | {:.1} | {:.2} |",
        library.p50,
        library.p99,
        library.p50 / floor.p50
    );
    keep("floor_fresh_us", floor.p50);
    keep("library_fresh_us", library.p50);
    keep("floor_fresh_p99_us", floor.p99);
    keep("library_fresh_p99_us", library.p99);
}

/// The same function of a plain component, on WASI 0.2 and as an asynchronous one on WASI 0.3. The components by hand
/// show what the host adds; those in Rust have the asynchronous runtime of `wit-bindgen` too.
fn async_call() {
    const TEXT: &str = r#"{"text": "over there"}"#;
    const GUESTS: [(&str, &str); 4] = [
        ("by hand: a function of WASI 0.2", concat!(env!("CARGO_MANIFEST_DIR"), "/sync_echo.wat")),
        ("by hand: an `async` function of WASI 0.3", concat!(env!("CARGO_MANIFEST_DIR"), "/async_echo.wat")),
        ("in Rust: a function of WASI 0.2", guest_artifacts::FOREIGN_ECHO),
        ("in Rust: an `async` function of WASI 0.3", guest_artifacts::BENCH_ASYNC_ECHO),
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let libraries = GUESTS.map(|(_, guest)| LibraryBench::new(&runtime, guest, ""));
    let mut rows = GUESTS.map(|_| Vec::new());
    for _ in 0..rounds(ROUNDS) {
        for (row, library) in rows.iter_mut().zip(&libraries) {
            row.extend(
                (0..CALLS).map(|_| timed(|| drop(runtime.block_on(library.call("bench__echo", TEXT))))),
            );
        }
    }
    let figures = rows.map(FigureSpread::of);
    println!("\n| a plain component's echo | p50 µs | p99 µs | ratio of p50 |\n|---|---|---|---|");
    for (pair, names) in figures.chunks(2).zip(GUESTS.chunks(2)) {
        for (figure, (name, _)) in pair.iter().zip(names) {
            println!("| {name} | {:.1} | {:.1} | {:.2} |", figure.p50, figure.p99, figure.p50 / pair[0].p50);
        }
    }
    let names = ["sync_echo_us", "async_echo_us", "rust_sync_echo_us", "rust_async_echo_us"];
    names.iter().zip(&figures).for_each(|(name, figure)| keep(name, figure.p50));
}

/// Two bare threads against two tokio workers.
fn two_threads() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let bare = Arc::new(BareStore::new());
    let library = Arc::new(library(&runtime));
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..rounds(9) {
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let bare = Arc::clone(&bare);
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    runtime.block_on(count(|| bare.call(false)))
                })
            })
            .collect();
        rates[0].push(threads.into_iter().map(|t| t.join().unwrap()).sum::<f64>());
        let tasks: Vec<_> = (0..2)
            .map(|_| {
                let library = Arc::clone(&library);
                runtime.spawn(async move { count(|| echo(&library)).await })
            })
            .collect();
        rates[1].push(tasks.into_iter().map(|t| runtime.block_on(t).unwrap()).sum::<f64>());
    }
    let [bare, library] = rates.map(|mut rates| median(&mut rates));
    println!("\n| two threads | calls/s | ratio |\n|---|---|---|");
    println!("| bare wasmtime, two threads | {bare:.0} | 1 |");
    println!("| `call_all` on two workers | {library:.0} | {:.2} |", library / bare);
    keep("floor_two_threads_per_s", bare);
    keep("library_two_workers_per_s", library);
}

/// `toolbay list` with 100 different plugins, as a process.
fn start_of_list() {
    let binary = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/toolbay");
    if !binary.exists() {
        println!(
            "\nno `target/release/toolbay`: build it with `cargo build --release -p toolbay-cli` to time `toolbay list`"
        );
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let plugins = hundred_plugins(dir.path());
    let list = || {
        let cache = dir.path().join("cache");
        let start = Instant::now();
        let out = Command::new(&binary)
            .args(["list", "--plugins"])
            .arg(&plugins)
            .arg("--cache-dir")
            .arg(cache)
            .output()
            .unwrap();
        assert!(out.status.success(), "{out:?}");
        assert!(out.stdout.iter().filter(|b| **b == b'\n').count() >= 100);
        start.elapsed().as_secs_f64() * 1e3
    };
    let first = list();
    let mut times: Vec<f64> = (0..21).map(|_| list()).collect();
    let least = times.iter().copied().fold(f64::MAX, f64::min);
    println!("\n| `toolbay list`, 100 different plugins | ms |\n|---|---|");
    println!("| first time, everything compiled | {first:.0} |");
    println!("| from the cache: median of 21 | {:.1} |", median(&mut times));
    println!("| from the cache: least | {least:.1} |");
}

/// The text plugin a hundred times, each with another custom section and therefore another digest.
fn hundred_plugins(dir: &Path) -> PathBuf {
    let plugins = dir.join("plugins");
    std::fs::create_dir(&plugins).unwrap();
    let bytes = std::fs::read(guest_artifacts::PLUGIN_TEXT).unwrap();
    for n in 0..100 {
        let mut copy = bytes.clone();
        copy.extend([0, 4, 1, b'n', n / 10, n % 10]);
        std::fs::write(plugins.join(format!("p{n:02}.wasm")), copy).unwrap();
    }
    plugins
}

async fn count<F: Future<Output = ()>>(mut call: impl FnMut() -> F) -> f64 {
    let start = Instant::now();
    let mut calls = 0u32;
    while start.elapsed() < SPAN {
        for _ in 0..50 {
            call().await;
        }
        calls += 50;
    }
    f64::from(calls) / start.elapsed().as_secs_f64()
}
