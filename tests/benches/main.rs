//! The benchmarks in one program: `cargo bench --bench all` runs all, `cargo bench --bench all -- NAME…` some.
//!
//! Each prints Markdown tables. The sides of a ratio alternate in short rounds of one run, so that a slow machine
//! slows both. Times of different runs are not comparable.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a benchmark that fails is to stop"
)]

mod admin;
mod apart;
mod audit;
mod batch;
mod calls;
mod cancel;
mod curves;
mod discovery;
mod distribution;
mod fairness;
mod figures;
mod files;
mod floor;
mod growth;
mod http;
mod kv;
mod large;
mod lean;
mod library;
mod live;
mod memory;
mod metering;
mod native;
mod peers;
mod plot;
mod process;
mod protocol;
mod registry;
mod replicas;
mod scale;
mod summary;
mod telemetry;
mod unread_results;
mod unread_stderr;

/// Each benchmark by name, in order.
const ALL: &[(&str, fn())] = &[
    ("calls", calls::run),
    ("native", native::run),
    ("batch", batch::run),
    ("fairness", fairness::run),
    ("unread_stderr", unread_stderr::run),
    ("cancel", cancel::run),
    ("metering", metering::run),
    ("lean", lean::run),
    ("large", large::run),
    ("live", live::run),
    ("files", files::run),
    ("http", http::run),
    ("kv", kv::run),
    ("audit", audit::run),
    ("telemetry", telemetry::run),
    ("admin", admin::run),
    ("registry", registry::run),
    ("replicas", replicas::run),
    ("discovery", discovery::run),
    ("distribution", distribution::run),
    ("protocol", protocol::run),
    ("scale", scale::run),
    ("growth", growth::run),
    ("memory", memory::run),
    ("unread_results", unread_results::run),
    ("curves", curves::run),
    ("peers", peers::run),
];

fn main() {
    let named: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    // `cargo test` runs benchmarks without a harness once. Then nothing is measured.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    if let Some(side) = std::env::var_os(memory::ALONE) {
        return memory::alone(&side.to_string_lossy());
    }
    if let Some(other) = named.iter().find(|name| ALL.iter().all(|(known, _)| known != name)) {
        let known: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        panic!("there is no benchmark `{other}`: {}", known.join(", "));
    }
    for (name, run) in ALL.iter().filter(|(name, _)| named.is_empty() || named.iter().any(|n| n == name)) {
        println!("\n## {name}\n\nload average before: {}", load());
        run();
    }
    summary::show();
    if let Some(file) = std::env::var_os("TOOLBAY_FIGURES") {
        figures::write(file.as_ref());
    }
}

/// The load averages of one, five and fifteen minutes.
fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}
