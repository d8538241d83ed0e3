//! A host whose plugin runs programs, and a view of these processes from outside.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use integration_tests::TestHost;
use serde_json::{Value, json};
use toolbay::HostBuilder;

/// The tools under test may run all of these programs. The sandbox confines them.
pub(crate) const POLICY: &str = r#"
    [programs.sh]
    path = "/bin/sh"
    env = ["LISTED", "ABSENT", "FIXED=yes"]
    guest_env = ["CHOSEN"]
    [programs.bash]
    path = "/bin/bash"
    [programs.netbash]
    path = "/bin/bash"
    network = true
    [programs.python]
    path = "/usr/bin/python3"
    [programs.netpython]
    path = "/usr/bin/python3"
    network = true
    [programs.echo]
    path = "/bin/echo"
    [programs.cat]
    path = "/bin/cat"
    [programs.modes]
    path = "/bin/sh"
    chmod = true
    [programs.small]
    path = "/bin/sh"
    memory = "64MiB"
    [programs.quick]
    path = "/bin/sh"
    timeout = "500ms"
    [programs.more]
    path = "/bin/sh"
    cwd = "$workspace/in"
    read = ["$workspace/extra"]
    write = ["$workspace/extra/out"]
    execute = ["$workspace/tools"]
    [plugins.p.grant]
    process = ["sh *", "bash *", "netbash *", "python *", "netpython *", "echo hello *", "cat <args>", "modes *",
               "small *", "quick *", "more *"]
    fs_read = ["$workspace/in", "$workspace/both"]
    fs_write = ["$workspace/out", "$workspace/both"]
"#;

/// Far more than any step takes on a busy machine, and far less than the sleepers sleep.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) async fn host() -> TestHost {
    with_policy(POLICY).await
}

pub(crate) async fn with_policy(policy: &str) -> TestHost {
    with_settings(policy, |builder, _| builder).await
}

pub(crate) async fn with_settings(
    policy: &str,
    settings: impl FnOnce(HostBuilder, &Path) -> HostBuilder,
) -> TestHost {
    let host = TestHost::built(policy, settings);
    let root = host.root();
    for folder in ["in/deep", "out", "both", "secret", "extra/out", "tools"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("in/a.txt"), "hello").unwrap();
    fs::write(root.join("secret/key"), "canary").unwrap();
    fs::write(root.join("extra/b.txt"), "extra").unwrap();
    script(&root.join("tools/tool"), "echo a tool");
    symlink("../secret", root.join("in/folder")).unwrap();
    symlink("../secret/key", root.join("in/link")).unwrap();
    host.load("p", guest_artifacts::CAP_PROCESS).await;
    host
}

pub(crate) fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs a line in a shell.
pub(crate) async fn sh(host: &TestHost, line: &str) -> Value {
    host.ask("p__run", json!({"args": ["-c", line]})).await
}

/// Runs a Python script and expects success.
pub(crate) async fn python(host: &TestHost, program: &str, text: &str) -> Value {
    let said = host.ask("p__run", json!({"program": program, "args": ["-I", "-c", text]})).await;
    assert_eq!(said["code"], 0, "{text}: {said}");
    said
}

/// Processes whose command line contains `mark`, without zombies.
pub(crate) fn alive(mark: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let dir = entry.path();
        let Ok(line) = fs::read_to_string(dir.join("cmdline")) else { continue };
        let state = fs::read_to_string(dir.join("stat")).unwrap_or_default();
        let dead = state.rsplit(')').next().is_none_or(|s| s.trim_start().starts_with(['Z', 'X']));
        if line.split('\0').any(|word| word == mark) && !dead {
            found.push(line.replace('\0', " "));
        }
    }
    found
}

/// Waits until no process with `mark` runs. The kernel needs a moment to end killed processes.
pub(crate) fn none_left(mark: &str) {
    let start = Instant::now();
    while !alive(mark).is_empty() {
        assert!(start.elapsed() < SOON, "left behind: {:?}", alive(mark));
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) async fn wait_for(mark: &str) {
    let start = Instant::now();
    while alive(mark).is_empty() {
        assert!(start.elapsed() < SOON, "{mark} does not start");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
