//! The sandbox of a program. The kernel's own: what it refuses, it refuses to the program, to all that the program
//! starts, and for good.
//!
//! Both walls hold for the thread that asks for them and for every process that this thread starts. So each program is
//! started by a thread of its own, which is confined first and ends right after.

#[cfg(target_os = "linux")]
mod alone;
#[cfg(target_os = "linux")]
mod landlock;
#[cfg(target_os = "linux")]
mod seccomp;

use std::path::{Path, PathBuf};

use rustix::process::Pid;
use toolbay_policy::capability::program::Program;

use super::request::Folder;

/// What one program may reach.
#[derive(Debug)]
pub(super) struct Cage {
    file: PathBuf,
    folders: Vec<Folder>,
    network: bool,
    chmod: bool,
}

/// What holds a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Confinement {
    /// The version of Landlock's interface; 0: none.
    pub(super) landlock: u32,
    pub(crate) seccomp: bool,
}

impl Confinement {
    /// The first version of Landlock that knows truncation, without which files outside can be emptied: Linux 6.2.
    const LANDLOCK: u32 = 3;

    /// Why this is not what `sandbox = "required"` means.
    pub(super) fn lack(self) -> Option<String> {
        if !self.seccomp {
            return Some("the kernel takes no seccomp filter".to_owned());
        }
        (self.landlock < Self::LANDLOCK).then(|| match self.landlock {
            0 => "the kernel has no Landlock, or it is switched off".to_owned(),
            version => {
                format!("the kernel's Landlock is version {version}, and {} is needed", Self::LANDLOCK)
            }
        })
    }

    /// For the audit, and for people.
    pub(crate) const fn shown(self) -> &'static str {
        match (self.landlock > 0, self.seccomp) {
            (true, true) => "landlock+seccomp",
            (true, false) => "landlock",
            (false, true) => "seccomp",
            (false, false) => "no sandbox",
        }
    }
}

impl Cage {
    pub(super) fn new(program: &Program, file: &Path, folders: Vec<Folder>) -> Self {
        Self { file: file.to_path_buf(), folders, network: program.network, chmod: program.chmod }
    }

    /// Confines the calling thread, and with it every process it starts from now on, for good. They can join the
    /// process group `group` and no other.
    ///
    /// # Errors
    /// What failed though the kernel has it; what the kernel does not have is only not in the answer.
    #[cfg(target_os = "linux")]
    pub(super) fn enter(&self, group: Option<Pid>) -> std::io::Result<Confinement> {
        drop_privileges()?;
        let landlock = landlock::restrict(self)?;
        let seccomp = seccomp::restrict(self, group, landlock)?;
        Ok(Confinement { landlock, seccomp })
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn enter(&self, _: Option<Pid>) -> std::io::Result<Confinement> {
        Ok(Confinement::default())
    }
}

/// Confines the calling thread, and every thread it starts from now on, to computing: it keeps what is open, and opens,
/// reaches and starts nothing. `bound` sets the bounds of the process on the way: Landlock needs a handle before, and
/// after it no bound can be set any more.
///
/// # Errors
/// Those of `bound`, and as [`Cage::enter`].
#[cfg(target_os = "linux")]
pub(crate) fn compute_only(bound: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<Confinement> {
    alone::enter(bound)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn compute_only(bound: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<Confinement> {
    bound().map(|()| Confinement::default())
}

/// Marks every handle of this process, but for its standard streams, as one that no program inherits: what this process
/// was started with, and what a library opened carelessly. What the standard library opens is marked already.
#[cfg(target_os = "linux")]
pub(crate) fn keep_files() {
    close_fds::set_fds_cloexec_threadsafe(3, &[]);
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn keep_files() {}

/// Lets the calling thread start processes that get no further than to be there; see the keeper. `false`: the kernel
/// cannot.
#[cfg(target_os = "linux")]
pub(super) fn freeze() -> std::io::Result<bool> {
    seccomp::freeze()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn freeze() -> std::io::Result<bool> {
    Ok(false)
}

/// Gives up what a host that runs as root could do beyond files: mount, load modules, send raw packets, trace. Of
/// files it keeps the right to those of other users: which ones, Landlock bounds.
#[cfg(target_os = "linux")]
fn drop_privileges() -> std::io::Result<()> {
    use caps::{CapSet, Capability};
    let failed = |error: caps::errors::CapsError| std::io::Error::other(error.to_string());
    let mut kept = caps::read(None, CapSet::Permitted).map_err(failed)?;
    kept.retain(|one| *one == Capability::CAP_DAC_OVERRIDE);
    let none = caps::CapsHashSet::new();
    // Ambient ones are only there where they are inheritable and permitted; old kernels do not know them.
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
    fn what_is_required_is_both_walls() {
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
                (confinement.lack().is_none(), confinement.shown()),
                (enough, shown),
                "{confinement:?}"
            );
        }
    }
}
