//! Plugins without a network: `export`, `import`, and what `gc` removes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::fixture::HostFolder;
use crate::parties::{Parties, installed, signed_by, text_plugin};

const ARGS: &str = r#"{"text": "a b c"}"#;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Exports the operator's plugins. Returns the archive.
fn exported(parties: &Parties) -> String {
    let file = parties.operator.path("plugins.tar").to_str().unwrap().to_owned();
    parties.operator.run(&["export", &file]).says(0, &["has 1 plugin", "toolbay import"]);
    file
}

fn blobs(folder: &HostFolder) -> Vec<PathBuf> {
    let dir = folder.path(".local/share/toolbay/store/blobs/sha256");
    fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

fn age_by(path: &Path, age: Duration) {
    File::open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
}

#[test]
fn exported_plugins_run_on_a_machine_without_a_network() {
    let parties = installed();
    let archive = exported(&parties);
    let before = parties.requests();
    let offline = HostFolder::new("");
    // The archive says whom its author trusted. The operator of this machine decides.
    offline.run(&["import", &archive]).says(1, &["failed", "no `[[trust]]` rule", "`--trust` would", "key:"]);
    assert!(!offline.path("toolbay.lock").exists());
    offline.run(&["import", &archive, "--unsigned", "--dry-run"]).says(0, &["available"]);
    assert!(!offline.path("toolbay.lock").exists());
    let id =
        parties.author.run(&["key", "show", parties.author.path("acme.pub").to_str().unwrap(), "--json"]);
    let signer = format!("key:{}", id.json()["id"].as_str().unwrap());
    offline.run(&["import", &archive, "--trust"]).says(0, &["imported", &signer, "toolbay grant text"]);
    assert_eq!(offline.read("toolbay.lock"), parties.operator.read("toolbay.lock"));
    offline.run(&["policy", "check"]).says(0, &[]);
    offline.run(&["verify", "--offline"]).says(0, &["verified", &signer]);
    offline.run(&["call", "text__word_count", ARGS]).says(0, &["3"]);
    // Once more changes nothing, and the same plugins give the same archive.
    let policy = offline.read("toolbay.toml");
    let rows = offline.run(&["import", &archive, "--trust", "--json"]).says(0, &[]).json();
    assert_eq!((&rows[0]["status"], &rows[0]["plugin"]), (&json!("unchanged"), &json!("text")));
    assert_eq!(offline.read("toolbay.toml"), policy);
    let again = offline.path("again.tar").to_str().unwrap().to_owned();
    let summary = offline.run(&["export", &again, "text", "--json"]).says(0, &[]).json();
    assert_eq!((&summary["plugins"], &summary["blobs"]), (&json!(1), &json!(5)));
    assert_eq!(fs::read(&archive).unwrap(), fs::read(&again).unwrap());
    assert_eq!(parties.requests(), before, "nothing was sent");
    offline.run(&["export", &again, "absent"]).says(1, &["no plugin `absent`"]);
}

#[test]
fn an_imported_version_is_held_like_an_update() {
    let parties = installed();
    let offline = HostFolder::new("");
    offline.run(&["import", &exported(&parties), "--trust"]).says(0, &["imported"]);
    let lock = offline.read("toolbay.lock");
    parties.publish("1.1.0", &text_plugin(&parties, "1.1.0", "Tally"), &["acme"]);
    parties.operator.run(&["update"]).says(1, &["held"]);
    parties.operator.run(&["grant", "text", "--yes"]).says(0, &["updated"]);
    let newer = exported(&parties);
    offline.run(&["import", &newer, "--dry-run"]).says(1, &["held", "describes its tools differently"]);
    assert!(!offline.path("state/updates.json").exists());
    offline.run(&["import", &newer]).says(1, &["held", "Tally the words", "toolbay grant text"]);
    assert_eq!(offline.read("toolbay.lock"), lock);
    offline.run(&["grant", "text", "--yes"]).says(0, &["updated"]);
    assert_eq!(offline.read("toolbay.lock"), parties.operator.read("toolbay.lock"));
    offline.run(&["verify", "--offline"]).says(0, &["verified"]);
    // Back again is a downgrade.
    parties.add("1.0.0", &["--replace", "--downgrade"]).says(1, &["held"]);
    parties.operator.run(&["grant", "text", "--yes"]).says(0, &["updated"]);
    offline
        .run(&["import", &exported(&parties)])
        .says(1, &["failed", "is version 1.0.0, and the lock has 1.1.0"]);
}

#[test]
fn an_archive_that_was_changed_or_is_not_trusted_locks_nothing() {
    let parties = installed();
    let archive = exported(&parties);
    let bytes = fs::read(&archive).unwrap();
    let offline = HostFolder::new("");
    for name in ["acme.pub", "other.pub"] {
        fs::copy(parties.operator.path(name), offline.path(name)).unwrap();
    }
    let trust = |key: &str| {
        let reference = parties.registry.reference("");
        offline.write_policy(&signed_by(&[key]).replace("HOST", reference.trim_end_matches('/')));
    };
    trust("acme");
    let import = |bytes: &[u8], part: &str| {
        let file = offline.path("changed.tar");
        fs::write(&file, bytes).unwrap();
        offline.run(&["import", file.to_str().unwrap()]).says(1, &[part]);
        assert!(!offline.path("toolbay.lock").exists());
    };
    import(&bytes[..bytes.len() / 2], "is refused");
    import(b"not an archive", "is refused");
    // A byte in the middle is one of the component, which is by far the largest entry.
    let mut changed = bytes.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    import(&changed, "its digest is");
    offline.run(&["import", "absent.tar"]).says(1, &["absent.tar"]);
    trust("other");
    offline.run(&["import", &archive]).says(1, &["failed", "not trusted"]);
    assert!(!offline.path("toolbay.lock").exists());
    // The rule of this machine stays, whatever the archive says.
    offline.run(&["import", &archive, "--trust"]).says(1, &["not trusted"]);
    trust("acme");
    offline.run(&["import", &archive]).says(0, &["imported"]);
}

#[test]
fn an_export_needs_all_blobs_and_replaces_its_file_at_once() {
    let parties = installed();
    let archive = exported(&parties);
    let good = fs::read(&archive).unwrap();
    let component = blobs(&parties.operator).into_iter().max_by_key(|path| path.metadata().unwrap().len());
    fs::write(component.unwrap(), "x").unwrap();
    let error = parties.operator.run(&["export", &archive, "--json"]).says(1, &["toolbay fetch"]).json();
    assert_eq!(error["error"]["code"], "missing");
    assert_eq!(fs::read(&archive).unwrap(), good);
    parties.operator.run(&["fetch"]).says(0, &["fetched"]);
    parties.operator.run(&["export", &archive]).says(0, &[]);
    assert_eq!(fs::read(&archive).unwrap(), good);
    let absent = parties.operator.path("absent/plugins.tar");
    parties.operator.run(&["export", absent.to_str().unwrap()]).says(1, &["cannot be written"]);
}

#[test]
fn concurrent_imports_all_reach_the_lock() {
    let parties = installed();
    let offline = HostFolder::new("");
    let archives: Vec<String> = ["a", "b", "c"]
        .iter()
        .map(|id| {
            parties.add("1.0.0", &["--as", id]).says(0, &[]);
            let file = parties.operator.path(&format!("{id}.tar")).to_str().unwrap().to_owned();
            parties.operator.run(&["export", &file, id]).says(0, &[]);
            file
        })
        .collect();
    let start = |file: &String| {
        let mut command = offline.command(&["import", file, "--unsigned"]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let all: Vec<_> = archives.iter().map(start).collect();
    all.into_iter().for_each(|mut one| assert!(one.wait().unwrap().success()));
    let lock = offline.read("toolbay.lock");
    ["a", "b", "c"].iter().for_each(|id| assert!(lock.contains(&format!("id = \"{id}\"")), "{lock}"));
    offline.run(&["list"]).says(0, &["a__word_count", "b__word_count", "c__word_count"]);
}

#[test]
fn garbage_is_what_no_lock_of_the_user_needs() {
    let parties = installed();
    let operator = &parties.operator;
    let first = blobs(operator);
    parties.publish("1.0.1", &text_plugin(&parties, "1.0.1", "Count"), &["acme"]);
    operator.run(&["update"]).says(0, &["updated"]);
    assert_eq!(operator.run(&["gc", "--json"]).says(0, &[]).json()["removed"], json!([]));
    blobs(operator).iter().for_each(|blob| age_by(blob, 31 * DAY));
    // Another project of the user has the first version.
    let other = operator.path("other");
    fs::create_dir(&other).unwrap();
    fs::copy(operator.path("toolbay.toml"), other.join("toolbay.toml")).unwrap();
    fs::copy(operator.path("acme.pub"), other.join("acme.pub")).unwrap();
    fs::copy(operator.path("other.pub"), other.join("other.pub")).unwrap();
    let config = other.join("toolbay.toml");
    let elsewhere = |args: &[&str]| operator.run(&[&["--config", config.to_str().unwrap()], args].concat());
    elsewhere(&["add", &parties.reference("1.0.0")]).says(0, &[]);
    blobs(operator).iter().for_each(|blob| age_by(blob, 31 * DAY));
    let kept = operator.run(&["gc", "--json"]).says(0, &[]).json();
    assert_eq!((&kept["removed"], &kept["locks"]), (&json!([]), &json!(2)));

    // Its lock is damaged: nobody knows what it needs.
    let lock = fs::read_to_string(other.join("toolbay.lock")).unwrap();
    fs::write(other.join("toolbay.lock"), "version = 9\n").unwrap();
    operator.run(&["gc"]).says(2, &["nothing was removed", "other/toolbay.lock", "version 1"]);
    // It needs no plugin any more.
    fs::write(other.join("toolbay.lock"), lock.split("[[plugin]]").next().unwrap()).unwrap();
    operator.run(&["gc", "--dry-run"]).says(0, &["3 blobs", "would be removed"]);
    assert!(first.iter().all(|blob| blob.exists()));
    let gone = operator.run(&["gc", "--json"]).says(0, &[]).json();
    assert_eq!(gone["removed"].as_array().unwrap().len(), 3);
    assert!(!first.iter().any(|blob| blob.exists()));
    operator.run(&["verify", "--offline"]).says(0, &["verified"]);
    operator.run(&["call", "text__word_count", ARGS]).says(0, &["3"]);
}
