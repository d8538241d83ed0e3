//! A stderr without a reader blocks nothing, and a stderr with a reader loses nothing.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::fs::OFlags;
use rustix::pipe::PipeFlags;
use serde_json::{Value, json};

use crate::fixture::{HANGS, HostFolder, ServerProcess, lines, wait_until};

/// Lets a guest log as fast as it can.
const LOUD: &str = "[limits]\nlog_lines = 4_000_000_000\nlog_rate = 1_000_000\n";

/// A folder whose guests log.
struct UnreadFixture(HostFolder);

impl UnreadFixture {
    fn new() -> Self {
        let folder = HostFolder::new(LOUD).with_plugin("e", guest_artifacts::API_ECHO);
        Self(folder.with_plugin("l", guest_artifacts::HOSTILE_HOSTCALLS))
    }

    fn write_policy(&self, text: &str) {
        self.0.write_policy(&format!("{LOUD}{text}"));
    }

    fn prepare(&self, command: Command) -> Command {
        let mut command = self.0.prepare(command);
        command.env("TOOLBAY_LOG", "warn,toolbay::guest=info");
        command
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.prepare(Command::new(env!("CARGO_BIN_EXE_toolbay")));
        command.args(args);
        command
    }
}

/// A full pipe: a writer blocks until someone reads.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
    rustix::pipe::fcntl_setpipe_size(&write, 4096).unwrap();
    rustix::fs::fcntl_setfl(&write, OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&write, b"\n").is_ok() {}
    rustix::fs::fcntl_setfl(&write, OFlags::empty()).unwrap();
    (read, write)
}

/// Whether a line starts with a UTC time: `2026-02-03T04:05:06.000007Z `.
fn has_time(line: &str) -> bool {
    line.get(..28).is_some_and(|time| {
        time.ends_with("Z ") && toolbay_core::audit::timestamp::parse(&time[..27]).is_some()
    })
}

fn post(address: SocketAddr, tool: &str, args: &Value) -> TcpStream {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": tool, "arguments": args, "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\
         content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
         mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: {tool}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HANGS)).unwrap();
    stream.write_all((head + &body).as_bytes()).unwrap();
    stream
}

fn status(mut stream: TcpStream) -> u16 {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("no answer");
    text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

#[test]
fn an_unread_stderr_does_not_block_a_server_over_http() {
    let desk = UnreadFixture::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (_unread, stderr) = full_pipe();
    let mut command = desk.prepare(Command::new("sh"));
    let program = env!("CARGO_BIN_EXE_toolbay");
    let line = format!(
        "exec 3<&0 0</dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec {program} serve --http systemd"
    );
    command.args(["-c", &line]).stdin(Stdio::from(OwnedFd::from(listener)));
    let mut server = ServerProcess::start_with_stderr(command, stderr);
    let echoes = || status(post(address, "e__echo", &json!({"a": 1})));
    assert_eq!(echoes(), 200);
    assert_eq!(status(post(address, "l__log", &json!({"n": 20_000}))), 200);
    let _flood = post(address, "l__log", &json!({}));
    assert_eq!(echoes(), 200);

    // The policy is reloaded and takes effect.
    let sum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    fs::write(desk.0.path("tokens.toml"), format!("[[token]]\nname = \"t\"\nsha256 = \"{sum}\"\n")).unwrap();
    desk.write_policy("[serve]\ntokens = \"tokens.toml\"\n");
    wait_until("the new policy holds", || echoes() == 401);
    server.signal("TERM");
    server.signal("TERM");
    assert_eq!(server.exit_code(), 0);
}

#[test]
fn an_unread_stderr_does_not_block_a_server_over_stdio_and_dropped_lines_are_reported() {
    let desk = UnreadFixture::new();
    for reads in [false, true] {
        let (unread, stderr) = full_pipe();
        let mut serve = desk.command(&["serve"]);
        serve.stdin(Stdio::piped());
        let mut server = ServerProcess::start_with_stderr(serve, stderr);
        server.initialize();
        // Far more than the queue may hold.
        server.send(1, "tools/call", &json!({"name": "l__log", "arguments": {"n": 50_000}}));
        assert_eq!(server.result(1)["isError"], json!(false));
        server.send(2, "tools/call", &json!({"name": "l__log", "arguments": {}}));
        server.send(3, "tools/call", &json!({"name": "e__echo", "arguments": {"a": 1}}));
        assert_eq!(server.result(3)["isError"], json!(false));
        if reads {
            let told = lines(fs::File::from(unread));
            let until = |part: &str| loop {
                let line = told.recv_timeout(HANGS).unwrap_or_else(|_| panic!("never: {part}"));
                assert!(!line.contains("toolbay: ") && !line.contains("flood") || has_time(&line), "{line}");
                if line.contains(part) {
                    break line;
                }
            };
            let report = until(" lines were dropped");
            let count = report.split(' ').find_map(|word| word.parse::<u64>().ok());
            assert!(count.is_some_and(|count| count > 1000), "{report}");
            // Messages arrive while the guest keeps logging.
            desk.write_policy("[limits.x]\n");
            until("the previous policy stays in force");
            desk.write_policy("");
            server.signal("HUP");
            until("the policy was read again");
            drop(told);
        }
        server.signal("TERM");
        assert_eq!(server.exit_code(), 0);
    }
}

#[test]
fn a_command_writes_all_lines_to_a_slow_reader_and_ends_without_one() {
    let desk = UnreadFixture::new();
    let count = 90;
    let mistakes: String = (0..count).map(|n| format!("mistake_{n} = 1\n")).collect();
    desk.write_policy(&mistakes);
    // More than a pipe holds, for a slow reader.
    let (read, stderr) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
    rustix::pipe::fcntl_setpipe_size(&stderr, 4096).unwrap();
    let mut child = ServerProcess::start_with_stderr(desk.command(&["list", "--log", "off"]), stderr);
    let mut text = Vec::new();
    let (mut pipe, mut piece) = (fs::File::from(read), [0; 1000]);
    loop {
        match pipe.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => text.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("{error}"),
        }
        std::thread::yield_now();
    }
    let text = String::from_utf8(text).unwrap();
    assert_eq!(child.exit_code(), 2);
    for n in 0..count {
        assert!(text.contains(&format!("mistake_{n} = 1")), "{n} of {count} is missing: {}", text.len());
    }
    assert!(text.lines().all(|line| !has_time(line)), "times are for servers");

    for args in [&["list"][..], &["call", "no_such_tool"], &["no-such-command"]] {
        let (_unread, stderr) = full_pipe();
        ServerProcess::start_with_stderr(desk.command(args), stderr).exit_code();
    }
}
