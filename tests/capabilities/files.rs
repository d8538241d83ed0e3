//! `files`: what a granted folder opens, and every attempt to leave it.

use std::fs;
use std::os::unix::fs::symlink;

use integration_tests::{TestHost, hints, outcome, refusal, structured};
use serde_json::{Value, json};
use toolbay::{Session, TurnContext};

const POLICY: &str = r#"
    [plugins.f.grant]
    fs_read = ["$workspace/in", "$workspace/both"]
    fs_write = ["$workspace/out", "$workspace/both"]
"#;

async fn host() -> TestHost {
    let host = TestHost::empty(POLICY);
    let root = host.root();
    for folder in ["in/deep", "out", "both", "secret"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("in/a.txt"), "hello").unwrap();
    fs::write(root.join("in/deep/b.txt"), "deep").unwrap();
    fs::write(root.join("secret/key"), "canary").unwrap();
    symlink("../secret/key", root.join("in/relative")).unwrap();
    symlink(root.join("secret/key"), root.join("in/absolute")).unwrap();
    symlink("../secret", root.join("in/folder")).unwrap();
    symlink("a.txt", root.join("in/inside")).unwrap();
    symlink("loop", root.join("in/loop")).unwrap();
    symlink("/proc/self/environ", root.join("in/proc")).unwrap();
    symlink("../secret/new", root.join("out/dangling")).unwrap();
    rustix_fifo(&root.join("in/fifo"));
    host.load("f", guest_artifacts::CAP_FILES).await;
    host
}

