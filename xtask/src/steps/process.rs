//! The process of one step: it ends with everything that it started, however it ends.
//!
//! The process is in a session of its own, so that an interrupt from the terminal reaches only the process that started it. Its
//! stdin is a pipe that nobody writes to. When the other end is closed, because the step exceeded its limit or because the
//! process that started it was killed, the step ends. Processes whose parent ended become children of the step, so that it
//! finds them.

#[cfg_attr(target_os = "linux", path = "process/linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "process/macos.rs")]
mod system;
// Its tests read what `ps` prints everywhere.
#[cfg(all(test, target_os = "linux"))]
#[path = "process/macos.rs"]
#[allow(dead_code, reason = "only its tests run on Linux")]
mod macos;

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::process::Child;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

/// Time for a step to end what it started.
pub(crate) const END_TIMEOUT: Duration = Duration::from_secs(30);
/// How often processes are ended that appear while others end.
const ROUNDS: usize = 200;

/// Runs the step, and ends everything that it left behind.
pub(super) fn isolated(run: impl FnOnce() -> Result<()>) -> Result<()> {
    let own = rustix::process::getpid();
    rustix::process::setsid().context("cannot create a session")?;
    system::adopt_descendants(own)?;
    let mut lifeline = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    // Programs of the step find an empty stdin.
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    // It ends with the process.
    std::thread::spawn(move || {
        lifeline.read_to_end(&mut Vec::new()).ok();
        println!("the step was ended");
        end_descendants(own);
        rustix::process::kill_process(own, Signal::KILL).ok();
    });
    let result = run();
    let left = end_descendants(own);
    if !left.is_empty() {
        println!("ended what the step left running: {}", left.join(", "));
    }
    result
}

/// Ends all descendants of a process and returns their names.
fn end_descendants(root: Pid) -> Vec<String> {
    let mut ended = Vec::new();
    for _ in 0..ROUNDS {
        let found = descendants(root.as_raw_nonzero().get());
        if found.is_empty() {
            break;
        }
        for (id, name) in found {
            if let Some(id) = Pid::from_raw(id)
                && rustix::process::kill_process(id, Signal::KILL).is_ok()
                && !ended.contains(&name)
            {
                ended.push(name);
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    ended
}

/// A process of the system.
#[derive(Debug, PartialEq, Eq)]
struct ListedProcess {
    name: String,
    has_ended: bool,
    parent: i32,
}

/// The running descendants of a process with their names.
fn descendants(root: i32) -> Vec<(i32, String)> {
    let all = system::processes();
    let is_below = |mut id: i32| {
        // A process that starts meanwhile may be missing. The next round finds it.
        while let Some(process) = all.get(&id) {
            if process.parent == root {
                return true;
            }
            id = process.parent;
        }
        false
    };
    let running = all.iter().filter(|(id, process)| !process.has_ended && is_below(**id));
    running.map(|(id, process)| (*id, process.name.clone())).collect()
}

/// Waits for the end of a process, and returns the processor time that it and its ended children took; zero where the system
/// does not say.
pub(crate) fn cpu_seconds_at_end(child: &Child) -> f64 {
    let Ok(id) = i32::try_from(child.id()) else { return 0.0 };
    // The process stays readable until somebody takes its status.
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let ended = Pid::from_raw(id).map(|id| rustix::process::waitid(WaitId::Pid(id), options));
    ended.and_then(Result::ok).and_then(|_| system::cpu_seconds(id)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_child_of_a_child_is_ended() {
        let mut shell = Command::new("sh");
        let mut child = shell.args(["-c", "yes & wait"]).stdout(Stdio::piped()).spawn().unwrap();
        // It has its own name once it writes. Before, it is a copy of the shell.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let id = i32::try_from(child.id()).unwrap();
        assert_eq!(descendants(id).len(), 1);
        let ended = end_descendants(Pid::from_raw(id).unwrap());
        assert_eq!(ended, ["yes"]);
        assert!(descendants(id).is_empty());
        child.wait().unwrap();
    }
}
