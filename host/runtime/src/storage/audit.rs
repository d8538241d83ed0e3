//! The audit as lines of JSON in a file (`audit.jsonl`), that several processes may append to.
//!
//! A record is in the file, by one write, before the result of its call is delivered: who has seen a result finds its
//! record, also when the process was killed right after. A channel to a thread that writes would have to be waited for
//! just the same, and a hand-over costs more than the write, which goes to memory of the kernel. What a loss of power
//! may cost is the time between two syncs, which a thread does in the background.
//!
//! Refusals above a rate are counted, and one line has the count. A record that cannot be written is counted as well, in
//! a place that a full disk leaves, and a line tells of it once there is room.
//!
//! A full file is given a number and packed in the background ([`archive`]). Whoever writes looks whether the name still
//! means the file that is open, so a process follows when another one has renamed it.

mod archive;
mod file;
mod gap;
mod loaded;
mod reader;
mod shared;

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use reader::AuditReader;

use toolbay_core::audit::refusals::Refusal;
use toolbay_core::audit::{
    AuditHealth, AuditRecord, AuditSink, CallStart, GrantEvent, GrantRecord, Line, RequestRecord,
};
use toolbay_policy::audit_policy::AuditPolicy;

use crate::storage::consent::now;
use shared::Shared;

/// Largest file that is written to, in bytes; some 20 000 calls.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// How much of an audit is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Bytes that all files may have together.
    pub bytes: u64,
    /// Bytes after which a file is closed and a new one begun.
    pub file_bytes: u64,
    /// After which time a file is removed; `None`: when there is no room for it.
    pub age: Option<Duration>,
}

impl Default for Retention {
    fn default() -> Self {
        Self::from(&AuditPolicy::default())
    }
}

impl From<&AuditPolicy> for Retention {
    fn from(policy: &AuditPolicy) -> Self {
        // An eighth: what is removed at once is small, and there is room for a file that is not packed yet.
        let file_bytes = (policy.bytes / 8).min(MAX_FILE_BYTES);
        Self { bytes: policy.bytes, file_bytes, age: policy.age }
    }
}

/// How long the end of the program waits for the last sync: a disk that hangs must not keep it.
const LAST_SYNC: Duration = Duration::from_secs(5);

/// Appends records to a file.
#[derive(Debug)]
pub struct FileAudit {
    shared: Arc<Shared>,
}

impl FileAudit {
    /// Opens a file with the default retention, and makes it, for this user only, if it is not there. Where the disk is
    /// full or read-only it opens all the same: records are counted then, and [`AuditSink::health`] says why.
    ///
    /// # Errors
    /// When the path cannot be an audit: it or a file beside it is a link, a folder or a pipe that nobody reads, it may not
    /// be written, or its folder is not there.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        Self::with_retention(path, Retention::default())
    }

    /// Opens a file in the host's folder of state (`audit.jsonl`), and makes the folder if it is not there.
    ///
    /// # Errors
    /// As [`FileAudit::open`], or when the folder can be written by others.
    pub fn in_state_dir(dir: &Path, retention: Retention) -> io::Result<Self> {
        // A folder that cannot be made for want of room is made later.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        if !made.is_err_and(|error| file::may_pass(&error)) {
            crate::storage::private::make_dir(dir).map_err(io::Error::other)?;
        }
        Self::new(Self::path_in(dir), Some(dir.to_path_buf()), retention)
    }

    /// Where the audit is in the host's folder of state.
    #[must_use]
    pub fn path_in(dir: &Path) -> PathBuf {
        dir.join("audit.jsonl")
    }

    /// As [`FileAudit::open`], with another retention.
    ///
    /// # Errors
    /// As [`FileAudit::open`].
    pub fn with_retention(path: impl Into<PathBuf>, retention: Retention) -> io::Result<Self> {
        Self::new(path.into(), None, retention)
    }

    fn new(path: PathBuf, state_dir: Option<PathBuf>, retention: Retention) -> io::Result<Self> {
        let shared = Arc::new(Shared::open(path, state_dir, retention)?);
        let working = Arc::clone(&shared);
        // Syncs, packs, and writes counts and gaps. Ends with the sink.
        std::thread::Builder::new().name("toolbay-audit".to_owned()).spawn(move || working.work())?;
        Ok(Self { shared })
    }

    /// The files of an audit that are there, the oldest first.
    #[must_use]
    pub fn files(path: &Path) -> Vec<PathBuf> {
        let archives = archive::list(path);
        let parts = archives.values().flat_map(archive::Archive::parts).map(|part| part.path.clone());
        parts.chain(path.exists().then(|| path.to_path_buf())).collect()
    }

    /// Records that could not be written, since this was opened.
    #[must_use]
    pub fn records_lost(&self) -> u64 {
        self.shared.state().lost
    }

    /// Writes the counts that are not due yet, and puts all that was written on the disk.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn flush(&self) -> io::Result<()> {
        let mut state = self.shared.state();
        self.shared.write_counts(&mut state, true);
        let files = state.take_unsynced();
        drop(state);
        files.iter().try_for_each(|file| file.sync_data())
    }
}

