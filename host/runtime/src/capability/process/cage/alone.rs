//! The sandbox of a process that only computes: it has its threads, its memory and the files that are open already, and
//! gets nothing else. The compile worker is one.
//!
//! Here the calls are listed that are let through, and every other one is refused: what the process needs is known.

use std::io::{Error, Result};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
};
use landlock::{RulesetError, Scope};
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::Eq;
use seccompiler::{SeccompAction, SeccompCmpArgLen, SeccompCondition, SeccompRule};

use super::{Confinement, landlock as files, seccomp};

/// Memory, threads, clocks, and the open files.
const WORK: &[i64] = &[
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

/// `prctl`: the name of a thread, of a mapping.
const NAMES: [u64; 2] = [15, 0x5356_4d41];

/// As [`super::compute_only`].
pub(super) fn enter(bound: impl FnOnce() -> Result<()>) -> Result<Confinement> {
    let landlock = restrict().map_err(|error| Error::other(format!("landlock: {error}")))?;
    bound()?;
    Ok(Confinement { landlock, seccomp: filter()? })
}

fn restrict() -> std::result::Result<u32, RulesetError> {
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V9))?
        .handle_access(AccessNet::from_all(ABI::V4))?
        .scope(Scope::from_all(ABI::V6))?;
    Ok(files::version(&rules.create()?.restrict_self()?))
}

fn filter() -> Result<bool> {
    let mut rules: seccomp::Rules = WORK.iter().map(|call| (*call, Vec::new())).collect();
    rules.insert(
        libc::SYS_prctl,
        NAMES.map(|name| argument(0, Dword, name)).into_iter().collect::<Result<_>>()?,
    );
    // Its bounds can be read and not be changed: the new ones would be behind the third argument.
    rules.insert(libc::SYS_prlimit64, vec![argument(2, Qword, 0)?]);
    // To itself, as `abort` does it.
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

    /// Runs `work` in a thread that is confined and ends with it.
    fn alone<T: Send + 'static>(work: impl FnOnce(Confinement) -> T + Send + 'static) -> T {
        std::thread::spawn(move || work(enter(|| Ok(())).unwrap())).join().unwrap()
    }

    #[test]
    fn what_only_computes_opens_reaches_and_starts_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let refused = alone(move |held| {
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
    fn what_only_computes_has_its_memory_and_threads() {
        let sum = alone(|_| {
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
    fn bounds_can_be_read_and_not_raised() {
        use rustix::process::{Resource, getrlimit, setrlimit};
        let (seccomp, read, set) = alone(|held| {
            let now = getrlimit(Resource::Core);
            (held.seccomp, now, setrlimit(Resource::Core, now))
        });
        assert_eq!(read, getrlimit(Resource::Core));
        assert!(!seccomp || set.is_err());
    }
}
