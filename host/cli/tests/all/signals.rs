//! Signals to a server, and files that keep changing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::fixture::{HostFolder, ServerProcess, wait_until};

fn folder(policy: &str) -> HostFolder {
    let folder = HostFolder::new(policy).with_plugin("e", guest_artifacts::API_ECHO);
    folder.with_plugin("s", guest_artifacts::HOSTILE_SLEEP)
}

#[test]
fn sigterm_and_the_end_of_stdin_give_calls_the_same_grace() {
    for by_signal in [true, false] {
        let desk = folder("");
        let mut server = ServerProcess::serve(&desk);
        server.initialize();
        let sleep = |ms: u64| json!({"name": "s__sleep", "arguments": {"ms": ms}});
        server.send(1, "tools/call", &sleep(1));
        assert_eq!(server.result(1)["content"][0]["text"], "slept");
        server.send(2, "tools/call", &sleep(1500));
        server.send(3, "tools/call", &sleep(25_000));
        // A later request is answered, so these were read.
        server.send(4, "ping", &json!({}));
        server.result(4);
        if by_signal {
            server.signal("TERM");
        } else {
            server.stdin = None;
        }
        if by_signal {
            assert_eq!(server.result(2)["content"][0]["text"], "slept");
            let cut = server.result(3);
            assert_eq!(cut["isError"], json!(true), "{cut}");
            assert!(cut["content"][0]["text"].as_str().unwrap().contains("shutting down"), "{cut}");
        }
        assert_eq!(server.exit_code(), 0);
        // A client that closed its end reads nothing more; the audit tells how its calls ended.
        let log = desk.good(&["log", "--json"]);
        let records = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let outcomes: Vec<Value> =
            records.filter_map(|mut record| record.get_mut("outcome").map(Value::take)).collect();
        assert_eq!(outcomes, ["ok", "ok", "cancelled"], "{by_signal}: {log}");
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let desk = folder("");
    let mut server = ServerProcess::serve(&desk);
    server.initialize();
    server.send(1, "tools/call", &json!({"name": "s__sleep", "arguments": {"ms": 25_000}}));
    server.send(2, "ping", &json!({}));
    server.result(2);
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
    let desk = folder("");
    let policy = desk.path("toolbay.toml");
    // Long enough for the signal to arrive during parsing.
    let comments = format!("# {}\n", "x".repeat(100)).repeat(80_000);
    let text = format!("{}{comments}", fs::read_to_string(&policy).unwrap());
    fs::write(&policy, &text).unwrap();
    let mut server = ServerProcess::serve(&desk);
    wait_until("it reads its policy", || {
        bytes_read(server.child.id()).is_some_and(|read| read >= text.len())
    });
    server.signal("HUP");
    server.initialize();
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
    let desk = folder("");
    let mut server = ServerProcess::serve(&desk);
    server.initialize();
    server.send(1, "tools/list", &json!({}));
    server.result(1);
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
    let desk = folder("[serve]\ntokens = \"tokens.toml\"\n");
    desk.write_private("tokens.toml", "");
    let mut serve = desk.command(&["serve", "--http", "127.0.0.1:0"]);
    serve.stdin(Stdio::piped());
    let server = ServerProcess::start(serve);
    server.until_told("listening on");
    let sum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let tokens = format!("[[token]]\nname = \"t\"\nsha256 = \"{sum}\"\n");
    let _restless = Restless::start(desk.path("tokens.toml"), tokens);
    server.until_told("the files of [serve] were read again");
}
