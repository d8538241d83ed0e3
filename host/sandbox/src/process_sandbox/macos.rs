//! macOS: no sandbox that a process can put itself into. `sandbox-exec` and its library are deprecated, and no public
//! interface takes rules for one program. What needs the sandbox is refused by those who ask for it.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Resource};

use super::{Confinement, ProcessSandbox};

/// Confines nothing, and says so.
pub(super) fn restrict_thread(_: &ProcessSandbox, _: Option<Pid>) -> std::io::Result<Confinement> {
    Ok(Confinement::default())
}

/// Sets the resource limits. Confines nothing else, and says so.
///
/// # Errors
/// The limits cannot be set.
pub fn restrict_to_compute(bound: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<Confinement> {
    bound().map(|()| Confinement::default())
}

/// `false`: a program leads its own group.
///
/// # Errors
/// None.
pub fn freeze() -> std::io::Result<bool> {
    Ok(false)
}

/// `None`: the system accepts a limit on the address space and does not enforce it.
pub fn limit_address_space() -> Option<Resource> {
    None
}

/// `None`: there are no handles without access, and no sandbox that takes them.
pub fn open_path_handle(_: &Path) -> Option<OwnedFd> {
    None
}

/// The path of an open folder. Another process can swap it before a program enters it.
///
/// # Errors
/// The folder has no path any more.
pub fn folder_path(folder: &OwnedFd) -> std::io::Result<PathBuf> {
    use std::os::unix::ffi::OsStringExt as _;
    let path = rustix::fs::getpath(folder)?;
    Ok(std::ffi::OsString::from_vec(path.into_bytes()).into())
}
