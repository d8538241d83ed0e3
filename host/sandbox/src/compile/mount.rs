//! Whether code can be mapped from a folder.

use std::path::Path;

use rustix::fs::StatVfsMountFlags;

/// `ST_NOEXEC` of Linux. Other systems do not report it.
const NOEXEC: StatVfsMountFlags = StatVfsMountFlags::from_bits_retain(8);

/// What the file system of a folder allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mount {
    /// Code can be mapped from it.
    Executable,
    /// The folder is mounted with `noexec`.
    NoExec,
}

impl Mount {
    /// The mount of a folder. One that cannot be read counts as executable, so that mapping reports the error.
    pub(super) fn of(folder: &Path) -> Self {
        match rustix::fs::statvfs(folder) {
            Ok(system) if system.f_flag.contains(NOEXEC) => Self::NoExec,
            Ok(_) | Err(_) => Self::Executable,
        }
    }
}
