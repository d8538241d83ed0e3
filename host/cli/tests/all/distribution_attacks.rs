//! `toolbay add` and `toolbay fetch` against registries that attack them. Each attack ends in an error that says what is
//! wrong, leaves no component, no incomplete transfer and no lock, and sends the operator's password nowhere else.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::attack_registry::{
    AttackRegistry, AttackReply, INDEX, MANIFEST, REPOSITORY, descriptor, digest, manifest,
};
use crate::fixture::{CommandRun, HostFolder};

/// The content of a component that is never loaded.
const LAYER: &[u8] = b"\0asm component";
/// `u:operator-secret`, as Docker's file has it.
const PASSWORD: &str = "dTpvcGVyYXRvci1zZWNyZXQ=";
const ARGS: &str = r#"{"text": "a b c"}"#;

/// A folder whose policy has a section for a registry, with a login for it. `keys` are further lines of the section.
fn folder(registry: &AttackRegistry, keys: &str) -> HostFolder {
    let address = &registry.address;
    let folder = HostFolder::new(&format!("[registry.\"{address}\"]\nca = \"ca.pem\"\n{keys}"));
    fs::write(folder.path("ca.pem"), AttackRegistry::ca()).unwrap();
    fs::create_dir(folder.path("docker")).unwrap();
    let login = json!({"auths": {(address.as_str()): {"auth": PASSWORD}}});
    fs::write(folder.path("docker/config.json"), login.to_string()).unwrap();
    folder
}

/// A command whose logins are those of the folder.
fn command(folder: &HostFolder, args: &[&str]) -> Command {
    let mut command = folder.command(args);
    command.env("DOCKER_CONFIG", folder.path("docker"));
    command
}

fn run(folder: &HostFolder, args: &[&str]) -> CommandRun {
    CommandRun(command(folder, args).output().unwrap())
}

fn add(folder: &HostFolder, registry: &AttackRegistry) -> CommandRun {
    run(folder, &["add", &registry.reference(), "--unsigned"])
}

/// The files of a folder and those below it, with their content.
fn files_below(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            let content = fs::read(&path).unwrap();
            found.insert(path, content);
        }
    }
    found
}

/// The blobs and incomplete transfers, and the lock.
fn installed(folder: &HostFolder) -> (BTreeMap<PathBuf, Vec<u8>>, Option<Vec<u8>>) {
    let store = folder.path(".local/share/toolbay/store");
    let stored = ["blobs", "incoming"].iter().flat_map(|below| files_below(&store.join(below)));
    (stored.collect(), fs::read(folder.path("toolbay.lock")).ok())
}

/// Adds the plugin of a registry in a folder with these keys. It fails with these parts, and leaves nothing.
fn add_fails_with(registry: &AttackRegistry, keys: &str, parts: &[&str]) {
    let folder = folder(registry, keys);
    let failed = add(&folder, registry).says(1, parts);
    let said = failed.out() + &failed.err();
    assert!(!said.contains("operator-secret") && !said.contains(PASSWORD), "{said}");
    assert_eq!(installed(&folder), (BTreeMap::new(), None), "{said}");
}

fn add_fails(registry: &AttackRegistry, parts: &[&str]) {
    add_fails_with(registry, "", parts);
}

fn asked_for_blob(registry: &AttackRegistry) -> bool {
    registry.requests().iter().any(|request| request.path.contains("/blobs/"))
}

#[test]
fn content_that_differs_from_its_digest_is_refused() {
    let mut changed = LAYER.to_vec();
    changed[5] ^= 1;
    let cut = LAYER[..5].to_vec();
    for (reply, part) in [
        (AttackReply::new(200, changed), "its digest is"),
        (AttackReply::new(200, cut.clone()), "the registry sends 5 bytes"),
        (AttackReply::new(200, cut).promising(LAYER.len()), "was not downloaded"),
    ] {
        let registry = AttackRegistry::with_component(LAYER);
        registry.reply_to_blob(LAYER, reply);
        add_fails(&registry, &[&digest(LAYER), part]);
    }
    let document = manifest(&[descriptor(LAYER)]).to_string();
    let registry = AttackRegistry::with_component(LAYER);
    let reply = AttackReply::new(200, document.clone()).with_header("content-type", MANIFEST);
    registry.reply_to_manifest("1", reply.with_header("docker-content-digest", "sha256:0"));
    add_fails(&registry, &["the registry says `sha256:0`"]);
    // Another document for a digest that the operator named.
    let registry = AttackRegistry::start();
    let pinned = digest(document.as_bytes());
    let other = manifest(&[descriptor(b"other")]).to_string();
    registry.reply_to_manifest(&pinned, AttackReply::new(200, other));
    let folder = folder(&registry, "");
    let reference = format!("{}/{REPOSITORY}@{pinned}", registry.address);
    run(&folder, &["add", &reference, "--unsigned"]).says(1, &["its content has the digest"]);
    assert_eq!(installed(&folder), (BTreeMap::new(), None));
}

