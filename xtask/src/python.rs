//! `python`: tests the Python package with the module that the build made, and checks its types.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::folder::emptied;
use crate::foreign::{python_with, shell};
use crate::{cargo, plugins};

/// Runs the tests and mypy.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let tests = workspace.join("host/python/tests");
    let target = wasm::target_dir(workspace);
    let python = python_with(&target.join("venv-python"), &tests)?;
    let folder = target.join("python");
    let package = package(workspace, &folder)?;
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
    shell(run().args(["-m", "mypy.stubtest", "toolbay._native"]))
}

/// Puts the package and the built module into a folder, as the wheel has them.
fn package(workspace: &Path, folder: &Path) -> Result<PathBuf> {
    emptied(folder)?;
    let package = folder.join("toolbay");
    fs::create_dir(&package)?;
    for (name, file) in sources(workspace)? {
        fs::copy(file, package.join(name))?;
    }
    let module = wasm::target_dir(workspace).join("debug/libtoolbay_python.so");
    fs::copy(&module, package.join("_native.abi3.so"))
        .with_context(|| format!("cannot copy `{}`; `cargo xtask test build` makes it", module.display()))?;
    Ok(package)
}

/// The files of the package besides the native module, by name. Links lead to the sources that the SDK for plugins shares.
pub(crate) fn sources(workspace: &Path) -> Result<Vec<(String, PathBuf)>> {
    let folder = workspace.join("host/python/toolbay");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read `{}`", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.is_file() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.push((name, path));
        }
    }
    Ok(files)
}
