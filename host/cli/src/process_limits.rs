//! The limits that a process manager or a shell sets for this process. One that keeps the program from working is named at
//! once: a runtime without threads hangs or panics, and a write beyond `RLIMIT_FSIZE` ends the process by a signal.

use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::channel;

use anyhow::{Context as _, Result, anyhow};
use rustix::process::{Resource, getrlimit};
use toolbay_policy::quantity::show_bytes;

/// Threads besides those of the runtime: for files, the store, the audit, a compilation, standard streams.
const OTHER_THREADS: usize = 8;
/// Fewest open files with which a command works.
const MIN_FILES: u64 = 32;
/// Least address space with which a command works. Below, a thread or an allocation fails somewhere, and the process ends by
/// a signal.
const MIN_ADDRESS_SPACE: u64 = 512 << 20;
/// How large the files of a server can be at least: its state and its audit.
const MIN_FILE_BYTES: u64 = 1 << 20;

/// Stack size of the program, independent of that of the main thread (`ulimit -s`): plugins and parsers run on it.
const STACK: usize = 8 << 20;

/// Runs the program on a thread with a stack of its own. The thread ends with the program.
///
/// # Errors
/// The thread does not start, with what limits it.
pub(crate) fn run_on_own_stack(program: impl FnOnce() -> ExitCode + Send + 'static) -> Result<ExitCode> {
    let thread = std::thread::Builder::new().name("main".to_owned()).stack_size(STACK).spawn(program);
    let thread = thread.with_context(|| too_few_threads(0, 1))?;
    Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

/// Checks what each command needs.
///
/// # Errors
/// The limit that is too low, with what raises it.
pub(crate) fn check_process() -> Result<()> {
    if let Some(most) = getrlimit(Resource::Nofile).current.filter(|most| *most < MIN_FILES) {
        return Err(anyhow!(
            "this process may have {most} open files, and needs {MIN_FILES}: raise the limit (`ulimit -n`, `LimitNOFILE`)"
        ));
    }
    if let Some(most) = getrlimit(Resource::As).current.filter(|most| *most < MIN_ADDRESS_SPACE) {
        return Err(anyhow!(
            "the address space of this process is limited to {}, and it needs {}: remove the limit (`ulimit -v`, `LimitAS`)",
            show_bytes(most),
            show_bytes(MIN_ADDRESS_SPACE)
        ));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    check_threads(cores + OTHER_THREADS)
}

/// Checks what a server needs besides.
///
/// # Errors
/// The limit that is too low, with what raises it.
pub(crate) fn check_server() -> Result<()> {
    if let Some(most) = getrlimit(Resource::Fsize).current.filter(|most| *most < MIN_FILE_BYTES) {
        return Err(anyhow!(
            "this process may write files of {} only, and its audit and its state need more: raise the limit (`ulimit -f`, \
             `LimitFSIZE`)",
            show_bytes(most)
        ));
    }
    Ok(())
}

/// Checks what a host needs that runs plugins.
///
/// # Errors
/// Names what the process lacks, and what provides it.
pub(crate) fn check_host() -> Result<()> {
    if cfg!(target_os = "linux") && !Path::new("/proc/self/exe").exists() {
        return Err(anyhow!(
            "`/proc` is not mounted, and the host needs it to start its workers and to open files safely: mount it (`mount -t \
             proc proc /proc`)"
        ));
    }
    Ok(())
}

/// Starts this many threads at once, and ends them.
fn check_threads(count: usize) -> Result<()> {
    let mut waiting = Vec::with_capacity(count);
    for started in 0..count {
        let (end, wait) = channel::<()>();
        // Ends when its sender is dropped.
        let thread = std::thread::Builder::new().name("toolbay-check".to_owned()).spawn(move || wait.recv());
        thread.with_context(|| too_few_threads(started, count))?;
        waiting.push(end);
    }
    Ok(())
}

fn too_few_threads(started: usize, count: usize) -> String {
    let limit = getrlimit(Resource::Nproc).current;
    let limit = limit.map_or_else(String::new, |most| format!("; `ulimit -u` is {most}"));
    format!(
        "this process can start {started} threads, and needs {count}: raise the limit on processes (`ulimit -u`, `TasksMax`, \
         `pids.max` of its control group{limit}), or the one on memory"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_what_it_needs() {
        check_process().unwrap();
        check_server().unwrap();
        check_host().unwrap();
    }
}
