//! The writer of an audit: the open file and the counters, shared by recording threads and the background thread.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use toolbay_core::audit::refusals::RefusalCounter;
use toolbay_core::audit::{AuditEvent, RefusalCountRecord};
use toolbay_state::private;

use super::Retention;
use super::archive;
use super::file::{self, AuditFile, same_file, try_lock, with_suffix, write_once};
use super::gap::GapCounter;
use super::loaded::LoadedIndex;
use crate::storage::timestamp_now;

/// The time between two syncs, which a power loss may cost. Also how soon due counts are written, and how often a
/// failed write is tried again.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// The time between two checks for expired archives.
const MAINTAIN_EVERY: Duration = Duration::from_secs(3600);
/// How long the open file is assumed to still have its name.
pub(super) const CHECK_FILE_EVERY: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct AuditWriter {
    path: PathBuf,
    /// The state folder of the audit, which is created again if it is gone.
    state_dir: Option<PathBuf>,
    state: Mutex<AuditWriterState>,
    /// Notified when the background thread has work, when the audit is closing, and after the last sync.
    pub(super) changed: Condvar,
    /// Locked while `state` is locked, never the other way round.
    gap: Mutex<GapCounter>,
}

#[derive(Debug)]
pub(super) struct AuditWriterState {
    pub(super) retention: Retention,
    /// `None`: the file could not be opened yet.
    file: Option<Arc<File>>,
    /// The audit is a regular file, which can have companion files.
    pub(super) is_regular: bool,
    /// When the name was last checked. `bytes` is the length of the file then, plus what this process wrote since.
    checked: Option<Instant>,
    bytes: u64,
    /// Written files that are not synced yet.
    unsynced: Vec<Arc<File>>,
    /// The last line is incomplete, because the disk was full.
    partial: bool,
    pub(super) calls: RefusalCounter,
    pub(super) requests: RefusalCounter,
    pub(super) loaded: LoadedIndex,
    /// Records are missing that no line reports yet.
    has_gap: bool,
    /// The total number of records that this process could not write.
    pub(super) lost: u64,
    /// Why the last record could not be written; `None` if it was written. Already logged.
    pub(super) problem: Option<ErrorKind>,
    /// A full file is to be packed.
    needs_packing: bool,
    pub(super) maintained: Option<Instant>,
    pub(super) closing: bool,
    pub(super) synced: bool,
}

impl AuditWriterState {
    pub(super) fn take_unsynced(&mut self) -> Vec<Arc<File>> {
        std::mem::take(&mut self.unsynced)
    }

    /// The counts that are due, or all.
    fn counts(&mut self, all: bool) -> Vec<RefusalCountRecord> {
        let (now, mut records) = (Instant::now(), Vec::new());
        for (what, counter) in [("call", &mut self.calls), ("request", &mut self.requests)] {
            let counts = if all { counter.take_counts(now) } else { counter.due_counts(now) };
            records.extend(counts.into_iter().map(|count| RefusalCountRecord::new(what, count)));
        }
        records
    }

    /// Whether the background thread has work.
    fn has_work(&self) -> bool {
        let old = self.maintained.is_none_or(|at| at.elapsed() >= MAINTAIN_EVERY);
        let counts = self.calls.window_end().is_some() || self.requests.window_end().is_some();
        !self.unsynced.is_empty()
            || self.closing
            || self.needs_packing
            || counts
            || old
            || self.problem.is_some()
    }
}

/// Logs that records are lost. Called once until a record is written again.
fn log_unwritable(path: &Path, error: &io::Error) {
    tracing::error!(
        target: "toolbay::audit", file = %path.display(), %error,
        "the audit cannot be written; records are lost until it can"
    );
}

