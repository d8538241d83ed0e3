//! The process that compiles one component: this program again, started with one argument.
//!
//! | | |
//! |---|---|
//! | to the worker, on stdin | a line of JSON ([`Job`]), then the component; the pipe stays open while it is to work |
//! | from the worker, on stdout | a line of JSON ([`Said`]), then the code |
//!
//! It gets no environment but the number of its threads. It bounds itself before it reads the component: memory, CPU, no
//! file beside its pipes, no core dump, a low priority; and where the kernel can, it is held to computing ([`cage`]): no
//! file, no socket, no other process. It ends when its stdin does: nobody waits for it any more.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::Once;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, nice, setrlimit};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt};
use toolbay_policy::text::one_line;

use crate::capability::process::cage::{self, Confinement};
use crate::engine::{Engine, Metering};
use crate::error::LoadError;
use crate::plugins::code;
use crate::plugins::digest::sha256;
use crate::plugins::file::MAX_COMPONENT_BYTES;

/// The argument that makes a program a compile worker; see [`run_compile_worker`].
pub const COMPILE_WORKER: &str = "compile-worker";

/// Address space of a worker, in bytes. SpiderMonkey's 12 MB take 690 MiB of it with two threads, 430 of them resident.
const MAX_MEMORY: u64 = 4 << 30;
/// Most threads of a worker: each reserves address space for its stack and its part of the heap.
const MAX_THREADS: usize = 8;
/// Most code that is taken from a worker, in bytes: eight times the largest component.
const MAX_CODE: u64 = 512 << 20;
/// Longest line of an answer, and most of what a worker may say on stderr, in bytes.
const MAX_LINE: u64 = 4 << 10;
/// Files of a worker: its pipes. None is opened and no socket is made, also where the kernel has no sandbox.
const MAX_FILES: u64 = 3;
/// How long a worker may take to say what holds it.
const MAX_START: Duration = Duration::from_secs(30);
/// How much a worker gives way to everybody else: a third of the share of others. With less it would need minutes for a
/// large component where the machine is busy.
const NICENESS: i32 = 5;

/// What a worker is to do.
#[derive(Debug, Serialize, Deserialize)]
struct Job {
    /// Bytes of the component.
    bytes: u64,
    /// For which engine.
    metering: Metering,
    /// Its own bounds: address space in bytes, CPU time in seconds.
    memory: u64,
    seconds: u64,
}

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
struct Said {
    /// What held it while it worked.
    held: Confinement,
    answer: Answer,
}

/// What a worker answers.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// The code follows.
    Code { bytes: u64, sha256: String },
    /// It is not valid, and why.
    Invalid(String),
    /// It uses proposals that are off.
    Feature(String),
    /// The compiler failed.
    Failed(String),
}

/// Has a component compiled by `program`. Dropping the future ends the worker. The first time that a worker is not held,
/// the log says so.
pub(crate) async fn ask(
    program: &Path,
    (component, metering): (Vec<u8>, Metering),
    timeout: Duration,
    told: &Once,
) -> Result<Vec<u8>, LoadError> {
    let (Said { held, answer }, code) = converse(program, (component, metering), timeout).await?;
    if !held.seccomp {
        told.call_once(|| {
            let held = held.shown();
            tracing::warn!(
                held,
                "the kernel takes no seccomp filter: the compile worker is bounded, but not held"
            );
        });
    }
    match answer {
        Answer::Code { bytes, sha256: digest } => {
            let whole = code.len() as u64 == bytes && sha256(&code).as_str() == digest;
            if whole { Ok(code) } else { Err(failed("sent code that is not what it says")) }
        }
        Answer::Invalid(why) => Err(LoadError::Invalid(why)),
        Answer::Feature(which) => Err(LoadError::Feature(which)),
        Answer::Failed(why) => Err(LoadError::Compile(why)),
    }
}

/// Starts a worker for nothing, to hear what holds it.
pub(crate) async fn confinement(program: &Path) -> Result<Confinement, LoadError> {
    let said =
        tokio::time::timeout(MAX_START, converse(program, (Vec::new(), Metering::Fuel), MAX_START)).await;
    let (said, _) = said.map_err(|_| failed("says nothing"))??;
    Ok(said.held)
}

fn failed(what: &str) -> LoadError {
    LoadError::Compile(format!("the compile worker {what}"))
}

