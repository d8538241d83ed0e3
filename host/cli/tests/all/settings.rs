//! The settings of a plugin on the command line.

use std::path::Path;
use std::process::Command;

use crate::fixture::{HostFolder, toolbay};

/// Runs a command under a policy. Returns whether it succeeded, and its output.
fn run(policy: &str, args: &[&str]) -> (bool, String) {
    let folder = HostFolder::new(&format!("workspace = \".\"\n{policy}"));
    let run = folder.with_plugin("kanban", guest_artifacts::PLUGIN_KANBAN).run(args);
    (run.0.status.success(), run.out() + &run.err())
}

#[test]
fn settings_are_shown_before_they_are_set() {
    let (good, inspected) = run("", &["inspect", "kanban"]);
    assert!(good && inspected.contains("[plugins.kanban.config]"), "{inspected}");
    assert!(inspected.contains("columns") && inspected.contains("`done` always exists"), "{inspected}");
    let (good, page) = run("", &["docs", "kanban"]);
    assert!(good && page.starts_with("# Settings") && page.contains("| `columns` |"), "{page}");
    let (_, explained) = run("", &["explain", "kanban__kanban_list"]);
    assert!(explained.contains("setting\t") && explained.contains("not set"), "{explained}");
}

#[test]
fn explain_shows_a_setting_with_its_line() {
    let (_, explained) =
        run("[plugins.kanban]\nconfig = { columns = [\"now\"] }", &["explain", "kanban__kanban_list"]);
    assert!(explained.contains("[\"now\"]\tline 4"), "{explained}");
}

#[test]
fn an_invalid_setting_is_refused_with_key_and_line() {
    for (policy, parts) in [
        (
            "[plugins.kanban.config]\ncolums = [\"now\"]",
            ["`colums`", "line 4 of the policy", "the settings are: `columns`"],
        ),
        ("[plugins.kanban.config]\n\ncolumns = \"now\"", ["`columns`", "line 5 of the policy", "array"]),
    ] {
        let (good, said) = run(policy, &["check", "kanban"]);
        assert!(!good, "{said}");
        for part in parts {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}

#[test]
fn a_policy_that_is_not_a_regular_file_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for file in [fifo.as_path(), dir.path(), Path::new("/dev/null")] {
        let output = toolbay(dir.path())
            .args(["list", "--state-dir", "state", "--plugins", "."])
            .arg("--config")
            .arg(file)
            .current_dir(dir.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("it is not a regular file"), "{said}");
    }
}

#[test]
fn a_policy_that_gives_one_plugin_most_calls_gets_a_warning() {
    let (good, said) = run("[plugins.kanban.limits]\nconcurrency = 64", &["list"]);
    assert!(
        good && said.contains("warning: ")
            && said.contains("toolbay.toml:4:15: ")
            && said.contains("[plugins.kanban.limits]"),
        "{said}"
    );
    assert!(
        said.contains("may run 64 of the 64 parallel calls") && said.contains("write `concurrency = 16`"),
        "{said}"
    );
    let (good, said) = run("", &["list"]);
    assert!(good && !said.contains("concurrency"), "{said}");
}
