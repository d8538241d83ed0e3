//! The seccomp filter for system calls (docs.kernel.org/userspace-api/seccomp_filter.html).
//!
//! The filter refuses calls that lead around Landlock or out of the process group, and calls that a model's tool has
//! no use for. A deny list ages, so every newer call returns `ENOSYS` as on a kernel without it, and so do the x32
//! calls of x86-64. A call of another architecture kills the program.

use std::collections::BTreeMap;
use std::io::{Error, Result};

use rustix::process::Pid;
use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, sock_filter,
};

use super::ProcessSandbox;

/// The first call number that the list does not cover: Linux 6.18 ends before it on all architectures.
const FIRST_UNKNOWN: u32 = 470;

/// `fcntl` commands that make the kernel send signals for a file to any process of the user (`F_SETOWN`,
/// `F_SETOWN_EX`: any signal with `F_SETSIG`), and the old directory watch (`F_NOTIFY`).
const SIGNAL_COMMANDS: &[u64] = &[8, 15, 1026];
/// `ioctl` requests equivalent to `F_SETOWN`: `FIOSETOWN`, `SIOCSPGRP`.
const OWNER_REQUESTS: &[u64] = &[0x8901, 0x8902];

/// The first Landlock ABI that restricts signals.
const SIGNAL_SCOPE_LANDLOCK: u32 = 6;

/// A memory file with this flag can never be executed. Landlock does not cover memory files, so a file without the
/// flag could be a program that the tool wrote itself.
const MFD_NOEXEC_SEAL: u64 = 8;

/// Calls refused with any arguments.
const ALWAYS_REFUSED: &[i64] = &[
    // Other processes: memory, handles, scheduling.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // Leaving the process group, which is killed at the end.
    libc::SYS_setsid,
    // Mounts, namespaces and file handles.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    SYS_OPEN_TREE_ATTR,
    libc::SYS_open_by_handle_at,
    libc::SYS_unshare,
    libc::SYS_setns,
    // Watches, which report names in folders that Landlock forbids to list.
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_inotify_init,
    // Memory that not even the kernel reads, and pages that stay writable behind a pipe.
    libc::SYS_memfd_secret,
    libc::SYS_vmsplice,
    libc::SYS_remap_file_pages,
    // Segments of 16-bit code and other relics, with a history of vulnerabilities.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ustat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_sysfs,
    #[cfg(target_arch = "x86_64")]
    libc::SYS__sysctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    // Ways around a filter, and kernel parts with a history of vulnerabilities.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // System V and POSIX IPC, which processes of a user share without a file.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semctl,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];

/// Modes, owners and extended attributes, which Landlock does not restrict by folder.
const ATTRIBUTE_CALLS: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SYS_SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SYS_REMOVEXATTRAT,
    SYS_FILE_SETATTR,
];

// Same numbers on every architecture; missing in the crate `libc`.
const SYS_FCHMODAT2: i64 = 452;
const SYS_SETXATTRAT: i64 = 463;
const SYS_REMOVEXATTRAT: i64 = 466;
const SYS_OPEN_TREE_ATTR: i64 = 467;
const SYS_FILE_SETATTR: i64 = 469;

/// Calls whose first argument is a process id, 0 for the caller: refused for other processes.
const PID_CALLS: &[i64] = &[
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
];

/// Socket calls, refused without network. `socketpair` is allowed: it reaches no other process.
const SOCKET_CALLS: &[i64] = &[libc::SYS_socket, libc::SYS_connect, libc::SYS_bind, libc::SYS_listen];

/// `ioctl` requests that inject terminal input or take a controlling terminal: `TIOCSTI`, `TIOCLINUX`, `TIOCSCTTY`.
/// Numeric, since the type of the constants differs between C libraries.
const TERMINAL_REQUESTS: &[u64] = &[0x5412, 0x541c, 0x540e];
/// `ioctl` requests that set file attributes: `FS_IOC_SETFLAGS`, `FS_IOC32_SETFLAGS`, `FS_IOC_FSSETXATTR`.
const FLAG_REQUESTS: &[u64] = &[0x4008_6602, 0x4004_6602, 0x401c_5820];

