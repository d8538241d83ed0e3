//! The compile worker: a process of this program that compiles one component.
//!
//! | | |
//! |---|---|
//! | to the worker, on stdin | a line of JSON (`CompileRequest`), then the component; closing it ends the worker |
//! | from the worker, on stdout | a line of JSON (`WorkerResponse`), then the code |
//!
//! The worker gets no environment except its number of threads. Before it reads the component, it limits its memory,
//! CPU time and files, disables core dumps and lowers its priority. Where the kernel supports it, a sandbox ([`sandbox`])
//! denies files, sockets and other processes. The worker ends when its stdin is closed, because its caller is gone
//! then. This file is the host's side; the worker's side is beside the compiler (`cranelift/worker_process`).

use std::path::Path;
use std::process::Stdio;
use std::sync::Once;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt};
use toolbay_policy::excerpt::one_line;
use toolbay_state::digest::Digest;

use crate::compile::CompileError;
use crate::engine::{AsyncSupport, EngineKind, Metering, code_version, wasmtime_of_same_toolbay};
use crate::process_sandbox::{self as sandbox, Confinement};

/// The argument that makes a program a compile worker; see `run_worker`.
pub const COMPILE_WORKER: &str = "compile-worker";

/// Maximum address space of a worker, in bytes. SpiderMonkey (12 MB) takes 690 MiB with two threads, 430 MiB of them
/// resident.
const MAX_MEMORY: u64 = 4 << 30;
/// Maximum number of threads of a worker. Each reserves address space for its stack and its heap.
const MAX_THREADS: usize = 8;
/// Maximum size of the code from a worker, in bytes: eight times the largest component.
const MAX_CODE: u64 = 512 << 20;
/// Maximum length of a protocol line, and of a worker's stderr, in bytes.
pub(super) const MAX_LINE: u64 = 4 << 10;
/// Maximum length of a worker's version in a message, in characters.
const MAX_VERSION: usize = 80;
/// Time limit for a worker to report its sandbox.
const MAX_START: Duration = Duration::from_secs(30);

/// The request to a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CompileRequest {
    /// The size of the component in bytes.
    pub(super) bytes: u64,
    /// The engine to compile for.
    pub(super) engine: EngineKind,
    /// The worker's own limits: address space in bytes and CPU time in seconds.
    pub(super) memory: u64,
    pub(super) seconds: u64,
}

/// The response of a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WorkerResponse {
    /// The version of the code that the worker makes; see `code_version`. Older workers send none.
    #[serde(default)]
    pub(super) version: String,
    /// The sandbox that the worker ran in.
    pub(super) sandbox: Confinement,
    pub(super) answer: CompileReply,
}

/// The result of a compilation.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum CompileReply {
    /// The code follows.
    Code { bytes: u64, sha256: Digest },
    /// The component is invalid, with the reason.
    Invalid(String),
    /// The component uses disabled proposals.
    Feature(String),
    /// The compiler failed, with the reason.
    Failed(String),
}

/// Compiles a component in a process of `program`. Dropping the future kills the worker. Logs once if a worker has no
/// sandbox.
pub(crate) async fn compile_in_worker(
    program: &Path,
    (component, engine): (Vec<u8>, EngineKind),
    timeout: Duration,
    warned: &Once,
) -> Result<Vec<u8>, CompileError> {
    let (WorkerResponse { sandbox, answer, .. }, code) =
        exchange(program, (component, engine), timeout).await?;
    if !sandbox.seccomp {
        warned.call_once(|| {
            let sandbox = sandbox.as_str();
            tracing::warn!(
                sandbox,
                "this system has no seccomp: the compile worker is not confined, and has resource limits only"
            );
        });
    }
    match answer {
        CompileReply::Code { bytes, sha256: digest } => {
            let whole = code.len() as u64 == bytes && Digest::of(&code) == digest;
            if whole { Ok(code) } else { Err(worker_error("sent code that does not match its digest")) }
        }
        CompileReply::Invalid(why) => Err(CompileError::Invalid(why)),
        CompileReply::Feature(which) => Err(CompileError::UnsupportedFeature(which)),
        CompileReply::Failed(why) => Err(CompileError::Failed(why)),
    }
}

