//! Folders that programs for another platform see as `/`. Programs for another kind of machine run in an emulator.
//!
//! In a user namespace (Linux 6.7), the kernel starts the emulator for each program of the other kind, also for the compile worker, and
//! the formats of this machine stay as they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::dist::Release;
use crate::dist::compile::{Architecture, NATIVE};
use crate::folder::emptied;
use crate::foreign::{DebianPackages, shell};

/// The Debian package with the emulator, and its program. Before version 8, it kept a table of all pages that a program reserves, and
/// the instance pool would have taken its memory.
const EMULATOR: (&str, &str) = ("qemu-user", "usr/bin/qemu-aarch64");
/// The first bytes of a program for 64-bit ARM, and which of their bits count.
const MAGIC: &str = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00";
const MASK: &str = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff";
/// Registers the emulator that `$0` describes.
const REGISTER: &str = r#"formats=/proc/sys/fs/binfmt_misc && mount -t binfmt_misc none "$formats" \
&& printf '%s' "$0" > "$formats/register" && "#;
/// Runs the arguments after the first one, which is the root.
const ENTER: &str = r#"mount -t proc none "$1/proc" && exec chroot "$@""#;

/// A root for one kind of machine.
#[derive(Debug)]
pub(super) struct ForeignRoot {
    folder: PathBuf,
    packages: DebianPackages,
    /// How the kernel knows the emulator. None: programs run without one.
    format: Option<String>,
}

impl ForeignRoot {
    /// Makes a root without programs, in place of an earlier one.
    pub(super) fn new(release: &Release, name: &str, architecture: Architecture) -> Result<Self> {
        let folder = release.folder.join("roots").join(name);
        emptied(&folder)?;
        for below in ["proc", "tmp", "usr/lib"] {
            fs::create_dir_all(folder.join(below))?;
        }
        std::os::unix::fs::symlink("usr/lib", folder.join("lib"))?;
        let packages = DebianPackages::newer(&release.workspace, architecture.debian)?;
        let format = match architecture {
            NATIVE => None,
            _ => Some(emulator(&release.workspace)?),
        };
        Ok(Self { folder, packages, format })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Adds a package of Debian.
    pub(super) fn add(&self, package: &str) -> Result<()> {
        let files = self.packages.unpacked(package)?.join("usr");
        shell(Command::new("cp").arg("--archive").arg(files).arg(&self.folder))
    }

    /// A command that runs a program in the root, with an empty home.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c"]);
        match &self.format {
            Some(format) => command.arg(format!("{REGISTER}{ENTER}")).arg(format),
            None => command.args([ENTER, "sh"]),
        };
        command.arg(&self.folder).arg(program);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", "/");
        command
    }
}

/// The format of programs for 64-bit ARM, with the emulator that runs them.
fn emulator(workspace: &Path) -> Result<String> {
    let (package, program) = EMULATOR;
    let file = DebianPackages::newer(workspace, NATIVE.debian)?.unpacked(package)?.join(program);
    // `F`: the kernel opens the emulator now, outside of the root.
    Ok(format!(":toolbay:M::{MAGIC}:{MASK}:{}:F", file.display()))
}
