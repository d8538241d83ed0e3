//! The lines that guests write for the operator, as the host logs them.

use std::io::{Result, Write};
use std::sync::{Mutex, PoisonError};

static LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        LINES.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Starts to record.
pub(crate) fn start() {
    tracing_subscriber::fmt().with_writer(|| LogWriter).with_ansi(false).without_time().init();
}

/// The lines since the last call, each after its level.
pub(crate) fn take() -> Vec<String> {
    let bytes = std::mem::take(&mut *LINES.lock().unwrap_or_else(PoisonError::into_inner));
    let text = String::from_utf8_lossy(&bytes);
    let line = |line: &str| {
        let (before, said) = line.split_once("toolbay::guest: ")?;
        let level = before.split_whitespace().next()?;
        Some(format!("{level} {}", said.trim_end_matches(" plugin=contract")))
    };
    text.lines().filter_map(line).collect()
}
