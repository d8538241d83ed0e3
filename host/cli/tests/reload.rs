//! A running server whose policy and plugins change.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a failed fixture is a failed test"
)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

/// A step that takes this long hangs.
const HANGS: Duration = Duration::from_secs(60);

struct ReloadFixture(tempfile::TempDir);

impl ReloadFixture {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write_policy(&self, text: &str) {
        let beside = self.path("toolbay.new");
        fs::write(&beside, format!("version = 1\nworkspace = \"work\"\n{text}")).unwrap();
        fs::rename(beside, self.path("toolbay.toml")).unwrap();
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
            .stdin(Stdio::null());
        command
    }
}

/// A server over stdio with the messages of both streams.
struct ReloadServer {
    child: Child,
    stdin: ChildStdin,
    answers: Receiver<Value>,
    stderr: Receiver<String>,
    last_id: u64,
    /// The number of `list_changed` notifications.
    changes: usize,
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

impl ReloadServer {
    fn start(desk: &ReloadFixture) -> Self {
        let mut command = desk.command(&["serve"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), lines(child.stdout.take().unwrap()));
        let (send, answers) = channel();
        std::thread::spawn(move || {
            for line in stdout {
                send.send(serde_json::from_str(&line).expect("only JSON on stdout")).ok();
            }
        });
        let stderr = lines(child.stderr.take().unwrap());
        let mut server = Self { child, stdin, answers, stderr, last_id: 0, changes: 0 };
        let client = json!({"name": "t", "version": "1"});
        server.ask(
            "initialize",
            &json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}),
        );
        writeln!(server.stdin, "{}", json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .unwrap();
        server
    }

    fn next(&mut self) -> Value {
        let message = self.answers.recv_timeout(HANGS).expect("the server says nothing");
        if message["method"] == "notifications/tools/list_changed" {
            self.changes += 1;
        }
        message
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.last_id += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params});
        writeln!(self.stdin, "{request}").unwrap();
        loop {
            let answer = self.next();
            if answer["id"] == self.last_id {
                return answer["result"].clone();
            }
        }
    }

    /// The tools of plugins, without the host's own.
    fn listed(&mut self) -> Vec<String> {
        let tools = self.ask("tools/list", &json!({}))["tools"].clone();
        let names = tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
        names.filter(|name| name != "read_output").collect()
    }

    /// Waits for a `list_changed` notification after `before` and for a list with these tools.
    fn until_listed(&mut self, before: usize, expected: &[&str]) {
        while self.changes == before || self.listed() != expected {
            let seen = self.changes;
            while self.changes == seen {
                self.next();
            }
        }
    }

    /// Waits for a line with this part, and returns it.
    fn until_told(&mut self, part: &str) -> String {
        self.told_until(part).pop().unwrap()
    }

    /// Returns all lines up to the one with this part.
    fn told_until(&mut self, part: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line = self.stderr.recv_timeout(HANGS).expect("the operator is not told");
            let is_last = line.contains(part);
            lines.push(line);
            if is_last {
                return lines;
            }
        }
    }
}

#[test]
fn a_running_server_follows_changes_of_policy_and_plugins() {
    let desk = ReloadFixture(tempfile::tempdir().unwrap());
    for folder in ["plugins", "work"] {
        fs::create_dir(desk.path(folder)).unwrap();
    }
    fs::copy(guest_artifacts::CAP_CONSENT, desk.path("plugins/p.wasm")).unwrap();
    desk.write_policy("[plugins.p.grant]\nkv = [\"tool\"]\n");
    let mut server = ReloadServer::start(&desk);
    assert_eq!(server.listed(), ["p__ask", "p__keep", "p__keep_anywhere", "p__plain"]);

    // Another process writes into the policy.
    let before = server.changes;
    let granted = desk.command(&["grant", "p", "--yes"]).output().unwrap();
    assert!(granted.status.success(), "{granted:?}");
    server.until_told("the policy was read again");
    server.until_listed(before, &["p__ask", "p__keep", "p__keep_anywhere", "p__plain", "p__read"]);
    let answer = server.ask("tools/call", &json!({"name": "p__read", "arguments": {}}));
    assert_eq!(answer["content"][0]["text"], "read", "{answer}");

    // An error in the policy changes nothing and is reported.
    let before = server.changes;
    desk.write_policy("[plugins.p.grant]\nkv = \"tool\"\n");
    let told = server.until_told("the previous policy stays in force");
    assert!(
        told.contains("Z error: ") && told.contains("toolbay.toml:4:6: [plugins.p.grant]: `kv`: "),
        "{told}"
    );
    let answer = server.ask("tools/call", &json!({"name": "p__read", "arguments": {}}));
    assert_eq!(answer["content"][0]["text"], "read", "{answer}");

    // A broken file keeps the old version, a valid one replaces it, and SIGHUP alone changes nothing.
    fs::write(desk.path("plugins/new.wasm"), "junk").unwrap();
    fs::rename(desk.path("plugins/new.wasm"), desk.path("plugins/p.wasm")).unwrap();
    server.until_told("the older version stays loaded");
    assert_eq!(server.listed().len(), 5);
    desk.write_policy("");
    server.until_told("the policy was read again");
    server.until_listed(before, &["p__ask", "p__keep_anywhere", "p__plain"]);
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    server.until_told("the policy was read again");

    let before = server.changes;
    fs::remove_file(desk.path("plugins/p.wasm")).unwrap();
    server.until_told("plugin:p was removed");
    server.until_listed(before, &[]);

    drop(server.stdin);
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn a_warning_is_reported_once_and_a_reload_in_few_lines() {
    let desk = ReloadFixture(tempfile::tempdir().unwrap());
    for folder in ["plugins", "work"] {
        fs::create_dir(desk.path(folder)).unwrap();
    }
    for name in ["p", "q", "r"] {
        fs::copy(guest_artifacts::CAP_CONSENT, desk.path("plugins").join(name).with_extension("wasm"))
            .unwrap();
    }
    let typo = "[plugins.pp.grant]\nkv = [\"tool\"]\n";
    desk.write_policy(typo);
    let mut server = ReloadServer::start(&desk);
    let told = server.until_told("no plugin `pp` is installed");
    assert!(told.contains("Z warning: ") && told.contains("toolbay.toml:3:10: "), "{told}");
    server.listed();

    // After one more mistake, the first one is not reported again, and no plugin is reported as replaced.
    desk.write_policy(&format!("{typo}[plugins.qq.grant]\nclock = true\n"));
    let lines = server.told_until("no plugin `qq` is installed");
    assert!(lines.iter().any(|line| line.contains("Z note: the policy was read again")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("`pp`") || line.contains("was replaced")), "{lines:?}");

    drop(server.stdin);
    assert!(server.child.wait().unwrap().success());
}
