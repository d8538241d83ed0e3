//! A call through MCP: one echo in a fresh sandboxed instance, beside a server with only the MCP library and a
//! native echo. Over stdio and over HTTP, one call at a time and 64 in flight.
//!
//! `cargo build --release --bin toolbay --example bare`, then `cargo bench --bench all -- protocol`. Targets: p50 at most
//! 1.2 times the bare server's, 64 in flight at least 0.9 (stdio) or 0.6 (HTTP) times as many; a list of 1000 tools at
//! most twice the time to write it once.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::figures::{FigureSpread, keep, median, rounds};
use crate::floor::ARGS;
use crate::process::{RunningProgram, built, status_kib};

/// With sessions, and without.
const LEGACY: &str = "2025-11-25";
pub(crate) const MODERN: &str = "2026-07-28";
const CALLS: usize = 1000;
const IN_FLIGHT: usize = 64;
const IDLE: usize = 500;
const LISTED: usize = 1000;

pub(crate) fn run() {
    let (Some(toolbay), Some(bare)) = (built("toolbay"), built("examples/bare")) else { return };
    let folder = BenchFolder::new();
    stdio(&toolbay, &bare, &folder);
    http(&toolbay, &bare, &folder);
    listing(&toolbay);
}

/// A folder of plugins with the echo, and a policy without rate limits.
struct BenchFolder(tempfile::TempDir);

impl BenchFolder {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("plugins")).unwrap();
        std::fs::copy(guest_artifacts::BENCH_ECHO, dir.path().join("plugins/bench.wasm")).unwrap();
        let policy = "version = 1\n[serve.limits]\nrequests_per_second = 1_000_000\nrequests_per_client = 1024\nrequests = 1024\nsessions_per_client = 4096\nsessions = 4096\n";
        std::fs::write(dir.path().join("toolbay.toml"), policy).unwrap();
        Self(dir)
    }

    fn serve(&self, toolbay: &Path, more: &[&str]) -> Command {
        let mut command = Command::new(toolbay);
        let at = |name: &str| self.0.path().join(name);
        command.arg("serve").arg("--plugins").arg(at("plugins")).arg("--cache-dir").arg(at("cache"));
        command.arg("--config").arg(at("toolbay.toml")).args(more);
        command
    }
}

/// The time to list many tools, beside writing the list once as JSON.
fn listing(toolbay: &Path) {
    let folder = BenchFolder::new();
    for n in 1..LISTED {
        let name = format!("plugins/bench-{n}.wasm");
        std::fs::hard_link(folder.0.path().join("plugins/bench.wasm"), folder.0.path().join(name)).unwrap();
    }
    let mut server = ServerPipes::open(folder.serve(toolbay, &[]), "bench__echo");
    let (mut times, mut written) = (Vec::new(), Vec::new());
    for _ in 0..rounds(30) {
        let (pages, time) = server.list();
        times.push(time.as_secs_f64() * 1e3);
        let pages: Vec<Value> = pages.iter().map(|page| serde_json::from_str(page).unwrap()).collect();
        let tools = pages.iter().map(|page| page["result"]["tools"].as_array().unwrap().len());
        assert!(tools.sum::<usize>() >= LISTED);
        let start = Instant::now();
        std::hint::black_box(serde_json::to_vec(&pages).unwrap());
        written.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let [listed, written] = [times, written].map(|mut times| median(&mut times));
    println!("\n| `tools/list` of {LISTED} tools, all pages, over stdio | ms | ratio |\n|---|---|---|");
    println!(
        "| written once as JSON | {written:.2} | 1 |\n| `toolbay serve` | {listed:.2} | {:.2} |",
        listed / written
    );
    keep("list_1000_over_stdio_ms", listed);
}

/// The calls of one server, as text.
pub(crate) struct MessageFormat {
    tool: &'static str,
    next: u64,
}

impl MessageFormat {
    fn call(&mut self) -> String {
        self.next += 1;
        format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{{"name":"{}","arguments":{ARGS}}}}}"#,
            self.next, self.tool
        )
    }

    /// The same as a request without a session.
    fn whole_call(&mut self) -> String {
        let meta = format!(
            r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"{MODERN}","io.modelcontextprotocol/clientInfo":{{"name":"bench","version":"1"}},"io.modelcontextprotocol/clientCapabilities":{{}}}}"#
        );
        self.call().replacen(r#""params":{"#, &format!(r#""params":{{{meta},"#), 1)
    }

    fn initialize() -> String {
        format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{LEGACY}","capabilities":{{}},"clientInfo":{{"name":"bench","version":"1"}}}}}}"#
        )
    }

    const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
}

