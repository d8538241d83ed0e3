//! The `toolbay` command: the composition root. Everything it does is a thin layer over the library.
//!
//! Exit codes: 0 ok, 1 a tool said no or faulted (or a checked plugin is not sound), 2 the command or the policy is
//! wrong, 3 the host failed.

mod author;
mod command;
mod output;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The outermost context of a failure of the host: exit code 3. Any other error means that the command line, a file it names
/// or the policy is wrong.
#[derive(Debug)]
struct HostFailure;

impl std::fmt::Display for HostFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the host failed")
    }
}

fn host_failed(error: impl Into<anyhow::Error>) -> anyhow::Error {
    error.into().context(HostFailure)
}

/// Whether everything that was asked for went well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Exit code 0.
    Good,
    /// Exit code 1.
    Bad,
    /// Exit code 2: a file that was to be judged is wrong.
    Wrong,
}

fn main() -> ExitCode {
    let _flush = output::stderr::FlushGuard;
    output::stderr::report_panics();
    // Internal entry points: the host re-executes this binary as a worker (`command::setup::host`).
    let mut args = std::env::args_os().skip(1);
    let (first, alone) = (args.next(), args.next().is_none());
    let helper = first.filter(|_| alone).and_then(|first| {
        if first == toolbay::COMPILE_WORKER {
            return Some(toolbay::run_compile_worker().map_err(anyhow::Error::from));
        }
        (first == toolbay::PROGRAM_GUARD).then(|| toolbay::run_program_guard().map_err(anyhow::Error::from))
    });
    if let Some(done) = helper {
        return done.map_or_else(|error| stop(host_failed(error)), |()| ExitCode::SUCCESS);
    }
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return stop(host_failed(error)),
    };
    let hangup = {
        let _entered = runtime.enter();
        early_hangup()
    };
    let args = match command::args::Args::try_parse() {
        Ok(args) => args,
        Err(error) => return explain_usage(&error),
    };
    raise_file_limit();
    let verdict = runtime.block_on(run(args, hangup));
    // A guest's file operation may still hang in a blocking thread; the process does not wait for it.
    runtime.shutdown_background();
    match verdict {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Bad) => ExitCode::from(1),
        Ok(Verdict::Wrong) => ExitCode::from(2),
        Err(reason) => stop(reason),
    }
}

/// Takes over SIGHUP before anything else happens if this is a server: a supervisor may ask for a reload right after the
/// start, and the default of the signal would end the process. Whether it is one is guessed from the words alone,
/// because to parse them takes milliseconds.
fn early_hangup() -> Option<Signal> {
    let is_server = std::env::args_os().skip(1).any(|arg| arg == "serve");
    is_server.then(|| signal(SignalKind::hangup()).ok()).flatten()
}

async fn run(args: command::args::Args, hangup: Option<Signal>) -> Result<Verdict> {
    match (&args.command, hangup) {
        (command::args::Command::Serve { .. }, hangup) => command::run(args, hangup).await,
        // No server, though a word says `serve`: SIGHUP ends it as any other command.
        (_, Some(mut hangup)) => tokio::select! {
            verdict = command::run(args, None) => verdict,
            _ = hangup.recv() => Ok(Verdict::Bad),
        },
        (_, None) => command::run(args, None).await,
    }
}

/// Writes what clap has to say: help to stdout, errors to stderr.
fn explain_usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        output::stderr::prompt(&output::styled(&error.render().ansi().to_string()));
    } else if let Err(problem) = error.print() {
        return stop(host_failed(problem));
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Takes all file descriptors this process may have: every call may hold as many as `handles` allows.
fn raise_file_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit on open files stays as it is");
    }
}

fn stop(error: anyhow::Error) -> ExitCode {
    // An I/O error that nobody gave a context came from reading or writing the standard streams.
    let is_bare = error.chain().next().is_some_and(|first| first.is::<std::io::Error>());
    let error = if is_bare { host_failed(error) } else { error };
    if error.is::<HostFailure>() {
        // The reader closed the pipe; that is not an error.
        if is_broken_pipe(&error) {
            return ExitCode::SUCCESS;
        }
        output::complain(&format!("{error:#}"));
        return ExitCode::from(3);
    }
    match error.downcast_ref::<output::findings::FileFindings>() {
        Some(of_file) => output::diagnostics(of_file),
        None => output::complain(&format!("{error:#}")),
    }
    ExitCode::from(2)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}
