//! `python`: tests the Python package with the module that the build made, checks its types, and runs the agents of the
//! documentation with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::folder::emptied;
use crate::foreign::{python_with, shell};
use crate::{agents, cargo, plugins};

/// Runs the tests and mypy.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let tests = workspace.join("host/python/tests");
    let target = wasm::target_dir(workspace);
    let python = python_with(&target.join("venv-python"), &tests)?;
    let folder = target.join("python");
    let package = package(workspace, &target.join("debug/libtoolbay_python.so"), &folder)?;
    let run = || {
        let mut command = Command::new(&python);
        command.env("PYTHONPATH", &folder).env("MYPYPATH", &folder).env("PYTHONDONTWRITEBYTECODE", "1");
        command
            .env("TOOLBAY_BIN", cargo::host(workspace))
            .env("TOOLBAY_TEST_PLUGINS", plugins::folder(workspace));
        command.env("TOOLBAY_TEST_PAGE", workspace.join("docs/reference/python-library.md"));
        command.env("TOOLBAY_TEST_CACHE", target.join("python-cache")).current_dir(&target);
        command
    };
    let tests_of = ["-m", "unittest", "discover", "--quiet", "--start-directory"];
    shell(run().args(["-W", "error"]).args(tests_of).arg(&tests).arg("--top-level-directory").arg(&tests))?;
    let mypy = ["-m", "mypy", "--strict", "--cache-dir", "mypy"];
    shell(run().args(mypy).arg(&package))?;
    shell(run().args(mypy).arg(&tests))?;
    shell(run().args(["-m", "mypy.stubtest", "toolbay._native"]))?;
    agents::run_python(workspace, &folder, &python)
}

/// Puts the package and a built module into a folder, as the wheel has them.
pub(crate) fn package(workspace: &Path, module: &Path, folder: &Path) -> Result<PathBuf> {
    emptied(folder)?;
    let package = folder.join("toolbay");
    fs::create_dir(&package)?;
    let sources = workspace.join("host/python/toolbay");
    for entry in fs::read_dir(&sources).with_context(|| format!("cannot read `{}`", sources.display()))? {
        let path = entry?.path();
        // Links lead to the sources that the SDK for plugins shares.
        if path.is_file() {
            fs::copy(&path, package.join(path.file_name().unwrap_or_default()))?;
        }
    }
    fs::copy(module, package.join("_native.abi3.so"))
        .with_context(|| format!("cannot copy `{}`; `cargo xtask test build` makes it", module.display()))?;
    Ok(package)
}
