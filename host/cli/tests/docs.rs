//! Runs the documentation: what it shows is what happens.
//!
//! In `docs/**/*.md`, a `toml` block that starts with `version = 1` is a policy and must parse; the `console` blocks
//! after it on the page run under it; a `json FILE` block is written there. Of a `console` block, `$ toolbay …` and `$ … | toolbay …` run in a shell, and
//! the lines below must stand in the output, in their order; `…` stands for anything. `console,ignore` is not run.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed fixture is a failed test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use toolbay_core::content::ErrorCode;
use toolbay_core::fault::FaultKind;
use toolbay_core::limits::{HostLimits, Limits};
use toolbay_core::name::PluginId;
use toolbay_core::policy::Policy;
use toolbay_core::serve::ServeLimits;

/// The workspace of a page's commands, with the policy that holds until the page shows one.
const FILES: [(&str, &str); 3] = [
    ("work/notes/plan.md", "# Plan\n\n- Read the notes\n- Write the report\n"),
    ("work/out/old.txt", "old\n"),
    (
        "toolbay.toml",
        "version = 1\nworkspace = \"work\"\n[plugins.files.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace/out\"]",
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(file: impl AsRef<Path>) -> String {
    std::fs::read_to_string(root().join(file.as_ref())).unwrap()
}

/// All pages below a folder.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { pages(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .collect()
}

/// The fenced blocks of a page: what stands behind the fence, and the text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let inside = page.split("\n```").skip(1).step_by(2);
    inside.map(|block| block.split_once('\n').unwrap()).collect()
}

fn shell(dir: &Path, command: &str) -> String {
    let bin = Path::new(env!("CARGO_BIN_EXE_toolbay")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec 2>&1 < /dev/null; {command}")]).current_dir(dir).env("PATH", path);
    shell.env_remove("TOOLBAY_LOG").env("HOME", dir).env("TOOLBAY_CONFIG", "toolbay.toml");
    shell.env("TOOLBAY_PLUGINS", guest_artifacts::plugins_dir());
    shell.env("NOTES_TOKEN", "0123456789").env("TOOLBAY_STATE", dir.join(".local/state/toolbay"));
    shell.env("TOOLBAY_CACHE", root().join("target/test-cache"));
    String::from_utf8(shell.output().unwrap().stdout).unwrap()
}

/// Whether a line is as the page shows it, where `…` stands for anything.
fn matches(shown: &str, actual: &str) -> bool {
    match shown.split_once('…') {
        None => shown == actual,
        Some((head, tail)) => actual.strip_prefix(head).is_some_and(|rest| {
            rest.char_indices().any(|(at, _)| matches(tail, &rest[at..])) || matches(tail, "")
        }),
    }
}

/// Runs the commands of a block and fails where a shown line does not come.
fn run(dir: &Path, page: &Path, block: &str) {
    for part in format!("\n{block}").split("\n$ ").skip(1) {
        let (command, shown) = part.split_once('\n').unwrap_or((part, ""));
        if !command.starts_with("toolbay ") && !command.contains("| toolbay ") {
            continue;
        }
        let output = shell(dir, command);
        let mut actual = output.lines();
        for line in shown.lines().filter(|line| *line != "…") {
            let came = actual.any(|actual| matches(line, actual));
            assert!(came, "{}: `{command}` does not print\n{line}\nbut\n{output}", page.display());
        }
    }
}

#[test]
fn what_the_pages_show_happens() {
    for page in pages(&root().join("docs")) {
        let (dir, text) = (tempfile::tempdir().unwrap(), read(&page));
        for (file, content) in FILES {
            std::fs::create_dir_all(dir.path().join(file).parent().unwrap()).unwrap();
            std::fs::write(dir.path().join(file), content).unwrap();
        }
        for (info, block) in blocks(&text) {
            if info == "toml" && block.starts_with("version = 1") {
                Policy::parse(block, dir.path(), None).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
                std::fs::write(dir.path().join("toolbay.toml"), block).unwrap();
            } else if info == "console" {
                run(dir.path(), &page, block);
            } else if let Some(file) = info.strip_prefix("json ") {
                std::fs::write(dir.path().join(file), block).unwrap();
            }
        }
        for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let there = link.contains("://") || page.parent().unwrap().join(link).exists();
            assert!(there, "{}: the link `{link}` leads nowhere", page.display());
        }
    }
}

#[test]
fn the_example_for_embedders_is_the_one_that_compiles() {
    let (page, example) = (read("docs/guide/embedding.md"), read("host/runtime/examples/embed.rs"));
    assert!(blocks(&page).contains(&("rust", example.trim_end())));
}

/// Programs that are compiled, and have in them what the pages show.
const COMPILED: [&str; 6] = [
    "host/runtime/examples/embed.rs",
    "host/runtime/examples/pages.rs",
    "sdk/rust/tests/pages.rs",
    "tests/all/pages.rs",
    "plugins/kanban/tests/component.rs",
    "plugins/web/tests/component.rs",
];
/// Pages that are compiled themselves, as documentation of a crate.
const DOCTESTS: [&str; 2] = ["docs/reference/discovery.md", "docs/reference/vendors.md"];

