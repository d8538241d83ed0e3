//! macOS: processes are those of `ps`. A process whose parent ended belongs to the system, so it is not found.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use anyhow::Result;
use rustix::process::Pid;

use super::ListedProcess;

/// Does nothing: the system has no such request.
pub(super) fn adopt_descendants(_: Pid) -> Result<()> {
    Ok(())
}

/// All processes of the system, by their ids, without the `ps` that lists them.
pub(super) fn processes() -> BTreeMap<i32, ListedProcess> {
    let mut ps = Command::new("/bin/ps");
    ps.args(["-A", "-o", "pid=", "-o", "ppid=", "-o", "state=", "-o", "comm="]).stdout(Stdio::piped());
    let Ok(child) = ps.spawn() else { return BTreeMap::new() };
    let own = i32::try_from(child.id()).ok();
    let listed = child.wait_with_output().map(|output| output.stdout).unwrap_or_default();
    let mut processes = parse(&String::from_utf8_lossy(&listed));
    if let Some(own) = own {
        processes.remove(&own);
    }
    processes
}

/// `None`: nobody says it of a process that has ended.
pub(super) fn cpu_seconds(_: i32) -> Option<f64> {
    None
}

fn parse(list: &str) -> BTreeMap<i32, ListedProcess> {
    let process = |line: &str| {
        let mut fields = line.split_whitespace();
        let (id, parent, state) =
            (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?, fields.next()?);
        // The path of a program may contain spaces.
        let program = fields.collect::<Vec<_>>().join(" ");
        let name = program.rsplit('/').next().unwrap_or_default().to_owned();
        Some((id, ListedProcess { name, has_ended: state.starts_with('Z'), parent }))
    };
    list.lines().filter_map(process).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_read_from_a_list() {
        let listed = parse("  42     7 S+   /Applications/A b.app/a b\n   43 42 Z (c)\n\n x\n");
        let process =
            |name: &str, has_ended, parent| ListedProcess { name: name.to_owned(), has_ended, parent };
        assert_eq!(listed, BTreeMap::from([(42, process("a b", false, 7)), (43, process("(c)", true, 42))]));
    }
}
