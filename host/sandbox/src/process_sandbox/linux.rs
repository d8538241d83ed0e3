//! Linux: Landlock and seccomp.

mod compute_only;
mod landlock;
mod seccomp;

pub use self::compute_only::restrict_to_compute;
pub use self::seccomp::freeze;

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Resource};

use super::{Confinement, FolderAccess, ProcessSandbox};

pub(super) fn restrict_thread(sandbox: &ProcessSandbox, group: Option<Pid>) -> std::io::Result<Confinement> {
    drop_privileges()?;
    let landlock = landlock::restrict(sandbox)?;
    let seccomp = seccomp::restrict(sandbox, group, landlock)?;
    Ok(Confinement { landlock, seccomp })
}

/// The resource that bounds the memory of this process.
pub fn limit_address_space() -> Option<Resource> {
    Some(Resource::As)
}

/// Opens an `O_PATH` handle, which identifies a file or folder but grants no access.
pub fn open_path_handle(path: &Path) -> Option<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// A path through which a program can enter an open folder, and which cannot be swapped.
///
/// # Errors
/// None.
pub fn folder_path(folder: &OwnedFd) -> std::io::Result<PathBuf> {
    Ok(PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())))
}

/// Drops the capabilities of a host that runs as root: mounting, loading modules, raw packets, tracing. Keeps access
/// to files of other users, which Landlock bounds.
fn drop_privileges() -> std::io::Result<()> {
    use caps::{CapSet, Capability};
    let failed = |error: caps::errors::CapsError| std::io::Error::other(error.to_string());
    let mut kept = caps::read(None, CapSet::Permitted).map_err(failed)?;
    kept.retain(|one| *one == Capability::CAP_DAC_OVERRIDE);
    let none = caps::CapsHashSet::new();
    // Ambient capabilities need inheritable and permitted ones; old kernels do not support them.
    drop(caps::clear(None, CapSet::Ambient));
    for (set, value) in [(CapSet::Effective, &kept), (CapSet::Permitted, &kept), (CapSet::Inheritable, &none)]
    {
        caps::set(None, set, value).map_err(failed)?;
    }
    Ok(())
}
