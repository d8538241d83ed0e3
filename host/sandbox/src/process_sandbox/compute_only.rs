//! The sandbox of a process that only computes, such as the compile worker: it keeps its threads, memory and open
//! files, and gets nothing else.
//!
//! The filter is an allow list, since the system calls that such a process needs are known.

use std::io::{Error, Result};

use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::Eq;
use seccompiler::{SeccompAction, SeccompCmpArgLen, SeccompCondition, SeccompRule};

use super::{Confinement, landlock, seccomp};

/// Memory, threads, clocks and open files.
const ALLOWED_CALLS: &[i64] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_lseek,
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_restart_syscall,
    libc::SYS_sysinfo,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// `prctl` options: `PR_SET_NAME` and `PR_SET_VMA`.
const PRCTL_NAMES: [u64; 2] = [15, 0x5356_4d41];

/// Confines the calling thread, and every thread that it starts from now on, to computation: open files stay usable,
/// but the thread can open, reach and start nothing. `bound` sets the resource limits: Landlock must be set up before
/// them, because it needs a file descriptor, and the seccomp filter after them, because it blocks `setrlimit`.
///
/// # Errors
/// Fails if `bound` fails, or as [`ProcessSandbox::restrict_thread`](super::super::ProcessSandbox::restrict_thread) does.
pub fn restrict_to_compute(bound: impl FnOnce() -> Result<()>) -> Result<Confinement> {
    let landlock = landlock::deny_all()?;
    bound()?;
    Ok(Confinement { landlock, seccomp: apply_filter()? })
}

fn apply_filter() -> Result<bool> {
    let mut rules: seccomp::SyscallRules = ALLOWED_CALLS.iter().map(|call| (*call, Vec::new())).collect();
    rules.insert(
        libc::SYS_prctl,
        PRCTL_NAMES.map(|name| argument(0, Dword, name)).into_iter().collect::<Result<_>>()?,
    );
    // Resource limits can be read but not changed: the third argument points to the new limit.
    rules.insert(libc::SYS_prlimit64, vec![argument(2, Qword, 0)?]);
    // `abort` signals its own process.
    rules.insert(libc::SYS_tgkill, vec![argument(0, Dword, std::process::id().into())?]);
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    seccomp::apply(&seccomp::compile(rules, refuse, SeccompAction::Allow)?)
}

fn argument(index: u8, length: SeccompCmpArgLen, value: u64) -> Result<SeccompRule> {
    let condition = SeccompCondition::new(index, length, Eq, value);
    condition.and_then(|condition| SeccompRule::new(vec![condition])).map_err(Error::other)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs::File;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    use super::*;

    /// Runs `work` in a confined thread, which then ends.
    fn run_confined<T: Send + 'static>(work: impl FnOnce(Confinement) -> T + Send + 'static) -> T {
        std::thread::spawn(move || work(restrict_to_compute(|| Ok(())).unwrap())).join().unwrap()
    }

    #[test]
    fn a_compute_only_thread_opens_reaches_and_starts_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let refused = run_confined(move |held| {
            let all = [
                ("read", File::open("/etc/passwd").map(drop)),
                ("itself", File::open("/proc/self/environ").map(drop)),
                ("write", File::create(&path).map(drop)),
                ("list", std::fs::read_dir("/").map(drop)),
                ("look", std::fs::metadata("/etc/passwd").map(drop)),
                ("link", std::os::unix::fs::symlink("/", &path)),
                ("tcp", TcpStream::connect(address).map(drop)),
                ("listen", TcpListener::bind("127.0.0.1:0").map(drop)),
                ("udp", UdpSocket::bind("127.0.0.1:0").map(drop)),
                ("unix", UnixStream::connect("/run/none").map(drop)),
                ("pair", UnixStream::pair().map(drop)),
                ("pipe", std::io::pipe().map(drop)),
                ("start", Command::new("/bin/true").spawn().map(drop)),
            ];
            (held, all.map(|(what, result)| (what, result.map_err(|error| error.kind()))))
        });
        let (held, refused) = refused;
        if !held.seccomp {
            assert!(held.landlock == 0 || refused[0].1.is_err(), "{refused:?}");
            return;
        }
        for (what, result) in refused {
            assert_eq!(result, Err(std::io::ErrorKind::PermissionDenied), "{what}");
        }
    }

    #[test]
    fn a_compute_only_thread_has_memory_and_threads() {
        let sum = run_confined(|_| {
            let parts: Vec<_> = (0..4_u64)
                .map(|part| {
                    let name = std::thread::Builder::new().name(format!("part-{part}"));
                    name.spawn(move || vec![part; 1 << 20].iter().sum::<u64>()).unwrap()
                })
                .collect();
            parts.into_iter().map(|part| part.join().unwrap()).sum::<u64>()
        });
        assert_eq!(sum, 6 << 20);
    }

    #[test]
    fn resource_limits_can_be_read_but_not_raised() {
        use rustix::process::{Resource, getrlimit, setrlimit};
        let (seccomp, read, set) = run_confined(|held| {
            let now = getrlimit(Resource::Core);
            (held.seccomp, now, setrlimit(Resource::Core, now))
        });
        assert_eq!(read, getrlimit(Resource::Core));
        assert!(!seccomp || set.is_err());
    }
}
