//! Plain WASI files: preopened folders pinned to the handle that was granted.

use std::fs;
use std::os::unix::fs::symlink;

use integration_tests::TestHost;
use serde_json::json;

const POLICY: &str = r#"
    [plugins.w.grant]
    fs_read = ["$workspace"]
    fs_write = ["$workspace/out"]
"#;

async fn host(policy: &str) -> TestHost {
    let host = TestHost::empty(policy);
    let root = host.root();
    fs::create_dir_all(root.join("out")).unwrap();
    fs::write(root.join("a.txt"), "hello").unwrap();
    fs::write(root.join("out/b.txt"), "old").unwrap();
    symlink("/etc/passwd", root.join("absolute")).unwrap();
    symlink("../../../../../../etc/passwd", root.join("relative")).unwrap();
    host.load("w", guest_artifacts::CAP_WASI_FS).await;
    host
}

#[tokio::test(flavor = "multi_thread")]
async fn a_std_program_reads_and_writes_what_is_granted() {
    let host = host(POLICY).await;
    assert_eq!(host.ask("w__preopens", json!({})).await["ok"], json!([".", "out"]));
    assert_eq!(host.ask("w__read", json!({"path": "a.txt"})).await["ok"], "hello");
    assert_eq!(
        host.ask("w__list", json!({"path": "."})).await["ok"],
        json!(["a.txt", "absolute", "out", "relative"])
    );
    assert_eq!(host.ask("w__write", json!({"path": "out/c.txt", "text": "new"})).await["ok"], true);
    assert_eq!(fs::read_to_string(host.root().join("out/c.txt")).unwrap(), "new");
    assert_eq!(host.ask("w__rename", json!({"path": "out/c.txt", "to": "out/d.txt"})).await["ok"], true);
    assert_eq!(host.ask("w__remove", json!({"path": "out/d.txt"})).await["ok"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_else_can_be_reached_or_changed() {
    let host = host(POLICY).await;
    for (tool, path, to) in [
        ("w__read", "absolute", ""),
        ("w__read", "relative", ""),
        ("w__read", "../a.txt", ""),
        ("w__read", "out/../../x", ""),
        ("w__read", "/etc/passwd", ""),
        ("w__undeclared", "a.txt", ""),
        ("w__write", "a.txt", ""),
        ("w__write", "a.txt/", ""),
        ("w__write", "new.txt", ""),
        ("w__append", "a.txt", ""),
        ("w__truncate", "a.txt", ""),
        ("w__set_times", "a.txt", ""),
        ("w__mkdir", "folder", ""),
        ("w__remove", "a.txt", ""),
        ("w__rename", "a.txt", "out/a.txt"),
        ("w__rename", "out/b.txt", "a.txt"),
        ("w__hard_link", "a.txt", "out/link"),
        ("w__symlink", "/etc/passwd", "out/link"),
        ("w__symlink", "x", "link"),
    ] {
        let said = host.ask(tool, json!({"path": path, "to": to, "text": "overwritten"})).await;
        assert!(said["error"].is_string(), "{tool} {path} {to}: {said}");
    }
    assert_eq!(fs::read_to_string(host.root().join("a.txt")).unwrap(), "hello");
    assert!(!host.root().join("out/a.txt").exists() && !host.root().join("out/link").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swapped_folder_is_not_followed() {
    let host = host("[plugins.w.grant]\nfs_read = [\"$workspace/out\"]").await;
    let root = host.root();
    fs::rename(root.join("out"), root.join("moved")).unwrap();
    symlink("/etc", root.join("out")).unwrap();
    assert_eq!(host.ask("w__read", json!({"path": "out/b.txt"})).await["ok"], "old");
    assert!(host.ask("w__read", json!({"path": "out/passwd"})).await["error"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_grant_there_is_no_folder() {
    let host = host("").await;
    assert_eq!(host.ask("w__preopens", json!({})).await["ok"], json!([]));
    assert!(host.ask("w__read", json!({"path": "a.txt"})).await["error"].is_string());
}

/// The name of a folder may lie in another that can be written; what counts is where its handle leads.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_into_a_writable_folder_makes_nothing_writable() {
    let outside = tempfile::tempdir().unwrap();
    let outside = outside.path().canonicalize().unwrap();
    fs::create_dir_all(outside.join("opt/5")).unwrap();
    fs::create_dir_all(outside.join("srv/plain")).unwrap();
    fs::write(outside.join("opt/5/x"), "kept").unwrap();
    symlink(outside.join("opt/5"), outside.join("srv/current")).unwrap();
    let srv = outside.join("srv").display().to_string();
    let policy =
        format!("[plugins.w.grant]\nfs_read = [\"{srv}/current\", \"{srv}/plain\"]\nfs_write = [\"{srv}\"]");
    let host = host(&policy).await;
    let ask = async |tool: &str, path: &str| {
        host.ask(tool, json!({"path": format!("{srv}/{path}"), "text": "overwritten"})).await
    };
    assert_eq!(ask("w__read", "current/x").await["ok"], "kept");
    assert!(ask("w__write", "current/x").await["error"].is_string());
    assert!(ask("w__write", "current/new").await["error"].is_string());
    assert!(ask("w__remove", "current/x").await["error"].is_string());
    assert_eq!(fs::read_to_string(outside.join("opt/5/x")).unwrap(), "kept");
    assert!(!outside.join("opt/5/new").exists());
    assert_eq!(ask("w__write", "plain/x").await["ok"], true, "what really lies there is writable");
}
