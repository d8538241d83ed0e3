//! Compiles the program for musl, the native modules for glibc and musl, and the plugins.
//!
//! Rust's own linker links the program, and Zig's the modules, because it has old versions of glibc: no C toolchain of the target is
//! needed. The few C files of dependencies are compiled by Zig's compiler ([`crate::zig`]). `cargo auditable` embeds the list of
//! dependencies. `rust-lld` needs a 64-bit Linux on x86 as the building machine, and so does the program that writes the man
//! pages.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use wasm::Component;

use super::Release;
use super::modules::Module;
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

/// A C library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Libc {
    Gnu,
    Musl,
}

impl Libc {
    /// As Rust and the names of npm packages say it.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Gnu => "gnu",
            Self::Musl => "musl",
        }
    }

    /// As Zig says it, with the oldest version.
    fn of_zig(self) -> &'static str {
        match self {
            Self::Gnu => "gnu.2.17",
            Self::Musl => "musl",
        }
    }
}

/// What native code is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Platform {
    pub(super) architecture: Architecture,
    pub(super) libc: Libc,
}

impl Platform {
    /// As Rust says it.
    pub(super) fn target(self) -> String {
        format!("{}-unknown-linux-{}", self.architecture.machine, self.libc.suffix())
    }

    fn of_zig(self) -> String {
        format!("{}-linux-{}", self.architecture.machine, self.libc.of_zig())
    }
}

/// The machine that builds.
pub(super) const NATIVE: Architecture = Architecture { machine: "x86_64", debian: "amd64", node: "x64" };
/// The other one.
pub(super) const FOREIGN: Architecture = Architecture { machine: "aarch64", debian: "arm64", node: "arm64" };
/// All kinds of machines that a release is for.
pub(super) const ARCHITECTURES: [Architecture; 2] = [NATIVE, FOREIGN];

/// The platform that builds, and whose packages tests install.
pub(super) const NATIVE_PLATFORM: Platform = Platform { architecture: NATIVE, libc: Libc::Gnu };
/// All platforms that packages are for.
pub(super) const PLATFORMS: [Platform; 4] = [
    NATIVE_PLATFORM,
    Platform { architecture: NATIVE, libc: Libc::Musl },
    Platform { architecture: FOREIGN, libc: Libc::Gnu },
    Platform { architecture: FOREIGN, libc: Libc::Musl },
];

/// What is linked. Each kind has flags of its own, and therefore a folder: cargo leaves flags that contain `--remap-path-prefix` out of
/// file names, so in one folder each kind would overwrite what the other compiled.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Program,
    Module,
}

impl Kind {
    /// The target folder of cargo.
    fn folder(self, release: &Release) -> PathBuf {
        let name = match self {
            Self::Program => "programs",
            Self::Module => "modules",
        };
        release.folder.join("build").join(name)
    }

    /// Where cargo puts what it builds for a platform.
    fn built(self, release: &Release, profile: Profile, platform: Platform) -> PathBuf {
        self.folder(release).join(platform.target()).join(profile.name())
    }
}

/// How programs and modules are compiled.
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
    let tools = Tools::install(release)?;
    let mut cargo = tools.build(release, profile, Kind::Program)?;
    cargo.args(["--package", "toolbay-cli", "--bin", "toolbay"]);
    let flags = [OsString::from("-Clinker=rust-lld")].into_iter().chain(remapped(release)?);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", encoded(flags));
    let platform = |architecture| Platform { architecture, libc: Libc::Musl };
    for architecture in ARCHITECTURES {
        tools.add_target(&mut cargo, platform(architecture))?;
    }
    shell(&mut cargo)?;
    let program = |architecture| {
        let folder = Kind::Program.built(release, profile, platform(architecture));
        (architecture, folder.join("toolbay"))
    };
    Ok(ARCHITECTURES.map(program).into())
}

/// Compiles the native modules for all platforms. The program is built apart: it needs the feature `compiler`, and cargo would give
/// the feature to the modules, too.
pub(super) fn modules(release: &Release, profile: Profile) -> Result<Vec<(Module, Platform, PathBuf)>> {
    let tools = Tools::install(release)?;
    let mut cargo = tools.build(release, profile, Kind::Module)?;
    cargo.args(Module::ALL.iter().flat_map(|module| ["--package", module.package()])).arg("--lib");
    for platform in PLATFORMS {
        tools.add_target(&mut cargo, platform)?;
        cargo.env(
            format!("CARGO_TARGET_{}_LINKER", variable(platform).to_uppercase()),
            tools.zig.linker(&platform.of_zig())?,
        );
    }
    // Threads of a host run until the process ends, so its code must stay when an interpreter unloads it. A shared library for musl
    // uses the C library of the process.
    let flags = ["-Clink-arg=-Wl,-z,nodelete", "-Ctarget-feature=-crt-static"].map(OsString::from);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", encoded(flags.into_iter().chain(remapped(release)?)));
    shell(&mut cargo)?;
    let library = |module: Module, platform| {
        (module, platform, Kind::Module.built(release, profile, platform).join(module.library()))
    };
    Ok(Module::ALL
        .into_iter()
        .flat_map(|module| PLATFORMS.map(|platform| library(module, platform)))
        .collect())
}

/// A platform in the names of variables.
fn variable(platform: Platform) -> String {
    platform.target().replace('-', "_")
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
        ensure!(
            cfg!(all(target_os = "linux", target_arch = "x86_64")),
            "releases are built on Linux with an x86-64 processor"
        );
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

    /// A command that builds what its further arguments say.
    fn build(&self, release: &Release, profile: Profile, kind: Kind) -> Result<Command> {
        let mut cargo = self.auditable(release)?;
        cargo.args(["build", "--locked", "--profile", profile.name()]);
        cargo.env("CARGO_TARGET_DIR", kind.folder(release)).env("CARGO_INCREMENTAL", "0");
        cargo.env("SOURCE_DATE_EPOCH", release.time.to_string()).env("TOOLBAY_COMMIT", &release.commit);
        cargo.env("PATH", self.path()?);
        Ok(cargo)
    }

    /// Makes a command build for a platform, with Zig as C compiler.
    fn add_target(&self, cargo: &mut Command, platform: Platform) -> Result<()> {
        let target = platform.target();
        wasm::add_target(&target)?;
        let variable = variable(platform);
        cargo
            .args(["--target", &target])
            .env(format!("CC_{variable}"), self.zig.compiler(&platform.of_zig())?);
        cargo.env(format!("AR_{variable}"), self.zig.archiver()?);
        Ok(())
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
