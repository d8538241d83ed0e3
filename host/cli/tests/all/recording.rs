//! Compares the terminal recording of the README with real output. `TOOLBAY_WRITE_DOCS=1` rewrites it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::{compile_plugins, isolated};
use crate::pty;

/// The width of the terminal.
const COLUMNS: u16 = 120;
const START: &str = "```console,ignore\n";
const END: &str = "```\n";

/// Runs a command line in `workspace`, and returns what a terminal would show.
fn shell(workspace: &Path, line: &str) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_toolbay")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut shell = isolated(Command::new("sh"), workspace);
    shell.args(["-c", line]).current_dir(workspace).env("PATH", path).env("NO_COLOR", "1");
    shell.env("HOME", workspace).env("TOOLBAY_CONFIG", "toolbay.toml");
    shell.env("TOOLBAY_PLUGINS", guest_artifacts::plugins_dir());
    shell.env("TOOLBAY_STATE", workspace.join(".local/state/toolbay"));
    mask_digest(&pty::run(shell, COLUMNS, &[]).1)
}

/// Writes `…` for a plugin's digest, which every build of the plugin changes.
fn mask_digest(text: &str) -> String {
    let Some((before, after)) = text.split_once("(sha256 ") else { return text.to_owned() };
    format!("{before}(sha256 …){}", after.split_once(')').unwrap().1)
}

#[test]
fn the_readme_recording_matches_real_output() {
    let readme: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let page = std::fs::read_to_string(&readme).unwrap();
    let (before, rest) = page.split_once(START).unwrap();
    let (recording, after) = rest.split_once(END).unwrap();

    let workspace = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(workspace.path().join("work/notes")).unwrap();
    let plan = "# Plan\n\n- Read the notes\n- Write the report\n";
    std::fs::write(workspace.path().join("work/notes/plan.md"), plan).unwrap();
    std::fs::write(workspace.path().join("toolbay.toml"), "version = 1\nworkspace = \"work\"\n").unwrap();
    // Progress is not part of the recording.
    compile_plugins();

    let mut recorded = String::new();
    for line in recording.lines().filter_map(|line| line.strip_prefix("$ ")) {
        let output = shell(workspace.path(), line);
        recorded += &format!("$ {line}\n{}\n", output.trim_end());
    }
    if std::env::var_os("TOOLBAY_WRITE_DOCS").is_some() {
        std::fs::write(&readme, format!("{before}{START}{recorded}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(recording, recorded, "run this test with `TOOLBAY_WRITE_DOCS=1` to rewrite the recording");
}
