//! Runs programs of others: takes what they print, or keeps them running while something uses them.

use std::io::{BufRead as _, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// How long [`retried`] waits between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// What a program prints.
///
/// # Errors
/// Fails if the program cannot be started, or exits with an error, with what it printed.
pub(crate) fn printed(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?} ended with {}:\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// What a server on this machine answers to a request of `curl`.
pub(crate) fn fetched(url: &str, options: &[&str]) -> Result<String> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail", "--max-time", "60"]);
    printed(curl.args(options).arg(url))
}

/// A running program, which ends with this value.
#[derive(Debug)]
pub(crate) struct RunningProgram {
    pub(crate) child: Child,
}

impl RunningProgram {
    /// Starts a program, which finds an empty stdin.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        Self::spawn(command.stdin(Stdio::null()))
    }

    /// Starts a program with the stdin, stdout and stderr of the command.
    pub(crate) fn spawn(command: &mut Command) -> Result<Self> {
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { child })
    }

    /// Waits until a server has printed this text on stderr, which is a pipe, and returns the rest of the line.
    pub(crate) fn logged(&mut self, text: &str) -> Result<String> {
        announced(self.child.stderr.take().context("stderr is not captured")?, text)
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Waits until an output has this text, and returns the rest of the line.
pub(crate) fn announced(output: impl Read + Send + 'static, text: &str) -> Result<String> {
    let mut output = BufReader::new(output);
    let mut said = String::new();
    loop {
        let mut line = String::new();
        if output.read_line(&mut line)? == 0 {
            bail!("the server ended before it said `{text}`:\n{said}");
        }
        if let Some((_, rest)) = line.split_once(text) {
            // A full pipe would stop the server. The thread ends with it.
            std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
            return Ok(rest.trim().to_owned());
        }
        said += &line;
    }
}

/// A port that no program listens on.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Tries something until it succeeds, or returns its last error when the time is over.
pub(crate) fn retried<T>(timeout: Duration, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(_) if start.elapsed() < timeout => std::thread::sleep(PAUSE),
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_failed_program_is_an_error_with_what_it_said() {
        assert_eq!(printed(&mut shell("echo one; echo two")).unwrap(), "one\ntwo\n");
        let error = printed(&mut shell("echo no >&2; exit 3")).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.ends_with("no\n"), "{error}");
    }

    #[test]
    fn a_server_that_ends_without_its_address_is_an_error() {
        let logged = |script: &str| {
            RunningProgram::start(shell(script).stderr(Stdio::piped())).unwrap().logged("listening on ")
        };
        assert_eq!(logged("echo first >&2; echo listening on x >&2; exec sleep 600").unwrap(), "x");
        assert!(logged("echo first >&2").unwrap_err().to_string().ends_with("first\n"));
    }
}
