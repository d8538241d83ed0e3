//! The guard that ends a server's processes when this process is killed.
//!
//! A guard is an additional process in the server's group: this executable again, waiting on a pipe that only this
//! process holds open. When the pipe closes, it kills the group, itself included. It runs outside the server's
//! sandbox, so that where the kernel restricts signals the server cannot kill it first.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal};

/// The only argument of the guard process.
pub const PROGRAM_GUARD: &str = "__guard-program";

/// Starts a guard in a group. It lives until the handle is dropped or the group is killed. Without a guard, this
/// process still kills the group unless it is killed itself.
pub(super) fn start_guard(program: &Path, group: Pid) -> Option<OwnedFd> {
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
            tracing::warn!(
                %error,
                "the guard of a server did not start: if this process is killed, the server may keep running"
            );
            None
        }
    }
}

/// Runs the guard: waits for the end of stdin, then kills its own process group.
///
/// # Errors
/// When the group cannot be killed.
pub(crate) fn run_program_guard() -> std::io::Result<()> {
    // An error ends the wait, too.
    std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()).ok();
    rustix::process::kill_current_process_group(Signal::KILL)?;
    Ok(())
}