fn is_not_found(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

impl AuditWriter {
    /// Opens an audit. A missing state folder is created.
    ///
    /// # Errors
    /// As for [`super::FileAudit::open`].
    pub(super) fn open(path: PathBuf, state_dir: Option<PathBuf>, retention: Retention) -> io::Result<Self> {
        archive::refuse_links(&path)?;
        let kept_beside =
            [with_suffix(&path, ".lock"), GapCounter::path_for(&path), LoadedIndex::path_for(&path)];
        file::refuse_links(kept_beside.iter().map(PathBuf::as_path))?;
        let (opened, problem) = match file::open(&path) {
            Ok(opened) => (Some(opened), None),
            Err(error) if file::is_transient(&error) || (state_dir.is_some() && is_not_found(&error)) => {
                log_unwritable(&path, &error);
                (None, Some(error.kind()))
            }
            Err(error) => return Err(error),
        };
        let is_regular = opened.as_ref().is_none_or(|opened| opened.is_regular);
        let gap = GapCounter::new(&path, is_regular);
        let state = AuditWriterState {
            retention,
            is_regular,
            checked: None,
            bytes: 0,
            unsynced: Vec::new(),
            partial: opened.as_ref().is_some_and(|opened| opened.is_cut),
            calls: RefusalCounter::default(),
            requests: RefusalCounter::default(),
            loaded: LoadedIndex::new(&path),
            has_gap: gap.pending() > 0,
            lost: 0,
            problem,
            needs_packing: false,
            maintained: None,
            closing: false,
            synced: false,
            file: opened.map(|opened| Arc::new(opened.file)),
        };
        let (state, gap) = (Mutex::new(state), Mutex::new(gap));
        let writer = Self { path, state_dir, state, changed: Condvar::new(), gap };
        let mut state = writer.state();
        // The audit was removed, so no record exists any more.
        if state.file.as_ref().is_some_and(|file| file.metadata().is_ok_and(|meta| meta.len() == 0))
            && archive::list(&writer.path).is_empty()
        {
            state.loaded.clear();
        }
        // Reports what a previous process could not write.
        if let Err(error) = writer.write_gap(&mut state).and_then(|()| writer.probe(&mut state)) {
            writer.count_lost(&mut state, &error, 0);
        }
        drop(state);
        Ok(writer)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, AuditWriterState> {
        self.state.lock()
    }

    /// Writes one line, preceded by a line that reports missing records. Counts `records` as lost if that fails.
    pub(super) fn append(&self, state: &mut AuditWriterState, line: &str, records: u64) -> io::Result<()> {
        let written = self.write_gap(state).and_then(|()| self.write(state, line));
        match &written {
            Ok(()) => self.record_recovery(state),
            Err(error) => self.count_lost(state, error, records),
        }
        written
    }

    fn record_recovery(&self, state: &mut AuditWriterState) {
        if state.problem.take().is_some() {
            tracing::warn!(target: "toolbay::audit", file = %self.path.display(), "the audit can be written again");
        }
    }

    /// Whether a line could be written, as far as is known without writing one.
    fn probe(&self, state: &mut AuditWriterState) -> io::Result<()> {
        let file = self.current_file(state)?;
        if state.is_regular { file::check_space(&file) } else { Ok(()) }
    }

    /// Counts records that were not written.
    fn count_lost(&self, state: &mut AuditWriterState, error: &io::Error, records: u64) {
        self.gap.lock().add(records);
        state.has_gap = true;
        state.lost = state.lost.saturating_add(records);
        state.checked = None;
        if state.problem.replace(error.kind()).is_none() {
            log_unwritable(&self.path, error);
            self.changed.notify_all();
        }
    }

    /// The number of missing records that no line reports yet, of this process and previous ones.
    pub(super) fn missing_records(&self, state: &AuditWriterState) -> u64 {
        let pending = if state.has_gap { self.gap.lock().pending() } else { 0 };
        state.lost.max(pending)
    }

    /// Reports the number of missing records, if any.
    fn write_gap(&self, state: &mut AuditWriterState) -> io::Result<()> {
        if !state.has_gap {
            return Ok(());
        }
        let mut gap = self.gap.lock();
        gap.take(|lost| self.write(state, &AuditEvent::Gap { lost }.to_json(&timestamp_now())))?;
        state.has_gap = gap.pending() > 0;
        Ok(())
    }

    fn write(&self, state: &mut AuditWriterState, line: &str) -> io::Result<()> {
        let file = self.current_file(state)?;
        let text = if state.partial { Cow::Owned(format!("\n{line}")) } else { Cow::Borrowed(line) };
        let written = write_once(&file, text.as_bytes())?;
        state.bytes = state.bytes.saturating_add(written as u64);
        let part = text.as_bytes().get(..written).unwrap_or_default();
        state.partial = part.last().map_or(state.partial, |last| *last != b'\n');
        if !state.unsynced.iter().any(|unsynced| Arc::ptr_eq(unsynced, &file)) {
            state.unsynced.push(file);
            self.changed.notify_all();
        }
        if written == text.len() { Ok(()) } else { Err(ErrorKind::StorageFull.into()) }
    }

    /// Writes the counts of refusals that are due, or all.
    pub(super) fn write_counts(&self, state: &mut AuditWriterState, all: bool) {
        for record in state.counts(all) {
            let line = AuditEvent::Refused(&record).to_json(&timestamp_now());
            drop(self.append(state, &line, record.count));
        }
    }

    /// The file that has the name now. Opens it if it was replaced, and renames it if it is full.
    fn current_file(&self, state: &mut AuditWriterState) -> io::Result<Arc<File>> {
        let lately = state.checked.is_some_and(|at| at.elapsed() < CHECK_FILE_EVERY);
        if let Some(file) = &state.file
            && lately
            && state.bytes < state.retention.file_bytes
        {
            return Ok(Arc::clone(file));
        }
        if let Some(file) = state.file.clone()
            && self.is_current(state, &file)?
        {
            return Ok(file);
        }
        let AuditFile { file, is_cut, is_regular } = self.open_file()?;
        let file = Arc::new(file);
        state.bytes = file.metadata()?.len();
        (state.checked, state.partial, state.is_regular) = (Some(Instant::now()), is_cut, is_regular);
        state.file = Some(Arc::clone(&file));
        Ok(file)
    }

    fn open_file(&self) -> io::Result<AuditFile> {
        match (file::open(&self.path), &self.state_dir) {
            (Err(error), Some(dir)) if is_not_found(&error) => {
                private::make_dir(dir).map_err(io::Error::other)?;
                file::open(&self.path)
            }
            (opened, _) => opened,
        }
    }

    /// Whether the open file is the one to write to. Renames a full file.
    fn is_current(&self, state: &mut AuditWriterState, file: &File) -> io::Result<bool> {
        let open_now = file.metadata()?;
        (state.checked, state.bytes) = (Some(Instant::now()), open_now.len());
        match fs::symlink_metadata(&self.path) {
            Ok(meta) if !same_file(&meta, &open_now) => return Ok(false),
            Ok(meta) if !archive::is_full(&meta, file, state.retention) => return Ok(true),
            Ok(_) => {}
            Err(error) if is_not_found(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
        // One process renames the file. The others write to the full file until it is done.
        let Ok(Some(_lock)) = try_lock(&self.path) else { return Ok(true) };
        let is_same = fs::symlink_metadata(&self.path).is_ok_and(|meta| same_file(&meta, &open_now));
        if is_same && let Err(error) = archive::rotate(&self.path) {
            tracing::debug!(file = %self.path.display(), %error, "the audit stays in a full file");
            return Ok(true);
        }
        state.needs_packing |= is_same;
        Ok(false)
    }

    /// Runs the background work at most once per second, until the audit is closed.
    pub(super) fn run_background(&self) {
        let mut state = self.state();
        loop {
            let idle = |state: &mut AuditWriterState| !state.has_work();
            self.changed.wait_while_for(&mut state, idle, MAINTAIN_EVERY);
            self.changed.wait_while_for(&mut state, |state| !state.closing, SYNC_EVERY);
            let closing = state.closing;
            self.write_counts(&mut state, closing);
            // Includes what another process could not write before it ended.
            state.has_gap |= self.gap.lock().pending() > 0;
            let written = self.write_gap(&mut state);
            if state.problem.is_some() && written.and_then(|()| self.probe(&mut state)).is_ok() {
                self.record_recovery(&mut state);
            }
            let files = state.take_unsynced();
            drop(state);
            self.sync(files);
            state = self.maintain(closing);
            if closing {
                state.synced = true;
                self.changed.notify_all();
                return;
            }
        }
    }

    pub(super) fn sync(&self, files: Vec<Arc<File>>) {
        for file in files {
            // A terminal or a pipe cannot be synced.
            if let Err(error) = file.sync_data()
                && error.kind() != ErrorKind::InvalidInput
            {
                tracing::error!(
                    target: "toolbay::audit", file = %self.path.display(), %error,
                    "the audit could not be synced"
                );
            }
        }
    }

    /// Packs full files and removes expired ones, if it is time. A short command leaves this to others, unless it
    /// filled a file.
    fn maintain(&self, closing: bool) -> MutexGuard<'_, AuditWriterState> {
        let mut state = self.state();
        let old = !closing && state.maintained.is_none_or(|at| at.elapsed() >= MAINTAIN_EVERY);
        let wanted = std::mem::take(&mut state.needs_packing) || old;
        if !wanted || !state.is_regular {
            return state;
        }
        state.maintained = Some(Instant::now());
        let retention = state.retention;
        drop(state);
        let forgot = archive::maintain(&self.path, retention);
        let mut state = self.state();
        match forgot {
            // The lines of these records may have been removed.
            Ok(true) => state.loaded.clear(),
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(file = %self.path.display(), %error, "the audit could not be packed");
            }
        }
        state
    }
}
