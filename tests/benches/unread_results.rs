//! The memory of a server for clients that do not read: the peak of the resident size with 256 unread results of 15 MB.
//!
//! `cargo build --release --bins`, then `cargo bench --bench all -- unread_results`. Target: at most 512 MiB, over stdio, over HTTP
//! and over HTTP in a session.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::figures::keep;
use crate::process::{RunningProgram, built, status_kib};

const CALLS: u64 = 256;
/// Longer than a call waits before the server answers `busy`.
const UNREAD: Duration = Duration::from_secs(8);
const MOST_MIB: u64 = 512;
const POLICY: &str = "version = 1\n[limits]\nresult_bytes = \"15MB\"\n[host]\nqueue_timeout = \"3s\"\n\
                      [serve.limits]\nrequests_per_client = 1024\n";
const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}},"#;

pub(crate) fn run() {
    let Some(toolbay) = built("toolbay") else { return };
    println!("\n| {CALLS} unread results of 15 MB | largest resident memory, MiB |\n|---|---|");
    for (name, over) in
        [("unread_stdio_mb", "stdio"), ("unread_http_mb", "HTTP"), ("unread_session_mb", "session")]
    {
        let peak = match over {
            "stdio" => stdio(&toolbay),
            _ => http(&toolbay, over == "session"),
        };
        println!("| {over} | {peak} |");
        keep(name, peak as f64);
        assert!(peak <= MOST_MIB, "{peak} MiB over {over}");
    }
}

fn start(toolbay: &Path, folder: &Path, more: &[&str], stdin: Stdio) -> RunningProgram {
    std::fs::create_dir(folder.join("plugins")).unwrap();
    std::fs::copy(guest_artifacts::HOSTILE_OUTPUT, folder.join("plugins/big.wasm")).unwrap();
    std::fs::write(folder.join("toolbay.toml"), POLICY).unwrap();
    let mut command = Command::new(toolbay);
    command
        .arg("serve")
        .arg("--plugins")
        .arg(folder.join("plugins"))
        .arg("--cache-dir")
        .arg(folder.join("cache"));
    command.arg("--config").arg(folder.join("toolbay.toml")).args(more);
    RunningProgram(command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

fn call(id: u64, meta: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{{meta}"name":"big__structured","arguments":{{"mib":14}}}}}}"#
    )
}

fn peak_mib(server: &RunningProgram) -> u64 {
    std::thread::sleep(UNREAD);
    status_kib(server.0.id(), "VmHWM").unwrap() / 1024
}

fn stdio(toolbay: &Path) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let mut server = start(toolbay, folder.path(), &[], Stdio::piped());
    let mut input = server.0.stdin.take().unwrap();
    let mut output = BufReader::new(server.0.stdout.take().unwrap());
    writeln!(input, "{HELLO}").unwrap();
    output.read_line(&mut String::new()).unwrap();
    writeln!(input, "{INITIALIZED}").unwrap();
    let writer = std::thread::spawn(move || {
        // Ends with the server, which may stop reading earlier.
        let sent = (1..=CALLS).try_for_each(|id| writeln!(input, "{}", call(id, "")));
        (input, sent.is_ok())
    });
    let peak = peak_mib(&server);
    drop(server);
    drop(writer.join().unwrap());
    peak
}

fn http(toolbay: &Path, in_session: bool) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let mut server = start(toolbay, folder.path(), &["--http", "127.0.0.1:0"], Stdio::null());
    let mut said = BufReader::new(server.0.stderr.take().unwrap());
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
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let (mut headers, mut meta) = (String::new(), "");
    if in_session {
        let mut begun = String::new();
        post(HELLO, "").read_to_string(&mut begun).unwrap();
        let session = begun.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("mcp-session-id").then(|| value.trim().to_owned())
        });
        headers = format!("Mcp-Session-Id: {}\r\nMCP-Protocol-Version: 2025-11-25\r\n", session.unwrap());
        post(INITIALIZED, &headers).read_to_string(&mut String::new()).unwrap();
    } else {
        headers +=
            "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: big__structured\r\n";
        meta = META;
    }
    let streams: Vec<TcpStream> = (1..=CALLS).map(|id| post(&call(id, meta), &headers)).collect();
    let peak = peak_mib(&server);
    drop(streams);
    peak
}
