//! Interpreters for the other platforms run a program that embeds the library, each in a root with nothing else.
//!
//! | platform | interpreters |
//! |---|---|
//! | musl on x86-64 | Node, with the C library of Debian's package `musl` |
//! | glibc on arm64 | Node and Debian's Python, in an emulator |
//! | musl on arm64 | Node with Debian's `musl`, in an emulator |
//!
//! No registry has a Python for musl.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::foreign_root::ForeignRoot;
use crate::arrive::{EMBED_IN_NODE, EMBED_IN_PYTHON, check_embedded};
use crate::dist::compile::{Libc, NATIVE_PLATFORM, PLATFORMS, Platform};
use crate::dist::packages::platform_name;
use crate::dist::{PackageFolder, Release};
use crate::foreign::{install_for, node_for, shell};

/// What Node needs besides its own libraries.
const NODE_ON_GLIBC: &[&str] = &["libc6", "libgcc-s1", "libstdc++6"];
/// The libraries that the packages of Node have know relative relocations, which musl 1.2.4 was the first to load.
const NODE_ON_MUSL: &[&str] = &["musl"];
/// Python with what it imports for the library.
const PYTHON: &[&str] =
    &["libexpat1", "libpython3.13-minimal", "libpython3.13-stdlib", "python3.13-minimal", "zlib1g"];

/// Runs the programs for all platforms but this one.
pub(super) fn run(release: &Release, packages: &PackageFolder) -> Result<()> {
    for platform in PLATFORMS.into_iter().filter(|platform| *platform != NATIVE_PLATFORM) {
        let check = Check { release, packages, platform, root: root(release, packages, platform)? };
        check.node().with_context(|| format!("Node for {}", platform.target()))?;
        match platform.libc {
            Libc::Gnu => check.python().with_context(|| format!("Python for {}", platform.target()))?,
            Libc::Musl => println!("no Python for {} loads the wheel", platform.target()),
        }
    }
    Ok(())
}

/// A root with a plugin. Compilation is slow in an emulator, so it has one only.
fn root(release: &Release, packages: &PackageFolder, platform: Platform) -> Result<ForeignRoot> {
    let root = ForeignRoot::new(release, &platform.target(), platform.architecture)?;
    unpack(
        &packages.npm_package("@toolbay/plugins"),
        "package/plugins/text.wasm",
        2,
        &root.folder().join("plugins"),
    )?;
    Ok(root)
}

/// The interpreters for one platform.
struct Check<'a> {
    release: &'a Release,
    packages: &'a PackageFolder,
    platform: Platform,
    root: ForeignRoot,
}

impl Check<'_> {
    /// Node has the packages for both C libraries, as some package managers install them, and takes its own.
    fn node(&self) -> Result<()> {
        self.add(match self.platform.libc {
            Libc::Gnu => NODE_ON_GLIBC,
            Libc::Musl => NODE_ON_MUSL,
        })?;
        let node =
            node_for(&self.release.workspace, &self.platform.target(), &self.root.folder().join("node"))?;
        let modules = self.root.folder().join("node_modules");
        unpack(&self.packages.npm_package("toolbay"), "package", 1, &modules.join("toolbay"))?;
        for libc in [Libc::Gnu, Libc::Musl] {
            let name = platform_name(Platform { libc, ..self.platform });
            unpack(&self.packages.npm_package(&name), "package", 1, &modules.join(name))?;
        }
        let said = self.embed(&format!("/node/{node}"), EMBED_IN_NODE)?;
        let module = format!("{}/toolbay.node", platform_name(self.platform));
        ensure!(said.contains(&module), "the program loads another module than `{module}`: {said}");
        Ok(())
    }

    fn python(&self) -> Result<()> {
        self.add(PYTHON)?;
        let wheel = self.packages.wheel_of(self.platform);
        let modules = self.root.folder().join("python");
        install_for(&self.release.workspace, &self.platform.target(), &modules, wheel)?;
        self.embed("/usr/bin/python3.13", EMBED_IN_PYTHON).map(drop)
    }

    fn add(&self, packages: &[&str]) -> Result<()> {
        packages.iter().try_for_each(|package| self.root.add(package))
    }

    /// Runs a program that opens a host with the plugin, and calls it and a tool of its own.
    fn embed(&self, interpreter: &str, program: &str) -> Result<String> {
        let start = Instant::now();
        let name = Path::new(program).file_name().context("the program has no name")?;
        fs::copy(self.release.workspace.join(program), self.root.folder().join(name))?;
        let mut command = self.root.command(interpreter);
        command.arg(Path::new("/").join(name)).env("PYTHONPATH", "/python");
        let said = check_embedded(command.args(["/plugins", "/state"]))?;
        let (target, seconds) = (self.platform.target(), start.elapsed().as_secs_f64());
        println!("{interpreter} for {target} embeds the library: {seconds:.1} s");
        Ok(said)
    }
}

/// Unpacks a part of a tarball into a folder, without the first folders of its paths.
fn unpack(tarball: &Path, part: &str, skipped: u32, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(tarball).arg(format!("--strip-components={skipped}"));
    shell(tar.arg("-C").arg(folder).arg(part))
}
