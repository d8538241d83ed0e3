//! The guard that ends the programs of this process when this process is killed.
//!
//! A guard is one process for all programs of a host, those of plugins and the MCP servers: this executable again,
//! waiting on a pipe that only this process holds open. The pipe tells it which process groups run. When the pipe closes,
//! whatever ended this process, the guard kills these groups and ends. It has a group of its own and runs outside of every
//! sandbox, so that no program can kill it first where the kernel restricts signals.
//!
//! | line | meaning |
//! |---|---|
//! | `+ID` | the group runs from now on |
//! | `-ID` | the group has ended; its id is not reserved any more |

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal};

/// The only argument of the guard process.
pub const PROGRAM_GUARD: &str = "__guard-program";
/// Maximum length of a line, in bytes: a sign and an id.
const MAX_LINE: u64 = 32;

/// The guard of a host. It starts with the first program. Without an executable, or when it cannot start, this process
/// still kills its programs unless it is killed itself.
#[derive(Debug, Default)]
pub struct ProgramGuard {
    program: Option<PathBuf>,
    state: Mutex<GuardState>,
}

#[derive(Debug, Default)]
struct GuardState {
    /// The groups that run.
    groups: BTreeSet<i32>,
    process: Option<GuardProcess>,
    /// Whether a failed start was logged.
    is_reported: bool,
}

/// A running guard. Dropping it closes its pipe, and it ends.
#[derive(Debug)]
struct GuardProcess {
    child: Child,
    /// `None` when it is being dropped.
    pipe: Option<io::PipeWriter>,
}

/// A group that the guard kills if this process ends. Drop it before the id of the group is free again.
#[derive(Debug)]
pub(super) struct GuardedGroup {
    guard: Arc<ProgramGuard>,
    group: i32,
}

impl ProgramGuard {
    /// A guard that is started from this executable.
    pub fn new(program: Option<PathBuf>) -> Self {
        Self { program, ..Self::default() }
    }

    /// Puts a group under guard. Blocks while the guard starts.
    pub(super) fn watch(self: &Arc<Self>, group: Pid) -> GuardedGroup {
        let group = group.as_raw_nonzero().get();
        let mut state = self.state.lock();
        state.groups.insert(group);
        if let Some(program) = &self.program {
            state.send(&format!("+{group}\n"), program);
        }
        GuardedGroup { guard: Arc::clone(self), group }
    }
}

impl Drop for GuardedGroup {
    fn drop(&mut self) {
        let mut state = self.guard.state.lock();
        state.groups.remove(&self.group);
        // A guard that has ended has killed its groups. The next program starts another one.
        if let Some(process) = &mut state.process
            && process.write(&format!("-{}\n", self.group)).is_err()
        {
            state.process = None;
        }
    }
}

impl GuardState {
    /// Sends a line to the guard. If no guard is running, starts one and sends it all groups.
    fn send(&mut self, line: &str, program: &Path) {
        if let Some(process) = &mut self.process
            && process.write(line).is_ok()
        {
            return;
        }
        self.process = None;
        let all: String = self.groups.iter().map(|group| format!("+{group}\n")).collect();
        let started = GuardProcess::start(program).and_then(|mut process| {
            process.write(&all)?;
            Ok(process)
        });
        match started {
            Ok(process) => self.process = Some(process),
            Err(error) if !self.is_reported => {
                self.is_reported = true;
                tracing::warn!(
                    %error,
                    "the guard of programs did not start: if this process is killed, they may keep running"
                );
            }
            Err(_) => {}
        }
    }
}

impl GuardProcess {
    fn start(program: &Path) -> io::Result<Self> {
        let (theirs, ours) = io::pipe()?;
        let child = Command::new(program)
            .arg(PROGRAM_GUARD)
            .env_clear()
            .process_group(0)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { child, pipe: Some(ours) })
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        self.pipe.as_mut().map_or(Ok(()), |pipe| pipe.write_all(line.as_bytes()))
    }
}

impl Drop for GuardProcess {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // It ends with its pipe. A guard that was stopped from outside must not block this process.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs the guard: keeps the groups that stdin names, and kills them when it ends.
///
/// # Errors
/// Never fails at present: the end of stdin and an unreadable stdin are the same.
pub fn run_program_guard() -> io::Result<()> {
    for group in read_groups(io::stdin().lock()) {
        if let Some(group) = Pid::from_raw(group) {
            // A group that has ended needs no signal.
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }
    Ok(())
}

/// The groups that run when the input ends.
fn read_groups(input: impl io::Read) -> BTreeSet<i32> {
    let (mut groups, mut input) = (BTreeSet::new(), BufReader::new(input));
    let mut line = String::new();
    loop {
        line.clear();
        // An error ends the wait, too.
        if !matches!(input.by_ref().take(MAX_LINE).read_line(&mut line), Ok(1..)) {
            return groups;
        }
        let id = |text: &str| text.trim_end().parse::<i32>().ok().filter(|id| *id > 1);
        if let Some(group) = line.strip_prefix('+').and_then(id) {
            groups.insert(group);
        } else if let Some(group) = line.strip_prefix('-').and_then(id) {
            groups.remove(&group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_that_did_not_end_are_left() {
        let lines = "+10\n+20\n-10\n+30\n-40\n+1\n+0\n+-5\nx\n+9999999999\n";
        assert_eq!(read_groups(lines.as_bytes()), BTreeSet::from([20, 30]));
        assert!(read_groups(&[0xff, b'\n'][..]).is_empty());
    }
}
