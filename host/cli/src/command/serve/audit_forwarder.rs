//! Forwards the lines of this replica's audit to the shared state.
//!
//! A thread reads the files and waits while the store takes no lines, so that few lines are in memory.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use toolbay::{AuditReader, read_regular_text};
use toolbay_shared::audit::{AuditStream, AuditTail};

use crate::output::{Printer, host_failure};
use crate::setup::shared_folder::SharedFolder;

/// How often new lines are looked for, and the pause after the store took none.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Most lines that are sent at once, and that wait in memory besides them.
const MAX_LINES: usize = 200;
/// How long the end of the server waits for the last lines.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// Largest file with the position, in bytes.
const MAX_POSITION_BYTES: u64 = 4096;

/// Up to which line the audit is forwarded.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ForwardedPosition {
    /// The number of the last forwarded line, from 1.
    number: u64,
    /// Its SHA-256; lines before it are not forwarded again. Empty before the first line of this state directory.
    sha256: String,
}

/// Forwards audit lines until it is closed.
#[derive(Debug)]
pub(super) struct AuditForwarder {
    printer: Printer,
    /// Lets the reader end after the lines that are there.
    is_ending: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl AuditForwarder {
    /// Begins after the last line that this replica has forwarded.
    ///
    /// # Errors
    /// There is no thread for the reader.
    pub(super) fn start(
        printer: Printer,
        stream: AuditStream,
        audit: PathBuf,
        folder: SharedFolder,
    ) -> io::Result<Self> {
        let position = folder.audit_position().and_then(|file| read_position(&file));
        let (lines, waiting) = mpsc::channel(MAX_LINES);
        let is_ending = Arc::<AtomicBool>::default();
        let after =
            position.as_ref().map(|position| position.sha256.clone()).filter(|digest| !digest.is_empty());
        let reader = LineReader { printer, audit, after, lines, is_ending: Arc::clone(&is_ending) };
        // Ends with `close`, or with the process.
        std::thread::Builder::new().name("audit-reader".to_owned()).spawn(move || reader.run())?;
        let worker = Worker { printer, stream, folder, position, tail: None };
        // Ends with the reader.
        Ok(Self { printer, is_ending, task: tokio::spawn(worker.run(waiting)) })
    }

    /// Forwards the last lines.
    pub(super) async fn close(self) {
        self.is_ending.store(true, Ordering::Release);
        if tokio::time::timeout(CLOSE_TIMEOUT, self.task).await.is_err() {
            self.printer
                .warning("the last audit lines are in the file of this server only, until it starts again");
        }
    }
}

/// Reads the lines that are not forwarded.
struct LineReader {
    printer: Printer,
    audit: PathBuf,
    /// The digest of the last line that was forwarded before.
    after: Option<String>,
    lines: mpsc::Sender<String>,
    is_ending: Arc<AtomicBool>,
}

impl LineReader {
    fn run(self) {
        match self.read() {
            // Nobody waits for lines any more.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(error) => {
                self.printer.error(&format!("the audit is not forwarded: it cannot be read: {error}"));
            }
            Ok(()) => {}
        }
    }

