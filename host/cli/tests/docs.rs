//! Runs the documentation: what it shows is what happens.
//!
//! In `docs/**/*.md`, a `toml` block that starts with `version = 1` is a policy and must parse; the `console` blocks
//! after it on the page run under it. Of a `console` block, `$ toolbay …` and `$ … | toolbay …` run in a shell, and
//! the lines below must stand in the output, in their order; `…` stands for anything. `console,ignore` is not run.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed fixture is a failed test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use toolbay_core::content::ErrorCode;
use toolbay_core::fault::FaultKind;
use toolbay_core::limits::{HostLimits, Limits};
use toolbay_core::name::PluginId;
use toolbay_core::policy::Policy;

/// What a page's commands run under until it shows a policy of its own.
const POLICY: &str = "version = 1\nworkspace = \"work\"\n\n[plugins.files.grant]\nfs_read = [\"$workspace\"]\n\
                      fs_write = [\"$workspace/out\"]\n";
/// The files in the workspace of the examples.
const FILES: [(&str, &str); 2] = [
    ("work/notes/plan.md", "# Plan\n\n- Read the notes\n- Write the report\n"),
    ("work/out/old.txt", "old\n"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// Every page: its path from the root, and its text.
fn pages() -> Vec<(String, String)> {
    let (mut found, mut folders) = (Vec::new(), vec!["docs".to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if path.ends_with(".md") {
                found.push((path.clone(), read(&path)));
            }
        }
    }
    found.sort();
    found
}

/// The fenced blocks of a page: what stands behind the fence, and the text.
fn blocks(page: &str) -> Vec<(&str, String)> {
    let (mut found, mut open): (Vec<(&str, String)>, bool) = (Vec::new(), false);
    for line in page.lines() {
        match line.strip_prefix("```") {
            Some(info) if !open => found.push((info, String::new())),
            Some(_) => {}
            None if open => found.last_mut().unwrap().1 += &format!("{line}\n"),
            None => continue,
        }
        open ^= line.starts_with("```");
    }
    found
}

fn toolbay(dir: &Path, command: &str) -> String {
    let bin = Path::new(env!("CARGO_BIN_EXE_toolbay")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec 2>&1 < /dev/null; {command}")]).current_dir(dir).env("PATH", path);
    shell.env_remove("TOOLBAY_LOG").env("HOME", dir).env("TOOLBAY_CONFIG", "toolbay.toml");
    shell.env("TOOLBAY_PLUGINS", guest_artifacts::plugins_dir());
    shell.env("TOOLBAY_CACHE", root().join("target/test-cache"));
    String::from_utf8(shell.output().unwrap().stdout).unwrap()
}

/// Whether the parts of `line` between `…` stand in `actual`, from its start to its end.
fn matches(line: &str, actual: &str) -> bool {
    let (mut rest, mut parts) = (actual, line.split('…'));
    let Some(found) = rest.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    rest = found;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty() || line.ends_with('…')
}

/// Runs the commands of a block; returns what was expected and did not come.
fn run(dir: &Path, block: &str) -> Vec<String> {
    let (mut missing, mut output) = (Vec::new(), Vec::new());
    for line in block.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            let ours = command.starts_with("toolbay ") || command.contains("| toolbay ");
            let text = if ours { toolbay(dir, command) } else { "…".to_owned() };
            output = text.lines().map(ToOwned::to_owned).collect();
        } else if line != "…" && output != ["…"] {
            match output.iter().position(|actual| matches(line, actual)) {
                Some(at) => drop(output.drain(..=at)),
                None => missing.push(format!("{line}\n   of what is left: {output:#?}")),
            }
        }
    }
    missing
}

#[test]
fn what_the_pages_show_happens() {
    let mut wrong = Vec::new();
    for (page, text) in pages() {
        let dir = tempfile::tempdir().unwrap();
        for (file, content) in FILES.into_iter().chain([("toolbay.toml", POLICY)]) {
            let file = dir.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, content).unwrap();
        }
        for (info, block) in blocks(&text) {
            if info == "toml" && block.starts_with("version = 1") {
                let parsed = Policy::parse(&block, dir.path(), None);
                wrong.extend(parsed.err().map(|error| format!("{page}: {error}")));
                std::fs::write(dir.path().join("toolbay.toml"), &block).unwrap();
            } else if info == "console" {
                wrong.extend(run(dir.path(), &block).into_iter().map(|line| format!("{page}: {line}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn links_lead_somewhere() {
    for (page, text) in pages() {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let file = root().join(&page).parent().unwrap().join(link);
            assert!(link.contains("://") || file.exists(), "{page}: {link}");
        }
    }
}

#[test]
fn the_example_for_embedders_is_the_one_that_compiles() {
    let example = read("host/runtime/examples/embed.rs");
    let page = read("docs/guide/embedding.md");
    assert!(blocks(&page).iter().any(|(info, text)| *info == "rust" && *text == example));
}

/// The keys that a section of the policy may have, out of the parser's own mouth.
fn keys(section: &str) -> Vec<String> {
    let error = Policy::parse(&format!("version = 1\n{section}\nnone_such = 1"), Path::new("/"), None);
    let error = error.unwrap_err().to_string();
    let list = error.split_once("expected").unwrap().1.split('`').skip(1).step_by(2);
    list.map(ToOwned::to_owned).collect()
}

#[test]
fn every_key_of_the_policy_is_explained_and_its_default_is_true() {
    let page = read("docs/guide/operators.md");
    let row = |key: &str| page.lines().find_map(|line| line.strip_prefix(&format!("| `{key}` | ")));
    for section in ["", "[plugins.x]", "[plugins.x.grant]", "[plugins.x.tools.y]"] {
        for key in keys(section) {
            assert!(row(&key).is_some(), "`{key}` of `{section}` has no row");
        }
    }
    let mut defaults = "version = 1\n".to_owned();
    for section in ["[host]", "[limits]"] {
        defaults += &format!("{section}\n");
        for key in keys(section) {
            let row = row(&key).unwrap_or_else(|| panic!("`{key}` of `{section}` has no row"));
            if let Some((default, _)) = row.strip_prefix('`').and_then(|row| row.split_once('`')) {
                defaults += &format!("{key} = {default}\n");
            }
        }
    }
    let policy = Policy::parse(&defaults, Path::new("/"), None).unwrap();
    assert_eq!(policy.limits(&PluginId::new("x").unwrap(), None), Limits::default());
    assert_eq!(policy.host(), &HostLimits::default());
    assert!(defaults.lines().count() > 16, "the defaults were read: {defaults}");
}

#[test]
fn every_error_and_every_flag_has_its_row() {
    let errors = read("docs/reference/errors.md");
    let codes =
        [ErrorCode::InputInvalid, ErrorCode::NotAvailable, ErrorCode::ExecutionFailed, ErrorCode::StaleWrite];
    let faults = [FaultKind::Trap, FaultKind::OutOfFuel, FaultKind::Deadline, FaultKind::OutOfMemory];
    let more = [FaultKind::OutputTooLarge, FaultKind::BadOutput, FaultKind::Cancelled, FaultKind::Busy];
    let faults = faults.into_iter().chain(more).map(FaultKind::as_str);
    for name in codes.into_iter().map(ErrorCode::as_str).chain(faults) {
        assert!(errors.contains(&format!("\n| `{name}` |")), "{name}");
    }
    let (page, dir) = (read("docs/reference/cli.md"), tempfile::tempdir().unwrap());
    for command in ["list", "call", "batch", "inspect", "check", "serve", "completions"] {
        assert!(page.contains(&format!("\n## {command}\n")), "{command}");
        let help = toolbay(dir.path(), &format!("toolbay {command} --help"));
        for flag in help.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 2) {
            let flag = flag.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            assert!(
                page.contains(&format!("`{flag}")) || flag == "--help" || flag == "--version",
                "{command} {flag}"
            );
        }
    }
}
