//! Linux: limits of a running process by `prlimit`, counts from `/proc`.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit};

use super::child::LaunchPlan;
use super::process_limit::{GroupSize, THREADS_PER_PROCESS};

/// How often a group is counted where the system does not tell how many threads the machine has: at first, and later.
pub(super) const FALLBACK_INTERVALS: [Duration; 2] = [Duration::from_millis(100); 2];

/// `None`: every limit of a policy is enforced.
pub(super) fn unenforced_limit(_: &LaunchPlan) -> Option<&'static str> {
    None
}

/// Sets the resource limits of the started process. Children that it started within these microseconds escape them.
pub(super) fn set_resource_limits(plan: &LaunchPlan, child: Pid) {
    let limit = |value: u64| Rlimit { current: Some(value), maximum: Some(value) };
    let bounds = [
        (Resource::Core, Some(0)),
        (Resource::Fsize, Some(plan.file_bytes)),
        (Resource::As, plan.memory_bytes),
    ];
    for (resource, value) in bounds {
        if let Some(value) = value {
            // A process that has ended needs no limit.
            let _ = rustix::process::prlimit(Some(child), resource, limit(value));
        }
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

/// All threads of the machine that this process can see.
pub(super) fn machine_threads() -> Option<u64> {
    let line = fs::read_to_string("/proc/loadavg").ok()?;
    line.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
}

/// Counts a group until it exceeds the limit: a fork bomb must not delay its own end. `None`: the count took longer
/// than `until`.
pub(super) fn count_group(group: Pid, max: u64, until: Option<Instant>) -> Option<GroupSize> {
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
    use super::*;

    #[test]
    fn a_stat_line_is_parsed_with_any_process_name() {
        let line = "17 (a) Z 9 9 (x) R 1 42 7 0 -1 4194304 1 0 0 0 1 1 0 0 20 0 33 0 100 1 1 1";
        assert_eq!(group_threads(line, "42"), Some(33));
        assert_eq!(group_threads(line, "43"), None);
        assert_eq!(group_threads(&line.replace(") R", ") Z"), "42"), None, "a zombie does not count");
        assert_eq!(group_threads("", "42"), None);
    }
}
