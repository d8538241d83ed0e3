//! Programs that want a newer C library than the machine has: run by the loader of a newer Debian, which is unpacked into
//! the target folder and changes nothing outside of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::said;
use crate::foreign::shell;

/// The release whose C library is new enough.
const SUITE: &str = "trixie";
const PACKAGE: &str = "libc6";

/// Marks a file as a program: packages of Python do not keep that.
pub(super) fn allow(program: &Path) -> Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755))
            .with_context(|| format!("cannot mark `{}` as a program", program.display()))?;
    }
    Ok(())
}

/// The words that run a program: itself, or a newer loader with it.
pub(super) fn command(program: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let Err(why) = said(Command::new(program).arg("--version")) else {
        return Ok(vec![program.to_path_buf()]);
    };
    if !why.to_string().contains("GLIBC_") {
        return Err(why);
    }
    let library = unpacked(&folder.join("libc")).with_context(|| {
        format!(
            "it wants a newer C library than this machine has, and Debian's of `{SUITE}` is not to be had"
        )
    })?;
    let loader = library.join("ld-linux-x86-64.so.2");
    // What else it wants is the machine's.
    let paths = format!("{}:/lib/x86_64-linux-gnu:/usr/lib64:/lib64", library.display());
    Ok(vec![loader, "--library-path".into(), paths.into(), program.to_path_buf()])
}

/// The folder of the C library, downloaded and unpacked once.
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
    let files = std::fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut packages = files.filter(|path| path.extension().is_some_and(|end| end == "deb"));
    let package = packages.next().context("no package came")?;
    shell(Command::new("dpkg").arg("-x").arg(package).arg(folder))?;
    Ok(library)
}

/// Where this machine gets Debian's packages.
fn mirror() -> Result<String> {
    let targets = said(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(REPO_URI) $(COMPONENT) $(ORIGIN) $(LABEL)",
        "Created-By: Packages",
    ]))?;
    let debian = |line: &&str| line.ends_with(" main Debian Debian");
    let Some(line) = targets.lines().find(debian) else {
        bail!("the machine has no source of Debian's packages");
    };
    Ok(line.split_whitespace().next().unwrap_or_default().to_owned())
}
