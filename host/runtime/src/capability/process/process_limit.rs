//! How many processes a program may have at once, itself included: a fork bomb must not take the machine's process
//! numbers. The kernel has no such bound for a host without a cgroup of its own: `RLIMIT_NPROC` counts all processes of
//! a user, and none of root's, so that it is only the second wall ([`bound`]). The first is a thread that counts the
//! process group, which nothing leaves, and ends it when it has grown too large.
//!
//! Reading all of `/proc` takes milliseconds; one line of `/proc/loadavg` takes microseconds and has the number of all
//! threads of the machine. The group is only counted when the machine has gained as many as the group may still gain. Where
//! even that takes long, since a crowd has the processors, the group is stopped while it is counted.

use std::fs;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal};

/// Threads for each process that may be there: a process of many threads is no crowd.
const THREADS: u64 = 16;
/// How often the machine's threads are counted: at first, while a program starts most of what it starts, and later.
const FIRST: Duration = Duration::from_millis(5);
const LATER: Duration = Duration::from_millis(40);
/// How long a group may run on while it is counted since the machine gained many.
const SOON: Duration = Duration::from_millis(25);
/// For how long it is the first.
const YOUNG: Duration = Duration::from_secs(10);
/// How often the group is counted though the machine gained nothing: others may have ended meanwhile.
const ANYWAY: Duration = Duration::from_secs(5);
/// How often the group is counted where the machine's threads cannot be.
const BLIND: Duration = Duration::from_millis(100);

/// What a process group has.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Count {
    processes: u64,
    threads: u64,
}

impl Count {
    fn is_over(self, most: u64) -> bool {
        self.processes > most || self.threads > THREADS.saturating_mul(most)
    }
}

/// Bounds the processes of the child's user, as far as the kernel does: what the machine has now, and what the group may
/// have. That of root is not bounded.
pub(super) fn bound(child: Pid, most: u64) {
    let Some(now) = threads_of_machine() else { return };
    let all = Some(now.saturating_add(THREADS.saturating_mul(most)));
    let given = rustix::process::getrlimit(Resource::Nproc).maximum;
    let all = given.map_or(all, |given| all.map(|all| all.min(given)));
    // A process that is gone needs no bound.
    let _ = rustix::process::prlimit(Some(child), Resource::Nproc, Rlimit { current: all, maximum: all });
}

/// Watches a group until the sender of `over` is gone; returns whether it had more than `most` processes, or more than
/// [`THREADS`] threads for each, and was killed. `signal` sends the group a signal.
pub(super) fn watch(group: Pid, most: u64, over: &Receiver<()>, signal: impl Fn(Signal)) -> bool {
    let started = Instant::now();
    let (mut known, mut of_machine, mut counted) = (Count::default(), None::<u64>, None::<Instant>);
    loop {
        let pause = if started.elapsed() < YOUNG { FIRST } else { LATER };
        if !matches!(over.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
            return false;
        }
        let now = threads_of_machine();
        let room = most.saturating_sub(known.processes).min((THREADS * most).saturating_sub(known.threads));
        let due = match (now, of_machine) {
            (Some(now), Some(before)) => now.saturating_sub(before) > room,
            (None, _) => counted.is_none_or(|at| at.elapsed() >= BLIND),
            (Some(_), None) => true,
        };
        if !due && counted.is_some_and(|at| at.elapsed() < ANYWAY) {
            continue;
        }
        let quick = count(group, most, due.then(|| Instant::now() + SOON));
        known = quick.unwrap_or_else(|| {
            signal(Signal::STOP);
            count(group, most, None).unwrap_or_default()
        });
        (of_machine, counted) = (now, Some(Instant::now()));
        if known.is_over(most) {
            signal(Signal::KILL);
            return true;
        }
        if quick.is_none() {
            signal(Signal::CONT);
        }
    }
}

/// All threads of the machine, as far as this process may know.
fn threads_of_machine() -> Option<u64> {
    let line = fs::read_to_string("/proc/loadavg").ok()?;
    line.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
}

/// Counts a group, no further than it takes to know that it is too large: a crowd must not hold up its own end. `None`: it
/// takes longer than `until`.
fn count(group: Pid, most: u64, until: Option<Instant>) -> Option<Count> {
    let group = group.as_raw_nonzero().get().to_string();
    let mut all = Count::default();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if until.is_some_and(|until| Instant::now() > until) {
            return None;
        }
        let name = entry.file_name();
        if !name.as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        let stat = fs::read_to_string(entry.path().join("stat"));
        // A process that ended meanwhile does not count, and neither does one that is dead and not yet waited for.
        let threads = stat.ok().and_then(|stat| threads_in(&stat, &group));
        all.processes += u64::from(threads.is_some());
        all.threads += threads.unwrap_or(0);
        if all.is_over(most) {
            break;
        }
    }
    Some(all)
}

/// The threads of a process of the group, from its line (`man 5 proc_pid_stat`): behind its name, which may hold
/// anything, stand its state, its parent and its group; the threads are the 20th field.
fn threads_in(stat: &str, group: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let (state, group_of) = (fields.next()?, fields.nth(1)?);
    if group_of != group || matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(14)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn the_line_of_a_process_is_read_whatever_its_name() {
        let line = "17 (a) Z 9 9 (x) R 1 42 7 0 -1 4194304 1 0 0 0 1 1 0 0 20 0 33 0 100 1 1 1";
        assert_eq!(threads_in(line, "42"), Some(33));
        assert_eq!(threads_in(line, "43"), None);
        assert_eq!(threads_in(&line.replace(") R", ") Z"), "42"), None, "what is dead is none");
        assert_eq!(threads_in("", "42"), None);
    }

    #[test]
    fn the_own_group_is_counted() {
        let own = count(rustix::process::getpgrp(), u64::MAX, None).unwrap();
        assert!(own.processes >= 1 && own.threads >= own.processes, "{own:?}");
    }
}
