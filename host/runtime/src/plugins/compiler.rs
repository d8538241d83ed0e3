//! Compiling, bounded: a component that is made to cost much stalls nobody.
//!
//! Cranelift cannot be interrupted in a thread. So a component is looked through before (`complexity`); few are
//! compiled at once; and where the host was given a program for it ([`crate::HostBuilder::compile_worker`]), a process
//! of its own does the work, under bounds on memory and CPU, with a low priority, ended when its time is up or nobody
//! waits for it any more. What comes back over the pipe is code that this process will run, so the worker is this
//! program and nothing else, it is believed only if the digest fits, and what it wrote is mapped from a folder that is
//! ours alone.
//!
//! Without a worker a thread compiles. One whose time is up goes on, since nothing can stop it, but keeps its slot:
//! when all slots are taken by such threads, no more is compiled.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use toolbay_policy::limits::HostLimits;
use toolbay_policy::quantity;
use wasmtime::component::Component;

use crate::capability::process::cage::Confinement;
use crate::engine::Engine;
use crate::engine::native;
use crate::error::LoadError;
use crate::plugins::{code, complexity, worker};

/// Stack of a compiling thread: what threads have by default, whoever started this one.
const STACK: usize = 8 << 20;

/// Compiles for one host.
#[derive(Debug)]
pub(crate) struct Compiler {
    timeout: Duration,
    worker: Option<PathBuf>,
    /// Whether the log was told that a worker is not held.
    told: Once,
    slots: Arc<Semaphore>,
    /// Compilations that ended, well or not.
    ended: Arc<AtomicU64>,
}

/// A compiled component.
pub(crate) struct Compiled {
    pub(crate) component: Component,
    /// The code as the worker sent it; without a worker it is not made until somebody wants to store it.
    code: Option<Vec<u8>>,
}

impl Compiled {
    /// The code as it can be stored.
    pub(crate) fn serialized(self) -> Result<Vec<u8>, String> {
        match self.code {
            Some(code) => Ok(code),
            None => self.component.serialize().map_err(|e| e.to_string()),
        }
    }
}

/// One compilation; its end is counted.
struct Slot {
    _permit: OwnedSemaphorePermit,
    ended: Arc<AtomicU64>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

impl Compiler {
    /// A compiler; with `worker`, each component is compiled by a process that runs this program.
    pub(crate) fn new(limits: &HostLimits, worker: Option<PathBuf>) -> Self {
        // Half of the cores: compiling uses several threads, and calls are to go on.
        let at_once = std::thread::available_parallelism().map_or(1, |cores| usize::from(cores).div_ceil(2));
        Self {
            timeout: limits.compile_timeout,
            worker,
            told: Once::new(),
            slots: Arc::new(Semaphore::new(at_once)),
            ended: Arc::default(),
        }
    }

    /// Compiles a component.
    ///
    /// # Errors
    /// When it is no component, too complex, invalid, or takes too much time or memory.
    pub(crate) async fn compile(&self, engine: &Engine, bytes: Vec<u8>) -> Result<Compiled, LoadError> {
        let bytes = off_the_async_threads(move || {
            code::check_header(&bytes)?;
            complexity::check(&bytes)?;
            Ok(bytes)
        })
        .await?;
        let slot = self.slot().await?;
        match &self.worker {
            Some(program) => self.in_a_process(engine, program, bytes, slot).await,
            None => self.in_a_thread(engine, bytes, slot).await,
        }
    }

    /// What holds the worker; `None`: there is none. Starts one.
    pub(crate) async fn confinement(&self) -> Option<Result<Confinement, LoadError>> {
        Some(worker::confinement(self.worker.as_deref()?).await)
    }

    /// Waits for a slot; as long as compilations end, it will be free.
    async fn slot(&self) -> Result<Slot, LoadError> {
        let mut acquire = pin!(Arc::clone(&self.slots).acquire_owned());
        let mut seen = self.ended.load(Ordering::Relaxed);
        loop {
            tokio::select! {
                biased;
                permit = &mut acquire => {
                    let permit = permit.map_err(|e| LoadError::Host(e.to_string()))?;
                    return Ok(Slot { _permit: permit, ended: Arc::clone(&self.ended) });
                }
                () = tokio::time::sleep(self.timeout) => {
                    let ended = self.ended.load(Ordering::Relaxed);
                    if ended == seen {
                        return Err(LoadError::Compile(
                            "others that took longer than `compile_timeout` are still being compiled".to_owned(),
                        ));
                    }
                    seen = ended;
                }
            }
        }
    }

    async fn in_a_thread(&self, engine: &Engine, bytes: Vec<u8>, slot: Slot) -> Result<Compiled, LoadError> {
        let (tell, told) = oneshot::channel();
        let engine = engine.clone();
        let run = move || {
            let compiled = code::compile(&engine, &bytes);
            drop(slot);
            // Nobody may be waiting any more.
            tell.send(compiled).ok();
        };
        // Ends with the compilation, also when nobody waits for it.
        std::thread::Builder::new()
            .name("toolbay-compile".to_owned())
            .stack_size(STACK)
            .spawn(run)
            .map_err(|e| LoadError::Host(format!("no thread to compile in: {e}")))?;
        match tokio::time::timeout(self.timeout, told).await {
            Ok(Ok(component)) => Ok(Compiled { component: component?, code: None }),
            Ok(Err(_)) => Err(LoadError::Compile("the compiler failed; see the log".to_owned())),
            Err(_) => Err(self.too_long()),
        }
    }

    async fn in_a_process(
        &self,
        engine: &Engine,
        program: &std::path::Path,
        bytes: Vec<u8>,
        slot: Slot,
    ) -> Result<Compiled, LoadError> {
        let work = worker::ask(program, (bytes, engine.metering), self.timeout, &self.told);
        let code = tokio::time::timeout(self.timeout, work).await.map_err(|_| self.too_long())??;
        drop(slot);
        let engine = engine.clone();
        off_the_async_threads(move || {
            let component =
                map(&engine, &code).map_err(|e| LoadError::Host(format!("its compiled code: {e}")))?;
            Ok(Compiled { component, code: Some(code) })
        })
        .await
    }

    fn too_long(&self) -> LoadError {
        let most = quantity::show_duration(self.timeout);
        LoadError::Compile(format!(
            "it took longer than the limit `compile_timeout` of {most}; to raise it, write in the policy: [host] compile_timeout = …"
        ))
    }
}

/// Runs work that computes or waits for a disk on a thread that may block.
pub(crate) async fn off_the_async_threads<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LoadError> + Send + 'static,
) -> Result<T, LoadError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|e| Err(LoadError::Host(e.to_string())))
}

/// Maps code that our worker sent and whose digest was checked.
fn map(engine: &Engine, code: &[u8]) -> Result<Component, String> {
    // Nobody else can look into the folder, and nobody can have put it there for us.
    let mut folder = tempfile::Builder::new();
    let folder = folder.prefix("toolbay-").permissions(Permissions::from_mode(0o700)).tempdir();
    let folder = folder.map_err(|e| e.to_string())?;
    let file = folder.path().join("code");
    std::fs::write(&file, code).map_err(|e| e.to_string())?;
    let mapped = native::map(engine, &file).map_err(|e| e.to_string());
    // The mapping stays.
    if let Err(error) = folder.close() {
        tracing::warn!(%error, "a temporary folder stays");
    }
    mapped
}
