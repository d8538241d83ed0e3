//! What the threads that record and the one that works in the background share: the open file, and what is counted.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use toolbay_core::audit::refusals::RefusalCounter;
use toolbay_core::audit::{Line, RefusedRecord};

use super::Retention;
use super::archive;
use super::file::{self, Opened, beside, same_file, try_lock, write_once};
use super::gap::GapCounter;
use super::loaded::LoadedIndex;
use crate::storage::consent::now;
use crate::storage::private;

/// Between two syncs: what a loss of power may cost. Also how soon a count that is due is written, and how often the host
/// tries to write again what it could not.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// Between two looks for archives that are too old.
const LOOK_FOR_OLD_EVERY: Duration = Duration::from_secs(3600);
/// How long it is not looked at again which file has the name.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Shared {
    path: PathBuf,
    /// The folder of state that it is in, which is made anew if it is gone.
    state_dir: Option<PathBuf>,
    state: Mutex<State>,
    /// Something is to be done in the background, the end has come, or the last sync is done.
    pub(super) changed: Condvar,
    /// Locked while the state is, never the other way round.
    gap: Mutex<GapCounter>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) retention: Retention,
    /// `None`: it could not be opened yet.
    file: Option<Arc<File>>,
    /// It is a file on a disk, beside which others may be.
    pub(super) is_regular: bool,
    /// When the name was looked at last, and how many bytes the file had then, or has since of this process.
    looked: Option<Instant>,
    bytes: u64,
    /// Files that were written and are not synced yet.
    unsynced: Vec<Arc<File>>,
    /// The last line has no end, because the disk was full.
    partial: bool,
    pub(super) calls: RefusalCounter,
    pub(super) requests: RefusalCounter,
    pub(super) loaded: LoadedIndex,
    /// Records are missing that no line tells of yet.
    has_gap: bool,
    /// Records of this process that could not be written, in all.
    pub(super) lost: u64,
    /// Why the last record could not be written; `None`: it could. That is in the log.
    pub(super) problem: Option<ErrorKind>,
    /// A file is full and to be packed.
    to_pack: bool,
    pub(super) maintained: Option<Instant>,
    pub(super) closing: bool,
    pub(super) synced: bool,
}

impl State {
    pub(super) fn take_unsynced(&mut self) -> Vec<Arc<File>> {
        std::mem::take(&mut self.unsynced)
    }

    /// The counts that are due, or all of them.
    fn counts(&mut self, all: bool) -> Vec<RefusedRecord> {
        let (now, mut records) = (Instant::now(), Vec::new());
        for (what, counter) in [("call", &mut self.calls), ("request", &mut self.requests)] {
            let counts = if all { counter.take(now) } else { counter.due(now) };
            records.extend(counts.into_iter().map(|count| RefusedRecord::new(what, count)));
        }
        records
    }

    /// Whether there is something to do in the background, soon.
    fn has_work(&self) -> bool {
        let old = self.maintained.is_none_or(|at| at.elapsed() >= LOOK_FOR_OLD_EVERY);
        let counts = self.calls.ends().is_some() || self.requests.ends().is_some();
        !self.unsynced.is_empty() || self.closing || self.to_pack || counts || old || self.problem.is_some()
    }
}

