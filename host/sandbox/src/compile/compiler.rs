//! Compiles components within limits, so that an expensive component does not stall others.
//!
//! Cranelift cannot be interrupted in a thread. Each component is therefore checked first (`complexity`), and few are
//! compiled at once. If the embedder named a program for it (`HostBuilder::compile_worker`), a separate
//! process compiles with limits on memory and CPU and a low priority. It is killed when its time is up or its caller
//! gives up. This process runs the code that the worker sends, so the worker must be this program. The code is used
//! only if its digest matches, and is mapped from a folder that only this user can enter.
//!
//! Without a worker, a thread compiles. After its time-out the thread continues, because nothing can stop it, and keeps
//! its permit. Once such threads hold all permits, nothing more is compiled. With a base
//! (`HostBuilder::compile_base`), one thread reads or compiles the functions of the base, and another compiles
//! the component with them.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use toolbay_policy::limits::HostLimits;
use toolbay_policy::quantity;
use wasmtime::component::Component;

use crate::compile::CompileError;
use crate::compile::cache::Cache;
use crate::compile::compiled_functions::CompiledFunctions;
use crate::compile::{self, complexity, worker};
use crate::engine::Engine;
use crate::native;
use crate::process_sandbox::Confinement;

/// The start of the names of folders from which code is mapped.
const CODE_FOLDER: &str = "toolbay-code-";
/// The age at which such a folder belongs to no process any more: each lives for milliseconds.
const STALE_CODE: Duration = Duration::from_secs(3600);

/// Compiles the components of one host.
#[derive(Debug)]
pub struct Compiler {
    timeout: Duration,
    worker: Option<PathBuf>,
    /// The component whose functions others reuse.
    base: Option<PathBuf>,
    /// Whether a missing sandbox was logged.
    warned: Once,
    permits: Arc<Semaphore>,
    /// The number of compilations that ended, including failed ones.
    completed: Arc<AtomicU64>,
}

/// A compiled component.
pub struct CompiledComponent {
    /// The component, ready to be linked.
    pub component: Component,
    /// The code that the worker sent. Without a worker, the component is serialized on demand.
    code: Option<Vec<u8>>,
}

impl CompiledComponent {
    /// The code in the form that the cache stores.
    pub fn serialized(self) -> Result<Vec<u8>, String> {
        match self.code {
            Some(code) => Ok(code),
            None => self.component.serialize().map_err(|e| e.to_string()),
        }
    }
}

/// The permit of one compilation. Counts the end of the compilation on drop.
struct CompilePermit {
    _permit: OwnedSemaphorePermit,
    completed: Arc<AtomicU64>,
}

impl Drop for CompilePermit {
    fn drop(&mut self) {
        self.completed.fetch_add(1, Ordering::Relaxed);
    }
}

impl Compiler {
    /// Creates a compiler. With `worker`, each component is compiled in a process of this program; with `base`, in a
    /// thread, with the functions of this component.
    pub fn new(limits: &HostLimits, worker: Option<PathBuf>, base: Option<PathBuf>) -> Self {
        // Half of the cores: a compilation uses several threads, and calls must continue.
        let at_once = std::thread::available_parallelism().map_or(1, |cores| usize::from(cores).div_ceil(2));
        Self {
            timeout: limits.compile_timeout,
            worker,
            base,
            warned: Once::new(),
            permits: Arc::new(Semaphore::new(at_once)),
            completed: Arc::default(),
        }
    }

    /// Compiles a component that passed [`check`]. The cache keeps the functions of the base.
    ///
    /// # Errors
    /// Fails if the component is invalid, or takes too much time or memory.
    pub async fn compile(
        &self,
        engine: &Engine,
        cache: Option<&Cache>,
        bytes: Vec<u8>,
    ) -> Result<CompiledComponent, CompileError> {
        let permit = self.acquire_permit().await?;
        match (&self.base, &self.worker) {
            (Some(base), _) => {
                let (kind, cache, base) = (engine.kind, cache.cloned(), base.clone());
                let read = move || CompiledFunctions::from_base(kind, cache.as_ref(), &base);
                let functions = self.compile_in_thread(permit, read).await?;
                let permit = self.acquire_permit().await?;
                let work = move || functions.precompile(kind, &bytes);
                map_component(engine, self.compile_in_thread(permit, work).await?).await
            }
            (None, Some(program)) => {
                let code = self.compile_in_process(engine, program, bytes, permit).await?;
                map_component(engine, code).await
            }
            (None, None) => {
                let this = engine.clone();
                let work = move || compile::compile(&this, &bytes);
                let component = self.compile_in_thread(permit, work).await?;
                Ok(CompiledComponent { component, code: None })
            }
        }
    }

