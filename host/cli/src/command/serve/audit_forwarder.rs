//! Forwards the lines of this server's audit to the shared state.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use toolbay::{AuditReader, read_regular_text};
use toolbay_shared::audit::AuditStream;

use crate::command::shared::SharedFolder;
use crate::{host_failure, output};

/// How often new lines are looked for.
const LOOK: Duration = Duration::from_millis(500);
/// Most lines that are sent at once.
const MAX_LINES: usize = 200;
/// How long the end of the server waits for the last lines.
const LAST: Duration = Duration::from_secs(3);
/// Largest file with the position, in bytes.
const MAX_POSITION_BYTES: u64 = 4096;

/// Up to which line the audit is forwarded.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct ForwardedPosition {
    /// The number of the last forwarded line, from 1.
    number: u64,
    /// Its SHA-256. Lines before it are not forwarded again.
    sha256: String,
}

/// Forwards audit lines until it is closed.
#[derive(Debug)]
pub(super) struct AuditForwarder {
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl AuditForwarder {
    /// Begins after the last line that this server has forwarded.
    pub(super) fn start(stream: AuditStream, audit: PathBuf, folder: SharedFolder) -> Self {
        let (end, ended) = oneshot::channel();
        let worker = Worker::new(stream, audit, folder);
        // Ends with `close`, or with the process.
        Self { end, task: tokio::spawn(worker.run(ended)) }
    }

    /// Forwards the last lines.
    pub(super) async fn close(self) {
        self.end.send(()).ok();
        if tokio::time::timeout(LAST, self.task).await.is_err() {
            output::print_warning(
                "the last audit lines are in the file of this server only, until it starts again",
            );
        }
    }
}

struct Worker {
    stream: AuditStream,
    folder: SharedFolder,
    reader: AuditReader,
    position: ForwardedPosition,
    /// Whether the lines before the position were passed.
    is_resumed: bool,
    waiting: Vec<String>,
}

impl Worker {
    fn new(stream: AuditStream, audit: PathBuf, folder: SharedFolder) -> Self {
        let position = folder.audit_position().map(|file| read_position(&file)).unwrap_or_default();
        let is_resumed = position.number == 0;
        Self { stream, folder, reader: AuditReader::new(audit), position, is_resumed, waiting: Vec::new() }
    }

    async fn run(mut self, mut ended: oneshot::Receiver<()>) {
        let mut is_last = false;
        loop {
            self = match self.read().await {
                Ok(worker) => worker,
                Err(error) => return output::print_error(&format!("the audit is not forwarded: {error:#}")),
            };
            if let Err(error) = self.forward().await {
                output::print_error(&format!("the audit is not forwarded: {error:#}"));
            }
            if is_last && self.waiting.is_empty() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                _ = &mut ended, if !is_last => is_last = true,
            }
        }
    }

    /// Reads the new lines.
    async fn read(mut self) -> Result<Self> {
        let read = tokio::task::spawn_blocking(move || {
            let Self { reader, waiting, position, is_resumed, .. } = &mut self;
            let mut lines = Vec::new();
            let read = reader.read(&mut |line| {
                lines.push(line.to_owned());
                Ok(())
            });
            if !*is_resumed {
                // Without the last forwarded line, the file has only later ones: the older ones were removed.
                let last = lines.iter().rposition(|line| hash(line) == position.sha256);
                drop(lines.drain(..last.map_or(0, |at| at + 1)));
                *is_resumed = true;
            }
            waiting.append(&mut lines);
            read.map(|()| self)
        });
        let read = read.await.map_err(host_failure)?;
        read.context("the audit cannot be read").map_err(host_failure)
    }

    /// Sends the lines that wait, until the store does not take one.
    async fn forward(&mut self) -> Result<()> {
        while !self.waiting.is_empty() {
            let part = self.waiting.get(..MAX_LINES).unwrap_or(&self.waiting);
            let stored = self.stream.append(self.position.number + 1, part).await;
            let Some(last) = part.get(..stored).and_then(<[String]>::last) else { return Ok(()) };
            self.position =
                ForwardedPosition { number: self.position.number + stored as u64, sha256: hash(last) };
            drop(self.waiting.drain(..stored));
            self.folder.set_audit_position(&serde_json::to_vec(&self.position)?)?;
        }
        Ok(())
    }
}

fn read_position(file: &Path) -> ForwardedPosition {
    let text = read_regular_text(file, MAX_POSITION_BYTES).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn hash(line: &str) -> String {
    Sha256::digest(line.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