/// The rules of each call; a call with an empty list always matches.
pub(super) type SyscallRules = BTreeMap<i64, Vec<SeccompRule>>;

/// Restricts the calling thread; `false`: the kernel does not support it.
pub(super) fn restrict(sandbox: &ProcessSandbox, group: Option<Pid>, landlock: u32) -> Result<bool> {
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = compile(refusal_rules(sandbox, group, landlock)?, SeccompAction::Allow, refuse)?;
    Ok(apply(&filter)? && apply(&unknown_call_filter())?)
}

/// Restricts the calling thread so that the processes it starts cannot run any code; `false`: the kernel does not
/// support it.
///
/// # Errors
/// The filter cannot be installed.
pub fn freeze() -> Result<bool> {
    // The calls of the standard library and the C library to start a process and to end a thread.
    let start = [
        libc::SYS_clone,
        libc::SYS_clone3,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_vfork,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2,
        libc::SYS_dup3,
        // The C library queries the maximum file descriptor through this call or `prlimit64` below; it falls back to
        // 256.
        #[cfg(target_arch = "x86_64")]
        libc::SYS_getrlimit,
        libc::SYS_execve,
        libc::SYS_setpgid,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sigaltstack,
        libc::SYS_fcntl,
        libc::SYS_close,
        libc::SYS_pipe2,
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_wait4,
        libc::SYS_waitid,
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_mprotect,
        libc::SYS_madvise,
        libc::SYS_brk,
        libc::SYS_futex,
        libc::SYS_rseq,
        libc::SYS_set_robust_list,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ];
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let mut rules: SyscallRules = start.into_iter().map(|call| (call, Vec::new())).collect();
    rules.insert(libc::SYS_prlimit64, vec![rule(&[(0, Eq, 0)])?]);
    apply(&compile(rules, refuse, SeccompAction::Allow)?)
}

