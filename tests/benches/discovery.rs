//! The cost of finding a tool among 5,000.
//!
//! `cargo bench --bench all -- discovery`.

use toolbay::discovery;
use toolbay::{Filter, Host};

use crate::registry::{MANY, host, row, time};

/// The limit (docs/explanation/performance.md).
const SEARCH_MS: f64 = 2.0;
const QUERIES: &[&str] = &[
    "tool",
    "find a file by pattern",
    "tool_0021",
    "what tool number 4711 does",
    "qqqq zzzz",
    "limit offset format",
];

pub(crate) fn run() {
    let host: Host = host(MANY);
    let view = discovery::add_search_tools(host.view(Filter::default()));
    let first = std::time::Instant::now();
    discovery::search(&view, "tool", 10).unwrap();
    println!(
        "{:44} {:10.3}",
        "the first search, which makes the index, ms",
        first.elapsed().as_secs_f64() * 1e3
    );
    for query in QUERIES {
        let took = time(|| drop(std::hint::black_box(discovery::search(&view, query, 10))));
        row(&format!("search `{query}`, ms"), took / 1e3, SEARCH_MS);
    }
    let hidden = discovery::add_search_tools(host.view(Filter { lazy: true, ..Filter::default() }));
    let took = time(|| drop(std::hint::black_box(discovery::search(&hidden, "format", 10))));
    row("search of a lazy view, ms", took / 1e3, SEARCH_MS);
}
