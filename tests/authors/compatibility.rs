//! Checks what `docs/reference/compatibility.md` promises.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use integration_tests::{TestHost, refusal, structured};
use serde_json::json;
use sha2::Digest as _;
use toolbay::core::tool::content::ErrorCode;
use toolbay::{HostBuilder, PluginId};

/// The released versions of the contract, oldest first.
const RELEASED: [&str; 1] = ["0.1.0"];

fn wit() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit")
}

/// For each released version a folder with its contract, and a component.
fn released() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/released")
}

/// Released contracts never change.
#[test]
fn released_contracts_are_unchanged() {
    let folders = std::fs::read_dir(released()).unwrap().map(Result::unwrap);
    let folders = folders.filter(|entry| entry.file_type().unwrap().is_dir());
    let folders: BTreeSet<String> =
        folders.map(|folder| folder.file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(folders, RELEASED.map(str::to_owned).into());
    for version in RELEASED {
        let folder = released().join(version);
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

/// A block of WIT, `interface x { … }`: its kind and its items.
type WitBlocks = BTreeMap<String, BTreeSet<String>>;

/// The interfaces and worlds of a folder. Items are compared as text with normalized white space, without
/// comments and annotations.
fn blocks(folder: &Path) -> WitBlocks {
    let mut blocks = WitBlocks::new();
    for file in std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
        if file.extension().is_some_and(|extension| extension == "wit") {
            read(&std::fs::read_to_string(file).unwrap(), &mut blocks);
        }
    }
    blocks
}

fn read(text: &str, blocks: &mut WitBlocks) {
    let lines = text.lines().map(|line| line.split("//").next().unwrap().trim());
    let text = lines.filter(|line| !line.starts_with('@')).collect::<Vec<_>>().join(" ");
    let (mut block, mut item, mut depth) = (String::new(), String::new(), 0);
    let mut end = |block: &str, item: &mut String| {
        let words = item.replace(',', " , ").replace('{', " { ").replace('}', " } ");
        // The last item may end with a comma.
        let words =
            words.split_whitespace().collect::<Vec<_>>().join(" ").replace(", }", "}").replace(" }", "}");
        item.clear();
        if !words.is_empty() {
            blocks.entry(block.to_owned()).or_default().insert(words);
        }
    };
    for c in text.chars() {
        match c {
            '{' if depth == 0 => {
                block = item.split_whitespace().collect::<Vec<_>>().join(" ");
                item.clear();
                depth = 1;
            }
            '}' if depth == 1 => {
                end(&block, &mut item);
                depth = 0;
            }
            ';' if depth == 0 => item.clear(),
            ';' if depth == 1 => end(&block, &mut item),
            _ => {
                item.push(c);
                depth += u32::from(c == '{');
                if c == '}' {
                    depth -= 1;
                    // A record ends with its brace; `use a.{b}` ends with its semicolon.
                    if depth == 1 && !item.trim_start().starts_with("use ") {
                        end(&block, &mut item);
                    }
                }
            }
        }
    }
}

/// The items of an older contract that a newer one lacks, and the imports that the newer one adds.
fn broken(old: &WitBlocks, new: &WitBlocks) -> Vec<String> {
    let mut broken = Vec::new();
    // Plugins export these worlds, so nothing may be added to them.
    let exported: BTreeSet<&str> =
        old.values().flatten().filter_map(|item| item.strip_prefix("export ")).collect();
    for (block, items) in old {
        let Some(now) = new.get(block) else {
            broken.push(format!("{block} is gone"));
            continue;
        };
        broken.extend(items.difference(now).map(|item| format!("{block} has no {item}")));
        let fixed = block.strip_prefix("interface ").is_some_and(|name| exported.contains(name));
        let more = now.difference(items).filter(|item| fixed || item.starts_with("export "));
        broken.extend(more.map(|item| format!("{block} asks for {item}")));
    }
    broken
}

/// A component for a released version finds all types and functions of its contract in this host's contract. The
/// host may offer more imports, but it must not require more exports.
#[test]
fn the_contract_only_grows() {
    let new = blocks(&wit());
    for version in RELEASED {
        let old = blocks(&released().join(version));
        assert!(old["interface kv"].iter().any(|item| item.starts_with("increment: func(")), "{old:?}");
        assert_eq!(broken(&old, &new), Vec::<String>::new(), "of {version}");
    }
}

#[test]
fn changes_that_break_a_plugin_are_found() {
    let world = "interface i { record r { x: u8, } f: func(r: r); use t.{a, b}; } interface e { g: func(); } world w { import i; export e; }";
    let check = |from: &str, to: &str| {
        let (mut old, mut new) = (WitBlocks::new(), WitBlocks::new());
        read(world, &mut old);
        assert!(world.contains(from));
        read(&world.replace(from, to), &mut new);
        broken(&old, &new)
    };
    for (from, to) in [
        ("x: u8, }", "x: u8 }"),
        ("f: func", "/// new\n@since(version = 0.1.1)\nh: func(); f: func"),
        ("world w", "interface n { } world w"),
        ("import i;", "import i; import n;"),
    ] {
        assert_eq!(check(from, to), Vec::<String>::new(), "{to}");
    }
    for (from, to, problem) in [
        ("x: u8, }", "x: u8, y: u8 }", "interface i has no record r { x: u8}"),
        ("f: func(r: r)", "f: func()", "interface i has no f: func(r: r)"),
        ("g: func();", "g: func(); h: func();", "interface e asks for h: func()"),
        ("export e;", "export e; export i;", "world w asks for export i"),
        ("import i;", "", "world w has no import i"),
        ("interface e", "interface d", "interface e is gone"),
    ] {
        assert!(
            check(from, to).iter().any(|found| found.replace(" ,", ",") == problem),
            "{to}: {:?}",
            check(from, to)
        );
    }
}

/// Components that were built when the versions were released.
#[tokio::test(flavor = "multi_thread")]
async fn guests_of_released_versions_load_and_answer() {
    for version in RELEASED {
        let file = released().join(format!("{version}.wasm"));
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

/// A component in which every contract version is replaced by another version of the same length.
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
async fn a_guest_of_another_version_gets_both_versions_in_the_error() {
    let host = TestHost::empty_with("", HostBuilder::no_cache);
    let load = async |bytes: Vec<u8>| host.host.load_bytes(PluginId::new("p").unwrap(), bytes).await;
    for (version, advice) in [
        ("0.2.0", "update the host, or rebuild it with an SDK for 0.1.0"),
        ("1.0.0", "update the host, or rebuild it with an SDK for 0.1.0"),
        ("0.0.9", "rebuild it with an SDK for 0.1.0"),
    ] {
        let problem = load(of_version(version)).await.unwrap_err().to_string();
        assert!(
            problem.contains(&format!("speaks version {version} of the contract, this host speaks 0.1.0")),
            "{problem}"
        );
        assert!(problem.contains(advice), "{problem}");
    }
    // A newer patch version that uses no new item loads.
    load(of_version("0.1.9")).await.unwrap();
    // A version that uses a new item is refused, and the error names the item.
    let text = r#"(component
        (import "toolbay:plugin/kv@0.1.9" (instance (export "compact" (func))))
        (core module $m (func (export "f")))
        (core instance $i (instantiate $m))
        (func (export "f") (canon lift (core func $i "f"))))"#;
    let problem = load(wat::parse_str(text).unwrap()).await.unwrap_err().to_string();
    for part in ["speaks version 0.1.9 of the contract, this host speaks 0.1.0", "compact", "update the host"]
    {
        assert!(problem.contains(part), "{part}: {problem}");
    }
}
