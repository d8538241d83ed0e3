//! `python`: tests the Python package with the module that the build made, checks its types, and runs the agents of the
//! documentation with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::folder::{emptied, files, link_built, read_text};
use crate::foreign::{python_with, shell};
use crate::languages::blocks;
use crate::{agents, cargo, plugins};

/// The folder of the tests.
const TESTS: &str = "host/python/tests";
/// The page that describes the package.
const PAGE: &str = "docs/reference/python-library.md";

/// Returns a Python with mypy and what the tests use.
pub(crate) fn install(workspace: &Path) -> Result<PathBuf> {
    python_with(&wasm::target_dir(workspace).join("venv-python"), &workspace.join(TESTS))
}

/// Runs the tests, mypy and pyright.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let tests = workspace.join(TESTS);
    let target = wasm::target_dir(workspace);
    let python = install(workspace)?;
    let folder = target.join("python");
    let package = package(workspace, &target.join("debug/libtoolbay_python.so"), &folder)?;
    let run = || {
        let mut command = Command::new(&python);
        command.env("PYTHONPATH", &folder).env("MYPYPATH", &folder);
        // Many tests start a Python. It writes nothing beside sources.
        command.env("PYTHONPYCACHEPREFIX", target.join("pycache"));
        command
            .env("TOOLBAY_BIN", cargo::host(workspace))
            .env("TOOLBAY_TEST_PLUGINS", plugins::folder(workspace));
        command.env("TOOLBAY_TEST_PAGE", workspace.join(PAGE));
        command.env("TOOLBAY_TEST_CACHE", target.join("library-cache")).current_dir(&target);
        command
    };
    let tests_of = ["-m", "unittest", "discover", "--quiet", "--start-directory"];
    shell(run().args(["-W", "error"]).args(tests_of).arg(&tests).arg("--top-level-directory").arg(&tests))?;
    let mypy = ["-m", "mypy", "--strict", "--cache-dir", "mypy"];
    shell(run().args(mypy).arg(&package).arg(&tests))?;
    shell(run().args(["-m", "mypy.stubtest", "toolbay._native"]))?;
    check_with_pyright(workspace, &python, &folder)?;
    agents::run_python(workspace, &folder, &python)
}

/// Checks with pyright, which most editors use, the types of the package and of the programs of its page, and that no checker
/// has to infer the type of a public name.
fn check_with_pyright(workspace: &Path, python: &Path, folder: &Path) -> Result<()> {
    let settings = workspace.join(TESTS);
    let node = agents::install(workspace)?;
    let programs = folder.join("programs");
    emptied(&programs)?;
    let page = read_text(&workspace.join(PAGE))?;
    for (number, program) in blocks(&page, "python").into_iter().enumerate() {
        // Programs of users get all checks.
        fs::write(programs.join(format!("program{number}.py")), format!("# pyright: strict\n{program}\n"))?;
    }
    let pyright = || {
        let mut command = node.run("pyright/index.js");
        command.arg("--pythonpath").arg(python).env("PYTHONPATH", folder).current_dir(&settings);
        command
    };
    shell(pyright().arg(folder.join("toolbay")).arg(&programs))?;
    shell(pyright().args(["--verifytypes", "toolbay", "--ignoreexternal"]))
}

/// Puts the package and a built module into a folder, as the wheel has them.
pub(crate) fn package(workspace: &Path, module: &Path, folder: &Path) -> Result<PathBuf> {
    emptied(folder)?;
    let package = folder.join("toolbay");
    fs::create_dir(&package)?;
    for (name, file) in sources(workspace)? {
        fs::copy(file, package.join(name))?;
    }
    link_built(module, &package.join("_native.abi3.so"))?;
    Ok(package)
}

/// The files of the package besides the native module, by name. Links lead to the sources that the SDK for plugins shares.
pub(crate) fn sources(workspace: &Path) -> Result<Vec<(String, PathBuf)>> {
    let named = |file: PathBuf| (file.file_name().unwrap_or_default().to_string_lossy().into_owned(), file);
    Ok(files(&workspace.join("host/python/toolbay"))?.into_iter().map(named).collect())
}