    /// The sandbox of a worker. Starts one to find out. `None` without a worker.
    pub async fn confinement(&self) -> Option<Result<Confinement, CompileError>> {
        Some(worker::confinement(self.worker.as_deref()?).await)
    }

    /// Waits for a permit, as long as other compilations still end.
    async fn acquire_permit(&self) -> Result<CompilePermit, CompileError> {
        let mut acquire = pin!(Arc::clone(&self.permits).acquire_owned());
        let mut seen = self.completed.load(Ordering::Relaxed);
        loop {
            tokio::select! {
                biased;
                permit = &mut acquire => {
                    let permit = permit.map_err(|e| CompileError::Host(e.to_string()))?;
                    return Ok(CompilePermit { _permit: permit, completed: Arc::clone(&self.completed) });
                }
                () = tokio::time::sleep(self.timeout) => {
                    let completed = self.completed.load(Ordering::Relaxed);
                    if completed == seen {
                        return Err(CompileError::Failed(
                            "compilations that exceeded `compile_timeout` are still running".to_owned(),
                        ));
                    }
                    seen = completed;
                }
            }
        }
    }

    async fn compile_in_thread<T: Send + 'static>(
        &self,
        permit: CompilePermit,
        compile: impl FnOnce() -> Result<T, CompileError> + Send + 'static,
    ) -> Result<T, CompileError> {
        let (sender, receiver) = oneshot::channel();
        let run = move || {
            let compiled = compile();
            drop(permit);
            // The receiver may be gone.
            sender.send(compiled).ok();
        };
        // The thread ends with the compilation, even if the caller has given up.
        std::thread::Builder::new()
            .name("toolbay-compile".to_owned())
            .stack_size(compile::STACK)
            .spawn(run)
            .map_err(|e| CompileError::Host(format!("the compile thread could not be started: {e}")))?;
        match tokio::time::timeout(self.timeout, receiver).await {
            Ok(Ok(compiled)) => compiled,
            Ok(Err(_)) => Err(CompileError::Failed("the compiler failed; see the log".to_owned())),
            Err(_) => Err(self.timeout_error()),
        }
    }

    async fn compile_in_process(
        &self,
        engine: &Engine,
        program: &Path,
        bytes: Vec<u8>,
        permit: CompilePermit,
    ) -> Result<Vec<u8>, CompileError> {
        let work = worker::compile_in_worker(program, (bytes, engine.kind), self.timeout, &self.warned);
        let code = tokio::time::timeout(self.timeout, work).await.map_err(|_| self.timeout_error())??;
        drop(permit);
        Ok(code)
    }

    fn timeout_error(&self) -> CompileError {
        let limit = quantity::show_duration(self.timeout);
        CompileError::Failed(format!(
            "it took longer than the limit `compile_timeout` of {limit}; to raise it, write in the policy: [host] \
             compile_timeout = …"
        ))
    }
}

/// Checks a component before anything else reads its parts. Blocks.
///
/// # Errors
/// The bytes are not a component, or it is too complex.
pub fn check(bytes: &[u8]) -> Result<(), CompileError> {
    compile::check_header(bytes)?;
    complexity::check(bytes)
}

/// Maps the compiled code of a component.
async fn map_component(engine: &Engine, code: Vec<u8>) -> Result<CompiledComponent, CompileError> {
    let engine = engine.clone();
    let map = move || {
        let component = map_code(&engine, &code)
            .map_err(|e| CompileError::Host(format!("the compiled code cannot be mapped: {e}")))?;
        Ok(CompiledComponent { component, code: Some(code) })
    };
    tokio::task::spawn_blocking(map).await.unwrap_or_else(|e| Err(CompileError::Host(e.to_string())))
}

/// Removes folders with code that processes left behind when they were killed while they mapped it.
fn sweep_code(temporary: &Path, age: Duration) {
    let own = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(temporary).into_iter().flatten().flatten() {
        let is_stale = |meta: &std::fs::Metadata| {
            let since = meta.modified().ok().and_then(|modified| modified.elapsed().ok());
            meta.is_dir() && meta.uid() == own && since.is_some_and(|since| since >= age)
        };
        // The metadata of the entry itself, not of what a link leads to.
        if entry.file_name().to_string_lossy().starts_with(CODE_FOLDER)
            && entry.metadata().is_ok_and(|meta| is_stale(&meta))
            && let Err(error) = std::fs::remove_dir_all(entry.path())
        {
            tracing::debug!(%error, "a folder with stale code was not removed");
        }
    }
}

/// `ST_NOEXEC` of Linux. Other systems do not report it.
const NOEXEC: StatVfsMountFlags = StatVfsMountFlags::from_bits_retain(8);

