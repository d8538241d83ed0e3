//! The agents of the documentation, for the steps `python` and `node`.
//!
//! The agents of `docs/how-to/model-apis.md` use the packages of the vendors, against a model that follows a script
//! (`tests/agents`). Those of the tutorial are typed as they are written.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, anyhow};

use crate::folder::{emptied, read_text, read_tutorial};
use crate::foreign::{NodeRuntime, python, shell};
use crate::tutorials::Library;
use crate::{cargo, plugins, tutorials, vendors};

/// The page with an agent for each model API.
const PAGE: &str = "docs/how-to/model-apis.md";
/// The tutorial in Python, and its twin in TypeScript.
const TUTORIAL: &str = "python-agent";
const TYPESCRIPT_TUTORIAL: &str = "typescript-agent";
/// Where the files of a tutorial are, below the agents.
const TUTORIAL_FOLDER: &str = "tutorial";
/// The plugins that the pages use.
const PLUGINS: [&str; 2] = ["text.wasm", "files.wasm"];
/// The agents of frameworks, whose packages would take mypy ten seconds. pyright checks them.
const NOT_FOR_MYPY: &str = "(pydantic|langchain)_agent";

/// Installs the packages of the vendors for Node, and the programs that check types.
pub(crate) fn install(workspace: &Path) -> Result<NodeRuntime> {
    NodeRuntime::with(workspace, "npm-agents", &workspace.join("tests/agents"))
}

/// Types the tutorial, and runs the agents and checks their types. `library` is the folder with the package `toolbay`, and
/// `mypy` a Python with mypy.
pub(crate) fn run_python(workspace: &Path, library: &Path, mypy: &Path) -> Result<()> {
    let node = install(workspace)?;
    let python = vendors::install(workspace)?;
    add_plugins(workspace, library)?;
    let target = wasm::target_dir(workspace);
    let folder = target.join("agents-python");
    emptied(&folder)?;
    write_files(&read_text(&workspace.join(PAGE))?, "py", &folder)?;
    write_files(&read_tutorial(workspace, TUTORIAL)?, "py", &folder.join(TUTORIAL_FOLDER))?;

    let tests = workspace.join("tests/agents");
    let run = |command: &mut Command| {
        command.env("PYTHONPATH", library).env("MYPYPATH", library);
        command.env("TOOLBAY_BIN", cargo::host(workspace));
        shell(use_caches(command, &target).current_dir(&target))
    };
    let check_types = || {
        run(node.run("pyright/index.js").arg("--pythonpath").arg(&python).arg(&folder))?;
        let mut types = Command::new(mypy);
        types.args(["-m", "mypy", "--strict", "--cache-dir", "mypy", "--exclude", NOT_FOR_MYPY]);
        run(types.arg("--python-executable").arg(&python).arg(&folder).arg(&tests))
    };
    // mypy reads the packages of all vendors, which takes as long as the rest. The thread ends with this function.
    std::thread::scope(|scope| {
        let types = scope.spawn(check_types);
        let count = tutorials::type_library_page(workspace, TUTORIAL, &node, Library::Python(library))?;
        println!("{TUTORIAL}: {count} commands match");
        run(Command::new(&python).arg(tests.join("check.py")).arg(&folder).arg(".py").arg(&python))?;
        types.join().map_err(|_| anyhow!("the check of types panicked"))?
    })
}

/// Puts the package `toolbay_plugins` beside the library, and the metadata by which pip knows that both are installed.
fn add_plugins(workspace: &Path, library: &Path) -> Result<()> {
    let package = library.join("toolbay_plugins");
    fs::create_dir_all(&package)?;
    fs::copy(
        workspace.join("xtask/packages/python/toolbay_plugins/__init__.py"),
        package.join("__init__.py"),
    )?;
    fs::write(package.join("py.typed"), "")?;
    copy_plugins(workspace, &package.join("plugins"))?;
    for name in ["toolbay", "toolbay_plugins"] {
        let metadata = library.join(format!("{name}-0.dist-info"));
        fs::create_dir_all(&metadata)?;
        fs::write(metadata.join("METADATA"), format!("Metadata-Version: 2.1\nName: {name}\nVersion: 0\n"))?;
    }
    Ok(())
}

fn copy_plugins(workspace: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for plugin in PLUGINS {
        let built = plugins::folder(workspace).join(plugin);
        fs::copy(&built, folder.join(plugin))
            .with_context(|| format!("cannot copy `{}`", built.display()))?;
    }
    Ok(())
}

/// Types the tutorial, and runs the agents in TypeScript and checks their types. `library` has the package `toolbay`, and these
/// compilers.
pub(crate) fn run_typescript(workspace: &Path, library: &NodeRuntime, compilers: &[&str]) -> Result<()> {
    let node = install(workspace)?;
    let folder = node.folder().join("agents");
    let modules = folder.join("node_modules");
    emptied(&folder)?;
    add_node_plugins(workspace, &modules.join("@toolbay/plugins"))?;
    symlink(library.file("toolbay"), modules.join("toolbay"))?;
    fs::copy(workspace.join("tests/agents/tsconfig.json"), folder.join("tsconfig.json"))?;
    write_files(&read_text(&workspace.join(PAGE))?, "ts", &folder)?;
    write_files(&read_tutorial(workspace, TYPESCRIPT_TUTORIAL)?, "ts", &folder.join(TUTORIAL_FOLDER))?;
    let count = tutorials::type_library_page(workspace, TYPESCRIPT_TUTORIAL, &node, Library::Node(&modules))?;
    println!("{TYPESCRIPT_TUTORIAL}: {count} commands match");
    let mut check = python();
    check.arg(workspace.join("tests/agents/check.py")).arg(&folder).arg(".ts").arg(node.bin().join("node"));
    shell(use_caches(&mut check, &wasm::target_dir(workspace)))?;
    for compiler in compilers {
        shell(library.run(&format!("{compiler}/bin/tsc")).arg("--project").arg(&folder))?;
    }
    Ok(())
}

/// Lets a command use the caches of compiled plugins and Python modules: Python compiles the packages of the vendors once, which
/// halves the time, and writes nothing beside sources.
fn use_caches<'c>(command: &'c mut Command, target: &Path) -> &'c mut Command {
    command.env("TOOLBAY_CACHE", target.join("test-cache")).env("PYTHONPYCACHEPREFIX", target.join("pycache"))
}

/// Makes the package `@toolbay/plugins`.
fn add_node_plugins(workspace: &Path, package: &Path) -> Result<()> {
    let sources = workspace.join("xtask/packages/npm");
    fs::create_dir_all(package)?;
    fs::copy(sources.join("plugins.js"), package.join("index.js"))?;
    fs::copy(sources.join("plugins.d.ts"), package.join("index.d.ts"))?;
    let manifest = r#"{"name": "@toolbay/plugins", "main": "index.js", "types": "index.d.ts"}"#;
    fs::write(package.join("package.json"), manifest)?;
    copy_plugins(workspace, &package.join("plugins"))
}

/// Writes the files with an extension that a page shows into a folder, which need not exist.
fn write_files(page: &str, extension: &str, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for (file, text) in tutorials::files(page) {
        let file = folder.join(file);
        if file.extension().is_some_and(|end| end == extension) {
            fs::write(&file, format!("{text}\n"))
                .with_context(|| format!("cannot write `{}`", file.display()))?;
        }
    }
    Ok(())
}
