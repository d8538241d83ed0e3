//! The page of operators with a full log, and calls while pages follow them.
//!
//! `cargo xtask bench admin`. Targets: each view at most 100 KB with its first byte within 50 ms, with 1,000 tools and
//! 100,000 lines in the log; at 1,000 calls a second, the 99th percentile of a call with live tails at most 1.1 times that
//! without. The sides alternate in rounds of one second.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use toolbay::core::audit::observer::{AuditObserver, ObservedAudit};
use toolbay::core::call::invoke::BoxFuture;
use toolbay::core::tool::content::ToolOutput;
use toolbay::{FileStopOrder, native_tool};
use toolbay_admin::files::{GrantError, HeldPlugin, OperatorFiles};
use toolbay_admin::server::AdminServer;
use toolbay_admin::{AdminState, ServerControl, ServerTransport};
use toolbay_telemetry::Metrics;

use crate::figures::{keep, median, print_table, rounds};
use crate::library::LibraryBench;

const TOOLS: usize = 1000;
const LINES: usize = 100_000;
/// Requests of each view.
const REQUESTS: usize = 60;
/// The time between two calls, and the calls of one round.
const PACE: Duration = Duration::from_millis(1);
const CALLS: usize = 1000;
/// Pages that follow the log. Only the first one reads.
const TAILS: usize = 8;
const ROUNDS: usize = 6;
const VIEWS: [&str; 6] = ["/", "/calls", "/refused", "/plugins", "/tools", "/budgets"];

/// No plugin is held.
struct NoFiles;

impl OperatorFiles for NoFiles {
    fn count_held_plugins(&self) -> usize {
        0
    }

    fn switch_tool(&self, _: &str, _: Option<&str>) -> Result<(), String> {
        Ok(())
    }

    fn held_plugins(&self) -> BoxFuture<'_, Result<Vec<HeldPlugin>, String>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn grant<'a>(&'a self, _: &'a str, _: &'a str, _: &'a str) -> BoxFuture<'a, Result<(), GrantError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

struct AdminBench {
    library: LibraryBench,
    server: AdminServer,
}

impl AdminBench {
    async fn new(folder: &Path) -> Self {
        // SHA-256 of `test`.
        let hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        let tokens = folder.join("admin.toml");
        std::fs::write(
            &tokens,
            format!("[[token]]\nname = \"a\"\nsha256 = \"{hash}\"\nrole = \"operate\"\n"),
        )
        .unwrap();
        std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).unwrap();
        let policy = "[admin]\nlisten = \"127.0.0.1:0\"\ntokens = \"admin.toml\"\n";
        let metrics = Arc::new(Metrics::new());
        let shown = Arc::clone(&metrics);
        let state = AdminState::new(toolbay_telemetry::CONTENT_TYPE, move |host| shown.to_text(host));
        let observers: Vec<Arc<dyn AuditObserver>> = vec![metrics, state.observer()];
        let library = LibraryBench::of(guest_artifacts::BENCH_ECHO, policy, folder, |builder| {
            builder.wrap_audit(|audit| Arc::new(ObservedAudit::new(audit, observers)))
        });
        let library = library.await;
        for number in 0..TOOLS {
            let tool =
                native_tool(format!("tool_{number:04}")).description("Does something that a model may want.");
            library.host.register(tool.run(async |_, _| Ok(ToolOutput::text("done"))).unwrap()).unwrap();
        }
        let library = library.renewed();
        let stop = FileStopOrder::new(folder.join("state"));
        let host = library.host.clone();
        let control = ServerControl::new(host, stop, ServerTransport::Stdio, Arc::new(NoFiles), Some(state));
        let policy = library.host.policy();
        let server = AdminServer::listen(policy.admin().unwrap(), control).await.unwrap();
        Self { library, server }
    }

    fn request(&self, path: &str) -> TcpStream {
        let host = self.server.address().strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer test\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    /// The time to the first byte of a view, in milliseconds, and its bytes.
    fn view(&self, path: &str) -> (f64, usize) {
        let start = Instant::now();
        let mut stream = self.request(path);
        let mut body = vec![0; 1];
        stream.read_exact(&mut body).unwrap();
        let time = start.elapsed().as_secs_f64() * 1e3;
        stream.read_to_end(&mut body).unwrap();
        assert!(body.starts_with(b"HTTP/1.1 200"), "{path}");
        (time, body.len())
    }

    /// The times of calls at a steady pace, in microseconds.
    async fn paced_calls(&self) -> Vec<f64> {
        let mut pace = tokio::time::interval(PACE);
        let mut times = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            pace.tick().await;
            let start = Instant::now();
            self.library.call("bench__echo", r#"{"text":"a"}"#).await;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        times
    }
}

/// The value below which 99 of 100 are.
fn p99(times: &mut [f64]) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}

pub(crate) fn run() {
    let runtime = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bench = runtime.block_on(AdminBench::new(folder.path()));
    runtime.block_on(async {
        for _ in 0..LINES {
            bench.library.call("bench__echo", r#"{"text":"a"}"#).await;
        }
    });
    let mut rows = String::new();
    for path in VIEWS {
        let (mut times, bytes): (Vec<f64>, Vec<usize>) = (0..REQUESTS).map(|_| bench.view(path)).unzip();
        let bytes = bytes.into_iter().max().unwrap_or_default();
        let (middle, longest) = (median(&mut times), times.iter().copied().fold(0.0, f64::max));
        rows += &format!("| `{path}` | {} KB | {middle:.1} ms | {longest:.1} ms |\n", bytes / 1000);
        if path == "/" {
            keep("admin_first_byte_ms", middle);
        }
    }
    print_table(&format!(
        "\n{TOOLS} tools and {LINES} lines in the log:\n\n| view | size | first byte, median | longest |\n|---|---|---|---|\n{rows}"
    ));
    follow(&runtime, &bench);
}

fn follow(runtime: &Runtime, bench: &AdminBench) {
    let (mut alone, mut followed, mut seen) = (Vec::new(), Vec::new(), 0);
    for _ in 0..rounds(ROUNDS) {
        alone.extend(runtime.block_on(bench.paced_calls()));
        let tails: Vec<TcpStream> = (0..TAILS).map(|_| bench.request("/api/v1/events")).collect();
        let reader = BufReader::new(tails[0].try_clone().unwrap());
        let reading = std::thread::spawn(move || {
            reader.lines().map_while(Result::ok).filter(|line| line.starts_with("event: call")).count()
        });
        followed.extend(runtime.block_on(bench.paced_calls()));
        tails.iter().for_each(|tail| tail.shutdown(std::net::Shutdown::Both).unwrap());
        seen += reading.join().unwrap();
    }
    assert!(seen > CALLS / 2, "the first tail follows");
    let (without, with) = (p99(&mut alone), p99(&mut followed));
    keep("admin_tail_p99_ratio", with / without);
    print_table(&format!(
        "\n1,000 calls a second:\n\n| a call | alone | with {TAILS} live tails | ratio |\n|---|---|---|---|\n\
         | median | {:.1} µs | {:.1} µs | {:.2} |\n| 99 of 100 | {without:.1} µs | {with:.1} µs | {:.2} |\n\nThe tail that reads saw {seen} calls.\n",
        median(&mut alone),
        median(&mut followed),
        median(&mut followed) / median(&mut alone),
        with / without,
    ));
}
