//! `files`: a write does not overwrite changes of others.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::Arc;
use std::time::Duration;

use integration_tests::{RecordedProgress, TestHost, structured};
use serde_json::{Value, json};
use toolbay::{Session, TurnContext};

use crate::sandbox::compile_bombs::soon;

const POLICY: &str = r#"
    [plugins.f.grant]
    fs_read = ["$workspace"]
    fs_write = ["$workspace"]
    [plugins.g.grant]
    fs_read = ["$workspace/sub"]
    fs_write = ["$workspace/sub"]
"#;

async fn host() -> TestHost {
    let host = TestHost::empty(POLICY);
    fs::create_dir(host.root().join("sub")).unwrap();
    fs::write(host.root().join("sub/x"), "one").unwrap();
    symlink("sub/x", host.root().join("link")).unwrap();
    symlink("sub", host.root().join("folder")).unwrap();
    host.load("f", guest_artifacts::CAP_FILES).await;
    host.load("g", guest_artifacts::CAP_FILES).await;
    host
}

async fn within(host: &TestHost, session: &str, tool: &str, args: Value) -> Value {
    let turn = TurnContext { session: Session::with_name(session).into(), ..TurnContext::default() };
    structured(&host.call_in(tool, &args.to_string(), turn).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_known_by_whatever_name_it_was_read() {
    for (read, write) in
        [("link", "sub/x"), ("sub/x", "link"), ("folder/x", "sub/x"), ("sub/./x", "folder/x")]
    {
        let host = host().await;
        assert_eq!(within(&host, "s", "f__read", json!({ "path": read })).await["text"], "one");
        fs::write(host.root().join("sub/x"), "changed by somebody").unwrap();
        let said = within(&host, "s", "f__write", json!({"path": write, "text": "mine"})).await;
        assert_eq!(said, json!({"error": "stale"}), "{read} {write}");
        assert_eq!(fs::read_to_string(host.root().join("sub/x")).unwrap(), "changed by somebody");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_plugin_with_another_folder_guards_the_same_file() {
    let host = host().await;
    within(&host, "s", "f__read", json!({"path": "sub/x"})).await;
    fs::write(host.root().join("sub/x"), "changed").unwrap();
    let said = within(&host, "s", "g__write", json!({"path": "sub/x", "text": "mine"})).await;
    assert_eq!(said, json!({"error": "stale"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recreated_touched_or_removed_file_has_changed() {
    let file = |host: &TestHost| host.root().join("sub/x");
    type Change = fn(&std::path::Path);
    let changes: [(&str, Change); 5] = [
        ("removed", |x| fs::remove_file(x).unwrap()),
        ("removed and made anew", |x| {
            fs::remove_file(x).unwrap();
            fs::write(x, "one").unwrap();
        }),
        ("replaced", |x| {
            fs::write(x.with_extension("new"), "two").unwrap();
            fs::rename(x.with_extension("new"), x).unwrap();
        }),
        ("changed, same size, time set back", |x| {
            let before = fs::metadata(x).unwrap().modified().unwrap();
            fs::write(x, "two").unwrap();
            fs::File::options().write(true).open(x).unwrap().set_modified(before).unwrap();
        }),
        ("another mode", |x| fs::set_permissions(x, fs::Permissions::from_mode(0o600)).unwrap()),
    ];
    for (what, change) in changes {
        let host = host().await;
        let read = within(&host, "s", "f__read", json!({"path": "sub/x"})).await;
        // Longer than the granularity of file timestamps: a tick of the kernel, ten milliseconds at most.
        std::thread::sleep(Duration::from_millis(20));
        change(&file(&host));
        let after = fs::read_to_string(file(&host)).ok();
        let said = within(&host, "s", "f__write", json!({"path": "sub/x", "text": "mine"})).await;
        assert_eq!(said, json!({"error": "stale"}), "{what}");
        let args = json!({"path": "sub/x", "text": "mine", "expected_version": read["version"]});
        assert_eq!(within(&host, "t", "f__write", args).await, json!({"error": "stale"}), "{what}");
        assert_eq!(fs::read_to_string(file(&host)).ok(), after, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_calls_that_read_the_same_the_second_is_refused() {
    let host = Arc::new(host().await);
    let have_read = Arc::new(RecordedProgress::default());
    let wait = |host: &Arc<TestHost>, text: &'static str| {
        let (host, progress) = (Arc::clone(host), Arc::clone(&have_read));
        tokio::spawn(async move {
            let args = json!({"path": "sub/x", "until": format!("go-{text}"), "text": text});
            let turn = TurnContext {
                session: Session::with_name("s").into(),
                progress: Some(progress as _),
                ..TurnContext::default()
            };
            structured(&host.call_in("f__read_wait_write", &args.to_string(), turn).await)
        })
    };
    let (first, second) = (wait(&host, "first"), wait(&host, "second"));
    // A call that had not read would not be refused.
    soon("both calls have read", || have_read.0.lock().unwrap().len() == 2).await;
    fs::write(host.root().join("go-first"), "").unwrap();
    assert_eq!(first.await.unwrap()["size"], 5);
    fs::write(host.root().join("go-second"), "").unwrap();
    assert_eq!(second.await.unwrap(), json!({"error": "stale"}));
    assert_eq!(fs::read_to_string(host.root().join("sub/x")).unwrap(), "first");
    // A new call of the session knows the writes of the session.
    assert_eq!(within(&host, "s", "f__write", json!({"path": "sub/x", "text": "third"})).await["size"], 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_keeps_the_mode_and_the_links() {
    let host = host().await;
    let file = host.root().join("sub/x");
    for (before, after) in [(0o640, 0o640), (0o755, 0o755), (0o4755, 0o755), (0o444, 0o444)] {
        fs::set_permissions(&file, fs::Permissions::from_mode(before)).unwrap();
        assert_eq!(host.ask("f__write", json!({"path": "link", "text": "new"})).await["size"], 3);
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, after, "{before:o}");
    }
    assert!(host.root().join("link").is_symlink() && host.root().join("folder").is_symlink());
}
