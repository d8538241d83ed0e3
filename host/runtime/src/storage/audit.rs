//! The audit: lines of JSON in a file (`audit.jsonl`) that several processes may append to.
//!
//! Each record is written with one `write` before the result of its call is delivered, so the record of a delivered
//! result survives even if the process is killed. Sending records to a writer thread would not be faster: the call
//! would have to wait for the thread, and the hand-over costs more than a write to the page cache. A power loss can
//! cost the records since the last sync, which a background thread performs.
//!
//! Refusals above a rate are counted and summed up in one line. A record that cannot be written is counted in a file
//! that works on a full disk, and a line reports the number once there is space.
//!
//! A full file is numbered and packed in the background ([`archive`]). Writers check whether the name still refers to
//! the open file, so a process follows when another process renames it.

mod archive;
mod file;
mod gap;
mod loaded;
mod reader;
mod writer;

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use reader::AuditReader;

use toolbay_core::audit::refusals::{RefusalHandling, RefusalKind};
use toolbay_core::audit::{
    ActionRecord, AuditEvent, AuditHealth, AuditRecord, AuditSink, CallStart, GrantEvent, GrantRecord,
    RequestRecord,
};
use toolbay_policy::audit_policy::AuditPolicy;

use crate::storage::timestamp_now;
use writer::AuditWriter;

/// Maximum size of the current file, in bytes: about 20,000 calls.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// How long and how much of an audit is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Maximum total size of all files, in bytes.
    pub bytes: u64,
    /// Size at which a new file is started, in bytes.
    pub file_bytes: u64,
    /// Age at which a file is removed; `None` keeps files until there is no room.
    pub age: Option<Duration>,
}

impl Default for Retention {
    fn default() -> Self {
        Self::from(&AuditPolicy::default())
    }
}

impl From<&AuditPolicy> for Retention {
    fn from(policy: &AuditPolicy) -> Self {
        // One eighth: each removal is small, and there is room for a file that is not packed yet.
        let file_bytes = (policy.bytes / 8).min(MAX_FILE_BYTES);
        Self { bytes: policy.bytes, file_bytes, age: policy.age }
    }
}

/// Maximum time that the end of the program waits for the last sync, in case the disk hangs.
const LAST_SYNC: Duration = Duration::from_secs(5);

/// An audit sink that appends records to a file.
#[derive(Debug)]
pub struct FileAudit {
    writer: Arc<AuditWriter>,
}

impl FileAudit {
    /// Opens a file with the default retention, and creates it for this user only if it does not exist. On a full or
    /// read-only disk this also succeeds: records are counted, and [`AuditSink::health`] returns the reason.
    ///
    /// # Errors
    /// The path cannot be an audit: it or one of its companion files is a link, a folder or a pipe without a reader, it
    /// is not writable, or its folder does not exist.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        Self::with_retention(path, Retention::default())
    }

    /// Opens `audit.jsonl` in the state folder, and creates the folder if it does not exist.
    ///
    /// # Errors
    /// As for [`FileAudit::open`], or others can write to the folder.
    pub fn in_state_dir(dir: &Path, retention: Retention) -> io::Result<Self> {
        // On a full disk, the folder is created later.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        if !made.is_err_and(|error| file::is_transient(&error)) {
            toolbay_state::private::make_dir(dir).map_err(io::Error::other)?;
        }
        Self::new(Self::path_in(dir), Some(dir.to_path_buf()), retention)
    }

    /// The path of the audit in the state folder.
    #[must_use]
    pub fn path_in(dir: &Path) -> PathBuf {
        dir.join("audit.jsonl")
    }

    /// Like [`FileAudit::open`], with another retention.
    ///
    /// # Errors
    /// As for [`FileAudit::open`].
    pub fn with_retention(path: impl Into<PathBuf>, retention: Retention) -> io::Result<Self> {
        Self::new(path.into(), None, retention)
    }

    fn new(path: PathBuf, state_dir: Option<PathBuf>, retention: Retention) -> io::Result<Self> {
        let writer = Arc::new(AuditWriter::open(path, state_dir, retention)?);
        let background = Arc::clone(&writer);
        // The thread syncs, packs, and writes counts and gaps. It ends with the sink.
        std::thread::Builder::new()
            .name("toolbay-audit".to_owned())
            .spawn(move || background.run_background())?;
        Ok(Self { writer })
    }

    /// The existing files of an audit, oldest first.
    #[must_use]
    pub fn files(path: &Path) -> Vec<PathBuf> {
        let archives = archive::list(path);
        let parts = archives.values().flat_map(archive::Archive::files).map(|part| part.path.clone());
        parts.chain(path.exists().then(|| path.to_path_buf())).collect()
    }

    /// The number of records that could not be written since the audit was opened.
    #[must_use]
    pub fn records_lost(&self) -> u64 {
        self.writer.state().lost
    }

    /// Writes all counts, also those that are not due, and syncs the files.
    ///
    /// # Errors
    /// The disk rejects the write.
    pub fn flush(&self) -> io::Result<()> {
        let mut state = self.writer.state();
        self.writer.write_counts(&mut state, true);
        let files = state.take_unsynced();
        drop(state);
        files.iter().try_for_each(|file| file.sync_data())
    }
}

