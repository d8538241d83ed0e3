//! Landlock rules for files, connections and signals (docs.kernel.org/userspace-api/landlock.html).

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
    make_bitflags,
};

use super::{FolderAccess, ProcessSandbox, folder_path, open_path_handle};

/// System folders of programs and libraries, which every program can read and execute.
const SYSTEM_FOLDERS: &[&str] =
    &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"];

/// Configuration that libraries read at start: names, certificates, time zones. None of it is secret.
const CONFIG_FILES: &[&str] = &[
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

/// Devices without data.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});
const RUN: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir | Execute});
/// All rights that change files, except devices and sockets. Does not include reading, as `fs_write` of the policy.
const WRITE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    WriteFile | Truncate | RemoveDir | RemoveFile | MakeDir | MakeReg | MakeSym | MakeFifo | Refer
});

/// Maximum number of entries of a folder that get separate rules; entries beyond it cannot be executed.
const MAX_ENTRIES: usize = 4096;

/// Restricts the calling thread. Returns the Landlock ABI version in effect; 0: none.
pub(super) fn restrict(sandbox: &ProcessSandbox) -> std::io::Result<u32> {
    try_restrict(sandbox).map_err(|error| system_error(&error))
}

/// Denies the calling thread all files, connections, and signals to others. Returns the same as [`restrict`].
pub(super) fn deny_all() -> std::io::Result<u32> {
    let restricted = create_rules(false).and_then(RulesetCreated::restrict_self);
    restricted.map(|status| version(&status)).map_err(|error| system_error(&error))
}

fn system_error(error: &RulesetError) -> std::io::Error {
    std::io::Error::other(format!("landlock: {error}"))
}

/// Rules that allow nothing except connections, if `network` is set.
fn create_rules(network: bool) -> Result<RulesetCreated, RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V9))?
        .scope(Scope::from_all(ABI::V6))?;
    if !network {
        rules = rules.handle_access(AccessNet::from_all(ABI::V4))?;
    }
    rules.create()
}

fn try_restrict(sandbox: &ProcessSandbox) -> Result<u32, RulesetError> {
    let mut rules = create_rules(sandbox.network)?;
    for (paths, access) in [(CONFIG_FILES, READ), (DEVICES, READ | AccessFs::WriteFile)] {
        for path in paths {
            rules = allow_path(rules, Path::new(path), access)?;
        }
    }
    let of_access = |access| sandbox.folders.iter().filter(move |folder| folder.access == access);
    let writable: Vec<PathBuf> =
        of_access(FolderAccess::Write).filter_map(|folder| handle_path(&folder.handle)).collect();
    for path in SYSTEM_FOLDERS {
        if let Some(at) = open_path_handle(Path::new(path)) {
            rules = allow_run(rules, &at, &writable)?;
        }
    }
    rules = allow_path(rules, &sandbox.file, RUN)?;
    for folder in &sandbox.folders {
        rules = match folder.access {
            FolderAccess::Read => allow(rules, &folder.handle, READ)?,
            FolderAccess::Write => allow(rules, &folder.handle, WRITE)?,
            FolderAccess::Execute => allow_run(rules, &folder.handle, &writable)?,
        };
    }
    Ok(version(&rules.restrict_self()?))
}

/// The path of an open handle.
fn handle_path(at: &OwnedFd) -> Option<PathBuf> {
    std::fs::read_link(folder_path(at).ok()?).ok()
}

/// Allows reading and executing in a folder, except in writable folders. A Landlock rule covers everything below a
/// folder, so if the folder contains a writable one, each other entry on the way gets its own rule.
fn allow_run(
    rules: RulesetCreated,
    at: &OwnedFd,
    writable: &[PathBuf],
) -> Result<RulesetCreated, RulesetError> {
    let Some(path) = handle_path(at) else { return Ok(rules) };
    if writable.iter().any(|written| path.starts_with(written)) {
        return allow(rules, at, READ);
    }
    if !writable.iter().any(|written| written.starts_with(&path)) {
        return allow(rules, at, RUN);
    }
    let mut rules = allow(rules, at, READ)?;
    for entry in std::fs::read_dir(&path).into_iter().flatten().flatten().take(MAX_ENTRIES) {
        // The target of a link has its own rules.
        if entry.file_type().is_ok_and(|kind| !kind.is_symlink())
            && let Some(at) = open_path_handle(&entry.path())
        {
            rules = allow_run(rules, &at, writable)?;
        }
    }
    Ok(rules)
}

/// The Landlock ABI version in effect; 0: none.
fn version(status: &RestrictionStatus) -> u32 {
    match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi as u32,
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => 0,
    }
}

/// Allows access to a path that may not exist on this system.
fn allow_path(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    match open_path_handle(path) {
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