struct ServerPipes {
    child: RunningProgram,
    /// The resident memory after the handshake, in KiB.
    idle: u64,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    wording: MessageFormat,
}

impl ServerPipes {
    fn open(mut command: Command, tool: &'static str) -> Self {
        let mut child: Child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::with_capacity(1 << 16, child.stdout.take().unwrap());
        let wording = MessageFormat { tool, next: 0 };
        let mut pipes = Self { child: RunningProgram(child), idle: 0, input, output, wording };
        pipes.send(&MessageFormat::initialize());
        assert!(pipes.line().contains("protocolVersion"));
        pipes.send(MessageFormat::INITIALIZED);
        pipes.idle = resident(&pipes.child);
        pipes
    }

    fn send(&mut self, text: &str) {
        self.input.write_all(format!("{text}\n").as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    fn answer(&mut self) {
        let line = self.line();
        assert!(line.contains("Lorem ipsum") && line.contains("\"result\""), "{line}");
    }

    /// All pages of the list of tools, and the time of the responses, without this program's search for the cursor.
    fn list(&mut self) -> (Vec<String>, Duration) {
        let (mut pages, mut params, mut time) = (Vec::new(), String::new(), Duration::ZERO);
        loop {
            self.wording.next += 1;
            let id = self.wording.next;
            let start = Instant::now();
            self.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"{params}}}"#));
            let page = self.line();
            time += start.elapsed();
            let cursor = page.split_once("\"nextCursor\":\"").and_then(|(_, rest)| rest.split('"').next());
            let next = cursor.map(|cursor| format!(r#","params":{{"cursor":"{cursor}"}}"#));
            pages.push(page);
            match next {
                Some(next) => params = next,
                None => return (pages, time),
            }
        }
    }

    fn one_by_one(&mut self) -> Vec<f64> {
        let call = |pipes: &mut Self| {
            let text = pipes.wording.call();
            let start = Instant::now();
            pipes.send(&text);
            pipes.answer();
            start.elapsed().as_secs_f64() * 1e6
        };
        (0..CALLS).map(|_| call(self)).collect()
    }

    fn in_flight(&mut self) -> f64 {
        let start = Instant::now();
        let calls = CALLS * 10;
        for sent in 0..calls + IN_FLIGHT {
            if sent >= IN_FLIGHT {
                self.answer();
            }
            if sent < calls {
                let text = self.wording.call();
                self.send(&text);
            }
        }
        calls as f64 / start.elapsed().as_secs_f64()
    }
}

fn stdio(toolbay: &Path, bare: &Path, folder: &BenchFolder) {
    let mut servers = [
        ServerPipes::open(Command::new(bare), "echo"),
        ServerPipes::open(folder.serve(toolbay, &[]), "bench__echo"),
    ];
    let mut times = [Vec::new(), Vec::new()];
    let mut rates = [Vec::new(), Vec::new()];
    servers.iter_mut().for_each(|server| drop(server.one_by_one()));
    for _ in 0..rounds(9) {
        for (n, server) in servers.iter_mut().enumerate() {
            times[n].extend(server.one_by_one());
            rates[n].push(server.in_flight());
        }
    }
    table("stdio", ["rmcp_native_stdio", "stdio"], times, rates);
    for (server, name) in servers.iter().zip(["rmcp_native_stdio", "stdio"]) {
        held(&server.child, name, server.idle);
    }
}

fn resident(server: &RunningProgram) -> u64 {
    status_kib(server.0.id(), "VmRSS").unwrap()
}

/// Records the memory of a server before the first call, and its peak.
fn held(server: &RunningProgram, name: &str, idle_kib: u64) {
    let most = status_kib(server.0.id(), "VmHWM").unwrap();
    keep(&format!("{name}_idle_mb"), idle_kib as f64 / 1024.0);
    keep(&format!("{name}_most_mb"), most as f64 / 1024.0);
}

/// Prints the table of two servers, and records their figures under these names.
fn table(over: &str, names: [&str; 2], times: [Vec<f64>; 2], rates: [Vec<f64>; 2]) {
    let times = times.map(FigureSpread::of);
    let [bare, ours] = rates.map(|mut rates| median(&mut rates));
    println!(
        "\n| over {over}, echo of 100 bytes | p50 µs | p99 µs | ratio of p50 | 64 in flight, calls/s | ratio |"
    );
    println!("|---|---|---|---|---|---|");
    println!(
        "| the MCP library and a native tool | {:.0} | {:.0} | 1 | {bare:.0} | 1 |",
        times[0].p50, times[0].p99
    );
    println!(
        "| `toolbay serve`, a fresh instance each | {:.0} | {:.0} | {:.2} | {ours:.0} | {:.2} |",
        times[1].p50,
        times[1].p99,
        times[1].p50 / times[0].p50,
        ours / bare
    );
    for ((name, times), rate) in names.into_iter().zip(times).zip([bare, ours]) {
        keep(&format!("{name}_p50_us"), times.p50);
        keep(&format!("{name}_p99_us"), times.p99);
        keep(&format!("{name}_per_s"), rate);
    }
}

/// A listening server.
pub(crate) struct HttpSite {
    child: RunningProgram,
    address: String,
    pub(crate) wording: MessageFormat,
}

impl HttpSite {
    pub(crate) fn open(mut command: Command, tool: &'static str) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let address = loop {
            let mut line = String::new();
            assert!(said.read_line(&mut line).unwrap() > 0, "it ended before it listened");
            if let Some((_, rest)) = line.split_once("listening on http://") {
                break rest.split('/').next().unwrap().to_owned();
            }
        };
        // Later output is discarded, so that the pipe never fills.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Self { child: RunningProgram(child), address, wording: MessageFormat { tool, next: 0 } }
    }

    fn session(&self) -> BenchLine {
        let mut line = BenchLine::open(&self.address);
        let (head, body) = line.post(&MessageFormat::initialize());
        assert!(body.contains("protocolVersion"), "{head}\n{body}");
        let session = head.lines().find_map(|l| {
            let (name, value) = l.split_once(':')?;
            name.eq_ignore_ascii_case("mcp-session-id").then(|| value.trim().to_owned())
        });
        if let Some(id) = session {
            line.headers += &format!("Mcp-Session-Id: {id}\r\n");
        }
        line.post(MessageFormat::INITIALIZED);
        line
    }

    /// A connection for calls of this era.
    pub(crate) fn line(&self, era: &str) -> BenchLine {
        if era == LEGACY {
            return self.session();
        }
        let headers = format!(
            "MCP-Protocol-Version: {era}\r\nMcp-Method: tools/call\r\nMcp-Name: {}\r\n",
            self.wording.tool
        );
        BenchLine { headers, ..BenchLine::open(&self.address) }
    }
}

/// One persistent connection.
pub(crate) struct BenchLine {
    stream: BufReader<TcpStream>,
    address: String,
    /// The headers of the era and the session.
    headers: String,
}

impl BenchLine {
    fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let headers = format!("MCP-Protocol-Version: {LEGACY}\r\n");
        Self { stream: BufReader::new(stream), address: address.to_owned(), headers }
    }

    /// Head and body of the response.
    fn post(&mut self, body: &str) -> (String, String) {
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n{body}",
            self.address,
            self.headers,
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(self.stream.read_line(&mut head).unwrap() > 0, "closed: {head}");
        }
        let lower = head.to_ascii_lowercase();
        let body = match lower.split_once("content-length: ") {
            Some((_, rest)) => self.exactly(rest.split('\r').next().unwrap().parse().unwrap()),
            None if lower.contains("chunked") => self.chunks(),
            None => String::new(),
        };
        (head, body)
    }

    fn exactly(&mut self, bytes: usize) -> String {
        let mut body = vec![0; bytes];
        self.stream.read_exact(&mut body).unwrap();
        String::from_utf8(body).unwrap()
    }

    fn chunks(&mut self) -> String {
        let mut body = String::new();
        loop {
            let mut size = String::new();
            self.stream.read_line(&mut size).unwrap();
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            body += self.exactly(size + 2).trim_end_matches("\r\n");
            if size == 0 {
                return body;
            }
        }
    }

    /// Makes a call. Returns its time in microseconds.
    pub(crate) fn call(&mut self, wording: &mut MessageFormat, era: &str) -> f64 {
        let text = if era == LEGACY { wording.call() } else { wording.whole_call() };
        let start = Instant::now();
        let (head, body) = self.post(&text);
        assert!(body.contains("Lorem ipsum"), "{head}\n{body}");
        start.elapsed().as_secs_f64() * 1e6
    }
}

fn http(toolbay: &Path, bare: &Path, folder: &BenchFolder) {
    let mut of_library = Command::new(bare);
    of_library.arg("127.0.0.1:0");
    let mut sites = [
        HttpSite::open(of_library, "echo"),
        HttpSite::open(folder.serve(toolbay, &["--http", "127.0.0.1:0"]), "bench__echo"),
    ];
    let idle_kib = [resident(&sites[0].child), resident(&sites[1].child)];
    for (over, era, names) in [
        ("HTTP, 2025-11-25", LEGACY, ["rmcp_native_http", "http"]),
        ("HTTP, 2026-07-28", MODERN, ["rmcp_native_http_2026", "http_2026"]),
    ] {
        let mut lines = [sites[0].line(era), sites[1].line(era)];
        let (mut times, mut rates) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for _ in 0..rounds(9) {
            for (n, site) in sites.iter_mut().enumerate() {
                times[n].extend((0..CALLS).map(|_| lines[n].call(&mut site.wording, era)));
                rates[n].push(crowd(site, era));
            }
        }
        table(over, names, times, rates);
    }
    held(&sites[0].child, "rmcp_native_http", idle_kib[0]);
    held(&sites[1].child, "http", idle_kib[1]);
    idle(&sites[1]);
}

/// Several connections, each with one call at a time.
fn crowd(site: &HttpSite, era: &str) -> f64 {
    let tool = site.wording.tool;
    let lines: Vec<BenchLine> = (0..IN_FLIGHT).map(|_| site.line(era)).collect();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for mut line in lines {
            scope.spawn(move || {
                let mut wording = MessageFormat { tool, next: 0 };
                (0..CALLS / 10).for_each(|_| {
                    line.call(&mut wording, era);
                });
            });
        }
    });
    (IN_FLIGHT * CALLS / 10) as f64 / start.elapsed().as_secs_f64()
}

/// The memory of a connection with an idle session.
fn idle(site: &HttpSite) {
    let resident = || status_kib(site.child.0.id(), "VmRSS").unwrap() as f64;
    let before = resident();
    let lines: Vec<BenchLine> = (0..IDLE).map(|_| site.session()).collect();
    std::thread::sleep(Duration::from_secs(1));
    let each = (resident() - before) / lines.len() as f64;
    println!("\n| a connection with a session that waits | KiB |\n|---|---|\n| of {IDLE} | {each:.1} |");
    keep("idle_connection_kib", each);
}