/// Starts a worker only to determine its sandbox.
pub async fn confinement(program: &Path) -> Result<Confinement, CompileError> {
    let engine = EngineKind { metering: Metering::Fuel, async_support: AsyncSupport::Off };
    let reply = tokio::time::timeout(MAX_START, exchange(program, (Vec::new(), engine), MAX_START)).await;
    let (reply, _) = reply.map_err(|_| worker_error("did not answer"))??;
    Ok(reply.sandbox)
}

fn worker_error(what: &str) -> CompileError {
    CompileError::Failed(format!("the compile worker {what}"))
}

async fn exchange(
    program: &Path,
    (component, engine): (Vec<u8>, EngineKind),
    timeout: Duration,
) -> Result<(WorkerResponse, Vec<u8>), CompileError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    sandbox::close_files_on_exec();
    let mut child = tokio::process::Command::new(program)
        .arg(COMPILE_WORKER)
        .env_clear()
        .env("RAYON_NUM_THREADS", threads.to_string())
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| {
            CompileError::Host(format!("the compile worker `{}` does not start: {e}", program.display()))
        })?;
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(CompileError::Host("the compile worker has no pipes".to_owned()));
    };
    let seconds = timeout.as_secs().saturating_add(1).saturating_mul(threads as u64);
    let request = CompileRequest { bytes: component.len() as u64, engine, memory: MAX_MEMORY, seconds };
    let send_request = async {
        let mut line = serde_json::to_vec(&request)?;
        line.push(b'\n');
        stdin.write_all(&line).await?;
        stdin.write_all(&component).await?;
        stdin.flush().await
    };
    let mut stderr_text = Vec::new();
    let mut stderr = stderr.take(MAX_LINE);
    // A worker that ends early does not read its whole input. Its response has the reason.
    let (_, reply, _) = tokio::join!(send_request, read(stdout), stderr.read_to_end(&mut stderr_text));
    drop(stdin);
    // The worker has closed its pipes. Waiting reaps the process.
    let status = child.wait().await.map_or_else(|e| e.to_string(), |status| status.to_string());
    let (response, code) = reply.map_err(|_| {
        let reply = one_line(&String::from_utf8_lossy(&stderr_text), 300);
        let memory = MAX_MEMORY >> 30;
        worker_error(&format!("ended without an answer ({status}; it may use {memory} GiB): {reply}"))
    })?;
    if response.version != code_version() {
        return Err(version_error(program, &response.version));
    }
    Ok((response, code))
}

/// The error for a worker of another version, with what the embedder can do about it.
fn version_error(program: &Path, version: &str) -> CompileError {
    let (program, own) = (program.display(), code_version());
    let other = match version {
        "" => "an older version".to_owned(),
        version => format!("version {}", one_line(version, MAX_VERSION)),
    };
    // Each of these packages requires at least its own release of those after it.
    let update = wasmtime_of_same_toolbay(version).map_or_else(String::new, |release| {
        format!(
            ", or give this program the worker's wasmtime: `cargo update -p wasmtime --precise {release}`, after the same \
             for `wasmtime-wasi-http`, `wasmtime-wasi` and `wasmtime-wasi-io`"
        )
    });
    worker_error(&format!(
        "`{program}` has {other}, and this program version {own}: name a worker of the same version{update}"
    ))
}

async fn read(stdout: impl AsyncRead + Unpin) -> std::io::Result<(WorkerResponse, Vec<u8>)> {
    let mut stdout = tokio::io::BufReader::new(stdout);
    let mut line = Vec::new();
    (&mut stdout).take(MAX_LINE).read_until(b'\n', &mut line).await?;
    let reply = serde_json::from_slice(&line)?;
    let mut code = Vec::new();
    stdout.take(MAX_CODE).read_to_end(&mut code).await?;
    Ok((reply, code))
}
