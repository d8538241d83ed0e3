//! A thousand concurrent instances: the memory of each, in a separate process.

use std::time::{Duration, Instant};

use crate::apart;
use crate::figures::keep;
use crate::floor::{ARGS, BareStore, HeldInstance};
use crate::library::LibraryBench;

const INSTANCES: u32 = 750;
const POLICY: &str = "[host]\nparallel_calls = 1000\n[limits]\nconcurrency = 1000\n";
/// How long the calls wait.
const WAIT: Duration = Duration::from_secs(3);

pub(crate) fn run() {
    if let Some(part) = apart::asked() {
        let (side, which) = part.split_once(' ').unwrap();
        let [resident, share] = if side == "bare" { bare() } else { library() };
        return apart::print_figure(if which == "resident" { resident } else { share });
    }
    println!(
        "\n| {INSTANCES} live instances | KiB each | resident, counting shared pages in each |\n|---|---|---|"
    );
    for (side, what) in [
        ("bare", "bare wasmtime: a store, an instance that has answered"),
        ("library", "`call_all`: a call that waits, all of it"),
    ] {
        let [share, resident] =
            ["share", "resident"].map(|which| apart::figure("live", &format!("{side} {which}")));
        println!("| {what} | {share:.1} | {resident:.1} |");
        keep(&format!("live_{side}_kib"), share);
    }
}

fn bare() -> [f64; 2] {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let bare = BareStore::of_many(guest_artifacts::BENCH_ECHO, HeldInstance::BY_BOTH, INSTANCES, |_| {});
    drop(runtime.block_on(bare.live("echo", ARGS)));
    let before = apart::memory();
    let live: Vec<_> = (0..INSTANCES).map(|_| runtime.block_on(bare.live("echo", ARGS))).collect();
    let after = apart::memory();
    drop(live);
    each(before, after)
}

fn library() -> [f64; 2] {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let library = LibraryBench::new(&runtime, guest_artifacts::HOSTILE_SLEEP, POLICY);
    let call = |wait: Duration| {
        let (library, args) = (library.clone(), format!(r#"{{"ms":{}}}"#, wait.as_millis()));
        runtime.spawn(async move { drop(library.call("bench__sleep", &args).await) })
    };
    runtime.block_on(call(Duration::from_millis(1))).unwrap();
    let (before, start) = (apart::memory(), Instant::now());
    let all: Vec<_> = (0..INSTANCES).map(|_| call(WAIT)).collect();
    std::thread::sleep(WAIT / 2);
    let after = apart::memory();
    all.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    assert!(start.elapsed() < 2 * WAIT, "they were not there at once");
    each(before, after)
}

fn each(before: [f64; 2], after: [f64; 2]) -> [f64; 2] {
    let [resident, share] = [0, 1].map(|at| (after[at] - before[at]) / f64::from(INSTANCES));
    [resident, share]
}
