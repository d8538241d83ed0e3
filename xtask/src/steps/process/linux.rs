//! Linux: processes are those of `/proc`.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use rustix::process::Pid;

use super::ListedProcess;

/// Makes processes whose parent ended children of this one.
pub(super) fn adopt_descendants(own: Pid) -> Result<()> {
    rustix::process::set_child_subreaper(Some(own)).context("cannot adopt processes")
}

/// All processes of the system, by their ids.
pub(super) fn processes() -> BTreeMap<i32, ListedProcess> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    ids.filter_map(|id| Some((id, ProcessStat::read(id)?.process))).collect()
}

/// The processor time of a process and its ended children.
pub(super) fn cpu_seconds(id: i32) -> Option<f64> {
    let ticks = ProcessStat::read(id)?.ticks;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// What `/proc/ID/stat` says of a process (proc_pid_stat(5)).
struct ProcessStat {
    process: ListedProcess,
    /// Processor time of the process and its ended children.
    ticks: u64,
}

impl ProcessStat {
    fn read(id: i32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The name is in parentheses and may contain any of its own.
        let (head, rest) = text.rsplit_once(") ")?;
        let name = head.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = rest.split(' ').collect();
        let ticks = fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
        let has_ended = matches!(*fields.first()?, "Z" | "X");
        let process = ListedProcess { name, has_ended, parent: fields.get(1)?.parse().ok()? };
        Some(Self { process, ticks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_process_is_read() {
        let text = "42 (a) b) S 7 42 42 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 5 6";
        let stat = ProcessStat::parse(text).unwrap();
        let expected = ListedProcess { name: "a) b".to_owned(), has_ended: false, parent: 7 };
        assert_eq!((stat.process, stat.ticks), (expected, 100));
        let ended = ProcessStat::parse("42 (a) Z 7 42 42 0 -1 0 0 0 0 0 0 0 0 0 0").unwrap();
        assert!(ended.process.has_ended);
        assert!(ProcessStat::parse("").is_none());
    }
}
