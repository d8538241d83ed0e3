//! `tutorials`: types the commands of the tutorial pages in an empty home and compares the output.
//!
//! Every `console` block of a page is typed, including those marked `ignore`, apart from blocks with a `…` in a command. The
//! lines below a command must appear in the output in order; `…` matches anything. A block of another language below a line
//! that ends in a file's name (`` `src/lib.rs`: ``) is written to that file first. One shell runs a page, with only the
//! variables of a new home and of the registries. A command may fail only where the page shows the error of `toolbay`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

use crate::folder::{emptied, read_tutorial};
use crate::foreign::NodeRuntime;
use crate::{cargo, languages};

/// The pages, below `docs/tutorials`.
const PAGES: [&str; 4] = ["first-plugin", "javascript", "python", "c"];
/// Variables of the machine's folders, below the home of who runs the tests.
const MACHINE: [(&str, &str); 4] = [
    ("CARGO_HOME", ".cargo"),
    ("RUSTUP_HOME", ".rustup"),
    ("PIP_CACHE_DIR", ".cache/pip"),
    ("npm_config_cache", ".npm"),
];
/// Variables of the folders of what was compiled, below the target folder. Other tests of new plugins fill them, too.
const COMPILED: [(&str, &str); 3] = [
    ("CARGO_BUILD_BUILD_DIR", "test-author"),
    ("TOOLBAY_CACHE", "test-cache"),
    ("ZIG_GLOBAL_CACHE_DIR", "languages/zig"),
];
/// Encloses the number of a command in the output.
const MARK: char = '\u{1e}';
/// Prefixes of variables that configure package registries.
const OF_REGISTRIES: [&str; 8] = [
    "CARGO_",
    "RUSTUP_",
    "PIP_",
    "NPM_CONFIG_",
    "npm_config_",
    // Certificates for the registries.
    "SSL_",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
];

/// One step of a page.
#[derive(Debug, PartialEq, Eq)]
enum PageStep<'p> {
    /// Types a command, and compares its lines.
    Type(&'p str, Vec<&'p str>),
    /// Writes a file.
    Write(&'p str, &'p str),
}

/// Types all pages.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let (_, node) = languages::toolchains(workspace)?;
    let mut failed = Vec::new();
    for page in PAGES {
        let text = read_tutorial(workspace, page)?;
        let (start, steps) = (Instant::now(), steps(&text));
        let typed = type_page(workspace, page, &steps, &node, &[]);
        let seconds = start.elapsed().as_secs_f32();
        match typed {
            Ok(count) => println!("{page}: {count} commands match, {seconds:.1} s"),
            Err(error) => {
                println!("{page}: FAILED after {seconds:.1} s: {error:#}");
                failed.push(page);
            }
        }
    }
    ensure!(failed.is_empty(), "pages that do not match: {}", failed.join(", "));
    Ok(())
}

/// Types the page about registries, with the address of a running one.
pub(crate) fn type_registry_page(workspace: &Path, node: &NodeRuntime, address: &str) -> Result<usize> {
    const PAGE: &str = "registry";
    let text = read_tutorial(workspace, PAGE)?.replace("localhost:5000", address);
    type_page(workspace, PAGE, &steps(&text), node, &[])
}

/// Types a page about the Python library, which is in a folder, so that pip has nothing to install.
pub(crate) fn type_library_page(
    workspace: &Path,
    page: &str,
    node: &NodeRuntime,
    library: &Path,
) -> Result<usize> {
    let variables = [("PYTHONPATH", library.to_path_buf()), ("TOOLBAY_BIN", cargo::host(workspace))];
    let text = read_tutorial(workspace, page)?;
    type_page(workspace, page, &steps(&text), node, &variables)
}

