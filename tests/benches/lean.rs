//! A fresh call of what plugins are: what `toolbay new` makes, in bare wasmtime, beside the echo with which everything else is
//! compared. What a component imports is paid for with each of its instances.

use std::time::Instant;

use crate::figures::{Spread, keep, rounds};
use crate::floor::{ARGS, Bare};

const CALLS: usize = 500;
const SIDES: [(&str, &str, &str, &str); 2] = [
    ("the echo, without SDK", guest_artifacts::BENCH_ECHO, "echo", ARGS),
    ("`toolbay new hello`", guest_artifacts::BENCH_HELLO, "hello", r#"{"name":"world","marks":2}"#),
];

pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let bare = SIDES.map(|(_, guest, ..)| Bare::over(guest, |_| {}));
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
        let (bytes, Spread { p50, p99 }) = (std::fs::metadata(guest).unwrap().len(), Spread::of(times));
        println!("| {what} | {} | {bytes} | {p50:.1} | {p99:.1} |", bare.imports());
        keep(&format!("lean_{}_us", if what.contains("new") { "hello" } else { "echo" }), p50);
    }
}
