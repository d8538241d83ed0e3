//! `node`: tests the library for Node with the module that the build made, checks its types and its package, and runs the
//! agents of the documentation with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value};

use crate::folder::{emptied, read_text};
use crate::foreign::{NodeRuntime, node_version, shell};
use crate::{agents, cargo, plugins};

/// Versions that run the smoke test only. The version of [`NodeRuntime`] runs all tests.
const OTHER_VERSIONS: [&str; 2] = ["20.18.0", "22.20.0"];
/// The name of the package.
const PACKAGE: &str = "toolbay";
/// The manifest of a package.
const MANIFEST: &str = "package.json";
/// As Node calls the architectures.
const ARCHITECTURES: [(&str, &str); 2] = [("x86_64", "x64"), ("aarch64", "arm64")];
/// The checked versions of TypeScript: folders of `node_modules`.
const TYPESCRIPT: [&str; 2] = ["typescript", "typescript-7"];

/// Runs the tests, on the other versions of Node a few, and checks the types and the package.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let sources = workspace.join("host/node/tests");
    let node = NodeRuntime::with(workspace, "npm-node", &sources)?;
    let (tests, modules) = (node.folder().join("tests"), node.folder().join("node_modules"));
    copy_files(&sources, &tests)?;
    let module = wasm::target_dir(workspace).join("debug/libtoolbay_node.so");
    place_packages(workspace, &modules, &module, &cargo::host(workspace))?;
    test(workspace, node.command(), &tests)?;
    for version in OTHER_VERSIONS {
        for script in ["smoke.cjs", "smoke.mjs"] {
            let mut smoke = Command::new(node_version(workspace, version)?);
            shell(smoke.arg(tests.join(script)).arg(&tests))?;
        }
    }
    for compiler in TYPESCRIPT {
        shell(node.run(&format!("{compiler}/bin/tsc")).arg("--project").arg(&tests))?;
    }
    check_package(&node, &modules.join(PACKAGE))?;
    agents::run_typescript(workspace, &node, &TYPESCRIPT)
}

fn test(workspace: &Path, mut node: Command, tests: &Path) -> Result<()> {
    node.args(["--test", "--test-reporter=dot"]).args(files_with(tests, ".test.mts")?);
    node.env("TOOLBAY_TEST_PLUGINS", plugins::folder(workspace));
    node.env("TOOLBAY_TEST_CACHE", tests).env("TOOLBAY_TEST_DOCS", workspace.join("docs"));
    // Sources of worker threads find the package from the working directory.
    node.current_dir(tests);
    shell(&mut node)
}

/// Puts the package with a native module and a program into `node_modules`, as npm does.
pub(crate) fn place_packages(workspace: &Path, modules: &Path, module: &Path, program: &Path) -> Result<()> {
    place_package(workspace, &modules.join(PACKAGE))?;
    let named = ARCHITECTURES.iter().find(|(rust, _)| *rust == std::env::consts::ARCH);
    let (_, architecture) = named.context("Node has no name for this architecture")?;
    let package = modules.join(format!("@toolbay/linux-{architecture}-gnu"));
    emptied(&package.join("bin"))?;
    place(module, &package.join("toolbay.node"))?;
    place(program, &package.join("bin/toolbay"))
}

/// The files of the npm package besides its manifest: the path of each in the package, and the file.
pub(crate) fn sources(workspace: &Path) -> Result<Vec<(String, PathBuf)>> {
    let package = workspace.join("host/node/package");
    let mut sources = Vec::new();
    for folder in ["", "bin", "lib"] {
        for file in files(&package.join(folder))? {
            let name = Path::new(folder).join(file.file_name().unwrap_or_default());
            sources.push((name.to_string_lossy().into_owned(), file));
        }
    }
    sources.retain(|(name, _)| name != MANIFEST);
    Ok(sources)
}

/// What the npm package says about itself, without a version.
pub(crate) fn manifest(workspace: &Path) -> Result<Map<String, Value>> {
    Ok(serde_json::from_str(&read_text(&workspace.join("host/node/package").join(MANIFEST))?)?)
}

fn place_package(workspace: &Path, package: &Path) -> Result<()> {
    emptied(package)?;
    for (name, file) in sources(workspace)? {
        let to = package.join(name);
        fs::create_dir_all(to.parent().unwrap_or(package))?;
        fs::copy(file, to)?;
    }
    let mut manifest = manifest(workspace)?;
    manifest.insert("version".to_owned(), env!("CARGO_PKG_VERSION").into());
    Ok(fs::write(package.join(MANIFEST), Value::from(manifest).to_string())?)
}

/// Links a large file, or copies one of another file system. A symbolic link would not do: Node takes the name of the file
/// that it leads to.
fn place(file: &Path, link: &Path) -> Result<()> {
    if link.exists() {
        fs::remove_file(link)?;
    }
    fs::hard_link(file, link)
        .or_else(|_| fs::copy(file, link).map(drop))
        .with_context(|| format!("cannot link `{}`; `cargo xtask test build` makes it", file.display()))
}

/// Checks the package as npm packs it.
fn check_package(node: &NodeRuntime, package: &Path) -> Result<()> {
    let tarball = node.folder().join(format!("toolbay-{}.tgz", env!("CARGO_PKG_VERSION")));
    shell(
        node.npm().args(["pack", "--silent", "--pack-destination"]).arg(node.folder()).current_dir(package),
    )?;
    shell(node.run("@arethetypeswrong/cli/dist/index.js").args(["--format", "ascii"]).arg(&tarball))?;
    shell(node.run("publint/src/cli.js").arg("--strict").arg(tarball))
}

/// Copies the files of a folder, without the folders in it, in place of an earlier copy.
pub(crate) fn copy_files(from: &Path, to: &Path) -> Result<()> {
    emptied(to)?;
    for file in files(from)? {
        fs::copy(&file, to.join(file.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.is_file()).collect())
}

fn files_with(folder: &Path, end: &str) -> Result<Vec<PathBuf>> {
    let ends = |path: &PathBuf| path.to_string_lossy().ends_with(end);
    Ok(files(folder)?.into_iter().filter(ends).collect())
}
