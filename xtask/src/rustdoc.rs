//! The lints of the documentation, with what the tests of the documentation compiled.
//!
//! `cargo doc` needs the metadata of all dependencies, which is a build of its own. `cargo test --doc` calls rustdoc with what
//! the tests built, so this program takes the place of rustdoc there and runs it a second time, for its lints.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitStatus};

use anyhow::{Context as _, Result};

use crate::cargo::linted;
use crate::foreign::shell;

/// Set where this program takes the place of rustdoc: the folder for its pages.
const PAGES: &str = "TOOLBAY_XTASK_RUSTDOC";
/// Options for tests only, which have a value.
const FOR_TESTS: [&str; 4] = ["--test-args", "--test-run-directory", "--test-runtool", "--test-runtool-arg"];

/// Runs the tests of the documentation, and its lints.
pub(crate) fn test(workspace: &Path) -> Result<()> {
    let mut cargo = linted(workspace)?;
    cargo.args(["test", "--doc", "--quiet"]);
    cargo.env("RUSTDOC", std::env::current_exe()?);
    shell(cargo.env(PAGES, wasm::target_dir(workspace).join("steps/doc")))
}

/// Runs rustdoc in place of this program, if [`test()`] started it.
pub(crate) fn in_place() -> Option<Result<ExitStatus>> {
    let pages = std::env::var_os(PAGES)?;
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    Some(run(&args, Path::new(&pages)))
}

fn run(args: &[OsString], pages: &Path) -> Result<ExitStatus> {
    let rustdoc = || {
        let mut command = Command::new("rustdoc");
        command.env_remove(PAGES);
        command
    };
    if args.iter().any(|arg| arg == "--test") {
        let lints =
            rustdoc().args(without_tests(args)).arg("--out-dir").arg(pages).arg("-Dwarnings").status();
        let lints = lints.context("cannot run `rustdoc`")?;
        if !lints.success() {
            return Ok(lints);
        }
    }
    rustdoc().args(args).status().context("cannot run `rustdoc`")
}

/// The arguments that compile the same crate, without its tests.
fn without_tests(args: &[OsString]) -> Vec<&OsString> {
    let mut kept = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let name = arg.to_string_lossy();
        if FOR_TESTS.contains(&&*name) {
            args.next();
        } else if name != "--test" && !FOR_TESTS.iter().any(|option| name.starts_with(&format!("{option}=")))
        {
            kept.push(arg);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_for_tests_are_left_out() {
        let args =
            ["--crate-name", "a", "--test", "a.rs", "--test-run-directory", "/b", "--test-args=c", "-L", "d"];
        let args = args.map(OsString::from);
        assert_eq!(without_tests(&args), ["--crate-name", "a", "a.rs", "-L", "d"]);
    }
}
