//! Runs programs that need a newer C library than the machine has. The loader of a newer Debian release is unpacked into the
//! target folder; nothing outside the folder changes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::foreign::DebianPackages;
use crate::programs::printed;

/// Sets the executable bit, which Python packages do not preserve.
pub(super) fn allow(program: &Path) -> Result<()> {
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot make `{}` executable", program.display()))
}

/// The command that runs a program: the program itself, or a newer loader with the program as its argument.
pub(super) fn command(workspace: &Path, program: &Path) -> Result<Vec<PathBuf>> {
    let Err(why) = printed(Command::new(program).arg("--version")) else {
        return Ok(vec![program.to_path_buf()]);
    };
    if !why.to_string().contains("GLIBC_") {
        return Err(why);
    }
    let library = DebianPackages::newer(workspace, "amd64")
        .and_then(|packages| packages.unpacked("libc6"))
        .context(
            "it needs a newer C library than this machine has, and that of a newer Debian is unavailable",
        )?
        .join("usr/lib/x86_64-linux-gnu");
    let loader = library.join("ld-linux-x86-64.so.2");
    // All other libraries come from the machine.
    let paths = format!("{}:/lib/x86_64-linux-gnu:/usr/lib64:/lib64", library.display());
    Ok(vec![loader, "--library-path".into(), paths.into(), program.to_path_buf()])
}
