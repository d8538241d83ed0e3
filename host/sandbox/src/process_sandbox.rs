//! The kernel's sandbox for programs. Its restrictions apply to the program and everything that it starts, and cannot
//! be lifted.
//!
//! Landlock and seccomp restrict the calling thread and every process that it starts. Each program is therefore
//! started by a new thread, which is confined first and ends right after.

#[cfg(target_os = "linux")]
mod compute_only;
#[cfg(target_os = "linux")]
mod landlock;
#[cfg(target_os = "linux")]
mod seccomp;

#[cfg(target_os = "linux")]
pub use self::compute_only::restrict_to_compute;
#[cfg(target_os = "linux")]
pub use self::seccomp::freeze;

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::process::Pid;
use toolbay_policy::capability::program::Program;

/// The resources that one program can reach.
#[derive(Debug)]
pub struct ProcessSandbox {
    file: PathBuf,
    folders: Vec<SandboxFolder>,
    network: bool,
    chmod: bool,
}

/// A folder or file that a program reaches in addition to the system's, by its opened handle.
#[derive(Debug)]
pub struct SandboxFolder {
    /// The handle.
    pub handle: OwnedFd,
    /// What the program may do there.
    pub access: FolderAccess,
}

/// The access of a program to a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderAccess {
    /// Read its files.
    Read,
    /// Read and write its files.
    Write,
    /// Read its files and run them.
    Execute,
}

/// The confinement of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Confinement {
    /// The Landlock ABI version; 0: none.
    pub landlock: u32,
    /// Whether the kernel filters its system calls.
    pub seccomp: bool,
}

impl Confinement {
    /// The first Landlock ABI that handles truncation (Linux 6.2). Without it, a program can truncate files outside
    /// its folders.
    const MIN_LANDLOCK: u32 = 3;

    /// Returns why this does not satisfy `sandbox = "required"`.
    pub fn unmet_requirement(self) -> Option<String> {
        if !self.seccomp {
            return Some("the kernel does not support seccomp filters".to_owned());
        }
        (self.landlock < Self::MIN_LANDLOCK).then(|| match self.landlock {
            0 => "the kernel does not support Landlock, or it is disabled".to_owned(),
            version => {
                format!(
                    "the kernel's Landlock ABI is version {version}, but {} is required",
                    Self::MIN_LANDLOCK
                )
            }
        })
    }

    /// The name for the audit and for messages.
    pub const fn as_str(self) -> &'static str {
        match (self.landlock > 0, self.seccomp) {
            (true, true) => "landlock+seccomp",
            (true, false) => "landlock",
            (false, true) => "seccomp",
            (false, false) => "no sandbox",
        }
    }
}

impl ProcessSandbox {
    /// The sandbox of a program of the policy, whose executable is `file`.
    #[must_use]
    pub fn new(program: &Program, file: &Path, folders: Vec<SandboxFolder>) -> Self {
        Self { file: file.to_path_buf(), folders, network: program.network, chmod: program.chmod }
    }

    /// Confines the calling thread and every process that it starts from now on. They can join the process group
    /// `group` and no other.
    ///
    /// # Errors
    /// When a supported mechanism fails. An unsupported one is only missing from the result.
    #[cfg(target_os = "linux")]
    pub fn restrict_thread(&self, group: Option<Pid>) -> std::io::Result<Confinement> {
        drop_privileges()?;
        let landlock = landlock::restrict(self)?;
        let seccomp = seccomp::restrict(self, group, landlock)?;
        Ok(Confinement { landlock, seccomp })
    }

    /// Confines nothing: only Linux has a sandbox.
    ///
    /// # Errors
    /// None.
    #[cfg(not(target_os = "linux"))]
    pub fn restrict_thread(&self, _: Option<Pid>) -> std::io::Result<Confinement> {
        Ok(Confinement::default())
    }
}

/// Sets the resource limits, and confines nothing: only Linux has a sandbox.
///
/// # Errors
/// The limits cannot be set.
#[cfg(not(target_os = "linux"))]
pub fn restrict_to_compute(bound: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<Confinement> {
    bound().map(|()| Confinement::default())
}

/// Marks every file descriptor of this process, except the standard streams, as close-on-exec: those it was started
/// with, and those that a library opened without the flag. The standard library sets the flag itself.
#[cfg(target_os = "linux")]
pub fn close_files_on_exec() {
    close_fds::set_fds_cloexec_threadsafe(3, &[]);
}

/// Does nothing: only Linux needs it.
#[cfg(not(target_os = "linux"))]
pub fn close_files_on_exec() {}

/// `false`: only Linux can do it.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub fn freeze() -> std::io::Result<bool> {
    Ok(false)
}

/// Opens an `O_PATH` handle, which identifies a file or folder but grants no access.
pub fn open_path_handle(path: &Path) -> Option<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// The path through which an open folder can be entered, so that it cannot be swapped.
pub fn proc_fd_path(folder: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", folder.as_raw_fd())
}

/// Drops the capabilities of a host that runs as root: mounting, loading modules, raw packets, tracing. Keeps access
/// to files of other users, which Landlock bounds.
#[cfg(target_os = "linux")]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_means_landlock_and_seccomp() {
        for (landlock, seccomp, enough, shown) in [
            (7, true, true, "landlock+seccomp"),
            (3, true, true, "landlock+seccomp"),
            (2, true, false, "landlock+seccomp"),
            (0, true, false, "seccomp"),
            (7, false, false, "landlock"),
            (0, false, false, "no sandbox"),
        ] {
            let confinement = Confinement { landlock, seccomp };
            assert_eq!(
                (confinement.unmet_requirement().is_none(), confinement.as_str()),
                (enough, shown),
                "{confinement:?}"
            );
        }
    }
}
