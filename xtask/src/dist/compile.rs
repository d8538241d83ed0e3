//! Compiles the program for musl, and the plugins.
//!
//! Rust's own linker links, so that no C toolchain of the target is needed. The few C files of dependencies are compiled by
//! Zig's compiler ([`crate::zig`]). `cargo auditable` embeds the list of dependencies. `rust-lld` needs a
//! 64-bit Linux on x86 as the building machine, and so does the program that writes the man pages.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use wasm::Component;

use super::Release;
use crate::foreign::shell;
use crate::zig::{Zig, write_script};

/// The version of `cargo-auditable`.
const AUDITABLE: &str = "0.7.7";

/// A kind of machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Architecture {
    /// As the kernel says it.
    pub(super) machine: &'static str,
    /// As Debian and OCI say it.
    pub(super) debian: &'static str,
    /// As Node says it.
    pub(super) node: &'static str,
}

impl Architecture {
    fn target(self) -> String {
        format!("{}-unknown-linux-musl", self.machine)
    }
}

/// The machine that builds.
pub(super) const NATIVE: Architecture = Architecture { machine: "x86_64", debian: "amd64", node: "x64" };
/// The other one.
pub(super) const FOREIGN: Architecture = Architecture { machine: "aarch64", debian: "arm64", node: "arm64" };
/// All kinds of machines that a release is for.
pub(super) const ARCHITECTURES: [Architecture; 2] = [NATIVE, FOREIGN];

/// How the program is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// As it is shipped.
    Release,
    /// Quickly, for the test of the packages.
    Test,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Test => "dist-test",
        }
    }
}

/// Compiles the program for all kinds of machines.
pub(super) fn programs(release: &Release, profile: Profile) -> Result<Vec<(Architecture, PathBuf)>> {
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "releases are built on Linux with an x86-64 processor"
    );
    let tools = Tools::install(release)?;
    let build = release.folder.join("build");
    let mut cargo = tools.auditable(release)?;
    cargo.args(["build", "--locked", "--package", "toolbay-cli", "--bin", "toolbay"]);
    cargo.args(["--profile", profile.name()]).env("CARGO_TARGET_DIR", &build).env("CARGO_INCREMENTAL", "0");
    cargo.env("SOURCE_DATE_EPOCH", release.time.to_string()).env("TOOLBAY_COMMIT", &release.commit);
    let flags = [OsString::from("-Clinker=rust-lld")].into_iter().chain(remapped(release)?);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", encoded(flags)).env("PATH", tools.path()?);
    for architecture in ARCHITECTURES {
        let target = architecture.target();
        wasm::add_target(&target)?;
        let variable = target.replace('-', "_");
        let compiler = tools.zig.compiler(&format!("{}-linux-musl", architecture.machine))?;
        cargo.args(["--target", &target]).env(format!("CC_{variable}"), compiler);
        cargo.env(format!("AR_{variable}"), tools.zig.archiver()?);
    }
    shell(&mut cargo)?;
    let program = |architecture: Architecture| {
        (architecture, build.join(architecture.target()).join(profile.name()).join("toolbay"))
    };
    Ok(ARCHITECTURES.map(program).into())
}

/// Compiles the plugins as they are shipped.
pub(super) fn plugins(release: &Release) -> Result<Vec<Component>> {
    wasm::plugins_in(&release.workspace, &release.folder.join("build"), &encoded(remapped(release)?))
}

/// Flags that replace the folders of this machine in messages and tables. The last one that fits counts.
fn remapped(release: &Release) -> Result<Vec<OsString>> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"));
    let cargo =
        std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home).context("`HOME` is not set")?;
    let build = release.folder.join("build");
    let folders = [(release.workspace.clone(), "/toolbay"), (cargo, "/cargo"), (build, "/target")];
    Ok(folders.into_iter().map(|(folder, name)| remap(&folder, name)).collect())
}

fn remap(folder: &Path, name: &str) -> OsString {
    let mut flag = OsString::from("--remap-path-prefix=");
    flag.push(folder);
    flag.push(format!("={name}"));
    flag
}

/// Flags as cargo takes them in one variable.
fn encoded(flags: impl IntoIterator<Item = OsString>) -> OsString {
    let flags: Vec<OsString> = flags.into_iter().collect();
    flags.join(std::ffi::OsStr::new("\u{1f}"))
}

/// Programs that cargo runs.
struct Tools {
    zig: Zig,
    folder: PathBuf,
}

impl Tools {
    fn install(release: &Release) -> Result<Self> {
        let target = wasm::target_dir(&release.workspace);
        let folder = target.join("dist-tools");
        let zig = Zig::install(&release.workspace, &folder)?;
        if !folder.join(format!("auditable-{AUDITABLE}")).exists() {
            let mut install = wasm::cargo(&release.workspace);
            install.args([
                "install",
                "--quiet",
                "--locked",
                "--force",
                "--version",
                AUDITABLE,
                "cargo-auditable",
            ]);
            shell(install.arg("--root").arg(&folder))?;
            fs::write(folder.join(format!("auditable-{AUDITABLE}")), "")?;
        }
        Ok(Self { zig, folder })
    }

    /// A command that runs `cargo auditable`.
    fn auditable(&self, release: &Release) -> Result<Command> {
        // It puts itself before the compiler by its path, which cargo hashes into every symbol. A bare name is the same
        // on each machine.
        let cargo = PathBuf::from(wasm::cargo_path());
        let script =
            format!("#!/bin/sh\nRUSTC_WORKSPACE_WRAPPER=cargo-auditable exec '{}' \"$@\"\n", cargo.display());
        let mut command = wasm::tool(&release.workspace, self.folder.join("bin/cargo-auditable").as_os_str());
        command.arg("auditable").env("CARGO", write_script(&self.folder.join("cargo"), &script)?);
        Ok(command)
    }

    /// The search path with the installed programs.
    fn path(&self) -> Result<OsString> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = [self.folder.join("bin")].into_iter().chain(std::env::split_paths(&path));
        Ok(std::env::join_paths(folders)?)
    }
}
