//! Programs on the operator's list. No shell is involved.
//!
//! ```
//! use toolbay_sdk::process::{Command, Completed};
//! use toolbay_sdk::testing::FakeHost;
//!
//! let fake = FakeHost::new().program("git", |_| Completed::of(0, " M notes.txt\n", ""));
//! let done = fake.run(|| Command::new("git").args(["status", "--short"]).run()).unwrap();
//! assert!(done.success());
//! assert_eq!(fake.commands()[0].args, ["status", "--short"]);
//! ```
//!
//! | error of the host | error of the tool | subject |
//! |---|---|---|
//! | denied | `not-available` | `denied` |
//! | not found | `not-available` | `missing-binary` |
//! | timeout | `execution-failed` | `timeout` |
//! | cancelled | `execution-failed` | `cancelled` |
//! | other | `execution-failed` | none |

use crate::host::process as host;
use crate::{Result, host_errors};

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

    /// Sets the working directory: a folder that the tool may read or write.
    #[must_use]
    pub fn cwd(mut self, folder: impl Into<String>) -> Self {
        self.cwd = Some(folder.into());
        self
    }

    /// Sets a variable that the operator lets plugins set.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Sets the standard input, which is otherwise empty.
    #[must_use]
    pub fn stdin(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(data.into());
        self
    }

    /// Sets the timeout, in milliseconds. The host may allow less.
    #[must_use]
    pub fn timeout_ms(mut self, timeout_ms: u32) -> Self {
        self.timeout_ms = Some(timeout_ms);
        self
    }

    /// Sets how many bytes of each output stream to capture. The host may allow less.
    #[must_use]
    pub fn max_output_bytes(mut self, bytes: u32) -> Self {
        self.max_output_bytes = Some(bytes);
        self
    }

    /// Runs the program to its end. A failing exit code is `Ok`; see [`Completed::success`].
    pub fn run(&self) -> Result<Completed> {
        host::run(self).map_err(|error| host_errors::process(&self.program, error))
    }
}

impl Completed {
    /// Creates a result for tests: the exit code and the two output streams.
    pub fn of(exit_code: i32, stdout: impl Into<Vec<u8>>, stderr: impl Into<Vec<u8>>) -> Self {
        Self { exit_code: Some(exit_code), stdout: stdout.into(), stderr: stderr.into(), truncated: false }
    }

    /// Returns whether the exit code is 0.
    pub fn success(&self) -> bool {
        self.exit_code == Some(0)
    }

    /// Returns the standard output. Invalid UTF-8 is replaced.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns the standard error. Invalid UTF-8 is replaced.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}