/// Types a page in a new home and returns the number of commands. The shell also has these variables.
fn type_page(
    workspace: &Path,
    page: &str,
    steps: &[PageStep<'_>],
    node: &NodeRuntime,
    variables: &[(&str, PathBuf)],
) -> Result<usize> {
    let target = wasm::target_dir(workspace);
    // Paths of authors may have spaces and letters of all languages.
    let home = target.join("tutorials/größe 1").join(page);
    emptied(&home)?;
    fs::create_dir(home.join("bin"))?;
    shims(&home.join("bin"), workspace, node)?;
    let script = home.join("bin/typed.sh");
    fs::write(&script, shell_script(steps))?;
    let mut shell = Command::new("sh");
    shell.arg(&script).env_clear().current_dir(&home).stdin(Stdio::null());
    let own = std::env::vars_os().filter(|(name, _)| {
        let name = name.to_string_lossy();
        OF_REGISTRIES.iter().any(|start| name.starts_with(start)) && !is_of_this_build(&name)
    });
    let system_home = std::env::home_dir().unwrap_or_default();
    // The toolchains, what they fetched and what was compiled are the machine's. The rest of the home is empty.
    for (name, folder) in MACHINE {
        shell.env(name, system_home.join(folder));
    }
    for (name, folder) in COMPILED {
        shell.env(name, target.join(folder));
    }
    shell.envs(own).env("HOME", &home).env("LANG", "C.UTF-8");
    for (name, value) in variables {
        shell.env(name, value);
    }
    let cargo = std::env::var_os("CARGO_HOME").map_or_else(|| system_home.join(".cargo"), PathBuf::from);
    let mut path = vec![home.join("bin"), node.bin(), cargo.join("bin")];
    path.extend(["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from));
    let output = shell.env("PATH", std::env::join_paths(path)?).output().context("cannot run `sh`")?;
    let count = compare(steps, &String::from_utf8_lossy(&output.stdout))?;
    // Toolchains take hundreds of megabytes. A page that fails keeps its home.
    fs::remove_dir_all(&home)?;
    Ok(count)
}

/// Whether cargo set a variable for this task, rather than the user for all.
fn is_of_this_build(name: &str) -> bool {
    const STARTS: [&str; 4] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_TARGET_"];
    STARTS.iter().any(|start| name.starts_with(start)) || name == "RUSTUP_TOOLCHAIN"
}

/// The commands beside the system's: the built `toolbay`, and npm, which comes with Node.
fn shims(folder: &Path, workspace: &Path, node: &NodeRuntime) -> Result<()> {
    let npm = node.bin().join("../lib/node_modules/npm/bin/npm-cli.js");
    let node = node.bin().join("node");
    let quoted = |path: &Path| format!("'{}'", path.display());
    let programs = [
        ("toolbay", quoted(&cargo::host(workspace))),
        ("npm", format!("{} {}", quoted(&node), quoted(&npm))),
    ];
    for (name, program) in programs {
        let file = folder.join(name);
        fs::write(&file, format!("#!/bin/sh\nexec {program} \"$@\"\n"))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// The steps of a page in order.
fn steps(page: &str) -> Vec<PageStep<'_>> {
    let mut steps = Vec::new();
    let mut rest = page;
    while let Some((text, after)) = rest.split_once("\n```") {
        let before = text.trim_end().lines().next_back().unwrap_or_default();
        let Some((fence, inside)) = after.split_once('\n') else { break };
        let Some((block, after)) = inside.split_once("\n```") else { break };
        // The closing fence.
        rest = after.split_once('\n').map_or("", |(_, rest)| rest);
        if fence.split(',').next() == Some("console") {
            steps.extend(commands(block));
        } else if let Some(file) = named(before) {
            steps.push(PageStep::Write(file, block));
        }
    }
    steps
}

/// The file that a line ends in: `` … `src/lib.rs`: ``.
fn named(line: &str) -> Option<&str> {
    let file = line.strip_suffix("`:")?.rsplit('`').next()?;
    (file.contains('.') && !file.contains(' ')).then_some(file)
}

/// The files that a page shows, with their texts, for a task that builds what the page builds.
pub(crate) fn files(page: &str) -> Vec<(&str, &str)> {
    let file = |step| match step {
        PageStep::Write(file, text) => Some((file, text)),
        PageStep::Type(..) => None,
    };
    steps(page).into_iter().filter_map(file).collect()
}

fn commands(block: &str) -> Vec<PageStep<'_>> {
    let mut steps: Vec<PageStep<'_>> = Vec::new();
    for line in block.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => steps.push(PageStep::Type(command, Vec::new())),
            None => {
                if let Some(PageStep::Type(_, shown)) = steps.last_mut() {
                    shown.push(line);
                }
            }
        }
    }
    let is_typed = |step: &PageStep<'_>| !matches!(step, PageStep::Type(command, _) if command.contains('…'));
    if steps.iter().all(is_typed) { steps } else { Vec::new() }
}

/// One shell script, whose output contains the output and the status of each command.
fn shell_script(steps: &[PageStep<'_>]) -> String {
    let mut script = String::from("exec 2>&1\n");
    for (number, step) in steps.iter().enumerate() {
        match step {
            PageStep::Type(command, _) => {
                script.push_str(&format!(
                    "printf '\\036%s\\036' {number}\n{command}\nprintf '\\036%s\\036' $?\n"
                ));
            }
            PageStep::Write(file, text) => {
                script.push_str(&format!("cat > '{file}' <<'END OF THE FILE'\n{text}\nEND OF THE FILE\n"));
            }
        }
    }
    script
}

fn compare(steps: &[PageStep<'_>], output: &str) -> Result<usize> {
    let mut parts = output.split(MARK).skip(1);
    let mut count = 0;
    for (number, step) in steps.iter().enumerate() {
        let PageStep::Type(command, shown) = step else { continue };
        let (Some(came), Some(printed), Some(status)) = (parts.next(), parts.next(), parts.next()) else {
            bail!("`{command}` was not typed, or did not end: {output}");
        };
        ensure!(came == number.to_string(), "`{command}` was not typed");
        // Text after the status belongs to no command.
        parts.next();
        let complains = shown.iter().any(|line| line.starts_with("error: "));
        ensure!(status == "0" || complains, "`{command}` ended with {status}:\n{printed}");
        let mut lines = printed.lines();
        for line in shown.iter().filter(|line| **line != "…" && !line.is_empty()) {
            let is_there = lines.any(|printed| matches(line, printed));
            ensure!(is_there, "`{command}` does not print\n{line}\nbut\n{printed}");
        }
        count += 1;
    }
    ensure!(count > 0, "the page shows no command");
    Ok(count)
}

/// Whether a line matches the page, where `…` matches anything.
fn matches(shown: &str, printed: &str) -> bool {
    match shown.split_once('…') {
        None => shown == printed,
        Some((head, tail)) => printed.strip_prefix(head).is_some_and(|rest| {
            rest.char_indices().any(|(at, _)| rest.get(at..).is_some_and(|rest| matches(tail, rest)))
                || matches(tail, "")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A page\n\n```console,ignore\n$ git clone … x\n$ cd x\n```\n\n```console,ignore\n$ echo one\none\n```\n\nNow `a.txt`:\n\n```text\nthe text\n```\n\n\
                        ```text\nno file\n```\n\n```console\n$ cat a.txt\nthe …\n$ sh -c 'echo error: no; exit 1'\nerror: …\n```\n";

    fn typed(page: &str) -> Result<usize> {
        let dir = std::env::temp_dir().join(format!("xtask-tutorials-{}-{}", std::process::id(), page.len()));
        fs::create_dir_all(&dir)?;
        let steps = steps(page);
        let script = Command::new("sh").args(["-c", &shell_script(&steps)]).current_dir(&dir).output()?;
        fs::remove_dir_all(&dir)?;
        compare(&steps, &String::from_utf8_lossy(&script.stdout))
    }

    #[test]
    fn what_is_printed_is_typed_and_compared() {
        let steps = steps(PAGE);
        assert_eq!(steps.first(), Some(&PageStep::Type("echo one", vec!["one"])));
        assert_eq!(steps.get(1), Some(&PageStep::Write("a.txt", "the text")));
        assert_eq!(steps.len(), 4);
        assert_eq!(typed(PAGE).unwrap(), 3);
    }

    #[test]
    fn another_line_a_failure_and_an_end_in_between_are_told() {
        let problem = |page: &str| typed(page).unwrap_err().to_string();
        let other = problem("\n```console\n$ echo one\ntwo\n```\n");
        assert!(other.contains("does not print\ntwo\nbut\none"), "{other}");
        assert!(problem("\n```console\n$ false\n```\n").contains("`false` ended with 1"));
        assert!(problem("\n```console\n$ exit 3\n$ echo\n```\n").contains("did not end"));
        assert!(problem("no block\n").contains("shows no command"));
    }
}
