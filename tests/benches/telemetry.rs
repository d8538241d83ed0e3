//! The cost of counting calls for Prometheus, and of tracing them.
//!
//! `cargo xtask bench telemetry`. Targets: at most 1 µs a call for metrics without a sampled span, at most 6 µs if every
//! call is sampled and sent. The sides alternate in short rounds.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Runtime;
use toolbay::core::audit::observer::{AuditObserver, ObservedAudit};
use toolbay::core::call::trace::Tracer;
use toolbay::policy::telemetry::TelemetryPolicy;
use toolbay_telemetry::{ExportBuffer, Metrics, OtlpEndpoint, OtlpExporter};

use crate::figures::{keep, median, print_table, rounds};
use crate::library::LibraryBench;

const ROUNDS: usize = 40;
const CALLS: usize = 1000;

/// A host with telemetry, or without.
struct Side {
    library: LibraryBench,
    buffer: Option<Arc<ExportBuffer>>,
    _exporter: Option<OtlpExporter>,
    times: Vec<f64>,
}

impl Side {
    async fn new(metrics: Option<Arc<Metrics>>, traces: Option<&TelemetryPolicy>) -> Self {
        let buffer = traces.map(|_| Arc::new(ExportBuffer::new(metrics.as_deref())));
        let library = LibraryBench::of(guest_artifacts::BENCH_ECHO, "", Path::new("/"), |mut builder| {
            if let Some(traces) = traces {
                builder = builder.tracer(Tracer::new(traces));
            }
            let metrics = metrics.map(|metrics| metrics as Arc<dyn AuditObserver>);
            let observers: Vec<_> =
                metrics.into_iter().chain(buffer.clone().map(|buffer| buffer as _)).collect();
            match observers.is_empty() {
                true => builder,
                false => builder.wrap_audit(|audit| Arc::new(ObservedAudit::new(audit, observers))),
            }
        });
        let library = library.await;
        let endpoint = traces.map(|traces| OtlpEndpoint::new(traces, |_| None).unwrap());
        let exporter = endpoint.zip(buffer.clone());
        let exporter =
            exporter.map(|(endpoint, buffer)| OtlpExporter::start(buffer, endpoint, library.host.clone()));
        Self { library, buffer, _exporter: exporter, times: Vec::new() }
    }

    async fn round(&mut self) {
        let start = Instant::now();
        for _ in 0..CALLS {
            self.library.call("bench__echo", r#"{"text":"a"}"#).await;
        }
        self.times.push(start.elapsed().as_secs_f64() * 1e6 / CALLS as f64);
    }
}

pub(crate) fn run() {
    let runtime = Runtime::new().unwrap();
    let collector = serve_collector();
    let traces = |sample| TelemetryPolicy {
        otlp: Some(collector.parse().unwrap()),
        net_private: Vec::new(),
        sample,
        propagate: BTreeSet::new(),
        arguments: false,
    };
    let metrics = Arc::new(Metrics::new());
    let mut sides = runtime.block_on(async {
        [
            Side::new(None, None).await,
            Side::new(Some(Arc::clone(&metrics)), None).await,
            Side::new(Some(Arc::new(Metrics::new())), Some(&traces(0.0))).await,
            Side::new(Some(Arc::new(Metrics::new())), Some(&traces(1.0))).await,
        ]
    });
    for _ in 0..=rounds(ROUNDS) {
        sides.iter_mut().for_each(|side| runtime.block_on(side.round()));
    }
    assert!(metrics.to_text(&sides[1].library.host).contains("tool=\"bench__echo\",outcome=\"ok\""));
    let lost = sides[3].buffer.as_ref().map_or(0, |buffer| buffer.lost());
    let [plain, counted, unsampled, sampled] = sides.map(|mut side| {
        side.times.remove(0);
        median(&mut side.times)
    });
    keep("metrics_call_us", counted - plain);
    keep("unsampled_call_us", unsampled - plain);
    keep("sampled_call_us", sampled - plain);
    let row = |name: &str, time: f64| format!("| {name} | {time:.2} µs | {:.2} µs |\n", time - plain);
    print_table(&format!(
        "\n| a call of `bench__echo` | time | more |\n|---|---|---|\n{}{}{}{}\n{lost} spans were lost\n",
        row("without telemetry", plain),
        row("with metrics", counted),
        row("with metrics and traces, none sampled", unsampled),
        row("with metrics and traces, all sampled", sampled),
    ));
}

/// Serves a collector that accepts everything, until the program ends. Returns its URL.
fn serve_collector() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || accept_exports(&stream));
        }
    });
    format!("http://{address}")
}

/// Answers requests until the connection is closed.
fn accept_exports(stream: &TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        reader.read_exact(&mut vec![0; length]).ok()?;
        (&mut &*stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}