#[test]
fn oversized_content_is_refused_before_it_is_stored() {
    // By its descriptor.
    let registry = AttackRegistry::with_component(LAYER);
    let mut huge = descriptor(LAYER);
    huge["size"] = json!((64 << 20) + 1);
    registry.publish_manifest("1", MANIFEST, &manifest(&[huge]));
    add_fails(&registry, &["the limit is 67108864"]);
    assert!(!asked_for_blob(&registry));
    // While it comes.
    let registry = AttackRegistry::with_component(LAYER);
    registry.reply_to_blob(LAYER, AttackReply::endless(200));
    add_fails(&registry, &["more than the 14 bytes of its descriptor"]);
    let registry = AttackRegistry::start();
    registry.reply_to_manifest("1", AttackReply::endless(200));
    add_fails(&registry, &["more than 4194304 bytes"]);
    // The body of an error is not read.
    let registry = AttackRegistry::start();
    registry.reply_to_manifest("1", AttackReply::endless(500));
    add_fails(&registry, &["status 500"]);
    // A token server is bounded, too.
    let registry = AttackRegistry::with_component(LAYER);
    registry.require_token(&registry.url("/token"));
    registry.reply("/token", AttackReply::endless(200));
    add_fails(&registry, &["more than 65536 bytes"]);
}

#[test]
fn a_manifest_that_leads_elsewhere_or_deeper_is_refused() {
    let wasm = descriptor(LAYER);
    let mut elsewhere = wasm.clone();
    elsewhere["urls"] = json!(["https://evil.example/"]);
    let no_wasm = json!({"mediaType": "application/x-tar", "digest": digest(LAYER), "size": LAYER.len()});
    for (layers, part) in [
        (vec![], "exactly one"),
        (vec![no_wasm.clone()], "exactly one"),
        (vec![wasm.clone(), wasm.clone()], "exactly one"),
        (vec![elsewhere], "`urls`"),
        (vec![no_wasm; 65], "the limit is 64"),
    ] {
        let registry = AttackRegistry::with_component(LAYER);
        registry.publish_manifest("1", MANIFEST, &manifest(&layers));
        add_fails(&registry, &[part]);
        assert!(!asked_for_blob(&registry), "{part}");
    }
    // An index in an index, which says that it is a manifest.
    let registry = AttackRegistry::with_component(LAYER);
    let index = |entry: &Value, pinned: &str, media_type: &str| {
        let entry = json!({"mediaType": media_type, "digest": pinned, "size": entry.to_string().len(),
            "platform": {"architecture": "wasm", "os": "wasip2"}});
        json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]})
    };
    let component = manifest(&[wasm]);
    let pinned = registry.publish_manifest("component", MANIFEST, &component);
    let inner = index(&component, &pinned, MANIFEST);
    let pinned = registry.publish_manifest("inner", INDEX, &inner);
    for (media_type, part) in [(INDEX, "is not a manifest"), (MANIFEST, "another index")] {
        registry.publish_manifest("1", INDEX, &index(&inner, &pinned, media_type));
        add_fails(&registry, &[part]);
    }
    // One document that is a manifest for one reader, and an index for another.
    let mut both = component;
    both["manifests"] = inner["manifests"].clone();
    registry.publish_manifest("1", MANIFEST, &both);
    add_fails(&registry, &["both a manifest and an index"]);
    assert!(!asked_for_blob(&registry));
}