fn refusal_rules(sandbox: &ProcessSandbox, group: Option<Pid>, landlock: u32) -> Result<SyscallRules> {
    let mut rules: SyscallRules = ALWAYS_REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let others = PID_CALLS.iter().map(|call| Ok((*call, vec![rule(&[(0, Ne, 0)])?])));
    rules.extend(others.collect::<Result<Vec<_>>>()?);
    rules.insert(libc::SYS_setpriority, vec![rule(&[(1, Ne, 0)])?]);
    rules.insert(libc::SYS_ioprio_set, vec![rule(&[(1, Ne, 0)])?]);
    rules.insert(libc::SYS_personality, vec![rule(&[(0, Ne, 0), (0, Ne, 0xffff_ffff)])?]);
    // A new process can join the group that is killed at the end; no process can leave it.
    if let Some(group) = group {
        let group = group.as_raw_nonzero().get().cast_unsigned();
        rules.insert(libc::SYS_setpgid, vec![rule(&[(0, Ne, 0)])?, rule(&[(1, Ne, group.into())])?]);
    }
    rules.insert(libc::SYS_memfd_create, vec![rule(&[(1, MaskedEq(MFD_NOEXEC_SEAL), 0)])?]);
    let spaces = [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    let spaces = spaces.map(|flag| u64::from(flag.cast_unsigned()));
    rules.insert(
        libc::SYS_clone,
        spaces.iter().map(|f| rule(&[(0, MaskedEq(*f), *f)])).collect::<Result<_>>()?,
    );
    let commands = SIGNAL_COMMANDS.iter().map(|command| rule(&[(1, Eq, *command)]));
    rules.insert(libc::SYS_fcntl, commands.collect::<Result<_>>()?);
    let mut requests = [TERMINAL_REQUESTS, OWNER_REQUESTS].concat();
    if !sandbox.chmod {
        rules.extend(ATTRIBUTE_CALLS.iter().map(|call| (*call, Vec::new())));
        requests.extend(FLAG_REQUESTS);
    }
    rules.insert(libc::SYS_ioctl, requests.iter().map(|r| rule(&[(1, Eq, *r)])).collect::<Result<_>>()?);
    rules.extend(socket_rules(sandbox.network)?);
    if landlock < SIGNAL_SCOPE_LANDLOCK {
        // Without Landlock's signal scope, signals are allowed only to the own group.
        rules.insert(libc::SYS_kill, vec![rule(&[(0, Ne, 0)])?]);
        let calls = [
            libc::SYS_tkill,
            libc::SYS_tgkill,
            libc::SYS_rt_sigqueueinfo,
            libc::SYS_rt_tgsigqueueinfo,
            libc::SYS_pidfd_send_signal,
        ];
        rules.extend(calls.map(|call| (call, Vec::new())));
    }
    Ok(rules)
}

/// Without network, only stream socket pairs are allowed; with it, also Internet sockets, except raw ones. Unix
/// sockets are refused: they lead to local daemons, which would do for the host's user what Landlock forbids.
fn socket_rules(network: bool) -> Result<SyscallRules> {
    const TYPE: u64 = 0xf;
    let is_not = |allowed: &[i32]| {
        let refused =
            (0..=TYPE).filter(|kind| !allowed.iter().any(|a| u64::from(a.cast_unsigned()) == *kind));
        refused.map(|kind| rule(&[(1, MaskedEq(TYPE), kind)])).collect::<Result<Vec<_>>>()
    };
    // A datagram socket of a pair can send to other addresses.
    let pairs = (libc::SYS_socketpair, is_not(&[libc::SOCK_STREAM, libc::SOCK_SEQPACKET])?);
    let mut rules = SyscallRules::from([pairs]);
    if network {
        let (v4, v6) = (libc::AF_INET.cast_unsigned().into(), libc::AF_INET6.cast_unsigned().into());
        let mut refused = is_not(&[libc::SOCK_STREAM, libc::SOCK_DGRAM])?;
        refused.push(rule(&[(0, Ne, v4), (0, Ne, v6)])?);
        rules.insert(libc::SYS_socket, refused);
    } else {
        rules.extend(SOCKET_CALLS.iter().map(|call| (*call, Vec::new())));
    }
    Ok(rules)
}

/// A rule whose conditions on arguments must all hold.
fn rule(conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule> {
    let conditions =
        conditions.iter().map(|(index, op, value)| SeccompCondition::new(*index, Dword, op.clone(), *value));
    conditions.collect::<std::result::Result<_, _>>().and_then(SeccompRule::new).map_err(Error::other)
}

pub(super) fn compile(
    rules: SyscallRules,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram> {
    let arch = std::env::consts::ARCH.try_into().map_err(Error::other)?;
    let filter = SeccompFilter::new(rules, otherwise, matched, arch).map_err(Error::other)?;
    filter.try_into().map_err(Error::other)
}

/// A filter that returns `ENOSYS` for unknown calls and for `clone3`, whose flags a filter cannot read: every C
/// library falls back to `clone`. Written by hand, because the crate compares call numbers only for equality.
fn unknown_call_filter() -> BpfProgram {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_GE: u16 = 0x35;
    const JUMP_EQ: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let clone3 = u32::try_from(libc::SYS_clone3).unwrap_or(u32::MAX);
    let absent = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        step(LOAD_NUMBER, 0, 0, 0),
        step(JUMP_GE, 2, 0, FIRST_UNKNOWN),
        step(JUMP_EQ, 1, 0, clone3),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(RETURN, 0, 0, absent),
    ]
}

/// Installs a filter on the calling thread; `false`: the kernel does not support filters.
pub(crate) fn apply(filter: &BpfProgram) -> Result<bool> {
    match seccompiler::apply_filter(filter) {
        Ok(()) => Ok(true),
        Err(seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error))
            if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) =>
        {
            Ok(false)
        }
        Err(error) => Err(Error::other(format!("seccomp: {error}"))),
    }
}
