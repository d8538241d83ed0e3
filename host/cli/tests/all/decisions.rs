//! `explain`, `grant`, `revoke`, `log` and `--profile` as an operator uses them.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::fixture::{HostFolder, ServerProcess};

/// A folder with the guest as plugin `p`.
struct DecisionFixture(HostFolder);

impl DecisionFixture {
    /// Creates the folder, with a policy if one is given.
    fn new(policy: Option<&str>) -> Self {
        let desk = Self(HostFolder::new(""));
        std::fs::create_dir(desk.path("work/in")).unwrap();
        desk.plugin(0);
        match policy {
            Some(policy) => desk.write_policy(policy),
            None => std::fs::remove_file(desk.path("toolbay.toml")).unwrap(),
        }
        desk
    }

    fn policy(&self) -> String {
        self.read("toolbay.toml")
    }

    fn write_policy(&self, text: &str) {
        self.0.write_policy(&format!("workspace = \"work\"\n{text}"));
    }

    /// Replaces the plugin with another build.
    fn plugin(&self, mark: u8) {
        let mut bytes = std::fs::read(guest_artifacts::CAP_CONSENT).unwrap();
        bytes.extend([0, 3, 1, b'm', mark]);
        std::fs::write(self.path("plugins/p.wasm"), bytes).unwrap();
    }