#[test]
fn a_password_goes_to_no_realm_that_is_not_listed() {
    let elsewhere = AttackRegistry::start();
    elsewhere.reply("/token", AttackReply::new(200, r#"{"token": "t"}"#));
    let plain = format!("http://{}/token", elsewhere.address);
    let user = format!("https://u@{}/token", elsewhere.address);
    for (realm, part) in [
        (elsewhere.url("/token").as_str(), "is on another host, which gets no credentials"),
        (plain.as_str(), "does not use https"),
        (user.as_str(), "a user name"),
        ("https://169.254.169.254/token", "is on another host"),
        ("token", "is not a URL"),
    ] {
        let registry = AttackRegistry::with_component(LAYER);
        registry.require_token(realm);
        add_fails(&registry, &[part]);
        assert!(registry.requests().iter().all(|request| request.authorization.is_none()), "{realm}");
    }
    // A token server that redirects is not followed.
    let registry = AttackRegistry::with_component(LAYER);
    registry.require_token(&registry.url("/token"));
    registry.reply("/token", AttackReply::redirect(&elsewhere.url("/token")));
    add_fails(&registry, &["status 307"]);
    assert_eq!(elsewhere.connections(), 0);
}

#[test]
fn a_listed_realm_gets_the_password_and_the_registry_its_token() {
    let elsewhere = AttackRegistry::start();
    elsewhere.reply("/token", AttackReply::new(200, r#"{"token": "t"}"#));
    let registry = AttackRegistry::with_component(&fs::read(guest_artifacts::PLUGIN_TEXT).unwrap());
    registry.require_token(&elsewhere.url("/token"));
    let folder = folder(&registry, &format!("realm = [\"{}\"]\n", elsewhere.url("")));
    add(&folder, &registry).says(0, &["text__word_count"]);
    let sent = |registry: &AttackRegistry| -> Vec<Option<String>> {
        registry.requests().into_iter().map(|request| request.authorization).collect()
    };
    assert_eq!(sent(&elsewhere), [Some(format!("Basic {PASSWORD}"))]);
    let to_registry = sent(&registry);
    assert_eq!(to_registry[0], None, "credentials are sent when they are asked for");
    assert!(to_registry[1..].iter().all(|one| one.as_deref() == Some("Bearer t")), "{to_registry:?}");
}

#[test]
fn a_host_that_a_registry_names_is_reached_at_public_addresses_only() {
    let elsewhere = AttackRegistry::start();
    let metadata = "https://169.254.169.254/latest/meta-data";
    // Without a login, the realm may be anywhere that is public.
    for realm in [elsewhere.url("/token").as_str(), metadata] {
        let registry = AttackRegistry::with_component(LAYER);
        registry.require_token(realm);
        let folder = folder(&registry, "net_private = [\"0.0.0.0/0\"]\n");
        fs::remove_file(folder.path("docker/config.json")).unwrap();
        let mut command = command(&folder, &["add", &registry.reference(), "--unsigned"]);
        for variable in ["REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"] {
            command.env_remove(variable);
        }
        CommandRun(command.output().unwrap()).says(1, &["] redirect_private = ["]);
        assert_eq!(installed(&folder), (BTreeMap::new(), None));
    }
    for target in [elsewhere.url("/blob").as_str(), metadata, "https://localhost/blob"] {
        let registry = AttackRegistry::with_component(LAYER);
        registry.reply_to_blob(LAYER, AttackReply::redirect(target));
        add_fails_with(&registry, "net_private = [\"0.0.0.0/0\"]\n", &["] redirect_private = ["]);
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[test]
fn a_redirect_is_followed_three_times_over_https_without_the_password() {
    let elsewhere = AttackRegistry::start();
    let plain = format!("http://{}/blob", elsewhere.address);
    let user = format!("https://u:p@{}/blob", elsewhere.address);
    let granted = "redirect_private = [\"127.0.0.0/8\"]\n";
    for target in [plain.as_str(), &user, "file:///etc/passwd"] {
        let registry = AttackRegistry::with_component(LAYER);
        registry.reply_to_blob(LAYER, AttackReply::redirect(target));
        add_fails_with(&registry, granted, &["which is not followed"]);
    }
    let registry = AttackRegistry::with_component(LAYER);
    registry.reply_to_blob(LAYER, AttackReply::redirect(&registry.url("/loop")));
    registry.reply("/loop", AttackReply::redirect(&registry.url("/loop")));
    add_fails(&registry, &["redirects more than 3 times"]);
    assert_eq!(registry.requests().iter().filter(|request| request.path == "/loop").count(), 3);
    // A tag leads to what the registry itself says.
    let registry = AttackRegistry::with_component(LAYER);
    registry.reply_to_manifest("1", AttackReply::redirect(&elsewhere.url("/manifest")));
    add_fails_with(&registry, granted, &["redirects `1`"]);
    assert_eq!(elsewhere.connections(), 0);
    // A login and a redirect to a storage service.
    let layer = fs::read(guest_artifacts::PLUGIN_TEXT).unwrap();
    let registry = AttackRegistry::with_component(&layer);
    registry.require_token(&registry.url("/token"));
    registry.reply("/token", AttackReply::new(200, r#"{"token": "t"}"#));
    registry.reply_to_blob(&layer, AttackReply::redirect(&elsewhere.url("/blob")));
    elsewhere.reply("/blob", AttackReply::new(200, layer));
    let folder = folder(&registry, granted);
    add(&folder, &registry).says(0, &["text__word_count"]);
    let seen = elsewhere.requests();
    assert!(seen.len() == 1 && seen[0].authorization.is_none(), "{seen:?}");
}

#[test]
fn a_moved_tag_changes_neither_the_lock_nor_what_is_fetched() {
    let registry = AttackRegistry::start();
    let old = registry.publish("1", &fs::read(guest_artifacts::PLUGIN_TEXT).unwrap());
    let folder = folder(&registry, "");
    add(&folder, &registry).says(0, &[&old]);
    let before = installed(&folder);
    registry.publish("1", LAYER);
    add(&folder, &registry).says(1, &[&old, "--replace"]);
    for file in before.0.keys() {
        fs::remove_file(file).unwrap();
    }
    run(&folder, &["fetch"]).says(0, &["fetched"]);
    assert_eq!(installed(&folder), before);
    run(&folder, &["call", "text__word_count", ARGS]).says(0, &["3"]);
}

#[test]
fn a_lock_that_mixes_two_plugins_is_refused() {
    let registry = AttackRegistry::start();
    let layer = fs::read(guest_artifacts::PLUGIN_TEXT).unwrap();
    registry.publish("1", &layer);
    registry.publish("2", LAYER);
    let folder = folder(&registry, "");
    add(&folder, &registry).says(0, &[]);
    let before = installed(&folder);
    let lock = folder.read("toolbay.lock");
    let mixed = lock
        .replace(&digest(&layer), &digest(LAYER))
        .replace(&format!("size = {}", layer.len()), &format!("size = {}", LAYER.len()));
    assert_ne!(mixed, lock);
    fs::write(folder.path("toolbay.lock"), mixed).unwrap();
    run(&folder, &["fetch"]).says(1, &["failed", "another component than its manifest"]);
    assert_eq!(installed(&folder).0, before.0);
}

/// Runs a command that cannot write files: without the signal, a write beyond the limit is an error, as on a full disk.
fn run_on_full_disk(folder: &HostFolder, args: &[&str]) -> CommandRun {
    let whole = command(folder, &[]);
    let mut limited = Command::new("sh");
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\"";
    limited.args(["-c", script, env!("CARGO_BIN_EXE_toolbay")]).args(args);
    for (name, value) in whole.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited.current_dir(folder.path("work")).stdin(Stdio::null());
    CommandRun(limited.output().unwrap())
}

#[test]
fn a_full_disk_leaves_the_store_and_the_lock_whole() {
    let registry = AttackRegistry::with_component(&fs::read(guest_artifacts::PLUGIN_TEXT).unwrap());
    let folder = folder(&registry, "");
    add(&folder, &registry).says(0, &[]);
    let other = AttackRegistry::start();
    other.publish("1", &fs::read(guest_artifacts::PLUGIN_HASH).unwrap());
    folder.write_policy(&format!(
        "[registry.\"{}\"]\nca = \"ca.pem\"\n[registry.\"{}\"]\nca = \"ca.pem\"\n",
        registry.address, other.address
    ));
    let before = installed(&folder);
    let reference = other.reference();
    let add_other = ["add", &*reference, "--unsigned", "--as", "hash"];
    run_on_full_disk(&folder, &add_other).says(3, &["store", "cannot be written"]);
    assert_eq!(installed(&folder), before);
    // With the component in the store, the lock is what cannot be written.
    run(&folder, &[&add_other[..], &["--dry-run"]].concat()).says(0, &[]);
    let downloaded = installed(&folder);
    run_on_full_disk(&folder, &add_other).says(3, &["toolbay.lock", "cannot be written"]);
    assert_eq!(installed(&folder), downloaded);
    let beside = fs::read_dir(folder.path("")).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = beside.filter(|name| name.to_string_lossy().starts_with(".toolbay.lock")).collect();
    assert!(left.is_empty(), "{left:?}");
    run(&folder, &["call", "text__word_count", ARGS]).says(0, &["3"]);
    run(&folder, &add_other).says(0, &[]);
    assert!(folder.read("toolbay.lock").contains("id = \"hash\""));
}

#[test]
fn of_two_concurrent_adds_of_an_id_one_wins_and_the_other_says_why() {
    let registry = AttackRegistry::start();
    let text = registry.publish("1", &fs::read(guest_artifacts::PLUGIN_TEXT).unwrap());
    let hash = registry.publish("2", &fs::read(guest_artifacts::PLUGIN_HASH).unwrap());
    let folder = folder(&registry, "");
    let references = ["1", "2"].map(|tag| format!("{}/{REPOSITORY}:{tag}", registry.address));
    let start = |reference: &String| {
        let mut command = command(&folder, &["add", reference, "--unsigned", "--as", "same"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let all: Vec<_> = references.iter().map(start).collect();
    let all: Vec<_> = all.into_iter().map(|one| CommandRun(one.wait_with_output().unwrap())).collect();
    let lock = folder.read("toolbay.lock");
    assert_eq!(lock.matches("[[plugin]]").count(), 1, "{lock}");
    let winner = usize::from(lock.contains(&hash));
    assert!(lock.contains([&text, &hash][winner].as_str()), "{lock}");
    for (index, one) in all.into_iter().enumerate() {
        if index == winner {
            one.says(0, &[]);
        } else {
            one.says(1, &["the lock has another `same`", "--replace"]);
        }
    }
}
