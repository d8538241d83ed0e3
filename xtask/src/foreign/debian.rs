//! Packages of Debian. Most are unpacked into the target folder and not installed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{lock, shell};
use crate::folder::emptied;
use crate::programs::printed;

/// A release of Debian for programs that need newer libraries than a machine may have.
const NEWER: &str = "trixie";
/// apt does not retry by itself. uv, npm and cargo do.
const RETRIES: &str = "-oAcquire::Retries=5";

/// The packages of one release of Debian for one kind of machine. Each is unpacked once.
#[derive(Debug)]
pub(crate) struct DebianPackages {
    /// Where they are unpacked.
    folder: PathBuf,
    /// How apt finds them.
    options: Vec<String>,
}

impl DebianPackages {
    /// The packages of this system, for this machine.
    fn of_system(workspace: &Path) -> Self {
        Self { folder: wasm::target_dir(workspace).join("debian"), options: vec![RETRIES.to_owned()] }
    }

    /// The packages of a newer Debian for a kind of machine, from where this system gets its own. Nothing outside of the target folder
    /// changes.
    pub(crate) fn newer(workspace: &Path, architecture: &str) -> Result<Self> {
        let folder = wasm::target_dir(workspace).join(format!("debian-{NEWER}-{architecture}"));
        let state = folder.join("apt");
        for below in ["lists/partial", "cache/archives/partial"] {
            std::fs::create_dir_all(state.join(below))?;
        }
        std::fs::write(state.join("sources"), format!("deb {} {NEWER} main\n", mirror(workspace)?))?;
        let options = [
            RETRIES.to_owned(),
            "-oAcquire::Languages=none".to_owned(),
            format!("-oAPT::Architecture={architecture}"),
            format!("-oAPT::Architectures={architecture}"),
            format!("-oDir::Etc::SourceList={}", state.join("sources").display()),
            "-oDir::Etc::SourceParts=/dev/null".to_owned(),
            format!("-oDir::State::Lists={}", state.join("lists").display()),
            format!("-oDir::Cache={}", state.join("cache").display()),
        ];
        Ok(Self { folder, options: options.into() })
    }

    /// The folder with an unpacked package.
    pub(crate) fn unpacked(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        let _lock = lock(&folder)?;
        if !folder.exists() {
            // Renamed last: a folder with the final name is complete.
            let part = folder.with_extension("part");
            self.unpack(&part, name)?;
            std::fs::rename(&part, &folder)?;
        }
        Ok(folder)
    }

    fn unpack(&self, folder: &Path, name: &str) -> Result<()> {
        emptied(folder)?;
        let mut download = self.apt("download");
        download.arg(name).current_dir(folder);
        self.with_lists(|| shell(&mut download))
            .with_context(|| format!("the package `{name}` is neither installed nor available"))?;
        unpack_download(folder)
    }

    /// Uses `apt-get`, and again after an update: the package lists may be old or missing.
    fn with_lists<T>(&self, mut apt: impl FnMut() -> Result<T>) -> Result<T> {
        apt().or_else(|_| shell(&mut self.apt("update")).and_then(|()| apt()))
    }

    fn apt(&self, command: &str) -> Command {
        let mut apt = Command::new("apt-get");
        apt.args(&self.options).arg(command);
        apt
    }
}

/// Where this system gets the packages of Debian.
fn mirror(workspace: &Path) -> Result<String> {
    let system = DebianPackages::of_system(workspace);
    // Not that of security updates.
    let filters = ["Created-By: Packages", "Label: Debian", "Component: main"];
    system.with_lists(|| {
        let mirrors = printed(system.apt("indextargets").args(["--format", "$(REPO_URI)"]).args(filters))?;
        mirrors.lines().next().map(str::to_owned).context("no source of packages of Debian")
    })
}

/// The folder with an unpacked package for this machine.
pub(crate) fn unpacked_package(workspace: &Path, name: &str) -> Result<PathBuf> {
    DebianPackages::of_system(workspace).unpacked(name)
}

/// Unpacks the package that `apt-get` downloaded into a folder.
fn unpack_download(folder: &Path) -> Result<()> {
    let is_package = |path: &PathBuf| path.extension().is_some_and(|end| end == "deb");
    let mut files = std::fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let package = files.find(is_package).context("no package was downloaded")?;
    shell(Command::new("dpkg").arg("-x").arg(package).arg(folder))
}

/// Installs a program of the Debian distribution with everything that it needs, unless it is there. It needs root, and the
/// libraries of such a program are too many to unpack.
pub(crate) fn debian_program(workspace: &Path, name: &str) -> Result<()> {
    if Path::new("/usr/bin").join(name).exists() {
        return Ok(());
    }
    let system = DebianPackages::of_system(workspace);
    // Another checkout may install at the same time.
    let mut install = system.apt("install");
    install.args(["--yes", "--quiet=2", "--no-install-recommends", "-oDPkg::Lock::Timeout=300"]);
    install.arg(name).env("DEBIAN_FRONTEND", "noninteractive");
    system
        .with_lists(|| shell(&mut install))
        .with_context(|| format!("install the package `{name}`; this needs root"))
}

/// The folders of the libraries in packages of Debian, as `LD_LIBRARY_PATH` lists them.
pub(crate) fn library_path(workspace: &Path, names: &[&str]) -> Result<OsString> {
    let mut folders = Vec::new();
    for name in names {
        let below = unpacked_package(workspace, name)?.join("usr/lib");
        let entries = std::fs::read_dir(&below)?.filter_map(|entry| Some(entry.ok()?.path()));
        folders.extend(entries.filter(|path| path.is_dir()));
    }
    Ok(std::env::join_paths(folders)?)
}
