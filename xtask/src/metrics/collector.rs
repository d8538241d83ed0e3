//! A collector of traces that other people wrote: `rotel`, which PyPI has as a program.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::TIMEOUT;
use crate::foreign::environment;

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
    child: Child,
    output: PathBuf,
    /// The base URL for OTLP over HTTP.
    pub(super) url: String,
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Collector {
    pub(super) fn start(target: &Path, folder: &Path) -> Result<Self> {
        let python = install(target)?;
        let found = Command::new(python).args(["-c", FIND]).output()?;
        let package = String::from_utf8(found.stdout)?;
        let free =
            || anyhow::Ok(format!("127.0.0.1:{}", TcpListener::bind("127.0.0.1:0")?.local_addr()?.port()));
        let (http, grpc, output) = (free()?, free()?, folder.join("rotel.out"));
        let mut program = Command::new(Path::new(package.trim()).join("rotel-agent"));
        program.arg("start").args(["--exporter", "blackhole", "--debug-log-verbosity", "detailed"]);
        program.args(["--debug-log", "traces", "--debug-log", "metrics"]);
        program.args(["--otlp-http-endpoint", &http, "--otlp-grpc-endpoint", &grpc]);
        program.arg("--pid-file").arg(folder.join("rotel.pid")).env("NO_COLOR", "1");
        let printed = File::create(&output)?;
        program.stdin(Stdio::null()).stderr(printed.try_clone()?).stdout(printed);
        let child = program.spawn().context("`rotel` does not start")?;
        Ok(Self { child, output, url: format!("http://{http}") })
    }

    /// Waits until it has printed each text as often as expected, or more often.
    pub(super) fn wait_for(&self, texts: &[(&str, usize)]) -> Result<()> {
        let start = Instant::now();
        loop {
            let printed = std::fs::read_to_string(&self.output)?;
            let missing = texts.iter().find(|(text, count)| printed.matches(text).count() < *count);
            let Some((text, count)) = missing else { return Ok(()) };
            ensure!(
                start.elapsed() < TIMEOUT,
                "the collector did not get {count} times `{text}`:\n{printed}"
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}
