//! The `toolbay` command: the composition root, a thin layer over the library.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | success |
//! | 1 | a tool refused or faulted, a name is unknown, or a checked plugin has errors |
//! | 2 | the command line, a file it names or the policy is wrong |
//! | 3 | the host failed |
//! | 130 | a signal ended a command that uses MCP servers |

mod author;
mod command;
mod output;
mod process_limits;

use std::process::ExitCode;

use anyhow::Result;
use tokio::signal::unix::{Signal, SignalKind, signal};

use output::error::CommandError;

/// Marks a failure of the host as the outermost context of an error: exit code 3. Without it, the command line, a file
/// it names or the policy is wrong.
#[derive(Debug)]
struct HostFailure;

impl std::fmt::Display for HostFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the host failed")
    }
}

fn host_failure(error: impl Into<anyhow::Error>) -> anyhow::Error {
    error.into().context(HostFailure)
}

/// How a command ended that printed its own result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommandStatus {
    /// Exit code 0.
    Success,
    /// Exit code 1.
    Failed,
    /// Exit code 2: the file that the command checked is wrong.
    InvalidFile,
    /// Exit code 130, as shells report an interrupted command.
    Interrupted,
}

fn main() -> ExitCode {
    let _flush = output::stderr::FlushGuard;
    output::stderr::report_panics();
    // Internal entry points: the host re-executes this binary as a worker (`command::setup::host`).
    if let Some(done) = toolbay::run_worker() {
        return done.map_or_else(|error| exit_with(host_failure(error)), |()| ExitCode::SUCCESS);
    }
    process_limits::run_on_own_stack(run_program).unwrap_or_else(|error| exit_with(host_failure(error)))
}

fn run_program() -> ExitCode {
    if let Some(answered) = command::completions::answer() {
        return answered;
    }
    output::error::set_form(std::env::args_os().skip(1));
    // Before anything that takes time: a supervisor may send SIGHUP right after the start.
    raise_file_limit();
    output::stderr::start();
    if let Err(error) = process_limits::check_process() {
        return exit_with(host_failure(error));
    }
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return exit_with(host_failure(error)),
    };
    let (hangup, _too_large) = {
        let _entered = runtime.enter();
        // With a handler, a write beyond `RLIMIT_FSIZE` is an error, and does not end the process.
        let too_large = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
        (hangup_of_server(), signal(too_large))
    };
    let args = match command::args::Args::parse_command_line() {
        Ok(args) => args,
        Err(error) => return report_usage(&error),
    };
    let verdict = runtime.block_on(run(args, hangup));
    // A guest's file operation may still hang in a blocking thread; the process does not wait for it.
    runtime.shutdown_background();
    match verdict {
        Ok(CommandStatus::Success) => ExitCode::SUCCESS,
        Ok(CommandStatus::Failed) => ExitCode::from(1),
        Ok(CommandStatus::InvalidFile) => ExitCode::from(2),
        Ok(CommandStatus::Interrupted) => ExitCode::from(130),
        Err(reason) => exit_with(reason),
    }
}

/// Takes over SIGHUP at once if this process is a server. A supervisor may ask for a reload right after the start, and
/// the signal's default action ends the process. The word `serve` decides, because parsing the arguments takes
/// milliseconds.
fn hangup_of_server() -> Option<Signal> {
    let is_server = std::env::args_os().skip(1).any(|arg| arg == "serve");
    is_server.then(|| signal(SignalKind::hangup()).ok()).flatten()
}

async fn run(args: command::args::Args, hangup: Option<Signal>) -> Result<CommandStatus> {
    match (&args.command, hangup) {
        (command::args::Command::Serve { .. }, hangup) => command::run(args, hangup).await,
        // `serve` is an argument of another command: SIGHUP ends that command as usual.
        (_, Some(mut hangup)) => tokio::select! {
            verdict = command::run(args, None) => verdict,
            _ = hangup.recv() => Ok(CommandStatus::Failed),
        },
        (_, None) => tokio::select! {
            verdict = command::run(args, None) => verdict,
            () = command::servers::interrupted() => Ok(CommandStatus::Interrupted),
        },
    }
}

/// Prints clap's help on stdout and its errors on stderr.
fn report_usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && output::error::is_json() {
        let message = error.render().to_string();
        output::error::print_other_error("usage", message.trim_end().trim_start_matches("error: "));
    } else if error.use_stderr() {
        output::stderr::write_prompt(&output::style_for_stderr(&error.render().ansi().to_string()));
    } else if let Err(problem) = error.print() {
        return exit_with(host_failure(problem));
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Raises the limit on open files to the most this process may have: every call may hold as many as `handles` allows.
fn raise_file_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit on open files stays as it is");
    }
}

fn exit_with(error: anyhow::Error) -> ExitCode {
    // An I/O error without a context comes from the standard streams.
    let is_bare = error.chain().next().is_some_and(|first| first.is::<std::io::Error>());
    let error = if is_bare { host_failure(error) } else { error };
    if error.is::<HostFailure>() {
        // The reader closed the pipe; that is not an error.
        if is_broken_pipe(&error) {
            return ExitCode::SUCCESS;
        }
        output::error::print_other_error("host_failed", &format!("{error:#}"));
        return ExitCode::from(3);
    }
    if let Some(failed) = error.downcast_ref::<CommandError>() {
        failed.print();
        return ExitCode::from(1);
    }
    match error.downcast_ref::<output::findings::FileFindings>() {
        Some(of_file) => output::error::print_file_error(of_file),
        None => output::error::print_other_error("usage", &format!("{error:#}")),
    }
    ExitCode::from(2)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}
