//! Plain WASI files: preopened folders are pinned to the granted handle.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use integration_tests::{NEIGHBOUR, TestHost, outcome, structured};
use serde_json::json;
use toolbay::{Filter, ToolCall, TurnContext};

use super::files_race::LinkSwapper;

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
async fn a_std_program_reads_and_writes_granted_files() {
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
async fn without_a_grant_no_folder_is_preopened() {
    let host = host("").await;
    assert_eq!(host.ask("w__preopens", json!({})).await["ok"], json!([]));
    assert!(host.ask("w__read", json!({"path": "a.txt"})).await["error"].is_string());
}

/// The path of a folder may lie inside a writable one. The handle decides.
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

const WHOLE: &str = "[plugins.w.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace\"]\n";

fn make_fifo(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// A host whose workspace contains a FIFO, a socket, and links to both.
async fn host_with_special_files(policy: &str) -> (TestHost, UnixListener) {
    let host = host(&format!("{WHOLE}{policy}")).await;
    let root = host.root();
    make_fifo(&root.join("fifo"));
    let socket = UnixListener::bind(root.join("socket")).unwrap();
    for name in ["fifo", "socket"] {
        symlink(name, root.join(format!("to-{name}"))).unwrap();
    }
    (host, socket)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_regular_files_are_opened() {
    let (host, _socket) = host_with_special_files("[plugins.w.limits]\ntimeout = \"10s\"").await;
    for name in ["fifo", "socket", "to-fifo", "to-socket"] {
        for tool in ["read", "write", "append", "truncate", "set_times"] {
            let delivered = host.call(&format!("w__{tool}"), json!({"path": name, "text": "x"})).await;
            assert_eq!(outcome(&delivered), "ok", "`{tool}` of `{name}` was waited for: {delivered:?}");
            let said = structured(&delivered);
            assert!(said["error"].is_string(), "{tool} {name}: {said}");
        }
    }
    // They can be listed, renamed and removed.
    let seen = host.ask("w__stat", json!({"path": "fifo"})).await;
    assert_eq!((&seen["ok"]["file"], &seen["ok"]["dir"]), (&json!(false), &json!(false)));
    assert_eq!(host.ask("w__rename", json!({"path": "fifo", "to": "out/fifo"})).await["ok"], true);
    assert_eq!(host.ask("w__remove", json!({"path": "out/fifo"})).await["ok"], true);
    assert_eq!(host.ask("w__read", json!({"path": "a.txt"})).await["ok"], "hello");
}

/// Before the fix, each open blocked a thread forever, with the files and results that it held.
#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_reads_of_a_fifo_hold_no_thread() {
    let (host, _socket) = host_with_special_files("").await;
    host.load(NEIGHBOUR, guest_artifacts::API_ECHO).await;
    let view = host.host.view(Filter::default());
    let call = |n: usize| ToolCall::new(n.to_string(), "w__read", r#"{"path": "fifo"}"#);
    let calls = (0..600).map(call).collect();
    let results = host.host.call_all(&view, calls, TurnContext::default()).await;
    for result in &results {
        assert_eq!(outcome(result), "ok", "{result:?}");
        assert!(structured(result)["error"].is_string());
    }
    assert_eq!(host.ask("w__read", json!({"path": "a.txt"})).await["ok"], "hello");
    assert_eq!(outcome(&host.call(&format!("{NEIGHBOUR}__long"), json!({"n": 300_000})).await), "ok");
    // With a waiting reader, opening the FIFO for writing would succeed.
    let write = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
    let opened = rustix::fs::open(host.root().join("fifo"), write, rustix::fs::Mode::empty());
    assert_eq!(opened.unwrap_err(), rustix::io::Errno::NXIO, "somebody has it open");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_swapped_for_a_fifo_is_not_waited_for() {
    let host = host(&format!("{WHOLE}[plugins.w.limits]\ntimeout = \"20s\"")).await;
    let (at, fifo) = (host.root().join("out/target"), host.root().join("out/fifo"));
    let swapper = LinkSwapper::start(move || {
        fs::write(&at, "inside").ok();
        make_fifo(&fifo);
        fs::rename(&fifo, &at).ok();
        fs::remove_file(&at).ok();
    });
    for n in 0..300 {
        let tool = ["read", "write", "append", "truncate", "set_times"][n % 5];
        let delivered = host.call(&format!("w__{tool}"), json!({"path": "out/target", "text": "x"})).await;
        assert_eq!(outcome(&delivered), "ok", "`{tool}`: {delivered:?}");
    }
    swapper.end();
}

/// Streams and positioned reads and writes work as before, above the size of one operation.
#[tokio::test(flavor = "multi_thread")]
async fn large_files_are_read_and_written_whole() {
    let host = host(&format!("{WHOLE}[plugins.w.limits]\nresult_bytes = \"1MiB\"\n")).await;
    let text = "0123456789abcdef".repeat(20_000);
    assert_eq!(host.ask("w__write", json!({"path": "large", "text": text})).await["ok"], true);
    assert_eq!(host.ask("w__append", json!({"path": "large", "text": "end"})).await["ok"], true);
    assert_eq!(fs::read_to_string(host.root().join("large")).unwrap(), format!("{text}end"));
    let read = tokio::time::timeout(Duration::from_secs(30), host.ask("w__read", json!({"path": "large"})));
    assert_eq!(read.await.expect("it reads for ever")["ok"], format!("{text}end"));
    let said = host.ask("w__append_many", json!({"path": "large", "text": "x", "n": 50})).await;
    assert_eq!(said["done"], 50);
    assert_eq!(fs::metadata(host.root().join("large")).unwrap().len(), 320_053);
    assert_eq!(host.ask("w__truncate", json!({"path": "large", "size": 5})).await["ok"], true);
    assert_eq!(host.ask("w__read", json!({"path": "large"})).await["ok"], "01234");
    assert_eq!(host.ask("w__set_times", json!({"path": "large"})).await["ok"], true);
    let modified = fs::metadata(host.root().join("large")).unwrap().modified().unwrap();
    assert_eq!(modified, std::time::SystemTime::UNIX_EPOCH);
}