/// What the file system of a folder allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mount {
    /// Code can be mapped from it.
    Executable,
    /// The folder is mounted with `noexec`.
    NoExec,
}

impl Mount {
    fn of(folder: &Path) -> Self {
        match rustix::fs::statvfs(folder) {
            Ok(system) if system.f_flag.contains(NOEXEC) => Self::NoExec,
            Ok(_) | Err(_) => Self::Executable,
        }
    }
}

/// The error when code cannot be mapped from a folder, with what the operator can do about it.
fn describe_map_error(error: &wasmtime::Error, folder: &Path, mount: Mount) -> String {
    let is_denied = |cause: &(dyn std::error::Error + 'static)| {
        let system = cause.downcast_ref::<std::io::Error>().and_then(Errno::from_io_error);
        let errno = system.or_else(|| cause.downcast_ref::<Errno>().copied());
        errno.is_some_and(|errno| [Errno::ACCESS, Errno::PERM].contains(&errno))
    };
    match (error.chain().any(is_denied), mount) {
        (false, _) => format!("{error:#}"),
        (true, Mount::NoExec) => format!(
            "{error:#}: the temporary folder `{}` is on a file system that is mounted with `noexec`, and compiled plugins are \
             mapped from it; name another folder with `TMPDIR`",
            folder.display()
        ),
        (true, Mount::Executable) => format!(
            "{error:#}: the system denies executable memory (`mprotect`), which compiled plugins need; remove \
             `MemoryDenyWriteExecute=yes` from the unit, or allow it in the security policy of the system"
        ),
    }
}

/// Maps code from the worker, whose digest was verified, or from this process.
fn map_code(engine: &Engine, code: &[u8]) -> Result<Component, String> {
    static SWEPT: Once = Once::new();
    SWEPT.call_once(|| sweep_code(&std::env::temp_dir(), STALE_CODE));
    // A new folder that only this user can enter.
    let mut folder = tempfile::Builder::new();
    let folder = folder.prefix(CODE_FOLDER).permissions(Permissions::from_mode(0o700)).tempdir();
    let in_folder = |error: std::io::Error| {
        let place = std::env::temp_dir();
        format!(
            "the temporary folder `{}` cannot be written (`TMPDIR` names another one): {error}",
            place.display()
        )
    };
    let folder = folder.map_err(in_folder)?;
    let file = folder.path().join("code");
    std::fs::write(&file, code).map_err(in_folder)?;
    let mapped = native::map(engine, &file).map_err(|error| {
        let place = std::env::temp_dir();
        describe_map_error(&error, &place, Mount::of(folder.path()))
    });
    // The mapping outlives the file.
    if let Err(error) = folder.close() {
        tracing::warn!(%error, "a temporary folder could not be removed");
    }
    mapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_executable_files_is_not_reported_as_denied_memory() {
        let describe = |errno: Errno, mount| {
            let error = wasmtime::Error::from(std::io::Error::from(errno)).context("mmap failed");
            describe_map_error(&error, Path::new("/scratch"), mount)
        };
        for errno in [Errno::ACCESS, Errno::PERM] {
            let (noexec, denied) = (describe(errno, Mount::NoExec), describe(errno, Mount::Executable));
            assert!(noexec.contains("`/scratch`") && noexec.contains("`noexec`"), "{noexec}");
            assert!(noexec.contains("TMPDIR") && !noexec.contains("MemoryDenyWriteExecute"), "{noexec}");
            assert!(denied.contains("MemoryDenyWriteExecute") && !denied.contains("noexec"), "{denied}");
        }
        assert_eq!(describe(Errno::NOMEM, Mount::NoExec).matches("noexec").count(), 0);
        assert_eq!(Mount::of(&std::env::temp_dir()), Mount::Executable, "the tests map code from it");
    }

    #[test]
    fn only_stale_folders_with_code_are_removed() {
        let temporary = tempfile::tempdir().unwrap();
        for name in ["toolbay-code-a", "toolbay-other", "x"] {
            std::fs::create_dir(temporary.path().join(name)).unwrap();
            std::fs::write(temporary.path().join(name).join("code"), "code").unwrap();
        }
        std::os::unix::fs::symlink(temporary.path().join("x"), temporary.path().join("toolbay-code-link"))
            .unwrap();
        let left = || {
            let names = std::fs::read_dir(temporary.path()).unwrap();
            let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        sweep_code(temporary.path(), STALE_CODE);
        assert_eq!(left().len(), 4, "one that may be in use stays");
        sweep_code(temporary.path(), Duration::ZERO);
        assert_eq!(left(), ["toolbay-code-link", "toolbay-other", "x"]);
    }
}
