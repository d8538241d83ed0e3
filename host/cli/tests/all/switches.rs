//! `status`, `enable` and `disable` on the command line.

use serde_json::Value;

use crate::fixture::{HostFolder, status_and_output};

struct SwitchFixture(HostFolder);

impl SwitchFixture {
    fn new() -> Self {
        let folder = HostFolder::new("[plugins.files.grant]\nfs_read = [\"$workspace\"]\n[profile.p]\n");
        let folder = folder.with_plugin("files", guest_artifacts::PLUGIN_FILES);
        Self(folder.with_plugin("echo", guest_artifacts::API_ECHO))
    }

    fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        status_and_output(&self.0.run(args).0)
    }

    /// The status of one tool.
    fn status(&self, tool: &str) -> Value {
        let (code, out, err) = self.run(&["status", "--json"]);
        assert_eq!(code, Some(0), "{err}");
        let all: Vec<Value> = serde_json::from_str(&out).unwrap();
        all.into_iter().find(|one| one.get("name").and_then(Value::as_str) == Some(tool)).unwrap()
    }

    fn off(&self, tool: &str) -> Option<String> {
        self.status(tool).get("disabled_reason").and_then(Value::as_str).map(str::to_owned)
    }
}

#[test]
fn status_shows_the_host_and_each_tool() {
    let cli = SwitchFixture::new();
    let status = cli.status("files__read_file");
    let at = |pointer: &str| status.pointer(pointer).cloned().unwrap_or_default();
    assert_eq!(
        (at("/source/kind"), at("/source/id"), at("/enabled")),
        ("plugin".into(), "files".into(), true.into())
    );
    assert_eq!(at("/source/digest").as_str().map(str::len), Some(64));
    assert_eq!(at("/schema_sha256").as_str().map(str::len), Some(64));
    assert!(at("/tags").as_array().unwrap().contains(&"file_system".into()), "{status}");
    let (_, out, _) = cli.run(&["status", "--tools"]);
    let line = out.lines().find(|line| line.starts_with("files__read_file\t")).unwrap();
    let columns: Vec<&str> = line.split('\t').collect();
    assert_eq!(columns.len(), 10, "{line}");
    assert_eq!((columns.get(1), columns.get(2)), (Some(&"on"), Some(&"plugin:files")), "{line}");
    let (_, out, _) = cli.run(&["status"]);
    let value = |key: &str| out.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('\t')).unwrap();
    let code = value("code");
    assert!(code.starts_with("0 B of 1GiB in memory") && code.ends_with("dropped 0 times"), "{code}");
    assert!(value("tools").ends_with("0 disabled") && value("plugins").ends_with("0 failed"), "{out}");
    let worker = value("sandbox");
    assert!(["landlock+seccomp", "seccomp", "landlock", "no sandbox"].contains(&worker), "{worker}");
    assert!(!cli.0.path("state").exists(), "looking makes nothing");
}

#[test]
fn a_disabled_tool_is_disabled_for_every_command() {
    let cli = SwitchFixture::new();
    let (code, out, err) = cli.run(&["disable", "echo__echo", "--reason", "maintenance\n\u{1b}[31m"]);
    assert_eq!((code, out.as_str()), (Some(0), ""));
    assert!(err.contains("disabled `echo__echo`: maintenance\\n\\u{1b}[31m"), "{err}");
    assert!(cli.off("echo__echo").is_some());
    let (code, _, err) = cli.run(&["call", "echo__echo", "{}"]);
    assert!(code == Some(1) && err.contains("Tool echo__echo is disabled: maintenance"), "{err}");
    assert!(!cli.run(&["list"]).1.contains("echo__echo"));
    assert!(cli.run(&["list", "--all"]).1.contains("echo__echo\tdisabled: maintenance"));
    assert_eq!(cli.run(&["enable", "echo__echo"]).0, Some(0));
    assert_eq!(cli.run(&["call", "echo__echo", "{}"]).0, Some(0));
    let (code, _, err) = cli.run(&["enable", "echo__echo"]);
    assert!(code == Some(0) && err.contains("nothing changed"), "{err}");
}