fn rustix_fifo(path: &std::path::Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn granted_operations_succeed() {
    let host = host().await;
    let read = host.ask("f__read", json!({"path": "in/a.txt"})).await;
    assert_eq!((&read["text"], &read["size"], &read["kind"]), (&json!("hello"), &json!(5), &json!("file")));
    assert_eq!(
        host.ask("f__read", json!({"path": "in/inside"})).await["text"],
        "hello",
        "a link that stays inside"
    );
    let absolute = host.root().join("in/./deep/../a.txt");
    assert_eq!(
        host.ask("f__read", json!({"path": absolute, "offset": 1, "max_bytes": 3})).await["text"],
        "ell"
    );
    assert_eq!(host.ask("f__read", json!({"path": "in/a.txt", "offset": 99})).await["text"], "");
    let names = host.ask("f__read_dir", json!({"path": "in"})).await;
    let names: Vec<_> =
        names["entries"].as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["a.txt", "absolute", "deep", "fifo", "folder", "inside", "loop", "proc", "relative"]);
    assert_eq!(host.ask("f__stat", json!({"path": "in"})).await["kind"], "directory");

    assert_eq!(host.ask("f__write", json!({"path": "out/new.txt", "text": "one"})).await["size"], 3);
    assert_eq!(fs::read_to_string(host.root().join("out/new.txt")).unwrap(), "one");
    assert_eq!(host.ask("f__make_dir", json!({"path": "out/sub"})).await, json!({}));
    assert_eq!(host.ask("f__remove", json!({"path": "out/sub"})).await, json!({}));
    assert_eq!(host.ask("f__remove", json!({"path": "out/new.txt"})).await, json!({}));
    let left: Vec<_> =
        fs::read_dir(host.root().join("out")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["dangling"], "no temporary file stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_out_is_refused() {
    let host = host().await;
    let root = host.root();
    for (tool, path) in [
        ("f__read", "secret/key".to_owned()),
        ("f__read", "in/../secret/key".to_owned()),
        ("f__read", "./in/../../../../../../etc/passwd".to_owned()),
        ("f__read", "/etc/passwd".to_owned()),
        ("f__read", "/proc/self/environ".to_owned()),
        ("f__read", root.join("secret/key").display().to_string()),
        ("f__read", "in/relative".to_owned()),
        ("f__read", "in/absolute".to_owned()),
        ("f__read", "in/folder/key".to_owned()),
        ("f__read", "in/proc".to_owned()),
        ("f__read", "interesting".to_owned()),
        ("f__read", ".".to_owned()),
        ("f__read", "out/dangling".to_owned()),
        ("f__read_dir", "secret".to_owned()),
        ("f__read_dir", "in/folder".to_owned()),
        ("f__stat", "in/relative".to_owned()),
        ("f__stat", "secret".to_owned()),
        ("f__write", "in/a.txt".to_owned()),
        ("f__write", "out/dangling".to_owned()),
        ("f__write", "out/../secret/new".to_owned()),
        ("f__write", "in/new.txt".to_owned()),
        ("f__make_dir", "in/new".to_owned()),
        ("f__remove", "in/a.txt".to_owned()),
        ("f__remove", "out".to_owned()),
        ("f__write_only", "in/a.txt".to_owned()),
        ("f__undeclared", "in/a.txt".to_owned()),
    ] {
        let said = host.ask(tool, json!({"path": path, "text": "overwritten"})).await;
        assert_eq!(said["error"], "denied", "{tool} {path}: {said}");
        assert!(!said.to_string().contains("canary"), "{tool} {path}: {said}");
    }
    assert_eq!(fs::read_to_string(root.join("secret/key")).unwrap(), "canary");
    assert_eq!(fs::read_to_string(root.join("in/a.txt")).unwrap(), "hello");
    assert!(!root.join("secret/new").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_paths_and_files_end_in_an_error_and_never_wait() {
    let host = host().await;
    for (tool, path, error) in [
        ("f__read", "in/nothing", "not-found"),
        ("f__read", "in/deep", "other"),
        ("f__read", "in/fifo", "other"),
        ("f__read", "in/a.txt/b", "other"),
        ("f__read", "in/a\0b", "other"),
        ("f__read", "", "other"),
        ("f__read", "in/loop", "other"),
        ("f__read_dir", "in/a.txt", "other"),
        ("f__write", "out/no/such/folder", "not-found"),
        ("f__write", "out", "other"),
        ("f__remove", "out/nothing", "not-found"),
    ] {
        let delivered = in_time(&host, tool, json!({"path": path})).await;
        assert_eq!(delivered["error"], error, "{tool} {path:?}: {delivered}");
    }
    let long = "x".repeat(10_000);
    let said = host.ask("f__read", json!({"path": format!("in/{long}")})).await;
    assert!(said["error"].is_string() && said.to_string().len() < 1000, "{said}");
    fs::write(host.root().join("in/large"), vec![b'x'; 9 << 20]).unwrap();
    assert_eq!(
        host.ask("f__read", json!({"path": "in/large"})).await,
        json!({"error": "too-large", "size": 9 << 20})
    );
    assert_eq!(host.ask("f__read", json!({"path": "in/large", "max_bytes": 4})).await["text"], "xxxx");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_swapped_after_the_load_changes_nothing() {
    let host = host().await;
    let root = host.root();
    fs::rename(root.join("in"), root.join("moved")).unwrap();
    symlink(root.join("secret"), root.join("in")).unwrap();
    assert_eq!(
        host.ask("f__read", json!({"path": "in/a.txt"})).await["text"],
        "hello",
        "the folder that was granted"
    );
    assert_eq!(host.ask("f__read", json!({"path": "in/key"})).await["error"], "not-found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_over_something_newer_is_refused() {
    let host = host().await;
    let file = host.root().join("both/x.txt");
    fs::write(&file, "one").unwrap();
    let read = host.ask("f__read", json!({"path": "both/x.txt"})).await;
    fs::write(&file, "two, by somebody else").unwrap();
    let stale = host
        .ask("f__write", json!({"path": "both/x.txt", "text": "mine", "expected_version": read["version"]}))
        .await;
    assert_eq!(stale, json!({"error": "stale"}));
    assert_eq!(fs::read_to_string(&file).unwrap(), "two, by somebody else");
    let now = host.ask("f__stat", json!({"path": "both/x.txt"})).await;
    let written = host
        .ask("f__write", json!({"path": "both/x.txt", "text": "mine", "expected_version": now["version"]}))
        .await;
    assert_eq!(written["size"], 4);
    assert_ne!(written["version"], now["version"]);
    let gone =
        host.ask("f__write", json!({"path": "both/none", "text": "x", "expected_version": "1-2-3"})).await;
    assert_eq!(gone, json!({"error": "stale"}), "a version of a file that is not there");
    assert_eq!(
        host.ask("f__append", json!({"path": "both/x.txt", "text": "!"})).await["size"],
        5,
        "one call reads and writes"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_warned_only_about_its_own_stale_reads() {
    let host = host().await;
    let file = host.root().join("both/x.txt");
    fs::write(&file, "one").unwrap();
    let turn =
        |session: &str| TurnContext { session: Session::with_name(session).into(), ..TurnContext::default() };
    let args = |value: Value| value.to_string();
    host.call_in("f__read", &args(json!({"path": "both/x.txt"})), turn("a")).await;
    fs::write(&file, "changed").unwrap();
    let write = args(json!({"path": "both/x.txt", "text": "mine"}));
    assert_eq!(structured(&host.call_in("f__write", &write, turn("a")).await), json!({"error": "stale"}));
    assert_eq!(structured(&host.call_in("f__write", &write, turn("b")).await)["size"], 4, "b never read it");
    host.call_in("f__read", &args(json!({"path": "both/x.txt"})), turn("a")).await;
    assert_eq!(
        structured(&host.call_in("f__write", &write, turn("a")).await)["size"],
        4,
        "a has seen what is there"
    );
    assert_eq!(
        structured(&host.call_in("f__write", &write, turn("a")).await)["size"],
        4,
        "its own write is no change"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_grant_names_the_line_that_would_help() {
    let host = TestHost::empty("");
    fs::write(host.root().join("a.txt"), "hello").unwrap();
    host.load("f", guest_artifacts::CAP_FILES).await;
    let delivered = host.call("f__must_read", json!({"path": "a.txt"})).await;
    let error = refusal(&delivered);
    assert_eq!(outcome(&delivered), "not_available");
    assert!(!error.message.contains("[plugins"), "{}", error.message);
    assert!(hints(&delivered).contains("[plugins.f.grant]\nfs_read = [\"$workspace\"]"), "{delivered:?}");
    assert_eq!(delivered.usage.fuel, Some(0), "it did not run");
    let said = host.ask("f__read", json!({"path": "a.txt"})).await;
    assert_eq!(said["error"], "denied", "an optional capability: the tool runs and is refused inside");

    let host = TestHost::empty("[plugins.f.grant]\nfs_read = [\"$workspace/in\"]");
    fs::create_dir(host.root().join("in")).unwrap();
    host.load("f", guest_artifacts::CAP_FILES).await;
    fs::create_dir(host.root().join("notes")).unwrap();
    let delivered = host.call("f__read", json!({"path": "notes/a.txt"})).await;
    let said = structured(&delivered);
    let message = said["message"].as_str().unwrap();
    assert!(
        message.ends_with("`toolbay explain f__read` tells the operator what would allow it"),
        "{message}"
    );
    // That file, and not its folder.
    let lines = "[plugins.f.grant]\nfs_read = [\"$workspace/in\", \"$workspace/notes/a.txt\"]";
    assert!(hints(&delivered).ends_with(lines), "{delivered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_granted_folder_is_reported() {
    let host = TestHost::empty("[plugins.f.grant]\nfs_read = [\"$workspace/nowhere\"]");
    let id = toolbay::PluginId::new("f").unwrap();
    let warnings = host.host.load_file(id, guest_artifacts::CAP_FILES.as_ref()).await.unwrap();
    assert!(warnings.iter().any(|w| w.message.contains("nowhere")), "{warnings:?}");
    assert_eq!(outcome(&host.call("f__must_read", json!({"path": "x"})).await), "not_available");
}

/// Makes a call with a deadline of seconds. A call that would block forever fails the test.
async fn in_time(host: &TestHost, tool: &str, args: Value) -> Value {
    tokio::time::timeout(std::time::Duration::from_secs(5), host.ask(tool, args))
        .await
        .expect("an answer in time")
}
