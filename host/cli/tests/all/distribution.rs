//! Plugins of a registry: `add`, `fetch`, and what runs from the lock. The registry is a small server on this machine.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fixture::{CommandRun, HostFolder, ServerProcess, wait_until};
use crate::test_registry::{TestRegistry, digest};

const ARGS: &str = r#"{"text": "a b c"}"#;

/// The blobs in the store of a folder.
fn blobs(folder: &HostFolder) -> Vec<PathBuf> {
    let dir = folder.path(".local/share/toolbay/store/blobs/sha256");
    fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

/// The largest blob: a component, and no manifest.
fn component(folder: &HostFolder) -> PathBuf {
    blobs(folder).into_iter().max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}

#[test]
fn an_added_plugin_runs_from_the_lock_and_the_registry_is_not_asked_again() {
    let registry = TestRegistry::start();
    let pinned = registry.push("acme/text", "1.0", guest_artifacts::PLUGIN_TEXT);
    let folder = registry.folder();
    let reference = registry.reference("acme/text:1.0");
    folder.run(&["add", &reference]).says(1, &["no `[[trust]]` rule", "--unsigned"]);
    assert!(registry.requests.lock().unwrap().is_empty() && !folder.path("toolbay.lock").exists());
    let preview = folder.run(&["add", &reference, "--unsigned", "--dry-run", "--json"]).says(0, &[]).json();
    assert_eq!((&preview["added"], &preview["plugin"]), (&json!(false), &json!("text")));
    assert!(!folder.path("toolbay.lock").exists());
    folder
        .run(&["add", &reference, "--unsigned"])
        .says(0, &[&pinned, "text__word_count", "no signature was checked", "granted nothing"]);
    let asked = registry.requests.lock().unwrap().len();
    folder.run(&["list"]).says(0, &["text__word_count"]);
    folder.run(&["call", "text__word_count", ARGS]).says(0, &["3"]);
    folder.run(&["inspect", "text"]).says(0, &[&format!("oci://{reference}"), &pinned]);
    let inspected: Value = folder.run(&["inspect", "text", "--json"]).json();
    assert_eq!(inspected["origin"]["manifest"], pinned);
    assert_eq!(registry.requests.lock().unwrap().len(), asked, "only `add` and `fetch` send requests");
    // The same again changes nothing.
    let lock = folder.read("toolbay.lock");
    folder.run(&["add", &reference, "--unsigned"]).says(0, &[]);
    assert_eq!(folder.read("toolbay.lock"), lock);
}

#[test]
fn a_missing_component_names_fetch_and_a_damaged_one_is_not_loaded() {
    let registry = TestRegistry::start();
    registry.push("acme/text", "1.0", guest_artifacts::PLUGIN_TEXT);
    let folder = registry.folder();
    folder.run(&["add", &registry.reference("acme/text:1.0"), "--unsigned"]).says(0, &[]);
    // The tag moves; the lock does not.
    registry.push("acme/text", "1.0", guest_artifacts::API_ECHO);
    let file = component(&folder);
    fs::remove_file(&file).unwrap();
    folder.run(&["call", "text__word_count", ARGS]).says(1, &["`toolbay fetch` downloads it"]);
    folder.run(&["fetch", "--dry-run"]).says(1, &["missing"]);
    folder.run(&["fetch"]).says(0, &["fetched"]);
    folder.run(&["fetch"]).says(0, &["present"]);
    folder.run(&["call", "text__word_count", ARGS]).says(0, &["3"]);
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    folder.run(&["call", "text__word_count", ARGS]).says(1, &["but the lock pins"]);
    folder.run(&["fetch"]).says(0, &["fetched"]);
    folder.run(&["call", "text__word_count", ARGS]).says(0, &["3"]);
    // A registry that has it no longer.
    fs::remove_file(&file).unwrap();
    registry.content.lock().unwrap().clear();
    folder.run(&["fetch"]).says(1, &["failed", "has no `sha256:"]);
}

#[test]
fn a_refused_plugin_leaves_neither_a_component_nor_a_lock() {
    let registry = TestRegistry::start();
    registry.push("acme/text", "1.0", guest_artifacts::PLUGIN_TEXT);
    let folder = registry.folder();
    let reference = registry.reference("acme/text:1.0");
    let add = |more: &[&str]| folder.run(&[&["add", &reference, "--unsigned"], more].concat());
    registry.content.lock().unwrap().retain(|path, (_, body)| {
        if path.contains("/blobs/") {
            *body.last_mut().unwrap() ^= 1;
        }
        true
    });
    add(&[]).says(1, &["is refused: its digest is"]);
    assert!(blobs(&folder).is_empty() && !folder.path("toolbay.lock").exists());
    folder.run(&["add", &registry.reference("acme/text:2"), "--unsigned"]).says(1, &["has no `2`"]);
    folder.run(&["add", "acme/text:1", "--unsigned"]).says(2, &["is not a registry"]);
    let error =
        folder.run(&["add", &registry.reference("acme/absent:1"), "--unsigned", "--json"]).says(1, &[]);
    assert_eq!(error.json()["error"]["code"], "not_found");
    // Only components are locked.
    fs::write(folder.path("text.txt"), "not WebAssembly").unwrap();
    registry.push("acme/text", "1.0", folder.path("text.txt").to_str().unwrap());
    add(&[]).says(1, &["is not WebAssembly"]);
    assert!(!folder.path("toolbay.lock").exists());
    // Without a section, the registry is reached over TLS only, which this one does not speak.
    folder.write_policy("");
    add(&[]).says(1, &["no connection"]);
}

#[test]
fn newer_versions_are_listed_and_change_nothing() {
    let registry = TestRegistry::start();
    let folder = registry.folder();
    for (id, tag) in [("a", "1.0.0"), ("b", "2.0.0"), ("c", "latest")] {
        registry.push("acme/text", tag, guest_artifacts::PLUGIN_TEXT);
        let reference = registry.reference(&format!("acme/text:{tag}"));
        folder.run(&["add", &reference, "--unsigned", "--as", id]).says(0, &[]);
    }
    registry.push("acme/text", "1.4.0", guest_artifacts::PLUGIN_TEXT);
    let lock = folder.read("toolbay.lock");
    let rows = folder.run(&["outdated", "--json"]).says(1, &[]).json();
    let row = |at: usize| (&rows[at]["status"], &rows[at]["compatible"], &rows[at]["newest"]);
    assert_eq!(row(0), (&json!("outdated"), &json!("1.4.0"), &json!("2.0.0")));
    assert_eq!(row(1), (&json!("current"), &Value::Null, &Value::Null));
    assert_eq!(row(2), (&json!("unversioned"), &Value::Null, &Value::Null));
    folder.run(&["outdated"]).says(1, &["1.4.0", "toolbay update"]);
    registry.content.lock().unwrap().retain(|path, _| !path.ends_with("1.4.0") && !path.ends_with("2.0.0"));
    folder.run(&["outdated"]).says(0, &["current"]);
    assert_eq!(folder.read("toolbay.lock"), lock);
}

#[test]
fn an_id_belongs_to_one_plugin() {
    let registry = TestRegistry::start();
    let old = registry.push("acme/text", "1.0", guest_artifacts::PLUGIN_TEXT);
    let folder = registry.folder().with_plugin("echo", guest_artifacts::API_ECHO);
    let reference = registry.reference("acme/text:1.0");
    folder.run(&["add", &reference, "--unsigned", "--as", "echo"]).says(1, &["the plugin directory has"]);
    folder.run(&["add", &reference, "--unsigned"]).says(0, &[]);
    let new = registry.push("acme/text", "1.0", guest_artifacts::PLUGIN_HASH);
    folder.run(&["add", &reference, "--unsigned"]).says(1, &[&old, "--replace"]);
    assert!(folder.read("toolbay.lock").contains(&old));
    folder.run(&["add", &reference, "--unsigned", "--as", "other"]).says(0, &[&new]);
    // Other tools are other descriptions, which a model would read.
    let replace = ["add", &*reference, "--unsigned", "--replace"];
    folder.run(&replace).says(1, &["tool added", "published again", "toolbay grant text"]);
    let error = folder.run(&[&replace[..], &["--json"]].concat()).says(1, &[]);
    assert_eq!(error.json()["error"]["code"], "held");
    assert!(folder.read("toolbay.lock").contains(&old));
    folder.run(&["grant", "text", "--yes"]).says(0, &[&new]);
    assert!(!folder.read("toolbay.lock").contains(&old));
}

#[test]
fn a_pushed_component_is_added_elsewhere_and_its_tag_is_not_moved() {
    let registry = TestRegistry::start();
    let (author, operator) = (registry.folder(), registry.folder());
    let reference = registry.reference("acme/text:1.0");
    let push = |guest: &str| author.run(&["push", &reference, guest, "--json"]);
    let preview =
        author.run(&["push", &reference, guest_artifacts::PLUGIN_TEXT, "--dry-run", "--json"]).json();
    assert!(registry.requests.lock().unwrap().is_empty());
    let pushed = push(guest_artifacts::PLUGIN_TEXT).says(0, &[]).json();
    assert_eq!((&pushed["status"], &pushed["manifest"]), (&json!("pushed"), &preview["manifest"]));
    assert_eq!(push(guest_artifacts::PLUGIN_TEXT).says(0, &[]).json()["status"], "unchanged");
    push(guest_artifacts::PLUGIN_HASH).says(1, &["choose another tag"]);
    operator.run(&["add", &reference, "--unsigned"]).says(0, &[pushed["manifest"].as_str().unwrap()]);
    operator.run(&["call", "text__word_count", ARGS]).says(0, &["3"]);
    author.run(&["push", &reference, "toolbay.lock"]).says(1, &["toolbay.lock"]);
}

#[test]
fn a_lock_with_conflict_markers_is_refused_with_its_line() {
    let folder = HostFolder::new("");
    fs::write(folder.path("toolbay.lock"), "version = 1\n<<<<<<< ours\n").unwrap();
    let parts = ["toolbay.lock`, line 2", "merge conflict"];
    for command in [&["list"][..], &["fetch"], &["verify"], &["outdated"], &["update"]] {
        folder.run(command).says(2, &parts);
    }
    // A server ends as soon as its stdin does, so that stays open.
    let mut serve = folder.command(&["serve"]);
    let serve = serve.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = serve.spawn().unwrap();
    let stdin = server.stdin.take();
    CommandRun(server.wait_with_output().unwrap()).says(2, &parts);
    drop(stdin);
}

#[test]
fn concurrent_adds_all_reach_the_lock() {
    let registry = TestRegistry::start();
    registry.push("acme/text", "1.0", guest_artifacts::PLUGIN_TEXT);
    let (folder, reference) = (registry.folder(), registry.reference("acme/text:1.0"));
    let start = |id: &&str| {
        let mut command = folder.command(&["add", &reference, "--unsigned", "--as", id]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let ids = ["a", "b", "c", "d"];
    let all: Vec<_> = ids.iter().map(start).collect();
    all.into_iter().for_each(|mut one| assert!(one.wait().unwrap().success()));
    let lock = folder.read("toolbay.lock");
    ids.iter().for_each(|id| assert!(lock.contains(&format!("id = \"{id}\"")), "{lock}"));
}

#[test]
fn an_add_that_is_killed_leaves_a_whole_store_and_lock() {
    const MOMENTS: u32 = 100;
    let registry = TestRegistry::start();
    registry.push("acme/text", "1.0", guest_artifacts::PLUGIN_TEXT);
    registry.push("acme/hash", "1.0", guest_artifacts::PLUGIN_HASH);
    let folder = registry.folder();
    folder.run(&["add", &registry.reference("acme/text:1.0"), "--unsigned"]).says(0, &[]);
    let before = folder.read("toolbay.lock");
    let kept = blobs(&folder);
    let reference = registry.reference("acme/hash:1.0");
    let begin = std::time::Instant::now();
    folder.run(&["add", &reference, "--unsigned"]).says(0, &[]);
    let (whole, after) = (begin.elapsed(), folder.read("toolbay.lock"));
    let reset = || {
        fs::write(folder.path("toolbay.lock"), &before).unwrap();
        blobs(&folder)
            .iter()
            .filter(|blob| !kept.contains(blob))
            .for_each(|blob| fs::remove_file(blob).unwrap());
    };
    for moment in 0..MOMENTS {
        reset();
        let mut command = folder.command(&["add", &reference, "--unsigned"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // The moments are spread over the time of a whole run.
        std::thread::sleep(whole.mul_f64(f64::from(moment) / f64::from(MOMENTS)).min(Duration::from_secs(5)));
        child.kill().unwrap();
        child.wait().unwrap();
        let lock = folder.read("toolbay.lock");
        assert!(lock == before || lock == after, "{lock}");
        for blob in blobs(&folder) {
            let name = blob.file_name().unwrap().to_str().unwrap().to_owned();
            assert_eq!(digest(&fs::read(&blob).unwrap()), format!("sha256:{name}"));
        }
    }
    folder.run(&["call", "text__word_count", ARGS]).says(0, &["3"]);
}

#[test]
fn a_server_follows_the_lock() {
    let registry = TestRegistry::start();
    registry.push("acme/text", "1.0", guest_artifacts::PLUGIN_TEXT);
    let folder = registry.folder();
    let mut server = ServerProcess::serve(&folder);
    server.initialize();
    let mut id = 0;
    let mut lists = |name: &str| {
        id += 1;
        server.send(id, "tools/list", &json!({}));
        let tools = server.result(id)["tools"].clone();
        tools.as_array().unwrap().iter().any(|tool| tool["name"] == name)
    };
    assert!(!lists("text__word_count"));
    folder.run(&["add", &registry.reference("acme/text:1.0"), "--unsigned"]).says(0, &[]);
    wait_until("the server has the added plugin", || lists("text__word_count"));
    // A lock that is not understood, or is gone for a moment, leaves what runs.
    let lock = folder.read("toolbay.lock");
    fs::remove_file(folder.path("toolbay.lock")).unwrap();
    assert!(lists("text__word_count"));
    fs::write(folder.path("toolbay.lock"), "version = 2\n").unwrap();
    assert!(lists("text__word_count"));
    fs::write(folder.path("toolbay.lock"), lock.split("[[plugin]]").next().unwrap()).unwrap();
    wait_until("the server drops the removed plugin", || !lists("text__word_count"));
}
