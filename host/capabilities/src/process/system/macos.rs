//! macOS: no limits of another process, and counts from `ps`.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::child::LaunchPlan;
use super::process_limit::GroupSize;

/// How often a group is counted where the system does not tell how many threads the machine has: at first, and later. A count
/// starts `ps`.
pub(super) const FALLBACK_INTERVALS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];

/// The key of a limit that the policy sets, and that this system does not enforce.
pub(super) fn unenforced_limit(plan: &LaunchPlan) -> Option<&'static str> {
    plan.memory_bytes.map(|_| "memory")
}

/// Does nothing: one process cannot set the limits of another. A program runs only where the policy has switched its sandbox
/// off, and may write as it likes.
pub(super) fn set_resource_limits(plan: &LaunchPlan, _: Pid) {
    let _ = plan.file_bytes;
}

/// Does nothing: one process cannot set the limits of another.
pub(super) fn set_nproc_limit(_: Pid, _: u64) {}

/// `None`: the system does not tell without a list of all processes.
pub(super) fn machine_threads() -> Option<u64> {
    None
}

/// Counts a group. Threads are not counted. A group that cannot be counted is too large: what keeps `ps` from working
/// is probably its work.
pub(super) fn count_group(group: Pid, _: u64, _: Option<Instant>) -> Option<GroupSize> {
    let mut ps = Command::new("/bin/ps");
    ps.env_clear().args(["-A", "-o", "pgid=", "-o", "state="]);
    let listed = ps.output().ok().filter(|listed| listed.status.success());
    let processes = listed.map_or(u64::MAX, |listed| {
        group_processes(&String::from_utf8_lossy(&listed.stdout), group.as_raw_nonzero().get())
    });
    Some(GroupSize { processes, threads: processes })
}

/// The processes of a group in a list of groups and states. Zombies do not count.
fn group_processes(list: &str, group: i32) -> u64 {
    let is_member = |line: &&str| {
        let mut fields = line.split_whitespace();
        fields.next().and_then(|field| field.parse().ok()) == Some(group)
            && fields.next().is_some_and(|state| !state.starts_with('Z'))
    };
    list.lines().filter(is_member).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processes_of_a_group_are_counted_without_zombies() {
        let list = "    1 Ss\n   42 S+\n   42 R\n  42 Z\n  421 S\n\n 42\n";
        assert_eq!(group_processes(list, 42), 2);
        assert_eq!(group_processes(list, 43), 0);
    }
}