#[test]
fn all_rust_that_is_shown_is_compiled() {
    let lines =
        |text: &str| text.lines().map(str::trim).filter(|l| !l.is_empty()).map(str::to_owned).collect();
    let compiled: Vec<Vec<String>> = COMPILED.iter().map(|file| lines(&read(file))).collect();
    let mut seen = 0;
    for page in pages(&root().join("docs")).into_iter().chain([root().join("README.md")]) {
        let text = read(&page);
        if DOCTESTS.iter().any(|compiled| page.ends_with(compiled)) {
            continue;
        }
        for (_, block) in blocks(&text).into_iter().filter(|(info, _)| info.starts_with("rust")) {
            let block: Vec<String> = lines(block);
            let there = compiled.iter().any(|file| file.windows(block.len()).any(|part| part == block));
            assert!(there, "{}: in none of {COMPILED:?}:\n{}", page.display(), block.join("\n"));
            seen += 1;
        }
    }
    assert!(seen >= 7, "{seen}");
}

/// The keys that a section of the policy may have, out of the parser's own mouth.
fn keys(section: &str) -> Vec<String> {
    let text = format!("version = 1\n{section}\nnone_such = 1");
    let error = Policy::parse(&text, Path::new("/"), None).unwrap_err().to_string();
    let (_, list) = error.split_once("expected").unwrap();
    list.split('`').skip(1).step_by(2).map(ToOwned::to_owned).collect()
}

/// The part of a page under a heading of the second level.
fn chapter<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("{heading}"));
    rest.split("\n## ").next().unwrap()
}

#[test]
fn every_key_of_the_policy_has_its_row_and_every_limit_its_default() {
    let (policy, limits_page) = (read("docs/reference/policy.md"), read("docs/reference/limits.md"));
    let mut defaults = "version = 1\n".to_owned();
    for (section, heading) in [
        ("", "The file"),
        ("[plugins.x]", "plugins.ID"),
        ("[plugins.x.grant]", "plugins.ID.grant"),
        ("[plugins.x.tools.y]", "plugins.ID.tools.TOOL"),
        ("[results]", "results"),
        ("[programs.x]", "programs.NAME"),
        ("[secrets.x]", "secrets.NAME"),
        ("[profile.x]", "profile.NAME"),
        ("[serve]", "serve"),
        ("[serve.oauth]", "serve.oauth"),
        ("[mcp.x]", "mcp.NAME"),
        ("[mcp.x.tool.y]", "mcp.NAME.tool.TOOL"),
        ("[openapi.x]\ndocument = \"a\"", "openapi.NAME"),
        ("[openapi.x]\ndocument = \"a\"\n[openapi.x.tools.y]", "openapi.NAME.tools.TOOL"),
        ("[host]", "host"),
        ("[limits]", "limits"),
        ("[serve.limits]", "serve"),
    ] {
        let limits = ["[host]", "[limits]", "[serve.limits]"].contains(&section);
        let (chapter, keys) = match section {
            "[limits]" | "[host]" => {
                let (of_limits, of_host) =
                    chapter(&limits_page, "What the policy sets").split_once("\n`[host]` bounds").unwrap();
                (if section == "[host]" { of_host } else { of_limits }, keys(section))
            }
            "[serve.limits]" => (chapter(&limits_page, heading), keys(section)),
            _ => (chapter(&policy, heading), keys(section)),
        };
        defaults += if limits { section } else { "" };
        for key in &keys {
            let row = chapter.lines().find_map(|line| line.strip_prefix(&format!("| `{key}` | ")));
            let row = row.unwrap_or_else(|| panic!("`{key}` of `{section}` has no row"));
            let default = row.strip_prefix('`').and_then(|row| row.split('`').next());
            defaults += &default.filter(|_| limits).map_or_else(String::new, |d| format!("\n{key} = {d}"));
        }
        let rows = chapter.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, keys.len(), "`{section}`: a row for a key that is not there");
        defaults.push('\n');
    }
    let policy = Policy::parse(&defaults, Path::new("/"), None).unwrap();
    assert_eq!(policy.limits(&PluginId::new("x").unwrap(), None), Limits::default());
    assert_eq!(policy.host(), &HostLimits::default());
    assert_eq!(policy.serve().limits, ServeLimits::default());
    assert!(defaults.lines().count() >= 36, "the defaults were read: {defaults}");
}

#[test]
fn every_error_and_every_flag_has_its_row() {
    let page = read("docs/reference/errors.md");
    use {ErrorCode as E, FaultKind as F};
    let codes = [E::InputInvalid, E::NotAvailable, E::ExecutionFailed, E::StaleWrite].map(E::as_str);
    let faults = [F::Trap, F::OutOfFuel, F::Deadline, F::OutOfMemory, F::OutputTooLarge, F::BadOutput];
    for name in faults.into_iter().chain([F::Cancelled, F::Busy, F::Suspended]).map(F::as_str).chain(codes) {
        assert!(page.contains(&format!("\n| `{name}` |")), "{name}");
    }
    let page = read("docs/reference/cli.md");
    for command in [
        "list",
        "prompts",
        "resources",
        "call",
        "batch",
        "output",
        "inspect",
        "explain",
        "grant",
        "revoke",
        "log",
        "check",
        "serve",
        "mcp",
        "setup",
        "kv",
        "openapi check",
        "openapi add",
        "openapi list",
        "openapi remove",
        "new",
        "build",
        "test",
        "dev",
        "pack",
        "docs",
        "completions",
    ] {
        let help = shell(&root(), &format!("toolbay {command} --help"));
        let flags = help.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 2);
        for flag in flags.filter(|flag| !["--help", "--version"].contains(flag)) {
            let heading = command.split(' ').next().unwrap();
            let shown = page.contains(&format!("\n## {heading}\n")) && page.contains(&format!("`{flag}"));
            assert!(shown, "`{command}` has `{flag}`");
        }
    }
}
