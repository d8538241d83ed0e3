//! `files`: patterns and exclusions, and every spelling and link that could bypass them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use integration_tests::{TestHost, refusal, words as value};
use serde_json::json;

const POLICY: &str = r#"
    [plugins.f.grant]
    fs_read = ["$workspace/**", "!**/.env", "!**/.git/**", "!$workspace/private"]
    fs_write = ["$workspace/**", "!**/.env", "!**/.git/**", "!$workspace/private"]
"#;

/// Text that no result may contain.
const CANARY: &str = "canary";

async fn host(policy: &str) -> TestHost {
    let host = TestHost::empty(policy);
    let root = host.root();
    for folder in ["src/deep", ".git", "private", "data"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for secret in [".env", "src/.env", ".git/config", "private/key"] {
        fs::write(root.join(secret), CANARY).unwrap();
    }
    for file in ["a.txt", "src/main.rs", "src/deep/lib.rs", "src/notes.txt", "data/x.csv"] {
        fs::write(root.join(file), file).unwrap();
    }
    for (target, link) in [
        ("../.env", "src/env-link"),
        ("../.git", "src/git-link"),
        ("env-link", "src/env-link-2"),
        ("../private/../.env", "src/around"),
        ("../src/main.rs", "data/rs-link"),
        ("notes.txt", "src/fake.rs"),
        ("deep/lib.rs", "src/true.rs"),
        ("private", "open"),
    ] {
        symlink(target, root.join(link)).unwrap();
    }
    host.load("f", guest_artifacts::CAP_FILES).await;
    host
}

async fn names(host: &TestHost, path: &str) -> Vec<String> {
    let said = host.ask("f__read_dir", json!({ "path": path })).await;
    let entries = said["entries"].as_array().unwrap_or_else(|| panic!("{path}: {said}"));
    entries.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_excluded_file_is_reached_by_no_spelling_and_no_link() {
    let host = host(POLICY).await;
    let root = host.root();
    let mut paths: Vec<String> = [
        ".env",
        "./.env",
        ".env/",
        ".env//",
        ".env/.",
        ".env/x",
        "src/../.env",
        "src//.//.env",
        "src/.env",
        "nowhere/../.env",
        "a.txt/../.env",
        ".git",
        ".git/",
        ".git/config",
        "src/../.git/./config",
        "private",
        "private/key",
        "private/none",
        "src/env-link",
        "src/env-link-2",
        "src/env-link/",
        "src/around",
        "src/git-link/config",
        "src/git-link/none",
        "open/key",
        "open/none",
    ]
    .map(str::to_owned)
    .into();
    paths.push(root.join(".env").display().to_string());
    paths.push(format!("{}/src/..//.env", root.display()));
    for path in paths {
        for tool in ["read", "write", "stat", "read_dir", "append"] {
            let said = host.ask(&format!("f__{tool}"), json!({ "path": path, "text": "overwritten" })).await;
            let error = said["error"].as_str().unwrap_or_else(|| panic!("{tool} {path}: {said}"));
            // A link with a trailing slash may be refused for that reason.
            assert!(
                error == "denied" || (error == "other" && path == "src/env-link/"),
                "{tool} {path}: {said}"
            );
            assert!(!said.to_string().contains(CANARY), "{tool} {path}: {said}");
        }
    }
    for (tool, path) in [
        ("make_dir", ".git/new"),
        ("make_dir", "src/git-link/new"),
        ("make_dir", "src/.env/"),
        ("remove", ".env"),
        ("remove", "src/git-link/config"),
        ("remove", "open/key"),
        ("remove", ".git"),
    ] {
        assert_eq!(
            host.ask(&format!("f__{tool}"), json!({ "path": path })).await["error"],
            "denied",
            "{tool} {path}"
        );
    }
    // Nor is it created in another spelling, which a file system that ignores case would find by its name.
    if integration_tests::path_resolution() == toolbay::PathResolution::Portable {
        for (tool, path) in [("make_dir", "src/.GIT"), ("make_dir", "Private"), ("write", "src/deep/.Env")] {
            let said = host.ask(&format!("f__{tool}"), json!({ "path": path, "text": "new" })).await;
            assert_eq!(said["error"], "denied", "{tool} {path}: {said}");
        }
    }
    for secret in [".env", "src/.env", ".git/config", "private/key"] {
        assert_eq!(fs::read_to_string(root.join(secret)).unwrap(), CANARY, "{secret}");
    }
    let removed = host.ask("f__remove", json!({ "path": "src/env-link" })).await;
    assert_eq!(removed, json!({}), "the link itself is no excluded file");
    assert_eq!(fs::read_to_string(root.join(".env")).unwrap(), CANARY);
}

#[tokio::test(flavor = "multi_thread")]
async fn excluded_paths_are_hidden_and_the_refusal_names_the_line() {
    let host = host(POLICY).await;
    assert_eq!(names(&host, ".").await, ["a.txt", "data", "open", "src"]);
    assert!(!names(&host, "src").await.contains(&".env".to_owned()));
    for (path, line) in
        [(".env", "`!**/.env`"), ("src/.git/x", "`!**/.git`"), ("private", "`!$workspace/private`")]
    {
        let delivered = host.call("f__read", json!({ "path": path })).await;
        let hints = integration_tests::hints(&delivered);
        assert!(hints.contains(line) && hints.contains("fs_read"), "{path}: {hints}");
    }
    // A refused link reveals neither its target nor whether the target exists.
    let there = host.ask("f__read", json!({ "path": "open/key" })).await;
    let not_there = host.ask("f__read", json!({ "path": "open/nix" })).await;
    assert_eq!(there.to_string().replace("key", "nix"), not_there.to_string());
    assert!(!there.to_string().contains("private"), "{there}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_grants_matches_and_lists_their_parents() {
    let policy = "[plugins.f.grant]\nfs_read = [\"$workspace/src/**/*.rs\", \"$workspace/data/*.csv\"]";
    let host = host(policy).await;
    assert_eq!(host.ask("f__read", json!({"path": "src/main.rs"})).await["text"], "src/main.rs");
    assert_eq!(host.ask("f__read", json!({"path": "src/deep/lib.rs"})).await["text"], "src/deep/lib.rs");
    assert_eq!(host.ask("f__read", json!({"path": "data/x.csv"})).await["text"], "data/x.csv");
    assert_eq!(
        host.ask("f__read", json!({"path": "src/true.rs"})).await["text"],
        "src/deep/lib.rs",
        "a link to what matches"
    );
    assert_eq!(names(&host, "src").await, ["deep", "fake.rs", "main.rs", "true.rs"]);
    assert_eq!(names(&host, "data").await, ["x.csv"]);
    assert_eq!(host.ask("f__stat", json!({"path": "src/deep"})).await["kind"], "directory");
    for (tool, path) in [
        ("read", "src/notes.txt"),
        ("read", "src/fake.rs"),
        ("read", "data/rs-link"),
        ("read", "data/x.csv/y.csv"),
        ("read", "data/deep/x.csv"),
        ("stat", "src/notes.txt"),
        ("stat", "src/nothing.txt"),
        ("stat", "."),
        ("read_dir", "."),
        ("read_dir", "src/notes.txt"),
        ("read_dir", "src/nothing"),
        ("write", "src/main.rs"),
    ] {
        let said = host.ask(&format!("f__{tool}"), json!({ "path": path, "text": "x" })).await;
        assert_eq!(said["error"], "denied", "{tool} {path}: {said}");
    }
    let there = host.ask("f__stat", json!({"path": "src/notes.txt"})).await;
    let not_there = host.ask("f__stat", json!({"path": "src/nitch.txt"})).await;
    assert_eq!(there.to_string().replace("notes", "nitch"), not_there.to_string(), "neither is revealed");
    assert_eq!(host.ask("f__read", json!({"path": "src/none.rs"})).await["error"], "not-found");
}

#[tokio::test(flavor = "multi_thread")]
async fn write_patterns_bind_the_target_of_a_link() {
    let policy = "[plugins.f.grant]\nfs_write = [\"$workspace/src/**/*.rs\"]";
    let host = host(policy).await;
    let root = host.root();
    assert_eq!(host.ask("f__write", json!({"path": "src/true.rs", "text": "new"})).await["size"], 3);
    assert_eq!(fs::read_to_string(root.join("src/deep/lib.rs")).unwrap(), "new");
    assert!(root.join("src/true.rs").is_symlink(), "the link stays");
    for path in ["src/fake.rs", "src/notes.txt", "src/new.txt", "src/main.rs/", "src/.toolbay-1-1.tmp"] {
        let said = host.ask("f__write", json!({"path": path, "text": "overwritten"})).await;
        assert!(["denied", "other"].contains(&said["error"].as_str().unwrap()), "{path}: {said}");
    }
    assert_eq!(fs::read_to_string(root.join("src/notes.txt")).unwrap(), "src/notes.txt");
    assert_eq!(host.ask("f__make_dir", json!({"path": "src/sub"})).await["error"], "denied");
    assert_eq!(host.ask("f__make_dir", json!({"path": "src/sub.rs"})).await, json!({}));
    assert_eq!(
        host.ask("f__read", json!({"path": "src/main.rs"})).await["error"],
        "denied",
        "write reach gives no read reach"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_file_can_be_granted() {
    let host =
        host("[plugins.f.grant]\nfs_read = [\"$workspace/a.txt\"]\nfs_write = [\"$workspace/a.txt\"]").await;
    assert_eq!(host.ask("f__append", json!({"path": "a.txt", "text": "!"})).await["size"], 6);
    for path in [".", ".env", "src/main.rs", "a.txt/", "a.txt/x"] {
        let said = host.ask("f__read", json!({ "path": path })).await;
        assert!(["denied", "other"].contains(&said["error"].as_str().unwrap()), "{path}: {said}");
    }
    assert_eq!(host.ask("f__write", json!({"path": "b.txt", "text": "x"})).await["error"], "denied");
}

/// The spellings of RUSTSEC-2026-0269 and similar ones: none reads a file as a folder or a folder as a file.
#[tokio::test(flavor = "multi_thread")]
async fn a_slash_at_the_end_makes_a_folder_of_no_file() {
    let host = host(POLICY).await;
    for (n, end) in ["/", "//", "///", "/.", "/./", "/.//", "/././", "/./.", "//./"].into_iter().enumerate() {
        for file in ["a.txt", "src/true.rs", "src/main.rs"] {
            let path = format!("{file}{end}");
            for tool in ["read", "write", "stat", "read_dir", "remove"] {
                let said = host.ask(&format!("f__{tool}"), json!({ "path": path, "text": "x" })).await;
                assert!(said["error"].is_string(), "{tool} {path}: {said}");
            }
        }
        assert_eq!(host.ask("f__stat", json!({"path": format!("src{end}")})).await["kind"], "directory");
        assert_eq!(host.ask("f__make_dir", json!({ "path": format!("made{n}{end}") })).await, json!({}));
        assert_eq!(host.ask("f__remove", json!({ "path": format!("made{n}{end}") })).await, json!({}));
    }
    assert_eq!(fs::read_to_string(host.root().join("a.txt")).unwrap(), "a.txt");
}

#[tokio::test(flavor = "multi_thread")]
async fn special_files_are_never_opened() {
    let host = host(POLICY).await;
    let root = host.root();
    assert!(Command::new("mkfifo").arg(root.join("fifo")).status().unwrap().success());
    let _socket = UnixListener::bind(root.join("socket")).unwrap();
    // Only root creates devices.
    let device =
        Command::new("mknod").arg(root.join("zero")).args(["c", "1", "5"]).output().unwrap().status.success();
    let mut special = vec!["fifo", "socket"];
    special.extend(device.then_some("zero"));
    for path in special {
        symlink(path, root.join(format!("to-{path}"))).unwrap();
        for path in [path.to_owned(), format!("to-{path}")] {
            for tool in ["read", "write", "read_dir"] {
                let tool = format!("f__{tool}");
                let ask = host.ask(&tool, json!({ "path": path, "text": "x" }));
                let said = tokio::time::timeout(std::time::Duration::from_secs(20), ask)
                    .await
                    .expect("never waited for");
                assert_eq!(said["error"], "other", "{tool} {path}: {said}");
            }
            assert_eq!(host.ask("f__stat", json!({ "path": path })).await["kind"], "other");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_names_are_data() {
    let host = host(POLICY).await;
    let root = host.root();
    let long = "n".repeat(255);
    for name in ["line\nbreak", " ", "-rf", "*", "[a]", "back\\slash", "a & b", "\u{202e}txt", &long] {
        let said = host.ask("f__write", json!({"path": format!("data/{name}"), "text": name})).await;
        assert_eq!(said["size"], name.len(), "{name:?}: {said}");
        assert_eq!(host.ask("f__read", json!({"path": format!("data/{name}")})).await["text"], name);
        assert!(names(&host, "data").await.contains(&name.to_owned()), "{name:?}");
    }
    let odd = root.join("data").join(OsStr::from_bytes(b"odd\xff"));
    fs::write(&odd, "odd").unwrap();
    let listed = host.ask("f__read_dir", json!({"path": "data"})).await;
    assert!(listed.to_string().contains(r#"{"kind":"other","name":"odd�"}"#), "{listed}");
    assert_eq!(host.ask("f__read", json!({"path": "data/odd\u{fffd}"})).await["error"], "not-found");

    for path in ["x".repeat(256), "d/".repeat(2500), format!("data/{}", "y".repeat(5000))] {
        let said = host.ask("f__read", json!({ "path": path })).await;
        assert_eq!(said["error"], "other", "{}", path.len());
        assert!(said.to_string().len() < 600, "{said}");
    }
    for path in
        ["", "\0", "a.txt\0", "data/\0/x", "..", "../..", "../x", "/", "/..", "~/.ssh/id", "$workspace"]
    {
        let said = host.ask("f__read", json!({ "path": path })).await;
        assert!(said["error"].is_string() && said["text"].is_null(), "{path:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_huge_folder_is_reported_and_not_listed() {
    let policy =
        "[plugins.f.grant]\nfs_read = [\"$workspace\", \"!**/*.bak\"]\n[plugins.f.limits]\ntimeout = \"60s\"";
    let host = host(policy).await;
    let data = host.root().join("data");
    // More than are listed.
    for n in 0..11_000 {
        fs::write(data.join(format!("{n}.bak")), "").unwrap();
    }
    assert_eq!(names(&host, "data").await, ["rs-link", "x.csv"], "what is hidden does not count");
    for n in 0..10_000 {
        fs::write(data.join(format!("{n}.txt")), "").unwrap();
    }
    let said = host.ask("f__read_dir", json!({"path": "data"})).await;
    assert_eq!(said, json!({"error": "too-large", "size": 10_000}));
    assert_eq!(host.ask("f__read", json!({"path": "data/x.csv"})).await["text"], "data/x.csv");
}

/// A process with write access to the workspace can replace the granted folder by a link to an excluded path.
#[tokio::test(flavor = "multi_thread")]
async fn a_granted_folder_that_is_a_symlink_is_not_opened() {
    for granted in ["$workspace/open", "$workspace/open/sub", "$workspace/src/env-link"] {
        let host = TestHost::empty(&format!(
            "[plugins.f.grant]\nfs_read = [\"{granted}\", \"!$workspace/private\", \"!**/.env\"]"
        ));
        fs::create_dir_all(host.root().join("private/sub")).unwrap();
        fs::create_dir(host.root().join("src")).unwrap();
        for secret in ["private/key", "private/sub/key", ".env"] {
            fs::write(host.root().join(secret), CANARY).unwrap();
        }
        symlink("private", host.root().join("open")).unwrap();
        symlink("../.env", host.root().join("src/env-link")).unwrap();
        let id = toolbay::PluginId::new("f").unwrap();
        let warnings = host.host.load_file(id, Path::new(guest_artifacts::CAP_FILES)).await.unwrap();
        assert!(warnings.iter().any(|w| w.message.contains("is a symbolic link")), "{granted}: {warnings:?}");
        for path in ["open/key", "open/sub/key", "src/env-link"] {
            let said = format!("{:?}", host.call("f__read", json!({ "path": path })).await);
            assert!(!said.contains(CANARY), "{granted} {path}: {said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_learns_which_line_excludes() {
    let host = host("[plugins.files.grant]\nfs_read = [\"$workspace\", \"!**/.env\", \"!**/.git\"]\nfs_write = [\"$workspace\", \"!**/.env\"]").await;
    host.load("files", guest_artifacts::PLUGIN_FILES).await;
    for (tool, args) in
        [("read_file", json!({"path": "src/.env"})), ("write_file", json!({"path": ".env", "content": "x"}))]
    {
        let delivered = host.call(&format!("files__{tool}"), args).await;
        let error = refusal(&delivered);
        assert!(error.message.contains("is excluded by the policy"), "{tool}: {}", error.message);
        assert!(!error.message.contains("!**/.env"), "{tool}: {}", error.message);
        assert!(integration_tests::hints(&delivered).contains("`!**/.env` in `fs_"), "{delivered:?}");
    }
    let listed = host.call("files__list_dir", json!({})).await;
    assert_eq!(value(&listed), "a.txt\ndata/\nopen@\nprivate/\nsrc/\n");
    let found = host.call("files__search_files", json!({"content": CANARY})).await;
    assert!(
        value(&found).contains("private/key")
            && !value(&found).contains(".env")
            && !value(&found).contains(".git")
    );
}

/// A hard link is a second name of a file, so it grants access. A write replaces the name, not the file.
#[tokio::test(flavor = "multi_thread")]
async fn a_hard_link_is_the_name_it_is_reached_by() {
    let host = host(POLICY).await;
    let root = host.root();
    fs::hard_link(root.join("private/key"), root.join("data/key")).unwrap();
    assert_eq!(host.ask("f__read", json!({"path": "data/key"})).await["text"], CANARY);
    assert_eq!(host.ask("f__write", json!({"path": "data/key", "text": "mine"})).await["size"], 4);
    assert_eq!(
        fs::read_to_string(root.join("private/key")).unwrap(),
        CANARY,
        "the other name keeps the file"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partial_folder_is_not_preopened_and_reported() {
    for (policy, preopens, told) in [
        ("fs_read = [\"$workspace\", \"!**/.env\"]", json!([]), Some("`fs_read` of `$workspace & !**/.env`")),
        ("fs_read = [\"$workspace/src/*.rs\"]", json!([]), Some("`fs_read` of `$workspace/src/*.rs`")),
        ("fs_read = [\"$workspace/a.txt\"]", json!([]), Some("`fs_read` of `$workspace/a.txt`")),
        (
            "fs_read = [\"$workspace\"]\nfs_write = [\"$workspace\", \"!**/.git\"]",
            json!(["."]),
            Some("`fs_write` of"),
        ),
        ("fs_read = [\"$workspace\"]\nfs_write = [\"$workspace/data\"]", json!([".", "data"]), None),
    ] {
        let host = TestHost::empty(&format!("[plugins.w.grant]\n{policy}"));
        for folder in ["src", "data"] {
            fs::create_dir(host.root().join(folder)).unwrap();
        }
        fs::write(host.root().join("a.txt"), "hello").unwrap();
        let id = toolbay::PluginId::new("w").unwrap();
        let warnings = host.host.load_file(id, Path::new(guest_artifacts::CAP_WASI_FS)).await.unwrap();
        let said = warnings.iter().any(|w| told.is_some_and(|told| w.message.contains(told)));
        assert_eq!((said, warnings.is_empty()), (told.is_some(), told.is_none()), "{policy}: {warnings:?}");
        assert_eq!(host.ask("w__preopens", json!({})).await["ok"], preopens, "{policy}");
        let written = host.ask("w__write", json!({"path": "a.txt", "text": "overwritten"})).await;
        assert!(written["error"].is_string(), "{policy}: {written}");
    }
}
