//! `vendors`: checks the tool formats that the library writes against the types that the vendors of models publish.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::cargo;
use crate::foreign::{python_with, shell};

/// The example that writes samples of every format.
const SAMPLES: &str = "vendor_samples";

/// Runs the check.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let python = install(workspace)?;
    let mut check = Command::new(python);
    check.arg(workspace.join("tests/vendors/check.py")).arg(cargo::example(workspace, SAMPLES));
    shell(check.current_dir(wasm::target_dir(workspace)))
}

/// Returns a Python with the libraries of the vendors.
pub(crate) fn install(workspace: &Path) -> Result<PathBuf> {
    python_with(&wasm::target_dir(workspace).join("venv-vendors"), &workspace.join("tests/vendors"))
}
