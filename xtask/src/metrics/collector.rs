//! A collector of traces that other people wrote: `rotel`, which PyPI has as a program.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::TIMEOUT;
use crate::foreign::environment;
use crate::programs::{RunningProgram, free_port, printed, retried};

const ROTEL: &str = "rotel==0.0.1a15\n";
/// Prints the program of the package without importing it, which would start it.
const FIND: &str =
    "import importlib.util, os; print(os.path.dirname(importlib.util.find_spec('rotel').origin))";

/// Installs the collector, and returns the Python that has it.
pub(super) fn install(target: &Path) -> Result<PathBuf> {
    environment(&target.join("venv-rotel"), ROTEL)
}

/// A running collector that prints what it receives.
pub(super) struct Collector {
    _program: RunningProgram,
    output: PathBuf,
    /// The base URL for OTLP over HTTP.
    pub(super) url: String,
}

impl Collector {
    pub(super) fn start(target: &Path, folder: &Path) -> Result<Self> {
        let python = install(target)?;
        let package = printed(Command::new(python).args(["-c", FIND]))?;
        let [http, grpc] = [free_port()?, free_port()?].map(|port| format!("127.0.0.1:{port}"));
        let output = folder.join("rotel.out");
        let mut program = Command::new(Path::new(package.trim()).join("rotel-agent"));
        program.arg("start").args(["--exporter", "blackhole", "--debug-log-verbosity", "detailed"]);
        program.args(["--debug-log", "traces", "--debug-log", "metrics"]);
        program.args(["--otlp-http-endpoint", &http, "--otlp-grpc-endpoint", &grpc]);
        program.arg("--pid-file").arg(folder.join("rotel.pid")).env("NO_COLOR", "1");
        let log = File::create(&output)?;
        let program = RunningProgram::start(program.stderr(log.try_clone()?).stdout(log))?;
        Ok(Self { _program: program, output, url: format!("http://{http}") })
    }

    /// Waits until it has printed each text as often as expected, or more often.
    pub(super) fn wait_for(&self, texts: &[(&str, usize)]) -> Result<()> {
        retried(TIMEOUT, || {
            let received = std::fs::read_to_string(&self.output)?;
            match texts.iter().find(|(text, count)| received.matches(text).count() < *count) {
                Some((text, count)) => bail!("the collector did not get {count} times `{text}`:\n{received}"),
                None => Ok(()),
            }
        })
    }
}