impl AuditSink for FileAudit {
    fn record(&self, record: AuditRecord) {
        if let Some(kind) = RefusalKind::of_call(&record) {
            let mut state = self.writer.state();
            self.writer.write_counts(&mut state, false);
            let refusal = state.calls.add(Instant::now(), record.client(), kind, &record.tool);
            if refusal == RefusalHandling::Counted {
                self.writer.changed.notify_all();
                return;
            }
        }
        let line = AuditEvent::Call(&record).to_json(&timestamp_now());
        drop(self.writer.append(&mut self.writer.state(), &line, 1));
    }

    fn record_grant(&self, record: GrantRecord) {
        let mut state = self.writer.state();
        let digest =
            (record.event == GrantEvent::Loaded && state.is_regular).then(|| loaded::digest(&record));
        if digest.as_ref().is_some_and(|digest| state.loaded.contains(&record.plugin, digest)) {
            return;
        }
        let written =
            self.writer.append(&mut state, &AuditEvent::Grant(&record).to_json(&timestamp_now()), 1);
        if let Some(digest) = digest.filter(|_| written.is_ok()) {
            state.loaded.insert(&record.plugin, &digest);
        }
    }

    fn accepts_starts(&self) -> bool {
        true
    }

    fn record_start(&self, start: CallStart) -> Result<(), String> {
        let line = AuditEvent::Start(&start).to_json(&timestamp_now());
        // A lost start line is not counted, because the call's record will be.
        self.writer.append(&mut self.writer.state(), &line, 0).map_err(|error| error.kind().to_string())
    }

    fn record_request(&self, request: RequestRecord) {
        let mut state = self.writer.state();
        self.writer.write_counts(&mut state, false);
        let refusal = state.requests.add(
            Instant::now(),
            &request.client,
            RefusalKind::of_request(request.reason),
            &request.path,
        );
        match refusal {
            RefusalHandling::Listed => {
                drop(self.writer.append(
                    &mut state,
                    &AuditEvent::Request(&request).to_json(&timestamp_now()),
                    1,
                ));
            }
            RefusalHandling::Counted => {
                self.writer.changed.notify_all();
            }
        }
    }

    fn record_action(&self, action: ActionRecord) {
        let line = AuditEvent::Action(&action).to_json(&timestamp_now());
        drop(self.writer.append(&mut self.writer.state(), &line, 1));
    }

    fn finish(&self) {
        let mut state = self.writer.state();
        self.writer.write_counts(&mut state, true);
        let files = state.take_unsynced();
        drop(state);
        self.writer.sync(files);
    }

    fn health(&self) -> Option<AuditHealth> {
        let state = self.writer.state();
        let (lost, problem) =
            (self.writer.missing_records(&state), state.problem.map(|kind| kind.to_string()));
        (lost > 0 || problem.is_some()).then_some(AuditHealth { lost, problem })
    }

    fn apply_policy(&self, policy: &AuditPolicy) {
        let mut state = self.writer.state();
        state.retention = Retention::from(policy);
        state.maintained = None;
        self.writer.changed.notify_all();
    }
}

impl Drop for FileAudit {
    fn drop(&mut self) {
        let mut state = self.writer.state();
        // The thread may be in a sync that takes longer than the wait.
        self.writer.write_counts(&mut state, true);
        state.closing = true;
        self.writer.changed.notify_all();
        self.writer.changed.wait_while_for(&mut state, |state| !state.synced, LAST_SYNC);
    }
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
