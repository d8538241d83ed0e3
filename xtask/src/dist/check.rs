//! `dist check`: builds the files of a release and uses them. Two packagings of the same build are equal, libraries
//! of others read every format, the Debian package is installed in an empty root and serves, and the program for the other
//! kind of machine answers a call in an emulator.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use xtask::wasm;

use super::compile::{ARCHITECTURES, FOREIGN, NATIVE, Profile};
use super::{CHECKSUMS, Release, contents, write};
use crate::foreign::{library_path, python_with, shell, unpacked_package};
use crate::registries::Skopeo;

mod server;

/// The Debian package with the emulator, and the library that it needs.
const EMULATOR: &str = "qemu-user";
const EMULATOR_LIBRARY: &str = "libcapstone4";
/// A call and what its answer contains.
const TOOL: &str = "text__word_count";
const ARGUMENTS: &str = r#"{"text": "a b a"}"#;
const ANSWER: &str = r#""words":3"#;

/// Runs all checks.
pub(crate) fn run(workspace: &Path, profile: Profile) -> Result<()> {
    let release = Release::of(workspace)?;
    let contents = contents(&release, profile)?;
    let folder = release.folder.join("check");
    let sums = write(&release, &contents, &folder)?;
    let again = write(&release, &contents, &folder)?;
    ensure!(sums == again, "two packagings of one build differ:\n{sums}\n{again}");
    shell(
        Command::new("sha256sum").args(["--check", "--quiet", "--strict", CHECKSUMS]).current_dir(&folder),
    )?;
    let scripts = workspace.join("tests/dist");
    let python = python_with(&wasm::target_dir(workspace).join("venv-dist"), &scripts)?;
    let mut check = Command::new(python);
    shell(check.arg(scripts.join("check.py")).arg(&folder).arg(&release.version))?;
    copy_images(&release, &folder)?;
    install(&release, &folder)?;
    emulate(&release, &folder)
}

/// Another program finds an image for each kind of machine.
fn copy_images(release: &Release, folder: &Path) -> Result<()> {
    let skopeo = Skopeo::unpack(&release.workspace)?;
    let source = format!("oci:{}:{}", folder.join("oci").display(), release.version);
    for architecture in ARCHITECTURES {
        let copied = release.folder.join(format!("copied-{}", architecture.debian));
        let mut copy = skopeo.copy();
        copy.arg("--quiet").args(["--override-os", "linux", "--override-arch", architecture.debian]);
        shell(copy.arg(&source).arg(format!("dir:{}", copied.display())))?;
    }
    Ok(())
}

/// Installs the Debian package in a root that has a shell and nothing else, and calls a tool of the server there.
fn install(release: &Release, folder: &Path) -> Result<()> {
    let root = empty_root(release)?;
    let package = folder.join(format!("toolbay_{}_{}.deb", release.version, NATIVE.debian));
    let mut dpkg = privileged("dpkg");
    shell(dpkg.arg(format!("--root={}", root.display())).arg("--install").arg(package))?;
    let answer = server::PackageServer::start(&root)?.call(TOOL, ARGUMENTS)?;
    ensure!(
        answer.contains(&ANSWER.replace('"', "\\\"")) || answer.contains(ANSWER),
        "the server answers {answer}"
    );
    println!("the package serves from an empty root");
    Ok(())
}

/// A root with the folders of `dpkg` and a shell for its scripts.
fn empty_root(release: &Release) -> Result<PathBuf> {
    let root = release.folder.join("root");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    for below in ["bin", "dev", "proc", "tmp", "var/lib/dpkg/info", "var/lib/dpkg/updates"] {
        fs::create_dir_all(root.join(below))?;
    }
    for file in ["status", "available"] {
        fs::write(root.join("var/lib/dpkg").join(file), "")?;
    }
    let busybox = unpacked_package(&release.workspace, "busybox-static")?.join("bin/busybox");
    fs::copy(busybox, root.join("bin/sh"))?;
    Ok(root)
}

/// A command that may change owners and roots: as root, or in a user namespace.
fn privileged(program: &str) -> Command {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if is_root {
        return Command::new(program);
    }
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", program]);
    command
}

/// Unpacks the tarball of the other kind of machine and calls a tool in an emulator.
fn emulate(release: &Release, folder: &Path) -> Result<()> {
    let unpacked = release.folder.join("emulated");
    if unpacked.exists() {
        fs::remove_dir_all(&unpacked)?;
    }
    fs::create_dir_all(unpacked.join("plugins"))?;
    let name = format!("toolbay-{}-{}-linux", release.version, FOREIGN.machine);
    let tarball = folder.join(format!("{name}.tar.gz"));
    shell(Command::new("tar").arg("-xzf").arg(tarball).current_dir(&unpacked))?;
    let installed = unpacked.join(name);
    // Compilation is slow in an emulator.
    fs::copy(installed.join("lib/toolbay/plugins/text.wasm"), unpacked.join("plugins/text.wasm"))?;
    let emulator = unpacked_package(&release.workspace, EMULATOR)?.join("usr/bin/qemu-aarch64");
    let mut call = Command::new(emulator);
    call.env("LD_LIBRARY_PATH", library_path(&release.workspace, &[EMULATOR_LIBRARY])?);
    call.arg(installed.join("bin/toolbay")).args(["call", TOOL, ARGUMENTS]).arg("--config");
    call.arg(installed.join("share/doc/toolbay/toolbay.toml"));
    for option in ["plugins", "state-dir", "cache-dir"] {
        call.arg(format!("--{option}")).arg(unpacked.join(option));
    }
    let output = call.output().context("the emulator does not start")?;
    let answer = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        answer.contains(ANSWER),
        "the emulated program ended with {} and answers {answer}{said}",
        output.status
    );
    println!("the program for {} answers in an emulator", FOREIGN.machine);
    Ok(())
}
