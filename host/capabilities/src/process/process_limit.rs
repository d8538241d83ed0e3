//! The limit of concurrent processes of a program, itself included: a fork bomb must not exhaust the machine's
//! process ids. Without its own cgroup, a host has no such limit in the kernel: `RLIMIT_NPROC` counts all processes
//! of a user, and none of root's, so it is only the second line of defence ([`set_nproc_limit`]). The first is a
//! thread that counts the process group, which no process can leave, and kills it when it grows too large.
//!
//! Reading all of `/proc` takes milliseconds; `/proc/loadavg` takes microseconds and contains the number of threads
//! of the machine. The group is counted only when the machine has gained as many threads as the group may still gain.
//! If the count itself takes long because a fork bomb occupies the processors, the group is stopped during the count.

use std::fs;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal};

/// Threads allowed per process: a process with many threads is no fork bomb.
const THREADS_PER_PROCESS: u64 = 16;
/// How often the machine's threads are counted: at first, when a program starts most of its processes, and later.
const EARLY_INTERVAL: Duration = Duration::from_millis(5);
const LATE_INTERVAL: Duration = Duration::from_millis(40);
/// How long a count may take before the group is stopped for it.
const COUNT_TIMEOUT: Duration = Duration::from_millis(25);
/// How long the early interval applies.
const EARLY_PERIOD: Duration = Duration::from_secs(10);
/// How often the group is counted even if the machine gained no threads: others may have ended meanwhile.
const MAX_COUNT_INTERVAL: Duration = Duration::from_secs(5);
/// How often the group is counted where `/proc/loadavg` cannot be read.
const FALLBACK_INTERVAL: Duration = Duration::from_millis(100);

/// The size of a process group.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct GroupSize {
    processes: u64,
    threads: u64,
}

impl GroupSize {
    fn exceeds(self, max: u64) -> bool {
        self.processes > max || self.threads > THREADS_PER_PROCESS.saturating_mul(max)
    }
}

/// Sets `RLIMIT_NPROC` to the machine's current number of threads plus those that the group may have. It does not
/// bind root.
pub(super) fn set_nproc_limit(child: Pid, max: u64) {
    let Some(now) = machine_threads() else { return };
    let all = Some(now.saturating_add(THREADS_PER_PROCESS.saturating_mul(max)));
    let given = rustix::process::getrlimit(Resource::Nproc).maximum;
    let all = given.map_or(all, |given| all.map(|all| all.min(given)));
    // A process that has ended needs no limit.
    let _ = rustix::process::prlimit(Some(child), Resource::Nproc, Rlimit { current: all, maximum: all });
}

/// Watches a group until the sender of `over` is dropped. Returns whether the group exceeded `max` processes, or
/// [`THREADS_PER_PROCESS`] threads for each, and was killed. `signal` sends a signal to the group.
pub(super) fn watch(group: Pid, max: u64, over: &Receiver<()>, signal: impl Fn(Signal)) -> bool {
    let started = Instant::now();
    let (mut known, mut of_machine, mut counted) = (GroupSize::default(), None::<u64>, None::<Instant>);
    loop {
        let pause = if started.elapsed() < EARLY_PERIOD { EARLY_INTERVAL } else { LATE_INTERVAL };
        if !matches!(over.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
            return false;
        }
        let now = machine_threads();
        let room = max
            .saturating_sub(known.processes)
            .min((THREADS_PER_PROCESS * max).saturating_sub(known.threads));
        let due = match (now, of_machine) {
            (Some(now), Some(before)) => now.saturating_sub(before) > room,
            (None, _) => counted.is_none_or(|at| at.elapsed() >= FALLBACK_INTERVAL),
            (Some(_), None) => true,
        };
        if !due && counted.is_some_and(|at| at.elapsed() < MAX_COUNT_INTERVAL) {
            continue;
        }
        let quick = count_group(group, max, due.then(|| Instant::now() + COUNT_TIMEOUT));
        known = quick.unwrap_or_else(|| {
            signal(Signal::STOP);
            count_group(group, max, None).unwrap_or_default()
        });
        (of_machine, counted) = (now, Some(Instant::now()));
        if known.exceeds(max) {
            signal(Signal::KILL);
            return true;
        }
        if quick.is_none() {
            signal(Signal::CONT);
        }
    }
}

/// All threads of the machine that this process can see.
fn machine_threads() -> Option<u64> {
    let line = fs::read_to_string("/proc/loadavg").ok()?;
    line.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
}

/// Counts a group until it exceeds the limit: a fork bomb must not delay its own end. `None`: the count took longer
/// than `until`.
fn count_group(group: Pid, max: u64, until: Option<Instant>) -> Option<GroupSize> {
    let group = group.as_raw_nonzero().get().to_string();
    let mut all = GroupSize::default();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if until.is_some_and(|until| Instant::now() > until) {
            return None;
        }
        let name = entry.file_name();
        if !name.as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        let stat = fs::read_to_string(entry.path().join("stat"));
        // Processes that ended meanwhile do not count, nor do zombies.
        let threads = stat.ok().and_then(|stat| group_threads(&stat, &group));
        all.processes += u64::from(threads.is_some());
        all.threads += threads.unwrap_or(0);
        if all.exceeds(max) {
            break;
        }
    }
    Some(all)
}

/// The threads of a process, from its stat line (`man 5 proc_pid_stat`); `None` outside the group. The name, which
/// can contain anything, is followed by the state, the parent and the group; threads are the 20th field.
fn group_threads(stat: &str, group: &str) -> Option<u64> {
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
    fn a_stat_line_is_parsed_with_any_process_name() {
        let line = "17 (a) Z 9 9 (x) R 1 42 7 0 -1 4194304 1 0 0 0 1 1 0 0 20 0 33 0 100 1 1 1";
        assert_eq!(group_threads(line, "42"), Some(33));
        assert_eq!(group_threads(line, "43"), None);
        assert_eq!(group_threads(&line.replace(") R", ") Z"), "42"), None, "a zombie does not count");
        assert_eq!(group_threads("", "42"), None);
    }

    #[test]
    fn the_group_of_this_process_is_counted() {
        let own = count_group(rustix::process::getpgrp(), u64::MAX, None).unwrap();
        assert!(own.processes >= 1 && own.threads >= own.processes, "{own:?}");
    }
}
