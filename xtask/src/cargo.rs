//! Commands of cargo for this machine, and what they build.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::foreign::shell;

/// Prefixes of variables that cargo sets for the running package.
const OF_THIS_PACKAGE: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// A cargo command in the workspace.
pub(crate) fn cargo(workspace: &Path) -> Command {
    let mut command = Command::new(wasm::cargo_path());
    for (key, _) in std::env::vars_os() {
        // Cargo sets these for this program. Build scripts that read them (`ring`'s does) would run again, with everything
        // that depends on them, after every build outside this program.
        if key.to_str().is_some_and(|key| OF_THIS_PACKAGE.iter().any(|start| key.starts_with(start))) {
            command.env_remove(key);
        }
    }
    // Nobody edits the checkout of a CI job, and the data of incremental builds would be a third of its target folder.
    if std::env::var_os("CI").is_some() {
        command.env("CARGO_INCREMENTAL", "0");
    }
    command.current_dir(workspace);
    command
}

/// A cargo command that compiles the packages of the workspace with Clippy, and fails if it warns. Lints and tests then need one
/// build instead of two.
pub(crate) fn linted(workspace: &Path) -> Result<Command> {
    let driver = sysroot(workspace)?.join("bin/clippy-driver");
    let mut command = cargo(workspace);
    // As `cargo clippy` passes its arguments: each is followed by this word.
    command.env("RUSTC_WORKSPACE_WRAPPER", driver).env("CLIPPY_ARGS", "-Dwarnings__CLIPPY_HACKERY__");
    Ok(command)
}

/// The folder of the toolchain.
pub(crate) fn sysroot(workspace: &Path) -> Result<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "sysroot"]).current_dir(workspace).output()?;
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

/// Builds the program for somebody who does not edit it. The package `features` gives its dependencies the features that they have in
/// tests, so that a build of the tests does not compile them again.
pub(crate) fn build_host(workspace: &Path) -> Result<()> {
    let mut build = cargo(workspace);
    shell(
        build
            .args(["build", "--package", "toolbay-cli", "--package", "features"])
            .env("CARGO_INCREMENTAL", "0"),
    )
}

/// The built program.
pub(crate) fn host(workspace: &Path) -> PathBuf {
    wasm::target_dir(workspace).join("debug").join(format!("toolbay{}", std::env::consts::EXE_SUFFIX))
}

/// The built example.
pub(crate) fn example(workspace: &Path, name: &str) -> PathBuf {
    let file = format!("debug/examples/{name}{}", std::env::consts::EXE_SUFFIX);
    wasm::target_dir(workspace).join(file)
}

/// What `cargo metadata` prints.
pub(crate) fn metadata(workspace: &Path, args: &[&str]) -> Result<Vec<u8>> {
    let mut command = cargo(workspace);
    command.args(["metadata", "--format-version", "1", "--locked"]).args(args);
    let output = command.output().context("cannot run `cargo metadata`")?;
    anyhow::ensure!(output.status.success(), "`cargo metadata`: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}
