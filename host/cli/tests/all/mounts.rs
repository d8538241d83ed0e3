//! What a mount puts into a granted folder. The host decides by the file that it opened, because a mount has no link to see.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::json;

use crate::fixture::{CommandRun, HostFolder};

const POLICY: &str =
    "workspace = \"ws\"\n[plugins.files.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace\"]\n";
/// What is mounted into the workspace: an ordinary folder, two that plugins may not reach, and one that they may only read.
const BOUND: [&str; 4] = ["plain", ".ssh", "state", "plugins"];

/// A second procfs gave read and write access to the memory of the host.
#[test]
fn a_mount_in_a_granted_folder_opens_no_protected_place() {
    let folder = HostFolder::new(POLICY).with_plugin("files", guest_artifacts::PLUGIN_FILES);
    let mut script = "set -e; mount -t proc proc ws/proc; ".to_owned();
    fs::create_dir_all(folder.path("ws/proc")).unwrap();
    for name in BOUND {
        fs::create_dir_all(folder.path(name)).unwrap();
        fs::set_permissions(folder.path(name), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(folder.path(name).join("file"), "canary").unwrap();
        fs::create_dir(folder.path("ws").join(name)).unwrap();
        script += &format!("mount --bind {name} ws/{name}; ");
    }
    let read = |path: &str| json!({"tool": "files__read_file", "args": {"path": path}});
    let write = |path: &str| json!({"tool": "files__write_file", "args": {"path": path, "content": "x"}});
    let calls = [
        read("plain/file"),
        read(".ssh/file"),
        read("state/file"),
        write(".ssh/authorized_keys"),
        write("state/new"),
        write("plugins/new.wasm"),
        read("proc/self/environ"),
        read("proc/self/maps"),
        write("proc/self/mem"),
        write("proc/self/oom_score_adj"),
    ];
    fs::write(folder.path("calls.json"), json!(calls).to_string()).unwrap();
    // A namespace of its own, in which any user may mount.
    let mut command = folder.prepare(Command::new("unshare"));
    command.args(["--user", "--map-root-user", "--mount", "--pid", "--fork", "sh", "-c"]);
    command.arg(script + "exec \"$0\" \"$@\"").arg(env!("CARGO_BIN_EXE_toolbay"));
    command.args(["batch", "calls.json", "--json"]).current_dir(folder.path(""));
    let run = CommandRun(command.output().unwrap()).says(1, &[]);
    let report = run.json();
    let results = report["results"].as_array().unwrap();
    assert!(results.len() == calls.len() && results[0].to_string().contains("canary"), "{run:?}");
    for (call, result) in calls.iter().zip(results).skip(1) {
        assert_eq!(result["error"]["subject"], "denied", "{call}: {result}");
    }
    assert_eq!(fs::read_dir(folder.path(".ssh")).unwrap().count(), 1);
}
