//! The cost of counting calls for Prometheus.
//!
//! `cargo xtask bench telemetry`. Target: at most 1 µs a call. The sides alternate in short rounds.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Runtime;
use toolbay::core::audit::observer::ObservedAudit;
use toolbay_telemetry::Metrics;

use crate::figures::{keep, median, print_table, rounds};
use crate::library::LibraryBench;

const ROUNDS: usize = 40;
const CALLS: usize = 1000;

pub(crate) fn run() {
    let runtime = Runtime::new().unwrap();
    let metrics = Arc::new(Metrics::new());
    let side = |metrics: Option<Arc<Metrics>>| {
        let made =
            LibraryBench::of(guest_artifacts::BENCH_ECHO, "", Path::new("/"), |builder| match metrics {
                Some(metrics) => {
                    builder.wrap_audit(|audit| Arc::new(ObservedAudit::new(audit, vec![metrics as _])))
                }
                None => builder,
            });
        runtime.block_on(made)
    };
    let (without, with) = (side(None), side(Some(Arc::clone(&metrics))));
    let round = |library: &LibraryBench| {
        let start = Instant::now();
        runtime.block_on(async {
            for _ in 0..CALLS {
                library.call("bench__echo", r#"{"text":"a"}"#).await;
            }
        });
        start.elapsed().as_secs_f64() * 1e6 / CALLS as f64
    };
    [&without, &with].into_iter().for_each(|library| _ = round(library));
    let (mut plain, mut counted): (Vec<f64>, Vec<f64>) =
        (0..rounds(ROUNDS)).map(|_| (round(&without), round(&with))).unzip();
    assert!(metrics.to_text(&with.host).contains("tool=\"bench__echo\",outcome=\"ok\""));
    let (plain, counted) = (median(&mut plain), median(&mut counted));
    keep("metrics_call_us", counted - plain);
    print_table(&format!(
        "\n| a call | without metrics | with | difference |\n|---|---|---|---|\n\
         | `bench__echo` | {plain:.2} µs | {counted:.2} µs | {:.2} µs |\n",
        counted - plain
    ));
}
