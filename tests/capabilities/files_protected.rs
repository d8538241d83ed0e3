//! `files`: protected paths, which no policy opens.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use integration_tests::{TestHost, in_a_process, outcome, refusal};
use serde_json::json;
use toolbay::policy::capability::protected_paths::Protection;
use toolbay::{HostBuilder, PluginId};

/// A home folder outside the workspace, with a key in it.
struct HomeFolder(tempfile::TempDir);

impl HomeFolder {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in [".ssh", "docs", ".config/toolbay"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        for file in [".ssh/id", "docs/a.txt", ".bashrc", ".config/toolbay/toolbay.toml"] {
            fs::write(dir.path().join(file), if file.contains("ssh") { "canary" } else { "plain" }).unwrap();
        }
        symlink("../.ssh/id", dir.path().join("docs/key")).unwrap();
        symlink(".ssh", dir.path().join("keys")).unwrap();
        Self(dir)
    }

    fn path(&self) -> PathBuf {
        self.0.path().canonicalize().unwrap()
    }

    fn show(&self, path: &str) -> String {
        self.path().join(path).display().to_string()
    }

    fn guard(&self, builder: HostBuilder) -> HostBuilder {
        let builder = builder.protect_path(self.path().join(".ssh"), Protection::ReadAndWrite);
        let builder = builder.protect_path(self.path().join(".bashrc"), Protection::WriteOnly);
        builder.protect_path(self.path().join(".config/toolbay"), Protection::WriteOnly)
    }

