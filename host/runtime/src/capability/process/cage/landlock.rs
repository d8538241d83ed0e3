//! Files, connections and signals, by Landlock (docs.kernel.org/userspace-api/landlock.html).

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
    make_bitflags,
};

use super::Cage;
use crate::capability::process::request::{FolderAccess, open, path_of};

/// Where a system keeps programs and libraries: read and run by every program.
const SYSTEM: &[&str] =
    &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"];

/// What libraries read when they start: names, certificates, time zones. Nothing of it is secret.
const SETTINGS: &[&str] = &[
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/gitconfig",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/ld-musl-x86_64.path",
    "/etc/ld-musl-aarch64.path",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
];

/// Devices that hold nothing.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});
const RUN: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir | Execute});
/// Everything that changes files, but for devices and sockets. Gives no reading, as a policy's `fs_write`.
const WRITE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    WriteFile | Truncate | RemoveDir | RemoveFile | MakeDir | MakeReg | MakeSym | MakeFifo | Refer
});

/// Most entries of a folder that get a rule each; what is beyond is not run.
const MAX_ENTRIES: usize = 4096;

/// Restricts the calling thread and tells the version of Landlock that does it; 0: none.
pub(super) fn restrict(cage: &Cage) -> std::io::Result<u32> {
    try_restrict(cage).map_err(|error| std::io::Error::other(format!("landlock: {error}")))
}

fn try_restrict(cage: &Cage) -> Result<u32, RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V9))?
        .scope(Scope::from_all(ABI::V6))?;
    if !cage.network {
        rules = rules.handle_access(AccessNet::from_all(ABI::V4))?;
    }
    let mut rules = rules.create()?;
    for (paths, access) in [(SETTINGS, READ), (DEVICES, READ | AccessFs::WriteFile)] {
        for path in paths {
            rules = allow_path(rules, Path::new(path), access)?;
        }
    }
    let of_access = |access| cage.folders.iter().filter(move |folder| folder.access == access);
    let writable: Vec<PathBuf> =
        of_access(FolderAccess::Write).filter_map(|folder| place(&folder.at)).collect();
    for path in SYSTEM {
        if let Some(at) = open(Path::new(path)) {
            rules = allow_run(rules, &at, &writable)?;
        }
    }
    rules = allow_path(rules, &cage.file, RUN)?;
    for folder in &cage.folders {
        rules = match folder.access {
            FolderAccess::Read => allow(rules, &folder.at, READ)?,
            FolderAccess::Write => allow(rules, &folder.at, WRITE)?,
            FolderAccess::Execute => allow_run(rules, &folder.at, &writable)?,
        };
    }
    Ok(version(&rules.restrict_self()?))
}

/// Where an open folder is.
fn place(at: &OwnedFd) -> Option<PathBuf> {
    std::fs::read_link(path_of(at)).ok()
}

/// Lets programs be read and run in a folder, but for what lies in one that can be written: a rule of Landlock holds for
/// all below a folder, so where there is such a one, each other entry on the way to it has a rule of its own.
fn allow_run(
    rules: RulesetCreated,
    at: &OwnedFd,
    writable: &[PathBuf],
) -> Result<RulesetCreated, RulesetError> {
    let Some(path) = place(at) else { return Ok(rules) };
    if writable.iter().any(|written| path.starts_with(written)) {
        return allow(rules, at, READ);
    }
    if !writable.iter().any(|written| written.starts_with(&path)) {
        return allow(rules, at, RUN);
    }
    let mut rules = allow(rules, at, READ)?;
    for entry in std::fs::read_dir(&path).into_iter().flatten().flatten().take(MAX_ENTRIES) {
        // A link leads to a place with rules of its own.
        if entry.file_type().is_ok_and(|kind| !kind.is_symlink())
            && let Some(at) = open(&entry.path())
        {
            rules = allow_run(rules, &at, writable)?;
        }
    }
    Ok(rules)
}

/// The version of Landlock that restricts; 0: none.
pub(super) fn version(status: &RestrictionStatus) -> u32 {
    match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi as u32,
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => 0,
    }
}

/// Allows something that may not be there on this system.
fn allow_path(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    match open(path) {
        Some(at) => allow(rules, &at, access),
        None => Ok(rules),
    }
}

fn allow(
    rules: RulesetCreated,
    at: &OwnedFd,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let folder = rustix::fs::fstat(at).is_ok_and(|stat| {
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory
    });
    let access = if folder { access } else { access & AccessFs::from_file(ABI::V9) };
    rules.add_rule(PathBeneath::new(at, access))
}
