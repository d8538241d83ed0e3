//! `dist check`: builds the files of a release and uses them. Two packagings of the same build are equal, libraries of others
//! read every format and the native modules, a user without a network installs the wheel and the npm packages, the Debian package is
//! installed in an empty root and serves, the program for the other kind of machine answers a call in an emulator, and interpreters for
//! the other platforms load the native modules.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use foreign_root::ForeignRoot;

use super::compile::{ARCHITECTURES, FOREIGN, NATIVE, Profile};
use super::{CHECKSUMS, PackageFolder, Release, contents, write};
use crate::arrive;
use crate::folder::{emptied, read_text};
use crate::foreign::{python_with, shell, unpacked_package};
use crate::programs::printed;
use crate::registries::Skopeo;

mod foreign_root;
mod interpreters;
mod server;

/// A call and what its answer contains.
const TOOL: &str = "text__word_count";
const ARGUMENTS: &str = r#"{"text": "a b a"}"#;
const ANSWER: &str = r#""words":3"#;

/// Runs all checks.
pub(crate) fn run(workspace: &Path, profile: Profile) -> Result<()> {
    let release = Release::of(workspace, super::EXAMPLE_URL)?;
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
    let musl = unpacked_package(workspace, "musl")?.join("lib/x86_64-linux-musl/libc.so");
    let mut check = Command::new(python);
    check.arg(scripts.join("check.py")).arg(&folder).arg(&release.version).arg(musl);
    if profile == Profile::Release {
        check.arg("--shipped");
    }
    shell(&mut check)?;
    let packages = PackageFolder::new(&release, &folder)?;
    arrive::check_packages(workspace, &packages, &release.folder.join("machine"))?;
    copy_images(&release, &folder)?;
    install(&release, &folder)?;
    emulate(&release, &folder)?;
    interpreters::run(&release, &packages)
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
    emptied(&root)?;
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

/// Calls a tool of the program for the other kind of machine in an emulator, in a root that has the tarball and nothing
/// else.
fn emulate(release: &Release, folder: &Path) -> Result<()> {
    let root = ForeignRoot::new(release, "program", FOREIGN)?;
    let name = format!("toolbay-{}-{}-linux", release.version, FOREIGN.machine);
    let tarball = folder.join(format!("{name}.tar.gz"));
    shell(Command::new("tar").arg("-xzf").arg(tarball).current_dir(root.folder()))?;
    // Compilation is slow in an emulator.
    let plugins = root.folder().join("plugins");
    fs::create_dir(&plugins)?;
    fs::copy(root.folder().join(&name).join("lib/toolbay/plugins/text.wasm"), plugins.join("text.wasm"))?;
    let policy = read_text(&root.folder().join(&name).join("share/doc/toolbay/toolbay.toml"))?;
    fs::write(root.folder().join("toolbay.toml"), policy + "[host]\ncompile_timeout = \"20m\"\n")?;
    let mut call = root.command(&format!("/{name}/bin/toolbay"));
    call.args(["call", TOOL, ARGUMENTS, "--config", "/toolbay.toml", "--plugins", "/plugins"]);
    call.args(["--state-dir", "/state", "--cache-dir", "/cache"]);
    let answer = printed(&mut call)?;
    ensure!(answer.contains(ANSWER), "the emulated program answers {answer}");
    println!("the program for {} answers in an emulator", FOREIGN.machine);
    Ok(())
}
