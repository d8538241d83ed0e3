//! The cost of an unread stderr: the latency of one plugin beside another that logs without end, in a `toolbay serve` whose
//! stderr is not read, as a ratio to the same server whose stderr is read.
//!
//! `cargo bench --bench all -- unread_stderr`. Target: the quiet plugin's p99 at most doubles.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::figures::{keep, rounds};
use serde_json::{Value, json};

const CALLS: u64 = 400;
const ROUNDS: usize = 12;
const POLICY: &str = "version = 1\n[host]\nbreaker_faults = 0\n[plugins.loud.limits]\nfuel = 1_000_000_000_000_000\n\
                      timeout = \"600s\"\nlog_lines = 4_000_000_000\nlog_rate = 1_000_000\n";

pub(crate) fn run() {
    let binary = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/toolbay");
    if !binary.exists() {
        println!("\nno `target/release/toolbay`: build it with `cargo build --release -p toolbay-cli`");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("plugins")).unwrap();
    std::fs::copy(guest_artifacts::HOSTILE_HOSTCALLS, dir.path().join("plugins/loud.wasm")).unwrap();
    std::fs::copy(guest_artifacts::BENCH_ECHO, dir.path().join("plugins/quiet.wasm")).unwrap();
    std::fs::write(dir.path().join("toolbay.toml"), POLICY).unwrap();
    let mut servers = [true, false].map(|reads| NoisyServer::start(&binary, dir.path(), reads));
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds(ROUNDS) {
        // In turn, because they would share the CPUs otherwise.
        for (server, times) in servers.iter_mut().zip(&mut times) {
            times.extend(server.round());
        }
    }
    let [read, unread] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        [times[times.len() / 2], times[times.len() * 99 / 100], times[times.len() - 1]]
    });
    println!(
        "\n| beside a guest that logs without end | quiet p50 µs | p99 µs | most µs | p99 to read |\n|---|---|---|---|---|"
    );
    let ratio = unread[1] / read[1];
    println!("| stderr is read | {:.0} | {:.0} | {:.0} | 1 |", read[0], read[1], read[2]);
    println!("| stderr is not read | {:.0} | {:.0} | {:.0} | {ratio:.2} |", unread[0], unread[1], unread[2]);
    keep("unread_stderr_p99_ratio", ratio);
}

/// `toolbay serve` and its client.
struct NoisyServer {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// Open and never read.
    _unread: Option<ChildStderr>,
    last_id: u64,
}

impl Drop for NoisyServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl NoisyServer {
    fn start(binary: &Path, dir: &Path, reads: bool) -> Self {
        let mut child = Command::new(binary)
            .args(["serve", "--log", "error,toolbay::guest=info"])
            .arg("--plugins")
            .arg(dir.join("plugins"))
            .arg("--config")
            .arg(dir.join("toolbay.toml"))
            .arg("--state-dir")
            .arg(dir.join(if reads { "state-read" } else { "state-unread" }))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut stderr = child.stderr.take();
        if let Some(mut stderr) = stderr.take_if(|_| reads) {
            std::thread::spawn(move || {
                let mut piece = [0; 1 << 16];
                while stderr.read(&mut piece).is_ok_and(|read| read > 0) {}
            });
        }
        let mut server = Self { child, stdin, stdout, _unread: stderr, last_id: 0 };
        let who = json!({"name": "bench", "version": "1"});
        let id = server.send(
            "initialize",
            &json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": who}),
        );
        server.answer(id);
        server.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        server
    }

    fn write(&mut self, message: &Value) {
        writeln!(self.stdin, "{message}").unwrap();
    }

    fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    fn answer(&mut self, id: u64) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the server has ended");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    }

    fn quiet(&mut self) -> f64 {
        let start = Instant::now();
        let id = self.send("tools/call", &json!({"name": "quiet__echo", "arguments": {}}));
        let result = self.answer(id);
        let time = start.elapsed().as_secs_f64() * 1e6;
        assert_eq!(result["isError"], json!(false), "{result}");
        time
    }

    /// The times of quiet calls beside a busy plugin.
    fn round(&mut self) -> Vec<f64> {
        let loud = self.send("tools/call", &json!({"name": "loud__log", "arguments": {}}));
        // Until the pipe is full, if it is not read.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(300) {
            self.quiet();
        }
        let times = (0..CALLS).map(|_| self.quiet()).collect();
        let cancelled = json!({"requestId": loud, "reason": "the round is over"});
        self.write(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}));
        std::thread::sleep(Duration::from_millis(200));
        times
    }
}
