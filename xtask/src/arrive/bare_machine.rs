//! A user who has Python and Node, and no network, compiler or Rust: commands run in a network namespace without interfaces,
//! with an empty home, and with a search path that has a few programs.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::folder::emptied;
use crate::foreign::{self, python};
use crate::programs::printed;

/// What the user has of the system.
const PROGRAMS: [&str; 17] = [
    "cat",
    "curl",
    "dirname",
    "env",
    "gzip",
    "ln",
    "ls",
    "mkdir",
    "mktemp",
    "mv",
    "realpath",
    "rm",
    "sh",
    "sha256sum",
    "tar",
    "uname",
    "which",
];
/// What the user must not have.
const ABSENT: [&str; 5] = ["cargo", "rustc", "cc", "gcc", "clang"];
/// What installers and the host may leave: their caches. The last one is npm's, among the temporary files.
const CACHES: [&str; 3] = [".cache", ".npm", "node-compile-cache"];

/// The user.
#[derive(Debug)]
pub(super) struct BareMachine {
    folder: PathBuf,
    unshare: PathBuf,
}

impl BareMachine {
    /// Makes the user's folders below a folder, in place of earlier ones.
    pub(super) fn new(workspace: &Path, folder: &Path) -> Result<Self> {
        emptied(folder)?;
        let machine = Self { folder: folder.to_path_buf(), unshare: found("unshare")? };
        for below in ["home", "bin", "tmp", "work"] {
            std::fs::create_dir(folder.join(below))?;
        }
        let bin = folder.join("bin");
        for program in PROGRAMS {
            symlink(found(program)?, bin.join(program))?;
        }
        // Not the link of a version manager, which needs the user's home.
        let own = printed(python().args(["-c", "import sys; print(sys.executable)"]))?;
        symlink(own.trim(), bin.join("python3"))?;
        let uv = foreign::uv(workspace)?;
        symlink(&uv, bin.join("uv"))?;
        symlink(uv.with_file_name("uvx"), bin.join("uvx"))?;
        let node = foreign::node(workspace)?;
        symlink(&node, bin.join("node"))?;
        for name in ["npm", "npx"] {
            let main = node.with_file_name(format!("../lib/node_modules/npm/bin/{name}-cli.js"));
            let script = format!("#!/bin/sh\nexec node '{}' \"$@\"\n", main.display());
            std::fs::write(bin.join(name), script)?;
            std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755))?;
        }
        for program in ABSENT {
            let status = machine.command("which").arg(program).output()?.status;
            ensure!(!status.success(), "`{program}` is on the search path");
        }
        Ok(machine)
    }

    /// A command of the user.
    pub(super) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(&self.unshare);
        command.args(["--user", "--map-root-user", "--net", "--"]).arg(program);
        command.env_clear().env("PATH", self.folder.join("bin")).env("HOME", self.home());
        command.env("TMPDIR", self.folder.join("tmp")).env("LANG", "C.UTF-8");
        // uv makes this folder even for `uvx`, which installs into the cache.
        command.env("UV_TOOL_DIR", self.folder.join("work/tools"));
        command.env("PIP_DISABLE_PIP_VERSION_CHECK", "1").env("npm_config_update_notifier", "false");
        command.current_dir(self.work());
        command
    }

    /// The user's home.
    pub(super) fn home(&self) -> PathBuf {
        self.folder.join("home")
    }

    /// Where the user works.
    pub(super) fn work(&self) -> PathBuf {
        self.folder.join("work")
    }

    /// Empties the home.
    pub(super) fn forget(&self) -> Result<()> {
        emptied(&self.home())
    }

    /// Checks that nothing is left but caches.
    pub(super) fn check_clean(&self) -> Result<()> {
        let mut left = Vec::new();
        for folder in [self.home(), self.folder.join("tmp")] {
            for entry in std::fs::read_dir(folder)? {
                left.push(entry?.file_name().to_string_lossy().into_owned());
            }
        }
        left.retain(|name| !CACHES.contains(&name.as_str()));
        ensure!(left.is_empty(), "installing and uninstalling leaves {}", left.join(", "));
        Ok(())
    }
}

/// The path of a program.
fn found(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&path).map(|folder| folder.join(name));
    files.find(|file| file.exists()).with_context(|| format!("`{name}` is not on the search path"))
}