    fn records(&self, args: &[&str]) -> Vec<Value> {
        let run = self.run(&[&["log", "--json"], args].concat());
        run.out().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl std::ops::Deref for DecisionFixture {
    type Target = HostFolder;

    fn deref(&self) -> &HostFolder {
        &self.0
    }
}

const KEEP: &str = "# what it keeps\n[plugins.p.grant]\nkv = [\"tool\"] # its own\n";

#[test]
fn grant_writes_only_what_the_plugin_asks_for() {
    let desk = DecisionFixture::new(Some("# mine\n[limits]\nfuel = 90_000_000 # enough\n"));
    let before = desk.policy();
    let shown = desk.run(&["grant", "p", "--dry-run"]);
    let shown = shown.says(
        0,
        &[
            "kv\ttool",
            "fs_read\t**",
            "sha256",
            "[plugins.p.grant]\n",
            "kv = [\"tool\"]",
            "nothing was changed",
        ],
    );
    assert!(
        shown.out().contains("fs_read = [\"$workspace\"]"),
        "everything is not proposed: {}",
        shown.out()
    );
    assert_eq!(desk.policy(), before);
    assert!(!desk.path("state").exists(), "to look leaves no trace");

    desk.run(&["grant", "p", "--yes", "--only", "kv"]).says(0, &["granted to `p`"]);
    assert_eq!(desk.policy(), format!("{before}\n[plugins.p.grant]\nkv = [\"tool\"]\n"));
    desk.run(&["call", "p__keep", "{}"]).says(0, &[]);
    desk.run(&["call", "p__read", "{}"]).says(1, &["not_available"]);
    desk.run(&["grant", "p", "--yes", "--tool", "read"]).says(0, &[]);
    assert!(desk.policy().ends_with("kv = [\"tool\"]\nfs_read = [\"$workspace\"]\n"), "{}", desk.policy());
    desk.run(&["call", "p__read", "{}"]).says(0, &["read"]);
    desk.run(&["grant", "p", "--yes"]).says(0, &["clock = true"]);
    desk.run(&["grant", "p", "--yes"]).says(0, &["nothing to grant"]);
    let events: Vec<Value> =
        desk.records(&["--plugin", "p"]).into_iter().filter(|r| r["event"] == "granted").collect();
    assert_eq!(events.len(), 3);
    assert!(events[0]["by"].as_str().unwrap().starts_with("tester (uid"), "{events:?}");
    assert_eq!(events[0]["granted"]["tools"], json!({"keep": {"kv": ["tool"]}}));
}

#[test]
fn a_grant_needs_a_terminal_or_a_flag() {
    let desk = DecisionFixture::new(Some(""));
    let before = desk.policy();
    for args in [vec!["grant", "p"], vec!["revoke", "p"], vec!["grant", "p", "--only", "kv"]] {
        desk.run(&args).says(2, &["no terminal", "--yes"]);
    }
    desk.run(&["grant", "p", "--yes", "--only", "kvs"]).says(2, &["`kvs`", "`net_private`"]);
    desk.run(&["grant", "p", "--yes", "--tool", "nobody"]).says(1, &["no tool of the plugin `p`: `nobody`"]);
    desk.run(&["grant", "nobody", "--yes"]).says(1, &["no plugin has this id"]);
    desk.run(&["revoke", "not an id", "--yes"]).says(2, &["plugin id"]);
    assert_eq!(desk.policy(), before);
    assert!(!desk.path("state").exists());
}

#[test]
fn an_update_with_new_capabilities_is_held_until_granted() {
    let desk = DecisionFixture::new(Some(KEEP));
    desk.run(&["call", "p__keep", "{}"]).says(0, &[]);
    desk.plugin(1);
    desk.run(&["call", "p__keep", "{}"]).says(0, &[]);
    desk.write_policy(&KEEP.replace("[\"tool\"] # its own", "[\"tool\"]\nfs_read = [\"$workspace\"]"));
    desk.plugin(2);
    desk.run(&["list"]).says(0, &["plugin `p` is held", "+ read: fs_read $workspace", "toolbay grant p"]);
    // The version that the operator agreed to serves meanwhile.
    let agreed = desk.run(&["call", "p__plain", "{}"]).says(0, &[]).out();
    assert_eq!(agreed, desk.run(&["call", "p__plain", "{}"]).says(0, &["plain"]).out());
    desk.run(&["call", "p__plain", "{}", "--no-cache"]).says(1, &["held", "(not_available)"]);
    let shown = desk.run(&["grant", "p", "--dry-run"]).says(0, &["agreed to at"]);
    assert!(
        shown.out().contains("\n  + read: fs_read $workspace\n")
            && shown.out().contains("\n    keep: kv tool\n"),
        "{}",
        shown.out()
    );
    desk.run(&["grant", "p", "--yes", "--only", "net"]).says(0, &["granted to `p`"]);
    desk.run(&["call", "p__plain", "{}"]).says(0, &["plain"]);
    let held = desk.records(&["--refused", "--plugin", "p"]);
    assert!(held.iter().any(|r| r["held"].as_array().is_some_and(|held| !held.is_empty())), "{held:?}");
}

#[test]
fn revoke_removes_grants_and_consent() {
    let desk = DecisionFixture::new(Some(KEEP));
    desk.run(&["call", "p__keep", "{}"]).says(0, &[]);
    let before = desk.policy();
    desk.run(&["revoke", "p", "--dry-run"]).says(0, &["  kv = [\"tool\"]", "nothing was changed"]);
    assert_eq!(desk.policy(), before);
    desk.run(&["revoke", "p", "--yes", "--only", "net"]).says(0, &[]);
    assert_eq!(desk.policy(), before);
    desk.run(&["revoke", "p", "--yes"]).says(0, &["revoked from `p`"]);
    assert!(!desk.policy().contains("kv") && desk.policy().starts_with("version = 1\n"), "{}", desk.policy());
    desk.run(&["call", "p__keep", "{}"]).says(1, &["not_available"]);
    let stored = std::fs::read_to_string(desk.path("state/consents.json")).unwrap();
    assert!(!stored.contains("\"p\""), "{stored}");
    desk.run(&["revoke", "p", "--yes"]).says(0, &["nothing is granted to `p`"]);
    let last = desk.records(&["--plugin", "p"]).pop().unwrap();
    assert_eq!((&last["kind"], &last["event"]), (&json!("call"), &Value::Null), "{last}");
    assert!(desk.records(&[]).iter().any(|r| r["event"] == "revoked" && r["by"].is_string()));
}

#[test]
fn grant_creates_a_missing_policy() {
    let desk = DecisionFixture::new(None);
    desk.run(&["grant", "p", "--yes", "--only", "kv"]).says(0, &["granted to `p`"]);
    let work = desk.path("work").canonicalize().unwrap();
    let text = desk.policy();
    assert!(text.contains(&format!("workspace = \"{}\"", work.display())), "what it means stays: {text}");
    assert!(
        text.starts_with("version = 1\n") && text.ends_with("[plugins.p.grant]\nkv = [\"tool\"]\n"),
        "{text}"
    );
    desk.run(&["call", "p__keep", "{}"]).says(0, &[]);
    std::fs::write(desk.path("toolbay.toml"), "version = 1\n[plugins.p.grant]\nkv = 5").unwrap();
    desk.run(&["grant", "p", "--yes"]).says(2, &["toolbay.toml:3:6"]);
    std::fs::write(desk.path("state/consents.json"), "junk").unwrap();
    desk.write_policy("");
    desk.run(&["grant", "p", "--yes"]).says(3, &["consents.json"]);
    assert!(!desk.policy().contains("kv"), "nothing is written that could not be recorded");
    assert_eq!(std::fs::read_to_string(desk.path("state/consents.json")).unwrap(), "junk");
}

#[test]
fn explain_shows_each_line_and_each_number() {
    let desk = DecisionFixture::new(Some(&format!(
        "{KEEP}[plugins.p.tools.keep]\nlimits = {{ fuel = 7_000_000 }}\n[limits]\ntables = 9\n[profile.few]\nkv = []\n"
    )));
    let keep = desk.run(&["explain", "p__keep"]);
    let keep = keep.says(0, &["status\tready", "kv\ttool\ttool\t[plugins.p.grant] kv", "--limits"]);
    // The runtime of the language imports the environment, which is empty without a grant.
    assert!(!keep.out().contains("wasi:cli/environment"), "{}", keep.out());
    desk.run(&["explain", "p__keep", "--limits"])
        .says(0, &["[plugins.p.tools.keep.limits] fuel", "[limits] tables", "parallel_calls\t"]);
    let refused = desk.run(&["explain", "p__read", "--json"]).says(0, &[]);
    let explanation: Value = serde_json::from_str(&refused.out()).unwrap();
    let wish = &explanation["wishes"][0];
    assert_eq!((&wish["kind"], &wish["granted"]), (&json!("fs-read"), &json!([])));
    assert_eq!(
        wish["proposal"],
        json!({"table": ["plugins", "p", "grant"], "key": "fs_read", "line": "$workspace"})
    );
    assert_eq!(
        (explanation["limits"].as_array().unwrap().len(), &explanation["host"][0]["key"]),
        (32, &json!("parallel_calls"))
    );
    desk.run(&["explain", "p__keep", "--profile", "few"])
        .says(0, &["profile\tfew", "help: the profile `few` does not allow it", "not available"]);
    desk.run(&["explain", "p__nobody"]).says(1, &["there is no tool `p__nobody`"]);
}

#[test]
fn a_profile_applies_to_every_command() {
    let desk = DecisionFixture::new(Some(&format!(
        "{KEEP}[profile.few]\ntools = [\"p__plain\"]\n[profile.none]\nkv = []\n"
    )));
    let listed = desk.run(&["list", "--profile", "few"]).says(0, &["p__plain"]);
    assert_eq!(listed.out().lines().count(), 1);
    desk.run(&["call", "p__plain", "{}", "--profile", "few"]).says(0, &["plain"]);
    desk.run(&["call", "p__keep", "{}", "--profile", "few"]).says(1, &["not in the profile `few`"]);
    desk.run(&["call", "p__keep", "{}", "--profile", "none"]).says(1, &["does not allow it"]);
    desk.run(&["list", "--all", "--profile", "few"]).says(0, &["p__keep\tnot in the profile `few`"]);
    for args in [
        vec!["list"],
        vec!["call", "p__plain"],
        vec!["serve"],
        vec!["explain", "p__plain"],
        vec!["batch", "-"],
    ] {
        let args = [args.as_slice(), &["--profile", "fwe"]].concat();
        desk.run(&args).says(1, &["no profile `fwe`", "`few`, `none`"]);
    }
    let mut serve = desk.command(&["serve", "--profile", "few"]);
    serve.stdin(Stdio::piped());
    let mut server = ServerProcess::start(serve);
    server.initialize();
    server.send(1, "tools/list", &json!({}));
    let list = server.result(1).to_string();
    assert!(list.contains("\"p__plain\"") && !list.contains("\"p__keep\""), "{list}");
    server.send(2, "tools/call", &json!({"name": "p__keep", "arguments": {}}));
    let refused = std::iter::repeat_with(|| server.message()).find(|message| message["id"] == 2);
    let refused = refused.unwrap().to_string();
    assert!(refused.contains("Unknown tool: p__keep") && !refused.contains("few"), "{refused}");
    server.stdin = None;
    server.exit_code();
    let records = desk.records(&["--failed"]);
    assert!(records.iter().all(|r| r["kind"] == "call" && r["outcome"] != "ok"));
    assert!(records.iter().any(|r| r["profile"] == "few" && r["platform"] == "mcp"), "{records:?}");
}

#[test]
fn log_shows_calls_and_decisions() {
    let desk = DecisionFixture::new(Some(KEEP));
    desk.run(&["log"]).says(0, &["there is no audit yet"]);
    for (tool, args) in [
        ("p__plain", "{}"),
        ("p__ask", r#"{"what": "\u001b[31mred\u202e", "times": 1}"#),
        ("p__plain", "[]"),
        ("\u{1b}[31mforged\n", "{}"),
    ] {
        desk.run(&["call", tool, args]);
    }
    let shown =
        desk.run(&["log"]).says(0, &["p__plain", "input_invalid", "refused secrets", "loaded", "kv tool"]);
    assert!(!shown.out().contains('\u{1b}') && !shown.out().contains('\u{202e}'), "{}", shown.out());
    assert_eq!(desk.records(&["--tool", "p__plain"]).len(), 2);
    assert_eq!(desk.records(&["--tool", "p__plain", "--outcome", "ok"]).len(), 1);
    assert_eq!(desk.records(&["--failed"]).len(), 2);
    assert_eq!(desk.records(&["--limit", "1"]).len(), 1);
    assert_eq!(desk.records(&["--since", "2999-01-01T00:00:00Z"]).len(), 0);
    assert_eq!(desk.records(&["--since", "1h"]).len(), desk.records(&[]).len());
    assert!(desk.records(&["--refused"]).iter().any(|r| r["uses"][0]["allowed"] == json!(false)));
    let all = desk.records(&[]);
    assert_eq!(desk.records(&["--until", "1h"]).len(), 0);
    assert_eq!(desk.records(&["--until", "2999-01-01T00:00:00Z"]).len(), all.len());
    let at = all.last().unwrap()["time"].as_str().unwrap();
    let (before, after) = (desk.records(&["--until", at]).len(), desk.records(&["--since", at]).len());
    assert!(before > 0 && (1..all.len()).contains(&after) && before + after >= all.len(), "{before} {after}");
    desk.run(&["log", "--since", "yesterday"]).says(2, &["10m"]);
    desk.run(&["log", "--stats"]).says(0, &["p__plain\t2\t", "input_invalid 1, ok 1"]);
    let file = desk.path("state/audit.jsonl");
    let mut text = std::fs::read_to_string(&file).unwrap();
    text.insert_str(0, "{\"kind\":\"ca\n\n\u{0}\n");
    std::fs::write(desk.path("state/audit.jsonl.1"), text).unwrap();
    desk.run(&["log"]).says(0, &["2 lines of the audit cannot be read", "p__plain"]);
}

#[test]
fn log_follows_over_a_rotation() {
    let desk = DecisionFixture::new(Some(KEEP));
    desk.run(&["call", "p__plain", "{}"]);
    let log = ServerProcess::start(desk.command(&["log", "--follow", "--json", "--tool", "p__plain"]));
    let next = || log.message()["outcome"].clone();
    assert_eq!(next(), "ok");
    desk.run(&["call", "p__plain", "[]"]);
    assert_eq!(next(), "input_invalid");
    std::fs::rename(desk.path("state/audit.jsonl"), desk.path("state/audit.jsonl.1")).unwrap();
    desk.run(&["call", "p__plain", "{}"]);
    assert_eq!(next(), "ok");
}
