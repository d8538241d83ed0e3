//! The `toolbay` command: the composition root, a thin layer over the library.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | success |
//! | 1 | a tool refused or faulted, a name is unknown, or a checked plugin has errors |
//! | 2 | the command line, a file it names or the policy is wrong |
//! | 3 | the host failed |
//! | 130 | a signal ended a command that uses MCP servers |

mod args;
mod author;
mod command;
mod grants;
mod installation;
mod output;
mod policy_edit;
mod process_limits;
mod report;
mod setup;

use std::process::ExitCode;

use anyhow::Result;
use tokio::signal::unix::{Signal, SignalKind, signal};

use args::{Args, Command};
use output::error::report_error;
use output::{CommandStatus, Printer, host_failure, stderr};

fn main() -> ExitCode {
    let _flush = stderr::FlushGuard;
    let printer = Printer::from_words(std::env::args_os().skip(1));
    printer.report_panics();
    // Internal entry points: the host re-executes this binary as a worker (`setup::host`).
    if let Some(done) = toolbay::run_worker() {
        let done = done.map(|()| CommandStatus::Success);
        return done.unwrap_or_else(|error| report_error(printer, host_failure(error))).into();
    }
    let run = process_limits::run_on_own_stack(move || run_program(printer));
    run.unwrap_or_else(|error| report_error(printer, host_failure(error)).into())
}

fn run_program(printer: Printer) -> ExitCode {
    if let Some(answered) = command::completions::answer() {
        return answered;
    }
    // Before anything that takes time: a supervisor may send SIGHUP right after the start.
    raise_file_limit();
    stderr::start();
    let started = process_limits::check_process().and_then(|()| Ok(tokio::runtime::Runtime::new()?));
    let runtime = match started {
        Ok(runtime) => runtime,
        Err(error) => return report_error(printer, host_failure(error)).into(),
    };
    let (hangup, _too_large) = {
        let _entered = runtime.enter();
        // With a handler, a write beyond `RLIMIT_FSIZE` is an error, and does not end the process.
        let too_large = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
        (hangup_of_server(), signal(too_large))
    };
    let args = match Args::parse_command_line() {
        Ok(args) => args,
        Err(error) => return report_usage(printer, &error),
    };
    let printer = args.setup.printer;
    let status = runtime.block_on(run(args, hangup));
    // A guest's file operation may still hang in a blocking thread; the process does not wait for it.
    runtime.shutdown_background();
    status.unwrap_or_else(|error| report_error(printer, error)).into()
}

/// Takes over SIGHUP at once if this process is a server. A supervisor may ask for a reload right after the start, and
/// the signal's default action ends the process. The word `serve` decides, because parsing the arguments takes
/// milliseconds.
fn hangup_of_server() -> Option<Signal> {
    let is_server = std::env::args_os().skip(1).any(|arg| arg == "serve");
    is_server.then(|| signal(SignalKind::hangup()).ok()).flatten()
}

async fn run(args: Args, hangup: Option<Signal>) -> Result<CommandStatus> {
    match (&args.command, hangup) {
        (Command::Serve { .. }, hangup) => command::run(args, hangup).await,
        // `serve` is an argument of another command: SIGHUP ends that command as usual.
        (_, Some(mut hangup)) => tokio::select! {
            status = command::run(args, None) => status,
            _ = hangup.recv() => Ok(CommandStatus::Failed),
        },
        (_, None) => tokio::select! {
            status = command::run(args, None) => status,
            () = setup::servers::interrupted() => Ok(CommandStatus::Interrupted),
        },
    }
}

/// Prints clap's help on stdout and its errors on stderr.
fn report_usage(printer: Printer, error: &clap::Error) -> ExitCode {
    if error.use_stderr() && printer.is_json() {
        let message = error.render().to_string();
        output::error::print_other_error(printer, "usage", message.trim_end().trim_start_matches("error: "));
    } else if error.use_stderr() {
        stderr::write_prompt(&output::style_for_stderr(&error.render().ansi().to_string()));
    } else if let Err(problem) = error.print() {
        return report_error(printer, host_failure(problem)).into();
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
