//! State and attachments on the command line.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::fixture::{HostFolder, status_and_output};

const POLICY: &str = "workspace = \".\"\n[plugins.cap_kv.grant]\nkv = [\"plugin\", \"tool\", \"session\"]\n[plugins.cap_attachments.grant]\nattachments = [\"read\", \"create\"]\n";

struct StateFixture(HostFolder);

impl StateFixture {
    fn new() -> Self {
        let folder = HostFolder::new(POLICY).with_plugin("cap_kv", guest_artifacts::CAP_KV);
        Self(folder.with_plugin("cap_attachments", guest_artifacts::CAP_ATTACHMENTS))
    }

    fn path(&self) -> PathBuf {
        self.0.path("")
    }

    /// A command with the default state directory of a user, in the folder.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.0.command(args);
        command
            .env_remove("TOOLBAY_STATE")
            .env("XDG_STATE_HOME", self.0.path("state"))
            .current_dir(self.path());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.run(args);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{args:?}: {output:?}"))
    }

    fn call(&self, tool: &str, args: &Value, more: &[&str]) -> Value {
        let text = args.to_string();
        let mut all = vec!["call", tool, &text, "--json"];
        all.extend(more);
        self.json(&all)["structured"].clone()
    }
}

#[test]
fn state_persists_between_calls_in_the_state_directory() {
    let cli = StateFixture::new();
    let increment = json!({"op": "increment", "key": "n"});
    assert_eq!(cli.call("cap_kv__do", &increment, &[])["sum"], 1);
    assert_eq!(cli.call("cap_kv__do", &increment, &[])["sum"], 2);
    assert!(cli.path().join("state/toolbay/kv.redb").exists());
    assert_eq!(cli.call("cap_kv__do", &increment, &["--state-dir", "other"])["sum"], 1);
    assert!(cli.path().join("other/kv.redb").exists());
    let mut by_variable = cli.command(&["call", "cap_kv__do", &increment.to_string()]);
    let output = by_variable.env("TOOLBAY_STATE", cli.path().join("third")).output().unwrap();
    assert_eq!(status_and_output(&output), (Some(0), "{\"sum\":1}\n".to_owned(), String::new()));
    assert!(cli.path().join("third/kv.redb").exists());
    let session = cli.call("cap_kv__do", &json!({"op": "get", "scope": "session", "key": "n"}), &[]);
    assert_eq!(session["error"], "other", "a call has no session: {session}");
}

#[test]
fn kv_lists_and_removes_entries_of_plugins() {
    let cli = StateFixture::new();
    assert_eq!(cli.json(&["kv", "usage", "--json"]), json!([]));
    assert!(!cli.path().join("state").exists(), "looking makes nothing");
    for (scope, key) in [("plugin", "a"), ("plugin", "b\tc\n\u{1b}[31m"), ("tool", "a")] {
        cli.call("cap_kv__do", &json!({"op": "set", "scope": scope, "key": key, "value": "vé"}), &[]);
    }
    let (code, out, _) = status_and_output(&cli.run(&["kv", "list", "cap_kv"]));
    assert_eq!(code, Some(0));
    assert_eq!(
        out, "plugin\t\ta\t3\nplugin\t\tb\\tc\\n\\u{1b}[31m\t3\ntool\tdo\ta\t3\n",
        "a key cannot forge a row"
    );
    let listed = cli.json(&["kv", "list", "cap_kv", "--json", "--limit", "1"]);
    assert_eq!(
        listed,
        json!({"entries": [{"scope": "plugin", "owner": "", "key": "a", "bytes": 3, "expires_ms": null}], "more": true})
    );
    assert_eq!(status_and_output(&cli.run(&["kv", "usage"])).1, "cap_kv\t3\t20\n");
    assert_eq!(status_and_output(&cli.run(&["kv", "get", "cap_kv", "a"])).1, "vé");
    let tool = ["--scope", "tool", "--owner", "do"];
    assert_eq!(cli.json(&[&["kv", "get", "cap_kv", "a", "--json"], &tool[..]].concat())["text"], "vé");
    assert_eq!(cli.run(&[&["kv", "remove", "cap_kv", "a"], &tool[..]].concat()).status.code(), Some(0));
    assert_eq!(cli.run(&[&["kv", "remove", "cap_kv", "a"], &tool[..]].concat()).status.code(), Some(1));
    assert_eq!(cli.run(&["kv", "get", "other", "a"]).status.code(), Some(1), "another plugin");
    assert_eq!(cli.run(&["kv", "get", "cap_kv", "a", "--scope", "tool"]).status.code(), Some(2));
    assert_eq!(cli.run(&["kv", "get", "cap_kv", "a", "--scope", "none"]).status.code(), Some(2));
    assert_eq!(cli.run(&["kv", "get", "no such id", "a"]).status.code(), Some(2));
    assert_eq!(cli.json(&["kv", "clear", "cap_kv", "--json"]), json!({"removed": 2}));
    assert_eq!(cli.json(&["kv", "usage", "--json"]), json!([]));
    std::fs::write(cli.path().join("state/toolbay/kv.redb"), "junk").unwrap();
    let (code, _, err) = status_and_output(&cli.run(&["kv", "usage"]));
    assert!(code == Some(3) && err.contains("kv.redb"), "the error names the file: {err}");
    assert_eq!(std::fs::read(cli.path().join("state/toolbay/kv.redb")).unwrap(), b"junk");
}

