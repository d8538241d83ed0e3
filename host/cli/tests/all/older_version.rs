//! What an older version wrote: `tests/data/installation` has its policies, lock, store, state and plugins.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::fixture::HostFolder;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(name)
}

/// Copies a folder for this user only: the host trusts no file that others can write.
fn copy(from: &Path, to: &Path) {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
            fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
}

/// The installation with its state. `old` is the component of that plugin.
fn installation(old: &str) -> HostFolder {
    let folder = HostFolder::new("").with_plugin("old", old);
    copy(&data("installation"), &folder.path(""));
    copy(&data("installation/store"), &folder.path(".local/share/toolbay/store/blobs/sha256"));
    let backup = folder.path("backup");
    folder.good(&["restore", backup.to_str().unwrap()]);
    folder
}

#[test]
fn the_state_of_an_older_version_is_found() {
    let folder = installation(data("released/0.1.0.wasm").to_str().unwrap());
    let log = folder.good(&["log", "--json"]);
    let records: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (key, value) in [("event", "granted"), ("tool", "old__everything"), ("tool", "hello__hello")] {
        assert!(records.iter().any(|record| record[key] == value), "{value}: {log}");
    }
    folder.run(&["log", "--stats"]).says(0, &["old__everything\t", "old__fail\t", "hello__hello\t"]);
    assert_eq!(folder.good(&["kv", "get", "old", "visits"]), "2");
    let saved = folder.run(&["output", "--session", "work", "--json"]).says(0, &[]).json();
    let id = saved[0]["id"].as_str().unwrap_or_else(|| panic!("{saved}"));
    folder.run(&["output", "--session", "work", id]).says(0, &["Hello, Ada Ada Ada"]);
    folder.run(&["status", "--tools"]).says(0, &["old__fail", "not used here"]);

    folder.run(&["call", "hello__hello", r#"{"name": "world"}"#]).says(1, &["an incident"]);
    folder.good(&["resume"]);
    folder.run(&["call", "hello__hello", r#"{"name": "world"}"#]).says(0, &["Hello, world!"]);
    let answer =
        folder.run(&["call", "old__everything", r#"{"key": "visits"}"#, "--json"]).says(0, &[]).json();
    let answer = &answer["structured"];
    assert_eq!(
        (&answer["count"], &answer["file"], &answer["setting"]),
        (&json!(3), &json!("hello"), &json!("7"))
    );
}

#[test]
fn the_lock_of_an_older_version_is_verified() {
    let folder = installation(data("released/0.1.0.wasm").to_str().unwrap());
    let verified = folder.run(&["verify", "--offline", "--json"]).says(0, &[]).json();
    assert_eq!((&verified[0]["plugin"], &verified[0]["status"]), (&json!("hello"), &json!("verified")));
    folder.run(&["inspect", "hello"]).says(0, &["oci://127.0.0.1:45321/acme/hello:1.0.0", "key:"]);
}

#[test]
fn a_consent_of_an_older_version_covers_no_other_component() {
    let folder = installation(guest_artifacts::CAP_CONSENT);
    folder.run(&["list"]).says(0, &["plugin `old` is held", "clock"]);
}

#[test]
fn a_policy_of_an_older_version_with_every_table_has_no_error() {
    let folder = installation(data("released/0.1.0.wasm").to_str().unwrap());
    let policy = folder.path("every-section.toml");
    let report = folder.run(&["policy", "check", policy.to_str().unwrap(), "--json"]).json();
    let findings = report["findings"].as_array().unwrap_or_else(|| panic!("{report}"));
    let errors: Vec<&Value> = findings.iter().filter(|finding| finding["severity"] == "error").collect();
    assert!(errors.is_empty(), "{errors:#?}");
}
