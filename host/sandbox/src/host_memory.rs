//! The memory available to this process, and the default memory budgets that are derived from it.

use std::fs;
use std::path::{Component, Path};

use rustix::process::{Resource, getrlimit};
use toolbay_policy::limits::{HostLimits, MIN_GUEST_MEMORY, MIN_RESULT_MEMORY};

/// Upper bound of the default `guest_memory`: 32 calls that use all of the default `memory`.
const MAX_GUEST_MEMORY: u64 = 2 << 30;
/// Upper bound of the default `result_memory`: eight of the largest results that the default limits allow.
const MAX_RESULT_MEMORY: u64 = 128 << 20;

/// Fills in the budgets that the policy leaves open. Guests get half of the available memory and results an eighth;
/// code, caches and the host itself need the rest.
pub fn with_default_budgets(limits: &HostLimits) -> HostLimits {
    with_budgets_for(limits, available_memory(Path::new("/")))
}

fn with_budgets_for(limits: &HostLimits, memory: u64) -> HostLimits {
    let guest = (memory / 2).clamp(MIN_GUEST_MEMORY, MAX_GUEST_MEMORY);
    let result = (memory / 8).clamp(MIN_RESULT_MEMORY, MAX_RESULT_MEMORY);
    let result = limits.result_memory.unwrap_or(result);
    HostLimits {
        guest_memory: Some(limits.guest_memory.unwrap_or(guest)),
        result_memory: Some(result),
        // One client must leave memory for others.
        outbox_bytes: limits.outbox_bytes.min(result / 2),
        ..limits.clone()
    }
}

/// The smallest of the machine's memory, the limits of the process's control groups, and its resource limits, in bytes.
fn available_memory(root: &Path) -> u64 {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let limits = [Resource::As, Resource::Data].map(|resource| getrlimit(resource).current);
    let machine = read(&root.join("proc/meminfo")).and_then(|text| meminfo_total(&text));
    let groups = read(&root.join("proc/self/cgroup")).unwrap_or_default();
    let of_groups = groups.lines().flat_map(|line| group_limits(&root.join("sys/fs/cgroup"), line));
    limits.into_iter().flatten().chain(machine).chain(of_groups).min().unwrap_or(u64::MAX)
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn meminfo_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The memory limits of a control group and its ancestors. The line is `0::/path` (version 2) or `7:memory:/path`
/// (version 1).
fn group_limits(mount: &Path, line: &str) -> Vec<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let (mount, file) = match controllers {
        "" => (mount.to_path_buf(), "memory.max"),
        "memory" => (mount.join("memory"), "memory.limit_in_bytes"),
        _ => return Vec::new(),
    };
    // In a container the path may be the host's and not exist here. The mount point is then the group itself.
    let relative = Path::new(path).components().filter(|part| matches!(part, Component::Normal(_)));
    let group = mount.join(relative.collect::<std::path::PathBuf>());
    let above = group.ancestors().take_while(|one| one.starts_with(&mount));
    above.filter_map(|one| fs::read_to_string(one.join(file)).ok()?.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> u64 {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        available_memory(root.path())
    }

    #[test]
    fn the_smallest_limit_applies() {
        let of_machine = ("proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\n");
        let version_2 = ("proc/self/cgroup", "0::/a/b\n");
        let version_1 = ("proc/self/cgroup", "3:cpu:/x\n7:memory:/a\n");
        let all = 16 << 20;
        assert_eq!(machine(&[of_machine]), all);
        assert_eq!(machine(&[of_machine, version_2]), all, "no limit file exists");
        for (files, expected) in [
            (&[("sys/fs/cgroup/a/b/memory.max", "max")][..], all),
            (&[("sys/fs/cgroup/a/b/memory.max", "4096\n")], 4096),
            (&[("sys/fs/cgroup/a/memory.max", "8192"), ("sys/fs/cgroup/a/b/memory.max", "max")], 8192),
            (&[("sys/fs/cgroup/memory.max", "2048")], 2048),
            (&[("sys/fs/cgroup/other/memory.max", "1")], all),
        ] {
            assert_eq!(machine(&[&[of_machine, version_2], files].concat()), expected, "{files:?}");
        }
        let limit = ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1024");
        assert_eq!(machine(&[of_machine, version_1, limit]), 1024);
    }

    #[test]
    fn budgets_are_shares_of_the_memory_unless_the_policy_sets_them() {
        let open = HostLimits::default();
        let of = |limits: &HostLimits, memory| {
            let limits = with_budgets_for(limits, memory);
            (limits.guest_memory.unwrap(), limits.result_memory.unwrap(), limits.outbox_bytes)
        };
        assert_eq!(of(&open, u64::MAX), (2 << 30, 128 << 20, 32 << 20));
        assert_eq!(of(&open, 256 << 20), (128 << 20, 32 << 20, 16 << 20));
        assert_eq!(of(&open, 0), (MIN_GUEST_MEMORY, MIN_RESULT_MEMORY, 512 << 10));
        let set = HostLimits { guest_memory: Some(1 << 40), result_memory: Some(1 << 30), ..open };
        assert_eq!(of(&set, 256 << 20), (1 << 40, 1 << 30, 32 << 20));
    }
}