#[test]
fn two_processes_of_the_command_share_the_state() {
    let cli = StateFixture::new();
    let count = json!({"times": 50}).to_string();
    let running: Vec<_> = (0..3)
        .map(|_| cli.command(&["call", "cap_kv__count", &count]).stdout(Stdio::piped()).spawn().unwrap())
        .collect();
    for child in running {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    assert_eq!(status_and_output(&cli.run(&["kv", "get", "cap_kv", "n"])).1, "150");
}

#[test]
fn files_are_attached_and_saved() {
    let cli = StateFixture::new();
    std::fs::write(cli.path().join("notes.txt"), "hello").unwrap();
    std::fs::write(cli.path().join("photo.PNG"), "png").unwrap();
    let attach = ["--attach", "notes.txt", "--attach", "./photo.PNG"];
    let all = cli.call("cap_attachments__all", &json!({}), &attach);
    assert_eq!(
        all["all"],
        json!([
            {"id": "a1", "name": "notes.txt", "media": "text/plain", "size": 5},
            {"id": "a2", "name": "photo.PNG", "media": "image/png", "size": 3},
        ])
    );
    assert_eq!(cli.call("cap_attachments__read", &json!({"id": "a1"}), &attach)["text"], "hello");
    let save = ["--save-attachments", "out/deep"];
    for text in ["one", "two"] {
        let made = cli.call("cap_attachments__create", &json!({"name": ".profile", "text": text}), &save);
        assert_eq!(made["id"], "a1");
    }
    let read = |name: &str| std::fs::read_to_string(cli.path().join("out/deep").join(name)).unwrap();
    assert_eq!((read("_.profile").as_str(), read("_-2.profile").as_str()), ("one", "two"));
    let (code, _, err) =
        status_and_output(&cli.run(&["call", "cap_attachments__create", "{\"text\": \"lost\"}"]));
    assert!(code == Some(0) && err.contains("--save-attachments"), "{err}");
    for wrong in ["nothing.txt", ".", "/dev/zero"] {
        let output = cli.run(&["call", "cap_attachments__all", "--attach", wrong]);
        assert_eq!(output.status.code(), Some(2), "{wrong}: {output:?}");
    }
}

/// Commands write concurrently while a server has the state directory open.
#[test]
fn commands_that_write_at_once_all_succeed_beside_a_server() {
    let cli = StateFixture::new();
    let mut server = cli.command(&["serve"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let count = json!({"times": 1}).to_string();
    let running: Vec<_> = (0..60)
        .map(|n| {
            let mut command = match n % 3 {
                0 => cli.command(&["disable", "cap_kv__count", "--reason", &n.to_string()]),
                1 => cli.command(&["enable", "cap_attachments__link"]),
                _ => cli.command(&["call", "cap_kv__do", r#"{"op": "increment", "key": "n"}"#]),
            };
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in running {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    drop(server.stdin.take());
    server.wait().unwrap();
    assert_eq!(status_and_output(&cli.run(&["kv", "get", "cap_kv", "n"])).1, "20");
    assert_eq!(cli.run(&["enable", "cap_kv__count"]).status.code(), Some(0));
    assert_eq!(cli.run(&["call", "cap_kv__count", &count]).status.code(), Some(0));
}

#[test]
fn state_wait_bounds_the_wait_for_the_lock() {
    let cli = StateFixture::new();
    assert_eq!(cli.run(&["disable", "cap_kv__count"]).status.code(), Some(0));
    let lock = std::fs::File::open(cli.path().join("state/toolbay/switches.lock")).unwrap();
    lock.lock().unwrap();
    let (code, _, err) = status_and_output(&cli.run(&["enable", "cap_kv__count", "--state-wait", "50ms"]));
    assert!(code == Some(2) && err.contains("another process has held it for 50ms"), "{code:?} {err}");
    let mut waiting = cli.command(&["enable", "cap_kv__count"]).spawn().unwrap();
    assert_eq!(cli.run(&["status", "--state-wait", "50ms"]).status.code(), Some(0), "reading takes no lock");
    drop(lock);
    assert!(waiting.wait().unwrap().success());
}

#[test]
fn kv_backup_copies_a_store_in_use() {
    let cli = StateFixture::new();
    cli.call("cap_kv__do", &json!({"op": "set", "key": "a", "value": "v"}), &[]);
    let copy = cli.path().join("copy/kv.redb");
    std::fs::create_dir(cli.path().join("copy")).unwrap();
    let path = copy.to_str().unwrap();
    assert_eq!(cli.json(&["kv", "backup", path, "--json"]), json!({"entries": 1}));
    assert_eq!(cli.run(&["kv", "backup", path]).status.code(), Some(1), "no file is written over");
    std::fs::rename(&copy, cli.path().join("state/toolbay/kv.redb")).unwrap();
    assert_eq!(status_and_output(&cli.run(&["kv", "get", "cap_kv", "a"])).1, "v");
}

/// Another process may hold the store for seconds before it writes.
#[test]
fn a_command_waits_for_a_locked_store() {
    let cli = StateFixture::new();
    let increment = ["call", "cap_kv__do", r#"{"op": "increment", "key": "n"}"#];
    assert_eq!(cli.run(&increment).status.code(), Some(0));
    let turn = std::fs::File::open(cli.path().join("state/toolbay/kv.wanted")).unwrap();
    turn.lock().unwrap();
    let waiting = cli.command(&increment).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(8));
    drop(turn);
    let output = waiting.wait_with_output().unwrap();
    assert!(status_and_output(&output).1.contains("\"sum\":2"), "{output:?}");
}

/// A full disk does not damage a store. The error must not advise to move the store.
#[test]
fn a_full_disk_is_not_reported_as_a_damaged_store() {
    let cli = StateFixture::new();
    let set = |program: &str, before: &[&str]| {
        let mut command = Command::new(program);
        let whole = cli.command(&[]);
        command.args(before).args(["call", "cap_kv__do", r#"{"op": "increment", "key": "n"}"#, "--no-audit"]);
        for (name, value) in whole.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        status_and_output(&command.current_dir(cli.path()).stdin(Stdio::null()).output().unwrap())
    };
    let toolbay = env!("CARGO_BIN_EXE_toolbay");
    assert!(set(toolbay, &[]).1.contains("\"sum\":1"));
    // Without the signal, a write beyond the limit is an error, as on a full disk.
    let (_, said, log) = set("sh", &["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\"", toolbay]);
    assert!(said.contains("\"error\":\"other\"") && log.contains("File too large"), "{said} {log}");
    assert!(!format!("{said}{log}").contains("move it away"), "{said} {log}");
    assert!(set(toolbay, &[]).1.contains("\"sum\":2"));
}