async fn converse(
    program: &Path,
    (component, metering): (Vec<u8>, Metering),
    timeout: Duration,
) -> Result<(Said, Vec<u8>), LoadError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    cage::keep_files();
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
        .map_err(|e| LoadError::Host(format!("the compile worker does not start: {e}")))?;
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(LoadError::Host("the compile worker has no pipes".to_owned()));
    };
    let seconds = timeout.as_secs().saturating_add(1).saturating_mul(threads as u64);
    let job = Job { bytes: component.len() as u64, metering, memory: MAX_MEMORY, seconds };
    let tell = async {
        let mut line = serde_json::to_vec(&job)?;
        line.push(b'\n');
        stdin.write_all(&line).await?;
        stdin.write_all(&component).await?;
        stdin.flush().await
    };
    let mut last_words = Vec::new();
    let mut stderr = stderr.take(MAX_LINE);
    // A worker that ends early does not read to the end; its answer says why.
    let (_, said, _) = tokio::join!(tell, read(stdout), stderr.read_to_end(&mut last_words));
    drop(stdin);
    // It has closed its pipes and ends; what it leaves is to be cleared away.
    let status = child.wait().await.map_or_else(|e| e.to_string(), |status| status.to_string());
    said.map_err(|_| {
        let said = one_line(&String::from_utf8_lossy(&last_words), 300);
        let memory = MAX_MEMORY >> 30;
        failed(&format!("ended without an answer ({status}; it may use {memory} GiB): {said}"))
    })
}

async fn read(stdout: impl AsyncRead + Unpin) -> std::io::Result<(Said, Vec<u8>)> {
    let mut stdout = tokio::io::BufReader::new(stdout);
    let mut line = Vec::new();
    (&mut stdout).take(MAX_LINE).read_until(b'\n', &mut line).await?;
    let said = serde_json::from_slice(&line)?;
    let mut code = Vec::new();
    stdout.take(MAX_CODE).read_to_end(&mut code).await?;
    Ok((said, code))
}

/// Does the work of a compile worker on stdin and stdout. A program that was given to
/// [`HostBuilder::compile_worker`](crate::HostBuilder::compile_worker) calls this, before anything else, when its
/// first argument is [`COMPILE_WORKER`].
///
/// # Errors
/// When a pipe is closed, a bound cannot be set, or the kernel's sandbox fails though it is there.
pub fn run_compile_worker() -> std::io::Result<()> {
    let mut stdin = BufReader::new(std::io::stdin());
    let mut line = Vec::new();
    (&mut stdin).take(MAX_LINE).read_until(b'\n', &mut line)?;
    let job: Job = serde_json::from_slice(&line)?;
    let held = cage::compute_only(|| bound(&job))?;
    let mut component = Vec::new();
    (&mut stdin).take(job.bytes.min(MAX_COMPONENT_BYTES)).read_to_end(&mut component)?;
    std::thread::Builder::new().name("toolbay-parent".to_owned()).spawn(move || end_with(stdin))?;
    let (answer, code) = compile(&component, job.metering);
    let mut stdout = std::io::stdout().lock();
    serde_json::to_writer(&mut stdout, &Said { held, answer })?;
    stdout.write_all(b"\n")?;
    stdout.write_all(&code)?;
    stdout.flush()
}

fn bound(job: &Job) -> std::io::Result<()> {
    for (resource, most) in [
        (Resource::As, job.memory),
        (Resource::Cpu, job.seconds),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
        (Resource::Nofile, MAX_FILES),
    ] {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    nice(NICENESS)?;
    Ok(())
}

/// Ends this process when nobody can write to its stdin any more.
fn end_with(mut stdin: impl Read) {
    std::io::copy(&mut stdin, &mut std::io::sink()).ok();
    std::process::abort();
}

fn compile(component: &[u8], metering: Metering) -> (Answer, Vec<u8>) {
    let answer = match Engine::compiling(metering) {
        Ok(engine) => code::precompile(&engine, component),
        Err(error) => Err(LoadError::Host(error.to_string())),
    };
    match answer {
        Ok(code) => {
            (Answer::Code { bytes: code.len() as u64, sha256: sha256(&code).as_str().to_owned() }, code)
        }
        Err(LoadError::Feature(which)) => (Answer::Feature(which), Vec::new()),
        Err(LoadError::Invalid(why)) => (Answer::Invalid(why), Vec::new()),
        Err(other) => (Answer::Failed(other.to_string()), Vec::new()),
    }
}