/// Says that records are lost; once, until one is written again.
fn cannot_write(path: &Path, error: &io::Error) {
    tracing::error!(target: "toolbay::audit", file = %path.display(), %error, "the audit cannot be written; records are lost until it can");
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

impl Shared {
    /// Opens an audit. In a folder of state, the folder is made if it is gone.
    ///
    /// # Errors
    /// As [`super::FileAudit::open`].
    pub(super) fn open(path: PathBuf, state_dir: Option<PathBuf>, retention: Retention) -> io::Result<Self> {
        archive::refuse_links(&path)?;
        let kept_beside = [beside(&path, ".lock"), GapCounter::path_of(&path), LoadedIndex::path_of(&path)];
        file::refuse_links(kept_beside.iter().map(PathBuf::as_path))?;
        let (opened, problem) = match file::open(&path) {
            Ok(opened) => (Some(opened), None),
            Err(error) if file::may_pass(&error) || (state_dir.is_some() && is_gone(&error)) => {
                cannot_write(&path, &error);
                (None, Some(error.kind()))
            }
            Err(error) => return Err(error),
        };
        let is_regular = opened.as_ref().is_none_or(|opened| opened.is_regular);
        let gap = GapCounter::new(&path, is_regular);
        let state = State {
            retention,
            is_regular,
            looked: None,
            bytes: 0,
            unsynced: Vec::new(),
            partial: opened.as_ref().is_some_and(|opened| opened.is_cut),
            calls: RefusalCounter::default(),
            requests: RefusalCounter::default(),
            loaded: LoadedIndex::new(&path),
            has_gap: gap.pending() > 0,
            lost: 0,
            problem,
            to_pack: false,
            maintained: None,
            closing: false,
            synced: false,
            file: opened.map(|opened| Arc::new(opened.file)),
        };
        let (state, gap) = (Mutex::new(state), Mutex::new(gap));
        let shared = Self { path, state_dir, state, changed: Condvar::new(), gap };
        let mut state = shared.state();
        // Of an audit that was taken away, nothing was recorded.
        if state.file.as_ref().is_some_and(|file| file.metadata().is_ok_and(|meta| meta.len() == 0))
            && archive::list(&shared.path).is_empty()
        {
            state.loaded.clear();
        }
        // What a process before this one could not write.
        if let Err(error) = shared.write_gap(&mut state).and_then(|()| shared.probe(&mut state)) {
            shared.lose(&mut state, &error, 0);
        }
        drop(state);
        Ok(shared)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Writes one line, after what tells of lines that are missing; counts `records` as lost if it cannot.
    pub(super) fn append(&self, state: &mut State, line: &str, records: u64) -> io::Result<()> {
        let written = self.write_gap(state).and_then(|()| self.write(state, line));
        match &written {
            Ok(()) => self.is_written(state),
            Err(error) => self.lose(state, error, records),
        }
        written
    }

    fn is_written(&self, state: &mut State) {
        if state.problem.take().is_some() {
            tracing::warn!(target: "toolbay::audit", file = %self.path.display(), "the audit is written again");
        }
    }

    /// Whether a line could be written, as far as is known without one.
    fn probe(&self, state: &mut State) -> io::Result<()> {
        let file = self.current(state)?;
        if state.is_regular { file::has_room(&file) } else { Ok(()) }
    }

    /// Counts records that were not written.
    fn lose(&self, state: &mut State, error: &io::Error, records: u64) {
        self.gap.lock().add(records);
        state.has_gap = true;
        state.lost = state.lost.saturating_add(records);
        state.looked = None;
        if state.problem.replace(error.kind()).is_none() {
            cannot_write(&self.path, error);
            self.changed.notify_all();
        }
    }

    /// Records that could not be written: by this process, or by one before it, as long as no line tells of them.
    pub(super) fn missing(&self, state: &State) -> u64 {
        let pending = if state.has_gap { self.gap.lock().pending() } else { 0 };
        state.lost.max(pending)
    }

    /// Writes how many records are missing, if some are.
    fn write_gap(&self, state: &mut State) -> io::Result<()> {
        if !state.has_gap {
            return Ok(());
        }
        let mut gap = self.gap.lock();
        gap.take(|lost| self.write(state, &Line::Gap { lost }.to_json(&now())))?;
        state.has_gap = gap.pending() > 0;
        Ok(())
    }

    fn write(&self, state: &mut State, line: &str) -> io::Result<()> {
        let file = self.current(state)?;
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

    /// Writes the counts of refusals that are due, or all of them.
    pub(super) fn write_counts(&self, state: &mut State, all: bool) {
        for record in state.counts(all) {
            let line = Line::Refused(&record).to_json(&now());
            drop(self.append(state, &line, record.count));
        }
    }

    /// The file that has the name now. It is opened if it is another one, and renamed if it is full.
    fn current(&self, state: &mut State) -> io::Result<Arc<File>> {
        let lately = state.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY);
        if let Some(file) = &state.file
            && lately
            && state.bytes < state.retention.file_bytes
        {
            return Ok(Arc::clone(file));
        }
        if let Some(file) = state.file.clone()
            && self.is_to_be_written(state, &file)?
        {
            return Ok(file);
        }
        let Opened { file, is_cut, is_regular } = self.open_file()?;
        let file = Arc::new(file);
        state.bytes = file.metadata()?.len();
        (state.looked, state.partial, state.is_regular) = (Some(Instant::now()), is_cut, is_regular);
        state.file = Some(Arc::clone(&file));
        Ok(file)
    }

    fn open_file(&self) -> io::Result<Opened> {
        match (file::open(&self.path), &self.state_dir) {
            (Err(error), Some(dir)) if is_gone(&error) => {
                private::make_dir(dir).map_err(io::Error::other)?;
                file::open(&self.path)
            }
            (opened, _) => opened,
        }
    }

    /// Whether the open file is the one to write to; one that is full is renamed.
    fn is_to_be_written(&self, state: &mut State, file: &File) -> io::Result<bool> {
        let open_now = file.metadata()?;
        (state.looked, state.bytes) = (Some(Instant::now()), open_now.len());
        match fs::symlink_metadata(&self.path) {
            Ok(meta) if !same_file(&meta, &open_now) => return Ok(false),
            Ok(meta) if !archive::is_full(&meta, file, state.retention) => return Ok(true),
            Ok(_) => {}
            Err(error) if is_gone(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
        // One process renames it; who finds it at work goes on in the full file for this time.
        let Ok(Some(_lock)) = try_lock(&self.path) else { return Ok(true) };
        let is_same = fs::symlink_metadata(&self.path).is_ok_and(|meta| same_file(&meta, &open_now));
        if is_same && let Err(error) = archive::rotate(&self.path) {
            tracing::debug!(file = %self.path.display(), %error, "the audit goes on in a full file");
            return Ok(true);
        }
        state.to_pack |= is_same;
        Ok(false)
    }

    /// Does in the background, once a second at most, what need not be waited for, until the audit is dropped.
    pub(super) fn work(&self) {
        let mut state = self.state();
        loop {
            let idle = |state: &mut State| !state.has_work();
            self.changed.wait_while_for(&mut state, idle, LOOK_FOR_OLD_EVERY);
            self.changed.wait_while_for(&mut state, |state| !state.closing, SYNC_EVERY);
            let closing = state.closing;
            self.write_counts(&mut state, closing);
            // Also what another process could not write before it ended.
            state.has_gap |= self.gap.lock().pending() > 0;
            let written = self.write_gap(&mut state);
            if state.problem.is_some() && written.and_then(|()| self.probe(&mut state)).is_ok() {
                self.is_written(&mut state);
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
            // What is no file on a disk (a terminal, a pipe) cannot be synced and need not.
            if let Err(error) = file.sync_data()
                && error.kind() != ErrorKind::InvalidInput
            {
                tracing::error!(target: "toolbay::audit", file = %self.path.display(), %error, "the audit is not on the disk");
            }
        }
    }

    /// Packs what is full and removes what is old, if it is time. A short command leaves that to others, unless it has
    /// filled a file.
    fn maintain(&self, closing: bool) -> MutexGuard<'_, State> {
        let mut state = self.state();
        let old = !closing && state.maintained.is_none_or(|at| at.elapsed() >= LOOK_FOR_OLD_EVERY);
        let wanted = std::mem::take(&mut state.to_pack) || old;
        if !wanted || !state.is_regular {
            return state;
        }
        state.maintained = Some(Instant::now());
        let retention = state.retention;
        drop(state);
        let forgot = archive::maintain(&self.path, retention);
        let mut state = self.state();
        match forgot {
            // Their lines may be among those that are gone.
            Ok(true) => state.loaded.clear(),
            Ok(false) => {}
            Err(error) => tracing::debug!(file = %self.path.display(), %error, "the audit is not packed"),
        }
        state
    }
}
