//! Why a command ended without a result: `error:` and `help:` lines on stderr, or one JSON object on stdout.

use std::fmt;
use std::io;
use std::process::ExitCode;

use anyhow::Error;
use serde_json::{Value, json};
use toolbay_policy::excerpt::one_line;
use toolbay_policy::similar::{TypedName, did_you_mean};

use crate::output::findings::FileFindings;
use crate::output::{Printer, print_json};

/// Longest name that a message repeats, in characters.
const MAX_NAME: usize = 100;

/// How a command ended that printed its own result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandStatus {
    /// Exit code 0.
    Success,
    /// Exit code 1.
    Failed,
    /// Exit code 2: the file that the command checked, or the command line, is wrong.
    Invalid,
    /// Exit code 3.
    HostFailed,
    /// Exit code 130, as shells report an interrupted command.
    Interrupted,
}

impl CommandStatus {
    /// Success, or else exit code 1.
    pub(crate) fn from_success(is_success: bool) -> Self {
        if is_success { Self::Success } else { Self::Failed }
    }
}

impl From<CommandStatus> for ExitCode {
    fn from(status: CommandStatus) -> Self {
        Self::from(match status {
            CommandStatus::Success => 0,
            CommandStatus::Failed => 1,
            CommandStatus::Invalid => 2,
            CommandStatus::HostFailed => 3,
            CommandStatus::Interrupted => 130,
        })
    }
}

/// Marks a failure of the host as the outermost context of an error: exit code 3. Without it, the command line, a file
/// it names or the policy is wrong.
#[derive(Debug)]
pub(crate) struct HostFailure;

impl fmt::Display for HostFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the host failed")
    }
}

pub(crate) fn host_failure(error: impl Into<Error>) -> Error {
    error.into().context(HostFailure)
}

/// Runs work that blocks on files. A panic of it is a failure of the host.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(host_failure)
}

/// Prints why a command ended without a result. Returns the status.
pub(crate) fn report_error(printer: Printer, error: Error) -> CommandStatus {
    // An I/O error without a context comes from the standard streams.
    let is_bare = error.chain().next().is_some_and(|first| first.is::<io::Error>());
    let error = if is_bare { host_failure(error) } else { error };
    if error.is::<HostFailure>() {
        // The reader closed the pipe; that is not an error.
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            return CommandStatus::Success;
        }
        print_other_error(printer, "host_failed", &format!("{error:#}"));
        return CommandStatus::HostFailed;
    }
    if let Some(failed) = error.downcast_ref::<CommandError>() {
        failed.print(printer);
        return CommandStatus::Failed;
    }
    match error.downcast_ref::<FileFindings>() {
        Some(of_file) => print_file_error(printer, of_file),
        None => print_other_error(printer, "usage", &format!("{error:#}")),
    }
    CommandStatus::Invalid
}

/// The named thing does not exist, or the request cannot be done: exit code 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandError {
    /// Stable word for programs: `unknown_tool`.
    code: &'static str,
    message: String,
    help: Vec<String>,
}

impl CommandError {
    /// An error without help.
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), help: Vec::new() }
    }

    /// The same error with one more `help:` line.
    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }

    /// The error for a name that does not exist, with the most similar of those that do. `what` is the kind of the name:
    /// `plugin`, `MCP server`. Every command reports unknown names with it, so that they have one exit code.
    pub(crate) fn unknown<'k>(
        code: &'static str,
        what: &str,
        name: &str,
        known: impl IntoIterator<Item = &'k str>,
    ) -> Self {
        let error = Self::new(code, format!("there is no {what} `{}`", one_line(name, MAX_NAME)));
        match did_you_mean(&TypedName::new(name).nearest(known)) {
            Some(suggestion) => error.with_help(suggestion),
            None => error,
        }
    }

    /// Its stable word for programs.
    pub(crate) fn code(&self) -> &'static str {
        self.code
    }

    /// What happened.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Whether it says what to do.
    pub(crate) fn has_help(&self) -> bool {
        !self.help.is_empty()
    }

    /// The error with its help on one line, for programs that show no help of its own.
    pub(crate) fn to_line(&self) -> String {
        let parts: Vec<&str> = std::iter::once(&self.message).chain(&self.help).map(String::as_str).collect();
        parts.join("; ")
    }

    /// Prints the error.
    pub(crate) fn print(&self, printer: Printer) {
        let error = || json!({"code": self.code, "message": self.message, "help": self.help});
        if printer.is_json() && print_json_error(&error()) {
            return;
        }
        printer.error(&self.message);
        self.help.iter().for_each(|help| printer.help(help));
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CommandError {}

/// Prints the mistakes of a file.
fn print_file_error(printer: Printer, of_file: &FileFindings) {
    let error = || {
        let findings: Vec<Value> = of_file.json().collect();
        json!({"code": "invalid_file", "message": of_file.to_string(), "findings": findings})
    };
    if !(printer.is_json() && print_json_error(&error())) {
        printer.findings(of_file);
    }
}

/// Prints an error of the command line, its files or the host.
pub(crate) fn print_other_error(printer: Printer, code: &'static str, message: &str) {
    CommandError::new(code, message).print(printer);
}

/// Prints an error on stdout. Returns whether that was possible: stdout may be a file on a full disk. A reader that closed the
/// pipe is not an error.
fn print_json_error(error: &Value) -> bool {
    !print_json(&json!({ "error": error })).is_err_and(|error| error.kind() != io::ErrorKind::BrokenPipe)
}
