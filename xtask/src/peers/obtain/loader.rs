//! Runs programs that need a newer C library than the machine has. The loader of a newer Debian release is unpacked into the
//! target folder; nothing outside the folder changes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::foreign::{shell, unpack_download};
use crate::programs::printed;

/// The Debian release with a recent enough C library.
const SUITE: &str = "trixie";
const PACKAGE: &str = "libc6";

/// Sets the executable bit, which Python packages do not preserve.
pub(super) fn allow(program: &Path) -> Result<()> {
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot make `{}` executable", program.display()))
}

/// The command that runs a program: the program itself, or a newer loader with the program as its argument.
pub(super) fn command(program: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let Err(why) = printed(Command::new(program).arg("--version")) else {
        return Ok(vec![program.to_path_buf()]);
    };
    if !why.to_string().contains("GLIBC_") {
        return Err(why);
    }
    let library = unpacked(&folder.join("libc")).with_context(|| {
        format!(
            "it needs a newer C library than this machine has, and the one of Debian {SUITE} is unavailable"
        )
    })?;
    let loader = library.join("ld-linux-x86-64.so.2");
    // All other libraries come from the machine.
    let paths = format!("{}:/lib/x86_64-linux-gnu:/usr/lib64:/lib64", library.display());
    Ok(vec![loader, "--library-path".into(), paths.into(), program.to_path_buf()])
}

/// Returns the folder of the C library, downloaded and unpacked on first use.
fn unpacked(folder: &Path) -> Result<PathBuf> {
    let library = folder.join("usr/lib/x86_64-linux-gnu");
    if library.join("ld-linux-x86-64.so.2").exists() {
        return Ok(library);
    }
    let place = |name: &str| folder.join(name);
    for name in ["lists/partial", "cache/archives/partial"] {
        std::fs::create_dir_all(place(name))?;
    }
    std::fs::write(place("sources.list"), format!("deb {} {SUITE} main\n", mirror()?))?;
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(["--quiet", "-o", "Dir::Etc::SourceParts=/dev/null", "-o", "Acquire::Languages=none"]);
        for (option, name) in [
            ("Dir::Etc::SourceList", "sources.list"),
            ("Dir::State::Lists", "lists"),
            ("Dir::Cache", "cache"),
        ] {
            command.arg("-o").arg(format!("{option}={}", place(name).display()));
        }
        shell(command.args(words).current_dir(folder))
    };
    apt(&["update"])?;
    apt(&["download", PACKAGE])?;
    unpack_download(folder)?;
    Ok(library)
}

/// The Debian mirror of this machine.
fn mirror() -> Result<String> {
    let targets = printed(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(REPO_URI) $(COMPONENT) $(ORIGIN) $(LABEL)",
        "Created-By: Packages",
    ]))?;
    let debian = |line: &&str| line.ends_with(" main Debian Debian");
    let Some(line) = targets.lines().find(debian) else {
        bail!("the machine has no Debian mirror");
    };
    Ok(line.split_whitespace().next().unwrap_or_default().to_owned())
}
