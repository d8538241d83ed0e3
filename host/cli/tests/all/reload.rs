//! A running server whose policy and plugins change.

use std::fs;
use std::ops::{Deref, DerefMut};

use serde_json::{Value, json};

use crate::fixture::{HostFolder, ServerProcess};

/// A folder with a guest as each of these plugins.
fn folder(ids: &[&str], policy: &str) -> HostFolder {
    let folder = HostFolder::new(&format!("workspace = \"work\"\n{policy}"));
    ids.iter().fold(folder, |folder, id| folder.with_plugin(id, guest_artifacts::CAP_CONSENT))
}

fn write_policy(folder: &HostFolder, text: &str) {
    folder.write_policy(&format!("workspace = \"work\"\n{text}"));
}

/// A server over stdio that counts `list_changed` notifications.
struct ReloadServer {
    process: ServerProcess,
    last_id: u64,
    changes: usize,
}

impl Deref for ReloadServer {
    type Target = ServerProcess;

    fn deref(&self) -> &ServerProcess {
        &self.process
    }
}

impl DerefMut for ReloadServer {
    fn deref_mut(&mut self) -> &mut ServerProcess {
        &mut self.process
    }
}

impl ReloadServer {
    fn start(folder: &HostFolder) -> Self {
        let mut process = ServerProcess::serve(folder);
        process.initialize();
        Self { process, last_id: 0, changes: 0 }
    }

    fn next(&mut self) -> Value {
        let message = self.message();
        if message["method"] == "notifications/tools/list_changed" {
            self.changes += 1;
        }
        message
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        self.send(id, method, params);
        loop {
            let answer = self.next();
            if answer["id"] == id {
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

    /// Ends the input, after which the server succeeds.
    fn end(mut self) {
        self.stdin = None;
        assert_eq!(self.exit_code(), 0);
    }
}

#[test]
fn a_running_server_follows_changes_of_policy_and_plugins() {
    let desk = folder(&["p"], "[plugins.p.grant]\nkv = [\"tool\"]\n");
    let mut server = ReloadServer::start(&desk);
    assert_eq!(server.listed(), ["p__ask", "p__keep", "p__keep_anywhere", "p__plain"]);

    // Another process writes into the policy.
    let before = server.changes;
    desk.good(&["grant", "p", "--yes"]);
    server.until_told("the policy was read again");
    server.until_listed(before, &["p__ask", "p__keep", "p__keep_anywhere", "p__plain", "p__read"]);
    let answer = server.ask("tools/call", &json!({"name": "p__read", "arguments": {}}));
    assert_eq!(answer["content"][0]["text"], "read", "{answer}");

    // An error in the policy changes nothing and is reported.
    let before = server.changes;
    write_policy(&desk, "[plugins.p.grant]\nkv = \"tool\"\n");
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
    write_policy(&desk, "");
    server.until_told("the policy was read again");
    server.until_listed(before, &["p__ask", "p__keep_anywhere", "p__plain"]);
    server.signal("HUP");
    server.until_told("the policy was read again");

    let before = server.changes;
    fs::remove_file(desk.path("plugins/p.wasm")).unwrap();
    server.until_told("plugin:p was removed");
    server.until_listed(before, &[]);

    server.end();
    // Each edit that the server read is in the audit, with the names of what changed.
    let log = desk.good(&["log", "--json"]);
    let edits: Vec<Value> = (log.lines())
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|record| record["action"] == "policy")
        .collect();
    assert_eq!(edits.len(), 2, "the grant, and its removal: {log}");
    for edit in edits {
        let what = edit["reason"].as_str().unwrap();
        assert!(what.contains("plugins.p") && !what.contains("kv") && edit["by"] == "file", "{edit}");
    }
}

#[test]
fn a_warning_is_reported_once_and_a_reload_in_few_lines() {
    let typo = "[plugins.pp.grant]\nkv = [\"tool\"]\n";
    let desk = folder(&["p", "q", "r"], typo);
    let mut server = ReloadServer::start(&desk);
    let told = server.until_told("no plugin `pp` is installed");
    assert!(told.contains("Z warning: ") && told.contains("toolbay.toml:3:10: "), "{told}");
    server.listed();

    // After one more mistake, the first one is not reported again, and no plugin is reported as replaced.
    write_policy(&desk, &format!("{typo}[plugins.qq.grant]\nclock = true\n"));
    let lines = server.told_until("no plugin `qq` is installed");
    assert!(lines.iter().any(|line| line.contains("Z note: the policy was read again")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("`pp`") || line.contains("was replaced")), "{lines:?}");

    server.end();
}