impl AuditSink for FileAudit {
    fn record(&self, record: AuditRecord) {
        if record.is_refusal() {
            let mut state = self.shared.state();
            self.shared.write_counts(&mut state, false);
            let refusal = state.calls.add(Instant::now(), record.client(), record.outcome, &record.tool);
            if refusal == Refusal::Counted {
                self.shared.changed.notify_all();
                return;
            }
        }
        let line = Line::Call(&record).to_json(&now());
        drop(self.shared.append(&mut self.shared.state(), &line, 1));
    }

    fn decided(&self, record: GrantRecord) {
        let mut state = self.shared.state();
        let digest =
            (record.event == GrantEvent::Loaded && state.is_regular).then(|| loaded::digest(&record));
        if digest.as_ref().is_some_and(|digest| state.loaded.has(&record.plugin, digest)) {
            return;
        }
        let written = self.shared.append(&mut state, &Line::Grant(&record).to_json(&now()), 1);
        if let Some(digest) = digest.filter(|_| written.is_ok()) {
            state.loaded.keep(&record.plugin, &digest);
        }
    }

    fn takes_starts(&self) -> bool {
        true
    }

    fn started(&self, start: CallStart) -> Result<(), String> {
        let line = Line::Start(&start).to_json(&now());
        // Its record is counted, should that be lost, too.
        self.shared.append(&mut self.shared.state(), &line, 0).map_err(|error| error.kind().to_string())
    }

    fn refused(&self, request: RequestRecord) {
        let mut state = self.shared.state();
        self.shared.write_counts(&mut state, false);
        let refusal = state.requests.add(Instant::now(), &request.client, request.reason, &request.path);
        match refusal {
            Refusal::Listed => {
                drop(self.shared.append(&mut state, &Line::Request(&request).to_json(&now()), 1));
            }
            Refusal::Counted => {
                self.shared.changed.notify_all();
            }
        }
    }

    fn finish(&self) {
        let mut state = self.shared.state();
        self.shared.write_counts(&mut state, true);
        let files = state.take_unsynced();
        drop(state);
        self.shared.sync(files);
    }

    fn health(&self) -> Option<AuditHealth> {
        let state = self.shared.state();
        let (lost, problem) = (self.shared.missing(&state), state.problem.map(|kind| kind.to_string()));
        (lost > 0 || problem.is_some()).then_some(AuditHealth { lost, problem })
    }

    fn follow(&self, policy: &AuditPolicy) {
        let mut state = self.shared.state();
        state.retention = Retention::from(policy);
        state.maintained = None;
        self.shared.changed.notify_all();
    }
}

impl Drop for FileAudit {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.closing = true;
        self.shared.changed.notify_all();
        self.shared.changed.wait_while_for(&mut state, |state| !state.synced, LAST_SYNC);
    }
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
