//! `files` and plain WASI files: how much one call may write and create.

use std::fs;

use integration_tests::{TestHost, hints};
use serde_json::{Value, json};

const POLICY: &str = r#"
    [plugins.p.grant]
    fs_read = ["$workspace"]
    fs_write = ["$workspace"]
    [plugins.p.limits]
    file_bytes = 1000
    file_entries = 10
"#;

async fn host(guest: &str) -> TestHost {
    let host = TestHost::empty(POLICY);
    fs::write(host.root().join("old"), "old").unwrap();
    host.load("p", guest).await;
    host
}

fn written(host: &TestHost) -> u64 {
    fs::read_dir(host.root()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

fn entries(host: &TestHost) -> usize {
    fs::read_dir(host.root()).unwrap().count()
}

/// The only failure in `said`, with the number of other results.
fn refused(said: &Value) -> (u64, String) {
    let said = said.as_object().unwrap();
    let error = said.keys().find(|key| *key != "ok").cloned().unwrap_or_default();
    (said.get("ok").and_then(Value::as_u64).unwrap_or(0), error)
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_are_counted_over_a_call() {
    let host = host(guest_artifacts::CAP_FILES).await;
    let many = json!({"path": "new", "n": 20, "bytes": 90});
    let (done, error) = refused(&host.ask("p__write_many", many.clone()).await);
    assert_eq!(done, 11, "the same file again and again counts each time");
    assert!(error.contains("the limit `file_bytes` is") && !error.contains("[plugins"), "{error}");
    let (done, _) = refused(&host.ask("p__write_many", many).await);
    assert_eq!(done, 11, "the next call has its own");
    let said = host.ask("p__write", json!({"path": "new", "text": "x".repeat(1001)})).await;
    assert_eq!(said["error"], "denied", "{said}");
    let told = host.call("p__write", json!({"path": "new", "text": "x".repeat(1001)})).await;
    assert!(hints(&told).contains("[plugins.p.limits] file_bytes"), "{told:?}");
    assert_eq!(fs::metadata(host.root().join("new")).unwrap().len(), 90, "what was there stays");
    assert_eq!(host.ask("p__write", json!({"path": "new", "text": "x".repeat(1000)})).await["size"], 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_folders_are_counted_over_a_call() {
    for (tool, path) in [("p__write_many", "f#"), ("p__make_many", "d#")] {
        let host = host(guest_artifacts::CAP_FILES).await;
        let (done, error) = refused(&host.ask(tool, json!({"path": path, "n": 30, "bytes": 1})).await);
        assert_eq!((done, entries(&host)), (10, 11), "{tool}");
        assert!(error.contains("the limit `file_entries` is") && !error.contains("[plugins"), "{error}");
        let (done, error) = refused(&host.ask("p__write_many", json!({"path": "old", "n": 30})).await);
        assert_eq!((done, error.as_str()), (30, ""), "what is there is not made");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_files_have_the_same_bounds() {
    let hundred = "x".repeat(100);
    for (tool, path, most_entries) in [
        ("p__write_many", "f#", 10),
        ("p__mkdir_many", "d#", 10),
        ("p__write_many", "old", 10),
        ("p__append_many", "old", 10),
        ("p__append_many", "new", 10),
    ] {
        let host = host(guest_artifacts::CAP_WASI_FS).await;
        let said = host.ask(tool, json!({"path": path, "n": 50, "text": hundred})).await;
        assert_eq!(said["done"], 10, "{tool} {path}: {said}");
        let error = said["error"].as_str().unwrap();
        // `std` reports only that the stream failed. The log of the host has the policy line.
        let known = ["StorageFull", "QuotaExceeded", "I/O error"].iter().any(|kind| error.contains(kind));
        assert!(known, "{tool} {path}: {error}");
        assert!(entries(&host) <= 1 + most_entries, "{tool} {path}");
        assert_eq!(
            host.ask("p__write", json!({"path": "old", "text": "next"})).await["ok"],
            true,
            "the next call"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sparse_file_does_not_bypass_the_quota() {
    let host = host(guest_artifacts::CAP_WASI_FS).await;
    for size in [1004, 1 << 40, u64::MAX] {
        let said = host.ask("p__truncate", json!({"path": "old", "size": size})).await;
        assert!(said["error"].is_string(), "{size}: {said}");
    }
    assert_eq!(written(&host), 3);
    assert_eq!(host.ask("p__truncate", json!({"path": "old", "size": 1003})).await["ok"], true);
    assert_eq!(host.ask("p__truncate", json!({"path": "old", "size": 0})).await["ok"], true, "less is free");
}

/// RUSTSEC-2026-0188: neither a hard link nor a rename gives a file other rights.
#[tokio::test(flavor = "multi_thread")]
async fn no_name_makes_a_read_only_file_writable() {
    let host = TestHost::empty(
        "[plugins.p.grant]\nfs_read = [\"$workspace/ro\", \"$workspace/rw\"]\nfs_write = [\"$workspace/rw\"]",
    );
    let root = host.root();
    for folder in ["ro/sub", "rw/sub"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("ro/file"), "read only").unwrap();
    fs::write(root.join("rw/file"), "mine").unwrap();
    host.load("p", guest_artifacts::CAP_WASI_FS).await;
    for (tool, path, to) in [
        ("hard_link", "ro/file", "rw/link"),
        ("hard_link", "ro/file", "rw/sub/link"),
        ("hard_link", "rw/file", "rw/link"),
        ("hard_link", "rw/file", "ro/link"),
        ("symlink", "../ro/file", "rw/link"),
        ("symlink", "file", "rw/link"),
        ("rename", "ro/file", "rw/moved"),
        ("rename", "ro/sub", "rw/moved"),
        ("rename", "rw/file", "ro/file"),
        ("rename", "rw/sub", "ro/sub"),
        ("rename", "ro/file", "ro/moved"),
        ("write", "rw/../ro/file", ""),
        ("truncate", "ro/file", ""),
        ("set_times", "ro/file", ""),
        ("remove", "ro/file", ""),
        ("rmdir", "ro/sub", ""),
    ] {
        let said =
            host.ask(&format!("p__{tool}"), json!({"path": path, "to": to, "text": "overwritten"})).await;
        assert!(said["error"].is_string(), "{tool} {path} {to}: {said}");
    }
    assert_eq!(fs::read_to_string(root.join("ro/file")).unwrap(), "read only");
    assert!(!root.join("rw/link").exists() && !root.join("rw/moved").exists());
    assert_eq!(host.ask("p__rename", json!({"path": "rw/file", "to": "rw/sub/file"})).await["ok"], true);
}
