//! Open hosts: each owns a tokio runtime and the calls that run in it.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Handle, Runtime};
use tokio_util::task::TaskTracker;
use toolbay::core::audit::AuditSink;
use toolbay::{CancellationToken, FileAudit, Host, HostBuilder, LoadError, Policy, Retention, RunningHost};

use crate::error::{BridgeError, ErrorKind};
use crate::request::OpenRequest;
use crate::{log, policy};

/// Most threads that run tasks of a host. More would only compete with those of the language.
const MAX_WORKERS: usize = 4;
/// How long `close` waits for calls and servers.
pub(crate) const CLOSE_WAIT: Duration = Duration::from_secs(5);
/// How long the program may take to say its version.
const VERSION_WAIT: Duration = Duration::from_secs(10);

/// The runtime of a host. Dropping it abandons its threads; only those of an opening that failed are joined.
#[derive(Debug)]
pub(crate) struct HostRuntime {
    runtime: Mutex<Option<Runtime>>,
    handle: Handle,
}

impl HostRuntime {
    pub(crate) fn new() -> Result<Self, BridgeError> {
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_WORKERS);
        let count = AtomicUsize::new(0);
        let name = move || format!("toolbay-{}", count.fetch_add(1, Ordering::Relaxed) + 1);
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(workers).thread_name_fn(name).enable_all().build();
        let runtime = runtime.map_err(|error| {
            BridgeError::new(ErrorKind::Internal, format!("the threads of the host did not start: {error}"))
        })?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Mutex::new(Some(runtime)) })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Ends the threads without waiting for them.
    pub(crate) fn shut_down(&self) {
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
    }

    /// Ends the threads, and waits for them for at most [`CLOSE_WAIT`]. Only another thread may call it.
    pub(crate) fn join(&self) {
        let runtime = self.runtime.lock().take();
        if let Some(runtime) = runtime {
            runtime.shutdown_timeout(CLOSE_WAIT);
        }
    }
}

impl Drop for HostRuntime {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// An open host.
#[derive(Debug)]
pub(crate) struct OpenHost {
    /// The compile worker.
    executable: PathBuf,
    pub(crate) runtime: Arc<HostRuntime>,
    pub(crate) host: Host,
    running: Mutex<Option<RunningHost>>,
    /// Whether the language has an approver.
    pub(crate) asks: bool,
    /// Cancels all calls.
    closing: CancellationToken,
    tasks: TaskTracker,
}

impl OpenHost {
    /// Opens a host, in its runtime.
    pub(crate) async fn open(request: OpenRequest, runtime: Arc<HostRuntime>) -> Result<Self, BridgeError> {
        check_executable(&request.executable).await?;
        let (executable, plugins) = (request.executable.clone(), request.plugins.clone());
        let asks = request.approver;
        let builder = tokio::task::spawn_blocking(move || builder(request));
        let builder =
            builder.await.map_err(|error| BridgeError::new(ErrorKind::Internal, error.to_string()))??;
        let builder = builder.on_load(log::compile_listener(runtime.handle().clone()));
        let running = match plugins {
            Some(plugins) => builder.start(&plugins).await?,
            None => builder.start_without_plugins().await?,
        };
        let host = (*running).clone();
        let (closing, tasks) = (CancellationToken::new(), TaskTracker::new());
        Ok(Self { executable, runtime, host, running: Mutex::new(Some(running)), asks, closing, tasks })
    }

    /// The error for a plugin that was not loaded: that of a file or an id. Without the program, none is compiled.
    pub(crate) fn load_error(&self, subject: impl Display, error: &LoadError) -> BridgeError {
        let message = format!("`{subject}`: {error}");
        if matches!(error, LoadError::Host(_)) && !self.executable.is_file() {
            let message = format!("{message}; TOOLBAY_BIN names another program");
            return BridgeError::new(ErrorKind::Executable, message);
        }
        BridgeError::new(ErrorKind::Load, message)
    }

    /// A token for calls, which closing the host cancels.
    pub(crate) fn cancel_token(&self) -> CancellationToken {
        self.closing.child_token()
    }

    /// Runs calls or another request. The task ends with it; `close` waits for it.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn_on(work, self.runtime.handle());
    }

    /// Cancels all calls, and waits for them and for the servers, at most [`CLOSE_WAIT`].
    pub(crate) async fn close(&self) {
        self.closing.cancel();
        self.tasks.close();
        let running = self.running.lock().take();
        let end = async {
            self.tasks.wait().await;
            if let Some(running) = running {
                running.close().await;
            }
        };
        drop(tokio::time::timeout(CLOSE_WAIT, end).await);
    }
}

/// The settings of a request. Blocks on files.
fn builder(request: OpenRequest) -> Result<HostBuilder, BridgeError> {
    let policy = policy::read(&request.policy)?.policy;
    let audit = request.state_dir.as_deref().map(|dir| open_audit(dir, &policy)).transpose()?;
    let mut builder =
        Host::builder(policy).compile_worker(&request.executable).program_guard(&request.executable);
    if let Some(dir) = request.state_dir {
        builder = builder.state_dir(dir);
    }
    if let Some(audit) = audit {
        builder = builder.audit(audit);
    }
    if let Some(dir) = request.cache_dir {
        builder = builder.cache_dir(dir);
    }
    if let Some(wait) = request.state_wait_ms {
        builder = builder.state_wait(Duration::from_millis(wait));
    }
    if let Some(wait) = request.source_wait_ms {
        builder = builder.source_wait(Duration::from_millis(wait));
    }
    if let Some(entries) = request.call_log {
        builder = builder.call_log(entries);
    }
    Ok(builder)
}

fn open_audit(dir: &Path, policy: &Policy) -> Result<Arc<dyn AuditSink>, BridgeError> {
    let audit = FileAudit::in_state_dir(dir, Retention::from(policy.audit())).map_err(|error| {
        let dir = dir.display();
        BridgeError::new(ErrorKind::State, format!("the state directory `{dir}` cannot be used: {error}"))
    })?;
    Ok(Arc::new(audit))
}

/// Checks that the program exists and has the version of this library: they exchange compiled code.
async fn check_executable(program: &Path) -> Result<(), BridgeError> {
    let shown = program.display();
    let wrong = |what: String| {
        let message = format!("the program `{shown}` {what}; TOOLBAY_BIN names another one");
        BridgeError::new(ErrorKind::Executable, message)
    };
    let mut command = tokio::process::Command::new(program);
    command.arg("-V").stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(VERSION_WAIT, command.output()).await;
    let output = output.map_err(|_| wrong("did not say its version".to_owned()))?;
    let output = output.map_err(|error| wrong(format!("does not run: {error}")))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let said = said.lines().next().unwrap_or_default().trim();
    let expected = concat!("toolbay ", env!("CARGO_PKG_VERSION"));
    if said == expected {
        Ok(())
    } else {
        Err(wrong(format!("is `{said}`, and this library needs `{expected}`")))
    }
}
