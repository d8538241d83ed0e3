//! The process that compiles one component; [`worker`](crate::compile::worker) starts it and describes the protocol.

use std::io::{BufRead, BufReader, Read, Write};

use rustix::process::{Resource, Rlimit, getrlimit, nice, setrlimit};
use toolbay_state::digest::Digest;

use crate::compile::worker::{CompileReply, CompileRequest, MAX_LINE, WorkerResponse};
use crate::compile::{CompileError, MAX_COMPONENT_BYTES};
use crate::engine::{Engine, EngineKind, code_version};
use crate::process_sandbox as sandbox;

/// Maximum number of open files of a worker: its pipes. The limit holds even where the kernel has no sandbox.
const MAX_FILES: u64 = 3;
/// The nice value of a worker, which gets a third of the CPU share of other processes. With less, a large component
/// would take minutes on a busy machine.
const NICENESS: i32 = 5;

/// Runs a compile worker on stdin and stdout.
///
/// # Errors
/// A pipe is closed, a limit cannot be set, or the kernel's sandbox fails.
pub fn run_compile_worker() -> std::io::Result<()> {
    let mut stdin = BufReader::new(std::io::stdin());
    let mut line = Vec::new();
    (&mut stdin).take(MAX_LINE).read_until(b'\n', &mut line)?;
    let request: CompileRequest = serde_json::from_slice(&line)?;
    let sandbox = sandbox::restrict_to_compute(|| set_resource_limits(&request))?;
    let mut component = Vec::new();
    (&mut stdin).take(request.bytes.min(MAX_COMPONENT_BYTES)).read_to_end(&mut component)?;
    std::thread::Builder::new().name("toolbay-parent".to_owned()).spawn(move || abort_on_eof(stdin))?;
    let (answer, code) = compile_on_own_stack(&component, request.engine)?;
    let mut stdout = std::io::stdout().lock();
    serde_json::to_writer(&mut stdout, &WorkerResponse { version: code_version(), sandbox, answer })?;
    stdout.write_all(b"\n")?;
    stdout.write_all(&code)?;
    stdout.flush()
}

fn set_resource_limits(request: &CompileRequest) -> std::io::Result<()> {
    let address_space = sandbox::limit_address_space().map(|resource| (resource, request.memory));
    for (resource, max) in address_space.into_iter().chain([
        (Resource::Cpu, request.seconds),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
        (Resource::Nofile, MAX_FILES),
    ]) {
        // A process may only lower its limits.
        let max = getrlimit(resource).maximum.map_or(max, |hard| hard.min(max));
        setrlimit(resource, Rlimit { current: Some(max), maximum: Some(max) })?;
    }
    nice(NICENESS)?;
    Ok(())
}

/// Aborts this process when the other end of stdin is closed.
fn abort_on_eof(mut stdin: impl Read) {
    std::io::copy(&mut stdin, &mut std::io::sink()).ok();
    std::process::abort();
}

/// Compiles on a thread with a stack of its own: that of the main thread has the size that the parent of the host chose.
fn compile_on_own_stack(component: &[u8], engine: EngineKind) -> std::io::Result<(CompileReply, Vec<u8>)> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("toolbay-compile".to_owned()).stack_size(super::STACK);
        let thread = thread.spawn_scoped(scope, || compile(component, engine))?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn compile(component: &[u8], engine: EngineKind) -> (CompileReply, Vec<u8>) {
    let answer = match Engine::for_compiling(engine) {
        Ok(engine) => super::precompile(&engine, component),
        Err(error) => Err(CompileError::Host(error.to_string())),
    };
    match answer {
        Ok(code) => (CompileReply::Code { bytes: code.len() as u64, sha256: Digest::of(&code) }, code),
        Err(CompileError::UnsupportedFeature(which)) => (CompileReply::Feature(which), Vec::new()),
        Err(CompileError::Invalid(why)) => (CompileReply::Invalid(why), Vec::new()),
        Err(other) => (CompileReply::Failed(other.to_string()), Vec::new()),
    }
}