#[test]
fn namespaces_and_tags_switch_many() {
    let cli = SwitchFixture::new();
    assert_eq!(cli.run(&["disable", "--namespace", "files", "--reason", "why"]).0, Some(0));
    assert_eq!(cli.off("files__read_file").as_deref(), Some("why"));
    let (_, _, err) = cli.run(&["enable", "files__read_file"]);
    assert!(err.contains("`files__read_file` is still disabled with its namespace: why"), "{err}");
    assert_eq!(cli.run(&["enable", "--namespace", "files"]).0, Some(0));
    assert_eq!(cli.off("files__read_file"), None);
    assert_eq!(cli.run(&["disable", "--tag", "file_system"]).0, Some(0));
    assert_eq!(cli.off("files__read_file").as_deref(), Some("switched off by the operator"));
    assert_eq!(cli.off("echo__echo"), None);
    assert_eq!(cli.run(&["enable", "--tag", "file_system", "--tag", "read_only", "--all-tags"]).0, Some(0));
    assert_eq!(cli.off("files__read_file"), None);
}

#[test]
fn an_unknown_name_is_an_error_and_changes_nothing() {
    let cli = SwitchFixture::new();
    for (args, expected, texts) in [
        (
            &["disable", "echo__echo", "files__raed_file"][..],
            1,
            ["there is no tool `files__raed_file`", "did you mean `files__read_file`"],
        ),
        (&["disable", "zzz"], 1, ["there is no tool `zzz`", "see `toolbay status --tools`"]),
        (&["disable", "--namespace", "file"], 1, ["there is no namespace `file`", "did you mean `files`?"]),
        (
            &["disable", "--tag", "file-system"],
            1,
            ["there is no tag `file-system`", "did you mean `file_system`?"],
        ),
        (&["enable", "zzz"], 1, ["there is no tool `zzz`", ""]),
        (&["disable"], 2, ["required", ""]),
    ] {
        let (code, out, err) = cli.run(args);
        let says_all = texts.iter().all(|text| err.contains(text));
        assert!(code == Some(expected) && out.is_empty() && says_all, "{args:?}: {err}");
    }
    assert_eq!(cli.off("echo__echo"), None, "all of it, or nothing");
    assert_eq!(cli.run(&["disable", "echo__echo"]).0, Some(0));
    std::fs::write(cli.0.path("state/switches.json"), "{").unwrap();
    let (code, _, err) = cli.run(&["list"]);
    assert!(code == Some(2) && err.contains("switches.json"), "a broken file switches nothing on: {err}");
}

#[test]
fn a_plugin_is_disabled_also_with_an_invalid_policy() {
    let cli = SwitchFixture::new();
    let policy = cli.0.path("toolbay.toml");
    let valid = std::fs::read_to_string(&policy).unwrap();
    for invalid in [&b"version = 1\n[plugins.files\n"[..], b"version = 1\nnope = 1\n", b"\xff"] {
        std::fs::write(&policy, invalid).unwrap();
        assert_eq!(cli.run(&["enable", "echo__echo"]).0, Some(2), "only `disable` is urgent");
        assert_eq!(cli.run(&["disable", "--tag", "file_system"]).0, Some(2), "tags depend on grants");
        for which in [&["disable", "echo__echo"][..], &["disable", "--namespace", "files"]] {
            let (code, _, err) = cli.run(which);
            assert!(code == Some(0) && err.contains("the policy is invalid: "), "{which:?}: {err}");
        }
        std::fs::write(&policy, &valid).unwrap();
        assert!(cli.off("echo__echo").is_some() && cli.off("files__read_file").is_some());
        assert_eq!(cli.run(&["enable", "echo__echo", "--namespace", "files"]).0, Some(0));
    }
}
