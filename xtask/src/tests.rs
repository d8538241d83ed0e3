//! The tests of all packages: one build with lints, then one run of all binaries side by side.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::cargo::{self, linted};
use crate::foreign::shell;
use crate::{plugins, servers, tools};

/// What the build says of the binaries, below the target folder.
const BINARIES: &str = "nextest/binaries.json";
const METADATA: &str = "nextest/metadata.json";
/// The tests whose guests reach files, and try to reach others.
const FILES: &str = "test(/^capabilities::(files|wasi_files)/) | test(/^sandbox::hostile::/)";

/// Compiles and lints everything that the steps after it run.
pub(crate) fn build(workspace: &Path) -> Result<()> {
    wasm::ensure_target()?;
    let [binaries, metadata] = files(workspace);
    let folder = binaries.parent().context("a file has a folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    let mut nextest = linted(workspace)?;
    nextest.env("PATH", tools::path(workspace)?);
    // Where the binaries are, so that their run needs no cargo.
    nextest.args(["nextest", "list", "--lib", "--bins", "--tests", "--benches"]);
    nextest.args(["--list-type", "binaries-only", "--message-format", "json"]);
    let file = std::fs::File::create(&binaries)?;
    shell(nextest.stdout(file))?;
    // nextest would compile examples as tests. The libraries are for the tests of the documentation.
    shell(linted(workspace)?.args(["build", "--lib", "--examples"]))?;
    std::fs::write(metadata, cargo::metadata(workspace, &[])?)?;
    plugins::run(workspace)
}

/// Runs the tests that [`build`] built, and those of files once more with the resolution of paths that macOS has.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    servers::install(workspace)?;
    let portable = run_built(workspace, |nextest| {
        nextest.env("TOOLBAY_TEST_PORTABLE_PATHS", "1").args(["--filterset", FILES]);
    });
    run_built(workspace, |_| {}).and(portable)
}

fn run_built(workspace: &Path, settings: impl FnOnce(&mut Command)) -> Result<()> {
    let [binaries, metadata] = files(workspace);
    let mut nextest = cargo::cargo(workspace);
    nextest.env("PATH", tools::path(workspace)?);
    nextest.args(["nextest", "run", "--no-fail-fast", "--binaries-metadata"]).arg(binaries);
    settings(&mut nextest);
    shell(nextest.arg("--cargo-metadata").arg(metadata))
}

fn files(workspace: &Path) -> [PathBuf; 2] {
    [BINARIES, METADATA].map(|file| wasm::target_dir(workspace).join(file))
}

/// Feeds parsers of untrusted bytes with nearly valid input.
pub(crate) fn fuzz(workspace: &Path, args: &[String]) -> Result<()> {
    // Without `--package`: alone it would be built with different features, which takes minutes.
    shell(linted(workspace)?.args(["run", "--quiet", "--bin", "fuzzer", "--"]).args(args))
}
