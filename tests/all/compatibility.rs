//! What `docs/compatibility.md` promises.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use integration_tests::{TestHost, refusal, structured};
use serde_json::json;
use sha2::Digest as _;
use toolbay::PluginId;
use toolbay::core::content::ErrorCode;
use wit_parser::{PackageId, Resolve, WorldItem, WorldKey};

/// The versions of the contract that were released, the newest last.
const RELEASED: [&str; 1] = ["0.1.0"];

fn wit() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit")
}

/// What is released never changes.
#[test]
fn released_contracts_are_as_they_were() {
    let folders = std::fs::read_dir(wit().join("released")).unwrap();
    let folders: BTreeSet<String> =
        folders.map(|folder| folder.unwrap().file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(folders, RELEASED.map(str::to_owned).into());
    for version in RELEASED {
        let folder = wit().join("released").join(version);
        let sums = std::fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
        for line in sums.lines() {
            let (sum, file) = line.split_once("  ").unwrap();
            let digest = sha2::Sha256::digest(std::fs::read(folder.join(file)).unwrap());
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(digest, sum, "{version}/{file}");
        }
        let files = std::fs::read_dir(&folder).unwrap().count();
        assert_eq!(files, sums.lines().count() + 1, "{version} has a file without a sum");
    }
}

/// Both packages have the same name, so the older one is read under another version, which the check does not look at.
fn both(resolve: &mut Resolve, version: &str) -> (PackageId, PackageId) {
    let (new, _) = resolve.push_dir(wit()).unwrap();
    let folder = wit().join("released").join(version);
    let mut map = wit_parser::SourceMap::new();
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "wit")) {
        let text = std::fs::read_to_string(file).unwrap();
        map.push(file, text.replace(&format!("package toolbay:plugin@{version};"), "package toolbay:plugin@0.0.1;"));
    }
    let old = resolve.push_group(map.parse().map_err(|(_, error)| error).unwrap()).unwrap();
    (old, new)
}

/// A component for a released version finds everything it was built against in the contract of this host: the same types,
/// the same functions; there may be more to import, and nothing more is asked of it.
#[test]
fn the_contract_only_grows() {
    for version in RELEASED {
        let mut resolve = Resolve { all_features: true, ..Resolve::default() };
        let (old, new) = both(&mut resolve, version);
        let worlds: Vec<_> = resolve.packages[old].worlds.clone().into_iter().collect();
        assert!(worlds.len() >= 8, "{worlds:?}");
        for (name, old) in worlds {
            let new = *resolve.packages[new].worlds.get(&name).unwrap_or_else(|| panic!("the world `{name}` is gone"));
            let exports = |world| {
                let names = resolve.worlds[world].exports.iter().filter(|(_, item)| matches!(item, WorldItem::Interface { .. }));
                let names = names.map(|(key, _)| match key {
                    WorldKey::Interface(id) => resolve.interfaces[*id].name.clone().unwrap(),
                    WorldKey::Name(name) => name.clone(),
                });
                names.collect::<BTreeSet<String>>()
            };
            assert_eq!(exports(old), exports(new), "a world's exports are its name's meaning: `{name}`");
            wit_component::semver_check(resolve.clone(), old, new)
                .unwrap_or_else(|error| panic!("`{name}` of {version} would not do: {error:#}"));
        }
    }
}

/// What the check above would say, if a record grew.
#[test]
fn a_change_that_is_none_is_found() {
    let text = |field: &str| {
        format!("package a:b; interface i {{ record r {{ x: u8{field} }} f: func(r: r); }} world w {{ import i; export g: func(); }}")
    };
    let check = |new: &str| {
        let mut resolve = Resolve::default();
        let world = |resolve: &mut Resolve, version: &str, text: &str| {
            let text = text.replace("package a:b;", &format!("package a:b@{version};"));
            let package = resolve.push_str("a.wit", &text).unwrap();
            *resolve.packages[package].worlds.get("w").unwrap()
        };
        let old = world(&mut resolve, "0.0.1", &text(""));
        let new = world(&mut resolve, "0.0.2", new);
        wit_component::semver_check(resolve, old, new)
    };
    check(&text("")).unwrap();
    check(&text("").replace("f: func", "h: func(); f: func")).unwrap();
    check(&text(", y: u8")).unwrap_err();
    check(&text("").replace("f: func(r: r)", "f: func()")).unwrap_err();
}

/// Components that were built when the versions were released.
#[tokio::test(flavor = "multi_thread")]
async fn guests_of_released_versions_load_and_answer() {
    for version in RELEASED {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("data/released/{version}.wasm"));
        let size = std::fs::metadata(&file).unwrap().len();
        assert!(size < 150 << 10, "{size} bytes");
        let policy = "[plugins.old]\nconfig = { setting = 7 }\n[plugins.old.grant]\nkv = [\"plugin\"]\nfs_read = [\"$workspace\"]";
        let host = TestHost::empty(policy);
        std::fs::write(host.root().join("note"), "hello").unwrap();
        host.load("old", file.to_str().unwrap()).await;
        for count in 1..3 {
            let answer = structured(&host.call("old__everything", json!({"key": "k"})).await);
            let expected = json!({
                "call": "1", "dry_run": false, "setting": "7", "count": count, "secret": false, "http": false,
                "file": "hello", "program": false, "attachments": 0,
            });
            assert_eq!(answer, expected, "{version}");
        }
        let reduced = host.call("old__fail", json!({})).await;
        assert_eq!(refusal(&reduced).code, ErrorCode::StaleWrite, "{version}");
        assert_eq!(host.host.plugin("old").unwrap().reducers, ["fail"]);
    }
}

/// A component that was doctored: every name of the contract in it is of another version of the same length.
fn of_version(version: &str) -> Vec<u8> {
    let mut bytes = std::fs::read(guest_artifacts::API_RELEASED).unwrap();
    let (from, to) = (b"@0.1.0", format!("@{version}"));
    assert_eq!(from.len(), to.len());
    for at in 0..bytes.len() - from.len() {
        let before = at.saturating_sub(40);
        let ours = bytes[before..at].windows(15).any(|part| part == b"toolbay:plugin/");
        if bytes[at..].starts_with(from) && ours {
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        }
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_of_another_version_is_told_both() {
    let host = TestHost::empty("");
    let load = async |bytes: Vec<u8>| host.host.load_bytes(PluginId::new("p").unwrap(), bytes).await;
    for (version, advice) in [
        ("0.2.0", "take a newer host, or rebuild it with an SDK for 0.1.0"),
        ("1.0.0", "take a newer host, or rebuild it with an SDK for 0.1.0"),
        ("0.0.9", "rebuild it with an SDK for 0.1.0"),
    ] {
        let problem = load(of_version(version)).await.unwrap_err().to_string();
        assert!(problem.contains(&format!("speaks version {version} of the contract, this host speaks 0.1.0")), "{problem}");
        assert!(problem.contains(advice), "{problem}");
    }
    // A newer patch version that uses nothing new is at home.
    load(of_version("0.1.9")).await.unwrap();
    // One that uses something new is not, and is told what.
    let text = r#"(component
        (import "toolbay:plugin/kv@0.1.9" (instance (export "compact" (func))))
        (core module $m (func (export "f")))
        (core instance $i (instantiate $m))
        (func (export "f") (canon lift (core func $i "f"))))"#;
    let problem = load(wat::parse_str(text).unwrap()).await.unwrap_err().to_string();
    for part in ["speaks version 0.1.9 of the contract, this host speaks 0.1.0", "compact", "take a newer host"] {
        assert!(problem.contains(part), "{part}: {problem}");
    }
}
