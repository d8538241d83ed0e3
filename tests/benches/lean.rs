//! A fresh call of a plugin from `toolbay new` in bare wasmtime, beside the echo that all other benchmarks use. Each
//! import of a component adds to the cost of an instance.

use std::time::Instant;

use crate::figures::{FigureSpread, keep, rounds};
use crate::floor::{ARGS, BareStore};

const CALLS: usize = 500;
const SIDES: [(&str, &str, &str, &str); 2] = [
    ("the echo, without SDK", guest_artifacts::BENCH_ECHO, "echo", ARGS),
    ("`toolbay new hello`", guest_artifacts::BENCH_HELLO, "hello", r#"{"name":"world","marks":2}"#),
];

pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let bare = SIDES.map(|(_, guest, ..)| BareStore::over(guest, |_| {}));
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds(15) {
        for ((bare, (_, _, tool, args)), times) in bare.iter().zip(SIDES).zip(&mut times) {
            for _ in 0..CALLS {
                let start = Instant::now();
                runtime.block_on(bare.tool(tool, args, true));
                times.push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
    }
    println!("\n| bare wasmtime, fresh instance, one call | functions imported | bytes | p50 µs | p99 µs |");
    println!("|---|---|---|---|---|");
    for (((what, guest, ..), bare), times) in SIDES.iter().zip(&bare).zip(times) {
        let (bytes, FigureSpread { p50, p99 }) =
            (std::fs::metadata(guest).unwrap().len(), FigureSpread::of(times));
        println!("| {what} | {} | {bytes} | {p50:.1} | {p99:.1} |", bare.imports());
        keep(&format!("lean_{}_us", if what.contains("new") { "hello" } else { "echo" }), p50);
    }
}
