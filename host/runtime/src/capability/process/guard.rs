//! What ends a server's processes when this process is killed and can end nothing any more.
//!
//! A guard is one more process in the group: this program again, which waits at a pipe that only this process holds
//! open. When the pipe ends, it kills the group, itself included. It is outside of the server's sandbox, so that the
//! server cannot end it first where the kernel bounds signals.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal};

/// The only argument of a guard.
pub const PROGRAM_GUARD: &str = "__guard-program";

/// Starts a guard in a group. It lives until the handle is dropped, or the group is killed. Without it the group is
/// still killed by this process.
pub(super) fn start(program: &Path, group: Pid) -> Option<OwnedFd> {
    let (theirs, ours) = std::io::pipe().ok()?;
    let started = Command::new(program)
        .arg(PROGRAM_GUARD)
        .env_clear()
        .process_group(group.as_raw_nonzero().get())
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        Ok(_) => Some(ours.into()),
        Err(error) => {
            tracing::warn!(%error, "no guard: if this process is killed, a server's programs may go on");
            None
        }
    }
}

/// What a program does that was started as a guard: waits for the end of stdin, and kills its own process group.
///
/// # Errors
/// When the group cannot be killed.
pub fn run_program_guard() -> std::io::Result<()> {
    // An error is an end, too.
    std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()).ok();
    rustix::process::kill_current_process_group(Signal::KILL)?;
    Ok(())
}