    fn read(&self) -> io::Result<()> {
        let (mut reader, mut after) = self.open()?;
        loop {
            let is_last = self.is_ending.load(Ordering::Acquire);
            reader.read(&mut |line| match &after {
                Some(last) => {
                    if hash(line) == *last {
                        after = None;
                    }
                    Ok(())
                }
                None => self.lines.blocking_send(line.to_owned()).map_err(|_| ErrorKind::BrokenPipe.into()),
            })?;
            if after.is_some() {
                // The line was removed since it was looked for.
                (reader, after) = self.open()?;
            } else if is_last {
                return Ok(());
            } else {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }

    /// A reader, and the line after which to forward. Without it, the files have only later lines.
    fn open(&self) -> io::Result<(AuditReader, Option<String>)> {
        let mut is_kept = false;
        if let Some(after) = &self.after {
            AuditReader::new(&self.audit).read(&mut |line| {
                is_kept = is_kept || hash(line) == *after;
                Ok(())
            })?;
        }
        Ok((AuditReader::new(&self.audit), self.after.clone().filter(|_| is_kept)))
    }
}

struct Worker {
    printer: Printer,
    stream: AuditStream,
    folder: SharedFolder,
    /// `None` until the number of the first line is known.
    position: Option<ForwardedPosition>,
    /// Where the next line is stored; `None` while the store may have lines beyond the position.
    tail: Option<AuditTail>,
}

impl Worker {
    async fn run(mut self, mut lines: mpsc::Receiver<String>) {
        let mut waiting = Vec::with_capacity(MAX_LINES);
        while lines.recv_many(&mut waiting, MAX_LINES).await > 0 {
            while !waiting.is_empty() {
                let stored = match self.tail {
                    Some(tail) => self.forward(tail, &waiting).await,
                    None => self.find(&mut waiting, &mut lines).await,
                };
                match stored {
                    Ok(stored) => drop(waiting.drain(..stored.min(waiting.len()))),
                    Err(error) => {
                        return self.printer.error(&format!("the audit is not forwarded: {error:#}"));
                    }
                }
            }
        }
    }

    /// Brings lines into the store. Returns how many it has.
    async fn forward(&mut self, tail: AuditTail, lines: &[String]) -> Result<usize> {
        let appended = self.stream.append(tail, lines).await;
        if appended.count == 0 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        // The store may have the rest, too, or lines of another process with this name.
        self.tail = (appended.count == lines.len()).then_some(appended.tail);
        self.advance(lines, appended.count)
    }

    /// Finds out how many of the lines the store has: those whose acknowledgement was lost. Lines of another process, or of
    /// another state directory, may be behind the position, too; then the numbers continue after them.
    async fn find(&mut self, waiting: &mut Vec<String>, lines: &mut mpsc::Receiver<String>) -> Result<usize> {
        let last = match self.stream.last().await {
            Ok(last) => last,
            Err(error) => {
                tracing::debug!(%error, "the forwarded audit cannot be read");
                tokio::time::sleep(POLL_INTERVAL).await;
                return Ok(0);
            }
        };
        let known = self.position.as_ref().map_or(0, |position| position.number);
        let Some(last) = last else {
            self.tail = Some(AuditTail::without_lines(known));
            return Ok(0);
        };
        if last.tail.number <= known {
            // Fewer, if the store lost some: the gap shows it.
            self.tail = Some(AuditTail { number: known, ..last.tail });
            return Ok(0);
        }
        let more = usize::try_from(last.tail.number.saturating_sub(known)).unwrap_or(usize::MAX);
        if self.position.is_some() && more <= MAX_LINES {
            // A line that was sent is in the file, so the reader brings it.
            while waiting.len() < more
                && let Ok(Some(line)) = tokio::time::timeout(POLL_INTERVAL * 2, lines.recv()).await
            {
                waiting.push(line);
            }
            if more.checked_sub(1).and_then(|at| waiting.get(at)) == Some(&last.line) {
                self.tail = Some(last.tail);
                return self.advance(waiting, more);
            }
        }
        let sha256 = self.position.as_ref().map_or_else(String::new, |position| position.sha256.clone());
        self.set_position(ForwardedPosition { number: last.tail.number, sha256 })?;
        self.tail = Some(last.tail);
        Ok(0)
    }

    /// Records that the store has the first ones of these lines.
    fn advance(&mut self, lines: &[String], stored: usize) -> Result<usize> {
        if let Some(last) = lines.get(..stored).and_then(<[String]>::last) {
            let number = self.position.as_ref().map_or(0, |position| position.number) + stored as u64;
            self.set_position(ForwardedPosition { number, sha256: hash(last) })?;
        }
        Ok(stored)
    }

    fn set_position(&mut self, position: ForwardedPosition) -> Result<()> {
        let text = serde_json::to_vec(&position).context("the position in the audit")?;
        self.folder.set_audit_position(&text).map_err(host_failure)?;
        self.position = Some(position);
        Ok(())
    }
}

fn read_position(file: &Path) -> Option<ForwardedPosition> {
    let text = read_regular_text(file, MAX_POSITION_BYTES).unwrap_or_default();
    serde_json::from_str(&text).ok()
}

fn hash(line: &str) -> String {
    toolbay_state::digest::Digest::of(line.as_bytes()).to_string()
}
