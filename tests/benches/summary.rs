//! A table at the end of a run: what each layer adds to bare wasmtime, from the recorded figures.

use crate::figures::kept;

/// The instructions of a call where they can be counted, from `cargo xtask counts`.
const COUNTS: &str = include_str!("../data/counts.json");

struct Row {
    name: &'static str,
    /// The prefix of its figures.
    times: &'static str,
    rate: &'static str,
    memory: &'static str,
    /// The name in the counts.
    counts: &'static str,
    /// The row of its baseline.
    base: usize,
}

const fn row(name: &'static str, [times, rate, memory, counts]: [&'static str; 4], base: usize) -> Row {
    Row { name, times, rate, memory, counts, base }
}

const ROWS: [Row; 7] = [
    row("bare wasmtime", ["floor_fresh", "floor_two_threads_per_s", "floor", ""], 0),
    row("library: `call_all`", ["library_fresh", "library_two_workers_per_s", "library", ""], 0),
    row("pipeline: a native tool", ["native_tool", "native_batch_per_s", "native_tool", "native_call"], 0),
    row(
        "stdio: the MCP library alone",
        ["rmcp_native_stdio", "rmcp_native_stdio_per_s", "rmcp_native_stdio", ""],
        3,
    ),
    row("stdio: `toolbay serve`", ["stdio", "stdio_per_s", "stdio", ""], 3),
    row(
        "HTTP: the MCP library alone",
        ["rmcp_native_http", "rmcp_native_http_per_s", "rmcp_native_http", ""],
        5,
    ),
    row("HTTP: `toolbay serve`", ["http", "http_per_s", "http", ""], 5),
];

impl Row {
    fn p50(&self) -> Option<f64> {
        ["_us", "_p50_us"].iter().find_map(|end| kept(&format!("{}{end}", self.times)))
    }

    fn instructions(&self) -> Option<f64> {
        let counts: serde_json::Value = serde_json::from_str(COUNTS).ok()?;
        counts[self.counts]["instructions"].as_f64()
    }

    fn show(&self) {
        let base = &ROWS[self.base];
        let (p50, rate) = (self.p50(), kept(self.rate));
        let shown = [
            shown(p50, 1),
            shown(ratio(p50, base.p50()), 2),
            shown(kept(&format!("{}_p99_us", self.times)), 1),
            shown(rate, 0),
            shown(ratio(rate, kept(base.rate)), 2),
            shown(self.instructions(), 0),
            shown(kept(&format!("{}_idle_mb", self.memory)), 0),
            shown(kept(&format!("{}_most_mb", self.memory)), 0),
        ];
        println!("| {} | {} |", self.name, shown.join(" | "));
    }
}

/// Prints the table if more than one layer was measured.
pub(crate) fn show() {
    let measured: Vec<&Row> = ROWS.iter().filter(|row| row.p50().is_some()).collect();
    if measured.len() < 2 {
        return;
    }
    println!(
        "\n## summary\n\nRatios are to bare wasmtime, and of a server to the MCP library over the same transport."
    );
    println!(
        "\n| a call through | p50 µs | ratio | p99 µs | calls/s | ratio | instructions | idle, MB | at most, MB |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    measured.into_iter().for_each(Row::show);
}

fn ratio(of: Option<f64>, to: Option<f64>) -> Option<f64> {
    Some(of? / to?)
}

fn shown(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.digits$}"))
}
