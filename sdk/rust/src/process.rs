//! Programs on the operator's list. No shell is involved.
//!
//! `Command::new("git").args(["status", "--short"]).run()?`

use crate::bindings::imports::toolbay::plugin::process::ProcessError;
use crate::host::process as host;
use crate::{Error, Result};

pub use crate::bindings::imports::toolbay::plugin::process::{Command, Completed};

impl Command {
    /// Starts a command line with a program.
    pub fn new(program: impl Into<String>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            cwd: None,
            env: Vec::new(),
            stdin: None,
            timeout_ms: None,
            max_output_bytes: None,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<T: Into<String>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Runs the program to its end. A program that says no by its exit code is `Ok`; see [`Completed::success`].
    pub fn run(&self) -> Result<Completed> {
        host::run(self).map_err(|error| describe(&self.program, error))
    }
}

impl Completed {
    /// Tells whether the program ended with exit code 0.
    pub fn success(&self) -> bool {
        self.exit_code == Some(0)
    }

    /// Returns what it wrote to standard output; what is not UTF-8 is replaced.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns what it wrote to standard error; what is not UTF-8 is replaced.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

fn describe(program: &str, error: ProcessError) -> Error {
    match error {
        ProcessError::Denied(reason) => {
            Error::not_available(format!("`{program}` may not be run: {reason}")).at("denied")
        }
        ProcessError::NotFound(name) => {
            Error::not_available(format!("no program `{name}` here")).at("missing-binary")
        }
        ProcessError::Timeout => Error::failed(format!("`{program}` did not end in time")).at("timeout"),
        ProcessError::Cancelled => Error::failed("the call was cancelled").at("cancelled"),
        ProcessError::Other(message) => Error::failed(format!("`{program}`: {message}")),
    }
}
