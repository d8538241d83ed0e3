//! The memory of a server whose clients do not read: at most 512 MiB for 256 results of 15 MB.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::fixture::toolbay;

const CALLS: u64 = 256;
/// Most memory of the server, in KiB.
const MOST: u64 = 512 << 10;
/// How long the clients do not read. The server lets calls wait for less.
const UNREAD: Duration = Duration::from_secs(6);
const POLICY: &str = "version = 1\n[limits]\nresult_bytes = \"16MiB\"\n[host]\nqueue_timeout = \"2s\"\n\
                      [serve.limits]\nrequests_per_client = 1024\n";

struct MemoryServer {
    child: Child,
    _folder: tempfile::TempDir,
}

impl Drop for MemoryServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl MemoryServer {
    fn start(more: &[&str], stdin: Stdio) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("plugins")).unwrap();
        fs::copy(guest_artifacts::HOSTILE_OUTPUT, at("plugins/big.wasm")).unwrap();
        fs::write(at("toolbay.toml"), POLICY).unwrap();
        let mut command = toolbay(folder.path());
        command.env("TOOLBAY_STATE", at("state"));
        command.arg("serve").arg("--plugins").arg(at("plugins"));
        command.arg("--config").arg(at("toolbay.toml")).args(more);
        let child = command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { child, _folder: folder }
    }

    fn peak_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse().unwrap()
    }

    #[expect(clippy::print_stdout, reason = "the measured peak belongs to the output of the test")]
    fn stays_small(&self, over: &str) {
        let peak = self.peak_kib();
        println!("256 unread results of 15 MB over {over}: VmHWM {} MiB", peak >> 10);
        assert!(peak <= MOST, "{} MiB over {over}", peak >> 10);
    }
}

fn call(id: u64, meta: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{{meta}"name":"big__structured","arguments":{{"mib":14}}}}}}"#
    )
}

/// Checks that an answer is a result of 14 MiB or `busy`.
fn is_large(answer: &str) -> bool {
    if answer.len() > 14 << 20 {
        let read: Value = serde_json::from_str(answer).unwrap();
        let text = read["result"]["structuredContent"]["text"].as_str().unwrap();
        assert_eq!(text.len(), 14 << 20);
        return true;
    }
    assert!(answer.contains("\"isError\":true") && answer.contains("busy"), "{answer:.600}");
    assert!(answer.contains("outbox_bytes") || answer.contains("result_memory"), "{answer:.600}");
    false
}

#[test]
fn results_that_a_client_does_not_read_over_stdio_take_a_bounded_amount_of_memory() {
    let mut server = MemoryServer::start(&[], Stdio::piped());
    let mut input = server.child.stdin.take().unwrap();
    let mut output = BufReader::new(server.child.stdout.take().unwrap());
    let mut line = String::new();
    let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
    writeln!(input, "{hello}").unwrap();
    output.read_line(&mut line).unwrap();
    writeln!(input, r#"{{"jsonrpc":"2.0","method":"notifications/initialized"}}"#).unwrap();
    // The server may stop reading a client that does not read.
    let writer = std::thread::spawn(move || {
        (1..=CALLS).for_each(|id| writeln!(input, "{}", call(id, "")).unwrap());
        input
    });
    std::thread::sleep(UNREAD);
    server.stays_small("stdio");
    let mut large = 0;
    let mut answered = 0;
    while answered < CALLS {
        line.clear();
        output.read_line(&mut line).unwrap();
        // Notifications are not answers.
        if !line.contains("\"method\":\"notifications/") {
            answered += 1;
            large += u64::from(is_large(&line));
        }
    }
    assert!((1..=CALLS).contains(&large), "{large}");
    server.stays_small("stdio, then read");
    // The server ends with its client.
    drop(writer.join().unwrap());
}

fn http(in_session: bool) {
    let mut server = MemoryServer::start(&["--http", "127.0.0.1:0"], Stdio::null());
    let mut said = BufReader::new(server.child.stderr.take().unwrap());
    let address = loop {
        let mut line = String::new();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended before it listened");
        if let Some((_, rest)) = line.split_once("listening on http://") {
            break rest.split('/').next().unwrap().trim().to_owned();
        }
    };
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    let post = |body: &str, headers: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        let length = body.len();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n{headers}Content-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        stream
    };
    let read = |mut stream: TcpStream| {
        let mut bytes = Vec::new();
        // The server disconnects a client that does not read for too long.
        drop(stream.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (mut headers, mut meta) = (String::new(), String::new());
    if in_session {
        let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
        let begun = read(post(hello, ""));
        let session = begun.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("mcp-session-id").then(|| value.trim().to_owned())
        });
        headers = format!("Mcp-Session-Id: {}\r\nMCP-Protocol-Version: 2025-11-25\r\n", session.unwrap());
        read(post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, &headers));
    } else {
        headers +=
            "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: big__structured\r\n";
        meta += r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}},"#;
    }
    let streams: Vec<_> = (1..=CALLS).map(|id| post(&call(id, &meta), &headers)).collect();
    std::thread::sleep(UNREAD);
    let over = if in_session { "HTTP, in a session" } else { "HTTP" };
    server.stays_small(over);
    let large = streams.into_iter().map(read).filter(|answer| answer.len() > 14 << 20).count();
    assert!(large >= 1, "{large}");
    server.stays_small(&format!("{over}, then read"));
}

#[test]
fn results_that_clients_do_not_read_over_http_take_a_bounded_amount_of_memory() {
    http(false);
}

#[test]
fn results_that_a_session_does_not_read_over_http_take_a_bounded_amount_of_memory() {
    http(true);
}
