//! Signals to a server, and files that keep changing.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a failed fixture is a failed test"
)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A step that takes this long hangs.
const HANGS: Duration = Duration::from_secs(60);

struct SignalFixture(tempfile::TempDir);

impl SignalFixture {
    fn new(policy: &str) -> Self {
        let desk = Self(tempfile::tempdir().unwrap());
        fs::create_dir(desk.path("plugins")).unwrap();
        fs::copy(guest_artifacts::API_ECHO, desk.path("plugins/e.wasm")).unwrap();
        fs::copy(guest_artifacts::HOSTILE_SLEEP, desk.path("plugins/s.wasm")).unwrap();
        fs::write(desk.path("toolbay.toml"), format!("version = 1\n{policy}")).unwrap();
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolbay"));
        let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-cache");
        command
            .args(args)
            .env_remove("TOOLBAY_LOG")
            .env("TOOLBAY_PLUGINS", self.path("plugins"))
            .env("TOOLBAY_CONFIG", self.path("toolbay.toml"))
            .env("TOOLBAY_CACHE", cache)
            .env("TOOLBAY_STATE", self.path("state"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

/// A server over stdio with the messages of both streams.
struct SignalServer {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<String>,
    stderr: Receiver<String>,
}

impl Drop for SignalServer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn lines(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (send, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

impl SignalServer {
    fn start(desk: &SignalFixture) -> Self {
        let mut child = desk.command(&["serve"]).spawn().unwrap();
        let (stdin, answers) = (child.stdin.take(), lines(child.stdout.take().unwrap()));
        let stderr = lines(child.stderr.take().unwrap());
        Self { child, stdin, answers, stderr }
    }

    fn send(&mut self, id: u64, method: &str, params: &Value) {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(self.stdin.as_ref().unwrap(), "{request}").unwrap();
    }

    fn answer(&mut self, id: u64) -> Value {
        loop {
            let line = self.answers.recv_timeout(HANGS).expect("no answer");
            let message: Value = serde_json::from_str(&line).expect("only JSON on stdout");
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    }

    fn greet(&mut self) {
        let who = json!({"name": "t", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": who});
        self.send(0, "initialize", &params);
        self.answer(0);
        let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        writeln!(self.stdin.as_ref().unwrap(), "{told}").unwrap();
    }

    fn until_told(&self, part: &str) {
        let begin = Instant::now();
        loop {
            let line = self.stderr.recv_timeout(HANGS).unwrap_or_else(|_| panic!("never told: {part}"));
            assert!(begin.elapsed() < HANGS, "never told: {part}");
            if line.contains(part) {
                return;
            }
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    fn exit_code(&mut self) -> i32 {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(begin.elapsed() < HANGS, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn sigterm_and_the_end_of_stdin_give_calls_the_same_grace_and_every_call_an_answer() {
    let desk = SignalFixture::new("");
    for by_signal in [true, false] {
        let mut server = SignalServer::start(&desk);
        server.greet();
        let sleep = |ms: u64| json!({"name": "s__sleep", "arguments": {"ms": ms}});
        server.send(1, "tools/call", &sleep(1));
        assert_eq!(server.answer(1)["content"][0]["text"], "slept");
        server.send(2, "tools/call", &sleep(1500));
        server.send(3, "tools/call", &sleep(25_000));
        // A later request is answered, so these were read.
        server.send(4, "ping", &json!({}));
        server.answer(4);
        if by_signal {
            server.signal("TERM");
        } else {
            server.stdin = None;
        }
        assert_eq!(server.answer(2)["content"][0]["text"], "slept", "{by_signal}");
        let cut = server.answer(3);
        assert_eq!(cut["isError"], json!(true), "{cut}");
        assert!(cut["content"][0]["text"].as_str().unwrap().contains("shutting down"), "{cut}");
        assert_eq!(server.exit_code(), 0);
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let desk = SignalFixture::new("");
    let mut server = SignalServer::start(&desk);
    server.greet();
    server.send(1, "tools/call", &json!({"name": "s__sleep", "arguments": {"ms": 25_000}}));
    server.send(2, "ping", &json!({}));
    server.answer(2);
    server.signal("TERM");
    server.signal("INT");
    assert_eq!(server.exit_code(), 0);
}

/// Bytes that a process has read so far.
fn bytes_read(process: u32) -> Option<usize> {
    let counters = fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    counters.lines().find_map(|line| line.strip_prefix("rchar: "))?.parse().ok()
}

#[test]
fn sighup_before_the_start_does_not_end_the_server() {
    let desk = SignalFixture::new("");
    let policy = desk.path("toolbay.toml");
    // Long enough for the signal to arrive during parsing.
    let comments = format!("# {}\n", "x".repeat(100)).repeat(80_000);
    let text = format!("{}{comments}", fs::read_to_string(&policy).unwrap());
    fs::write(&policy, &text).unwrap();
    let mut server = SignalServer::start(&desk);
    let begin = Instant::now();
    while bytes_read(server.child.id()).is_none_or(|read| read < text.len()) {
        assert!(begin.elapsed() < HANGS, "it does not read its policy");
        std::thread::sleep(Duration::from_millis(1));
    }
    server.signal("HUP");
    server.greet();
    // SIGHUP requests a reload, as usual.
    server.until_told("the policy was read again");
    server.stdin = None;
    assert_eq!(server.exit_code(), 0);
}

/// Writes a file repeatedly until dropped.
struct Restless {
    end: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Restless {
    fn start(file: PathBuf, text: String) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&end);
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let beside = file.with_extension("new");
                fs::write(&beside, &text).unwrap();
                fs::set_permissions(&beside, fs::Permissions::from_mode(0o600)).unwrap();
                fs::rename(beside, &file).unwrap();
                std::thread::sleep(Duration::from_millis(40));
            }
        });
        Self { end, thread: Some(thread) }
    }
}

impl Drop for Restless {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn files_that_keep_changing_are_reloaded() {
    let desk = SignalFixture::new("");
    let mut server = SignalServer::start(&desk);
    server.greet();
    server.send(1, "tools/list", &json!({}));
    server.answer(1);
    let policy = "version = 1\n[plugins.e.limits]\ntimeout = \"7s\"\n".to_owned();
    let restless = Restless::start(desk.path("toolbay.toml"), policy);
    server.until_told("the policy was read again");
    drop(restless);

    // Another program moves a plugin and keeps touching it.
    let plugin = fs::read(guest_artifacts::API_ECHO).unwrap();
    let (end, file) = (Arc::new(AtomicBool::new(false)), desk.path("plugins/other.wasm"));
    let ends = Arc::clone(&end);
    fs::write(&file, plugin).unwrap();
    let touching = std::thread::spawn(move || {
        while !ends.load(Ordering::Relaxed) {
            fs::File::options()
                .write(true)
                .open(&file)
                .unwrap()
                .set_modified(std::time::SystemTime::now())
                .unwrap();
            std::thread::sleep(Duration::from_millis(40));
        }
    });
    server.until_told("plugin:other was added");
    end.store(true, Ordering::Relaxed);
    touching.join().unwrap();
}

#[test]
fn tokens_that_keep_changing_are_reloaded() {
    let desk = SignalFixture::new("[serve]\ntokens = \"tokens.toml\"\n");
    fs::write(desk.path("tokens.toml"), "").unwrap();
    fs::set_permissions(desk.path("tokens.toml"), fs::Permissions::from_mode(0o600)).unwrap();
    let mut child = desk.command(&["serve", "--http", "127.0.0.1:0"]).spawn().unwrap();
    let (stdin, answers) = (child.stdin.take(), lines(child.stdout.take().unwrap()));
    let stderr = lines(child.stderr.take().unwrap());
    let server = SignalServer { child, stdin, answers, stderr };
    server.until_told("listening on");
    let sum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let tokens = format!("[[token]]\nname = \"t\"\nsha256 = \"{sum}\"\n");
    let _restless = Restless::start(desk.path("tokens.toml"), tokens);
    server.until_told("the files of [serve] were read again");
}
