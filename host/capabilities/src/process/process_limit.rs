//! The limit of concurrent processes of a program, itself included: a fork bomb must not exhaust the machine's
//! process ids. Without its own cgroup, a host has no such limit in the kernel: `RLIMIT_NPROC` counts all processes
//! of a user, and none of root's, so it is only the second line of defence ([`system::set_nproc_limit`]). The first is a
//! thread that counts the process group, which no confined process can leave, and kills it when it grows too large.
//!
//! To count a group takes milliseconds. Linux tells in microseconds how many threads the machine has. The group is
//! counted only when the machine has gained as many threads as the group may still gain. If the count itself takes long
//! because a fork bomb occupies the processors, the group is stopped during the count.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::system::{self, count_group};

/// Threads allowed per process: a process with many threads is no fork bomb.
pub(super) const THREADS_PER_PROCESS: u64 = 16;
/// How often the machine's threads are counted: at first, when a program starts most of its processes, and later.
const EARLY_INTERVAL: Duration = Duration::from_millis(5);
const LATE_INTERVAL: Duration = Duration::from_millis(40);
/// How long a count may take before the group is stopped for it.
const COUNT_TIMEOUT: Duration = Duration::from_millis(25);
/// How long the early interval applies.
const EARLY_PERIOD: Duration = Duration::from_secs(10);
/// How often the group is counted even if the machine gained no threads: others may have ended meanwhile.
const MAX_COUNT_INTERVAL: Duration = Duration::from_secs(5);

/// The size of a process group.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupSize {
    pub(super) processes: u64,
    pub(super) threads: u64,
}

impl GroupSize {
    pub(super) fn exceeds(self, max: u64) -> bool {
        self.processes > max || self.threads > THREADS_PER_PROCESS.saturating_mul(max)
    }
}

/// Watches a group until the sender of `over` is dropped. Returns whether the group exceeded `max` processes, or
/// [`THREADS_PER_PROCESS`] threads for each, and was killed. `signal` sends a signal to the group.
pub(super) fn watch(group: Pid, max: u64, over: &Receiver<()>, signal: impl Fn(Signal)) -> bool {
    let started = Instant::now();
    let (mut known, mut of_machine, mut counted) = (GroupSize::default(), None::<u64>, None::<Instant>);
    loop {
        let is_early = started.elapsed() < EARLY_PERIOD;
        let [early, late] = system::FALLBACK_INTERVALS;
        let (pause, fallback) = if is_early { (EARLY_INTERVAL, early) } else { (LATE_INTERVAL, late) };
        if !matches!(over.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
            return false;
        }
        let now = system::machine_threads();
        let room = max
            .saturating_sub(known.processes)
            .min((THREADS_PER_PROCESS * max).saturating_sub(known.threads));
        let due = match (now, of_machine) {
            (Some(now), Some(before)) => now.saturating_sub(before) > room,
            (None, _) => counted.is_none_or(|at| at.elapsed() >= fallback),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn the_group_of_this_process_is_counted() {
        let own = count_group(rustix::process::getpgrp(), u64::MAX, None).unwrap();
        assert!(own.processes >= 1 && own.threads >= own.processes, "{own:?}");
    }
}