    async fn host(&self, policy: &str, more: impl FnOnce(HostBuilder, &Path) -> HostBuilder) -> TestHost {
        let host = TestHost::built(policy, |builder, root| more(self.guard(builder), root));
        host.load("f", guest_artifacts::CAP_FILES).await;
        host
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_inside_a_protected_path_is_refused_and_reported() {
    let home = HomeFolder::new();
    let link = home.path().join("link");
    symlink(home.path().join(".ssh"), &link).unwrap();
    for granted in [
        home.show(".ssh"),
        home.show(".ssh/id"),
        home.show(".ssh/*.pub"),
        home.show("docs/../.ssh"),
        home.show("keys"),
        home.show("keys/id"),
        link.display().to_string(),
        "/proc".to_owned(),
        "/proc/self/fd".to_owned(),
        "/sys/kernel".to_owned(),
        "/dev".to_owned(),
        "/dev/null".to_owned(),
        "/etc/shadow".to_owned(),
        "/etc/ssh".to_owned(),
        "/boot".to_owned(),
    ] {
        if !Path::new(granted.trim_end_matches("/*.pub")).exists() {
            continue;
        }
        for key in ["fs_read", "fs_write"] {
            let host = home.host(&format!("[plugins.f.grant]\n{key} = [\"{granted}\"]"), |b, _| b).await;
            let tool = if key == "fs_read" { "f__must_read" } else { "f__must_write" };
            let delivered = host.call(tool, json!({ "path": granted })).await;
            assert_eq!(outcome(&delivered), "not_available", "{key} {granted}: {delivered:?}");
            assert!(!refusal(&delivered).message.contains("--allow-protected-path"), "{delivered:?}");
            let hints = integration_tests::hints(&delivered);
            assert!(hints.contains("--allow-protected-path") && hints.contains(key), "{granted}: {hints}");
            // A tool for which the capability is optional runs without it.
            let said = host.call("f__read", json!({ "path": granted })).await;
            assert_ne!(outcome(&said), "ok", "{granted}: {said:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_that_links_into_a_protected_path_is_refused() {
    let home = HomeFolder::new();
    let link = home.path().join("project");
    symlink(".ssh", &link).unwrap();
    let policy = "[plugins.f.grant]\nfs_read = [\"$workspace\"]";
    let builder = home.guard(toolbay::Host::builder(integration_tests::policy(policy, &link)));
    let host = builder.path_resolution(integration_tests::path_resolution()).build().unwrap();
    let id = PluginId::new("f").unwrap();
    host.load_file(id, Path::new(guest_artifacts::CAP_FILES)).await.unwrap();
    let view = host.view(toolbay::Filter::default());
    let call = toolbay::ToolCall::new("1", "f__must_read", r#"{"path": "id"}"#);
    let results = host.call_all(&view, vec![call], toolbay::TurnContext::default()).await;
    assert_eq!(outcome(&results[0]), "not_available", "{results:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_around_a_protected_path_excludes_it() {
    let home = HomeFolder::new();
    let all = home.show("");
    let host = home
        .host(&format!("[plugins.f.grant]\nfs_read = [\"{all}\"]\nfs_write = [\"{all}\"]"), |b, _| b)
        .await;
    assert_eq!(host.ask("f__read", json!({"path": home.show("docs/a.txt")})).await["text"], "plain");
    assert_eq!(host.ask("f__read", json!({"path": home.show(".bashrc")})).await["text"], "plain");
    let listed = host.ask("f__read_dir", json!({ "path": all })).await.to_string();
    assert!(listed.contains(".bashrc") && listed.contains("keys") && !listed.contains(".ssh"), "{listed}");
    for (tool, path) in [
        ("read", ".ssh/id"),
        ("read", "docs/../.ssh/id"),
        ("read", "docs/key"),
        ("read", "keys/id"),
        ("read_dir", "keys"),
        ("read_dir", ".ssh"),
        ("stat", ".ssh/id"),
        ("stat", ".ssh/none"),
        ("write", ".ssh/authorized_keys"),
        ("write", "keys/authorized_keys"),
        ("remove", ".ssh/id"),
        ("write", ".bashrc"),
        ("write", ".config/toolbay/toolbay.toml"),
        ("write", ".config/toolbay/plugins/x.wasm"),
        ("make_dir", ".config/toolbay/plugins"),
        ("remove", ".config/toolbay/toolbay.toml"),
    ] {
        let said = host.ask(&format!("f__{tool}"), json!({ "path": home.show(path), "text": "x" })).await;
        assert_eq!(said["error"], "denied", "{tool} {path}: {said}");
        assert!(!said.to_string().contains("canary"), "{said}");
    }
    let said = host.call("f__read", json!({"path": home.show(".ssh/id")})).await;
    assert!(integration_tests::hints(&said).contains("--allow-protected-path"), "{said:?}");
    assert_eq!(fs::read_to_string(home.path().join(".bashrc")).unwrap(), "plain");
}

/// A home folder that is a link, and a protected path that does not exist yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_protected_path_is_recognised_behind_symlinks() {
    let home = HomeFolder::new();
    let alias = home.path().with_extension("alias");
    symlink(home.path(), &alias).unwrap();
    let all = home.show("");
    let policy = format!("[plugins.f.grant]\nfs_read = [\"{all}\"]\nfs_write = [\"{all}\"]");
    let host = TestHost::built(&policy, |builder, _| {
        let builder = builder.protect_path(alias.join(".ssh"), Protection::ReadAndWrite);
        builder.protect_path(alias.join(".config/new/place"), Protection::ReadAndWrite)
    });
    host.load("f", guest_artifacts::CAP_FILES).await;
    assert_eq!(host.ask("f__read", json!({"path": home.show(".ssh/id")})).await["error"], "denied");
    assert_eq!(host.ask("f__make_dir", json!({"path": home.show(".config/new")})).await, json!({}));
    assert_eq!(
        host.ask("f__make_dir", json!({"path": home.show(".config/new/place")})).await["error"],
        "denied"
    );
    fs::remove_file(alias).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_of_everything_has_no_proc() {
    let home = HomeFolder::new();
    let host = home.host("[plugins.f.grant]\nfs_read = [\"**\"]", |b, _| b).await;
    let listed = host.ask("f__read_dir", json!({"path": "/"})).await.to_string();
    for name in ["\"proc\"", "\"sys\"", "\"boot\""] {
        assert!(!listed.contains(name), "{listed}");
    }
    for path in [
        "/proc/self/environ",
        concat!("/proc/self/root", "/etc/hosts"),
        "/proc/self/fd/0",
        "/proc/1/cmdline",
        "/dev/zero",
        "/dev/../proc/version",
        "/sys/kernel",
        "/etc/shadow",
        "/etc/passwd",
    ] {
        assert_eq!(host.ask("f__read", json!({ "path": path })).await["error"], "denied", "{path}");
    }
    assert!(host.ask("f__read_dir", json!({"path": "/etc"})).await["entries"].is_array());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_opens_a_place_on_the_command_line_only() {
    let home = HomeFolder::new();
    let key = home.show(".ssh/id");
    let policy = format!("[plugins.f.grant]\nfs_read = [\"{key}\"]");
    let host =
        home.host(&policy, |builder, _| builder.allow_protected_path(home.path().join(".ssh/id"))).await;
    assert_eq!(host.ask("f__read", json!({ "path": key })).await["text"], "canary");
    // Allowing one file opens no other.
    let policy = format!("[plugins.f.grant]\nfs_read = [\"{}\"]", home.show(".ssh"));
    let host =
        home.host(&policy, |builder, _| builder.allow_protected_path(home.path().join(".ssh/id"))).await;
    assert_eq!(outcome(&host.call("f__must_read", json!({ "path": key })).await), "not_available");
    let host = home.host(&policy, |builder, _| builder.allow_protected_path(home.path().join(".ssh"))).await;
    assert_eq!(host.ask("f__read", json!({ "path": key })).await["text"], "canary");
    // Allowing the path is only a permission. Without a grant, nothing is reachable.
    let host = home.host("", |builder, _| builder.allow_protected_path(home.path())).await;
    assert_eq!(host.ask("f__read", json!({ "path": key })).await["error"], "denied");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_the_host_are_protected() {
    let policy = "[plugins.f.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace\"]";
    let host = TestHost::built(policy, |builder, root| {
        fs::create_dir(root.join("plugins")).unwrap();
        fs::create_dir(root.join("state")).unwrap();
        fs::write(root.join("state/kv"), "canary").unwrap();
        builder.state_dir(root.join("state")).cache_dir(root.join("cache"))
    });
    let root = host.root();
    fs::copy(guest_artifacts::CAP_FILES, root.join("plugins/f.wasm")).unwrap();
    let report = host.host.load_dir(&root.join("plugins")).await.unwrap();
    assert_eq!(report.loaded, [PluginId::new("f").unwrap()], "{report:?}");
    for (tool, path) in [
        ("write", "plugins/f.wasm"),
        ("write", "plugins/new.wasm"),
        ("remove", "plugins/f.wasm"),
        ("write", "cache/x"),
        ("make_dir", "cache/x"),
        ("write", "state/kv"),
        ("read", "state/kv"),
        ("read_dir", "state"),
    ] {
        let said = host.ask(&format!("f__{tool}"), json!({ "path": path, "text": "x" })).await;
        assert_eq!(said["error"], "denied", "{tool} {path}: {said}");
    }
    assert_eq!(host.ask("f__stat", json!({"path": "plugins/f.wasm"})).await["kind"], "file");
    assert_eq!(host.ask("f__write", json!({"path": "free", "text": "x"})).await["size"], 1);
}

/// The host has a cache of its own, but other programs run the code in the shared one.
#[tokio::test(flavor = "multi_thread")]
async fn the_cache_that_programs_share_is_protected() {
    let name = "capabilities::files_protected::the_cache_that_programs_share_is_protected";
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("toolbay")).unwrap();
    let variables = format!("unset TOOLBAY_CACHE; export XDG_CACHE_HOME='{}'", folder.path().display());
    if in_a_process(name, &variables) {
        return;
    }
    let folder = PathBuf::from(std::env::var_os("XDG_CACHE_HOME").unwrap()).canonicalize().unwrap();
    let folder_rule = folder.display();
    let policy = format!("[plugins.f.grant]\nfs_read = [\"{folder_rule}\"]\nfs_write = [\"{folder_rule}\"]");
    let host = TestHost::empty(&policy);
    host.load("f", guest_artifacts::CAP_FILES).await;
    let write = |name: &str| json!({"path": folder.join(name), "text": "x"});
    assert_eq!(host.ask("f__write", write("toolbay/x")).await["error"], "denied");
    assert_eq!(host.ask("f__write", write("free")).await["size"], 1);
}
