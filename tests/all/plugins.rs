//! The first-party plugins as components, through the host.

use integration_tests::{TestHost, outcome, refusal, structured, value};
use serde_json::json;
use toolbay::core::content::ErrorCode;

#[tokio::test(flavor = "multi_thread")]
async fn text_counts_greps_and_diffs() {
    let host = TestHost::new(&[("text", guest_artifacts::PLUGIN_TEXT)], "").await;
    let count = structured(&host.call("text__word_count", json!({"text": "a b a"})).await);
    assert_eq!(count["words"], 3, "{count}");
    assert!(
        value(&host.call("text__grep", json!({"text": "one\ntwo\nthree", "pattern": "^t"})).await)
            .contains("two")
    );
    assert_eq!(
        refusal(&host.call("text__grep", json!({"text": "x", "pattern": "("})).await).code,
        ErrorCode::InputInvalid
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn files_keep_to_their_grants_and_guard_writes() {
    let policy = "[plugins.files.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace/out\"]";
    let host = TestHost::new(&[("files", guest_artifacts::PLUGIN_FILES)], policy).await;
    std::fs::create_dir(host.root().join("out")).unwrap();
    host.load("files", guest_artifacts::PLUGIN_FILES).await;
    std::fs::write(host.root().join("notes.txt"), "alpha\nbeta\n").unwrap();
    assert!(value(&host.call("files__read_file", json!({"path": "notes.txt"})).await).contains("beta"));
    assert!(value(&host.call("files__list_dir", json!({"path": "."})).await).contains("notes.txt"));
    assert!(
        value(&host.call("files__search_files", json!({"path": ".", "pattern": "*.txt"})).await)
            .contains("notes.txt")
    );
    assert_eq!(
        outcome(&host.call("files__write_file", json!({"path": "out/new.txt", "content": "x"})).await),
        "ok"
    );
    let outside = host.call("files__write_file", json!({"path": "notes.txt", "content": "x"})).await;
    let error = refusal(&outside);
    assert_eq!(error.code, ErrorCode::NotAvailable);
    assert!(
        error.message.contains("[plugins.files.grant] fs_write = [\"$workspace/out\", \"$workspace\"]"),
        "{}",
        error.message
    );
    let stale = json!({"path": "out/new.txt", "content": "y", "expected_version": "never"});
    assert_eq!(refusal(&host.call("files__write_file", stale).await).code, ErrorCode::StaleWrite);
}

#[tokio::test(flavor = "multi_thread")]
async fn hash_hashes_text_and_granted_files() {
    let policy = "[plugins.hash.grant]\nfs_read = [\"$workspace\"]";
    let host = TestHost::new(&[("hash", guest_artifacts::PLUGIN_HASH)], policy).await;
    std::fs::write(host.root().join("abc"), "abc").unwrap();
    let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert!(
        value(&host.call("hash__hash_text", json!({"text": "abc", "algorithm": "sha256"})).await)
            .contains(sha256)
    );
    assert!(
        value(&host.call("hash__hash_file", json!({"path": "abc", "algorithm": "sha256"})).await)
            .contains(sha256)
    );
}
