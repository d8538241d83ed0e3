//! The kernel's sandbox for programs. Its restrictions apply to the program and everything that it starts, and cannot
//! be lifted.
//!
//! Landlock and seccomp restrict the calling thread and every process that it starts. Each program is therefore
//! started by a new thread, which is confined first and ends right after.

#[cfg_attr(target_os = "linux", path = "process_sandbox/linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "process_sandbox/macos.rs")]
mod system;

pub use self::system::{folder_path, freeze, limit_address_space, open_path_handle, restrict_to_compute};

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::process::Pid;
use toolbay_policy::capability::program::{Program, SandboxMode};

/// The resources that one program can reach.
#[derive(Debug)]
pub struct ProcessSandbox {
    /// Its executable.
    pub file: PathBuf,
    /// What it reaches besides the system's folders.
    pub folders: Vec<SandboxFolder>,
    /// Whether it may use the network.
    pub network: bool,
    /// Whether it may change modes, owners and attributes of files.
    pub chmod: bool,
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

    /// Returns why this is less than a policy demands: all of the sandbox, or at least a part of it.
    pub fn unmet_requirement(self, mode: SandboxMode) -> Option<String> {
        match mode {
            SandboxMode::None => return None,
            SandboxMode::BestEffort if self.landlock > 0 || self.seccomp => return None,
            SandboxMode::BestEffort | SandboxMode::Required => {}
        }
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

    /// The mode with the most confinement that a program can have here, if that is less than `required`.
    pub fn weaker_mode(self) -> Option<SandboxMode> {
        let modes = [SandboxMode::Required, SandboxMode::BestEffort, SandboxMode::None];
        let best = modes.into_iter().find(|mode| self.unmet_requirement(*mode).is_none())?;
        (best != SandboxMode::Required).then_some(best)
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
    pub fn restrict_thread(&self, group: Option<Pid>) -> std::io::Result<Confinement> {
        system::restrict_thread(self, group)
    }
}

/// The confinement that programs get on this system. Starts a thread to find out.
///
/// # Errors
/// The thread does not start, or a supported mechanism fails.
pub fn available() -> std::io::Result<Confinement> {
    let sandbox = ProcessSandbox { file: "/".into(), folders: Vec::new(), network: false, chmod: false };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("toolbay-confined".to_owned());
        let thread = thread.spawn_scoped(scope, || sandbox.restrict_thread(None))?;
        thread.join().unwrap_or_else(|_| Err(std::io::Error::other("the confined thread panicked")))
    })
}

/// Marks every file descriptor of this process, except the standard streams, as close-on-exec: those it was started
/// with, and those that a library opened without the flag. The standard library sets the flag itself.
pub fn close_files_on_exec() {
    close_fds::set_fds_cloexec_threadsafe(3, &[]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_means_landlock_and_seccomp_and_best_effort_one_of_them() {
        for (landlock, seccomp, weaker, shown) in [
            (7, true, None, "landlock+seccomp"),
            (3, true, None, "landlock+seccomp"),
            (2, true, Some(SandboxMode::BestEffort), "landlock+seccomp"),
            (0, true, Some(SandboxMode::BestEffort), "seccomp"),
            (7, false, Some(SandboxMode::BestEffort), "landlock"),
            (0, false, Some(SandboxMode::None), "no sandbox"),
        ] {
            let confinement = Confinement { landlock, seccomp };
            assert_eq!((confinement.weaker_mode(), confinement.as_str()), (weaker, shown), "{confinement:?}");
        }
    }
}
