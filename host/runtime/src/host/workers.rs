//! Processes of the embedder's own program: the compile worker, and the guard of programs.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use toolbay_capabilities::process::guard::{PROGRAM_GUARD, run_program_guard};
use toolbay_sandbox::compile::run_compile_worker;
use toolbay_sandbox::compile::worker::COMPILE_WORKER;

use super::HostBuilder;

/// Whether this program runs as a worker when a host starts it as one.
static HAS_WORKER_ENTRY: AtomicBool = AtomicBool::new(false);

/// Runs this process as a worker if a host started it as one, and returns the result; otherwise returns `None` at once.
/// Call it first in `main`, before there are other threads.
///
/// ```no_run
/// fn main() -> std::io::Result<()> {
///     if let Some(done) = toolbay::run_worker() {
///         return done;
///     }
///     // The program itself.
///     Ok(())
/// }
/// ```
#[must_use = "a worker ends with its result"]
pub fn run_worker() -> Option<std::io::Result<()>> {
    HAS_WORKER_ENTRY.store(true, Ordering::Relaxed);
    let mut args = std::env::args_os().skip(1);
    let first = args.next().filter(|_| args.next().is_none())?;
    if first == COMPILE_WORKER {
        return Some(run_compile_worker());
    }
    (first == PROGRAM_GUARD).then(run_program_guard)
}

impl HostBuilder {
    /// Uses this program as [`Self::compile_worker`], if it has a compiler, and as [`Self::program_guard`], unless they are
    /// set. Does nothing if `main` has not called [`run_worker`]: the program would start itself instead of a worker.
    #[must_use]
    pub fn with_workers(mut self) -> Self {
        if !HAS_WORKER_ENTRY.load(Ordering::Relaxed) {
            return self;
        }
        match own_executable() {
            Ok(program) => {
                if cfg!(feature = "compiler") {
                    self.worker.get_or_insert_with(|| program.clone());
                }
                self.guard.get_or_insert(program);
            }
            Err(error) => tracing::warn!(%error, "plugins are compiled in this process"),
        }
        self
    }
}

/// The path of this program. On Linux the link still leads to the running program after its file is replaced.
fn own_executable() -> std::io::Result<PathBuf> {
    let link = PathBuf::from("/proc/self/exe");
    if link.exists() { Ok(link) } else { std::env::current_exe() }
}
