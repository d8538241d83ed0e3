//! The files of a plugin directory at the last scan. An unchanged file is not read again, also by the next process if
//! there is a cache for the index. A file that is being written is left alone until it is stable.
//!
//! A directory makes no decisions: [`crate::plugins::installed`] plans from its files and the policy.

mod index;
mod location;
mod reading;

pub(crate) use index::{DirectoryIndex, FileDigest};
pub(crate) use location::PluginLocation;
pub(crate) use reading::{FileReader, ReadFile};
use toolbay_state::digest::Digest;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{HostError, LoadError};
use crate::plugins::file::{PendingChange, Stamp};
use crate::plugins::loader::{Candidate, Loader, LockedComponent};
use crate::plugins::state::{FileKey, PluginFile, PluginState};

/// How a directory is scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanMode {
    /// Reads every file, even if it looks unchanged.
    Full,
    /// Reads changed files.
    Changed,
    /// Reads changed files that have been stable for this long.
    Settled(Duration),
    /// Reads no files, and only updates the list.
    ListOnly,
}

/// The result of a scan.
#[derive(Debug, Default)]
pub(crate) struct ScanResult {
    /// Whether a file is still changing.
    pub(crate) pending: bool,
    /// Whether the list of files changed.
    pub(crate) changed: bool,
    /// The files to read.
    pub(crate) tasks: Vec<ReadTask>,
}

/// A plugin directory, or a lock.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) location: PluginLocation,
    pub(crate) files: Vec<PluginFile>,
    /// Whether the directory was listed.
    pub(crate) is_listed: bool,
    /// Changed files, since the change was first seen. A removed file has no stamp.
    changing: BTreeMap<Arc<Path>, PendingChange>,
    /// Whether files were read since the last index.
    index_is_stale: bool,
}

/// A file in the listing of a directory.
pub(crate) struct ListedFile {
    candidate: Candidate,
    stamp: Option<Stamp>,
    /// The digest in the index.
    hashed: Option<FileDigest>,
}

/// What a listing knows about the content of a file.
struct ListedContent {
    stamp: Option<Stamp>,
    hashed: Option<FileDigest>,
    locked: Option<LockedComponent>,
}

/// A file to be read.
#[derive(Debug)]
pub(crate) struct ReadTask {
    key: FileKey,
    /// The stamp in the listing.
    stamp: Option<Stamp>,
    /// Whether the stamp must be the same after reading; otherwise the file is still being written.
    must_be_stable: bool,
    /// The digest of the content that was already processed.
    known_digest: Option<Digest>,
    /// The digest that another process recorded for the unchanged file.
    hashed: Option<FileDigest>,
    /// The lock's entry for the file.
    locked: Option<LockedComponent>,
}

/// Lists a directory, with the stamps of its files. If no file was read yet (`is_new`), also with the digests in the
/// index. A pinned file is hashed at each start. Blocks.
pub(crate) fn list(
    location: &PluginLocation,
    is_new: bool,
    loader: &Loader,
    mode: ScanMode,
) -> Result<Vec<ListedFile>, HostError> {
    let (policy, reads) = (&loader.services.policy, mode != ScanMode::ListOnly);
    let indexed = is_new && !matches!(mode, ScanMode::ListOnly | ScanMode::Full);
    let cache = loader.shared.engines.cache().filter(|_| indexed);
    let index = cache.map(|cache| DirectoryIndex::load(cache, location.path())).unwrap_or_default();
    let of = |candidate: Candidate| {
        let stamp =
            reads.then(|| Stamp::from_component(&candidate.file, candidate.may_have_manifest)).flatten();
        let pinned = candidate.id.as_ref().is_ok_and(|id| policy.pinned_sha256(id).is_some());
        let name = candidate.file.file_name().filter(|_| !pinned);
        let hashed = name.and_then(|name| index.get(name, stamp)).cloned();
        ListedFile { candidate, stamp, hashed }
    };
    Ok(location.candidates(policy)?.into_iter().map(of).collect())
}

impl Directory {
    pub(crate) fn new(location: PluginLocation) -> Self {
        let (files, changing) = (Vec::new(), BTreeMap::new());
        Self { location, files, is_listed: false, changing, index_is_stale: false }
    }

    /// Whether none of the files was ever read.
    pub(crate) fn is_new(&self) -> bool {
        self.files.iter().all(|file| file.record.is_none())
    }

    /// Applies a listing, and returns the files to read. Reading takes time, in which the directory may be listed
    /// again.
    pub(crate) fn apply_listing(&mut self, listed: Vec<ListedFile>, mode: ScanMode) -> ScanResult {
        let now = Instant::now();
        let mut result = ScanResult::default();
        let before = std::mem::take(&mut self.files);
        let (count, mut order) = (before.len(), Vec::with_capacity(listed.len()));
        let before = before.into_iter().enumerate();
        let mut old: HashMap<_, _> =
            before.map(|(at, file)| (file.listing_key(), (Some(at), file))).collect();
        for ListedFile { candidate: Candidate { file, id, locked, .. }, stamp, hashed } in listed {
            let new = PluginFile::found(file, id);
            let (at, file) = old.remove(&new.listing_key()).unwrap_or((None, new));
            let content = ListedContent { stamp, hashed, locked };
            result.tasks.extend(self.task(&file, content, mode, now, &mut result.pending));
            order.push((at, file));
        }
        result.pending |= self.retain_changing(old.into_values(), &mut order, mode, now);
        result.changed =
            order.len() != count || order.iter().enumerate().any(|(at, (was, _))| *was != Some(at));
        self.files = order.into_iter().map(|(_, file)| file).collect();
        self.is_listed = true;
        // Files that came and went in between are forgotten.
        if !self.changing.is_empty() {
            let paths: BTreeSet<&Arc<Path>> =
                self.files.iter().filter_map(|file| file.path.as_ref()).collect();
            self.changing.retain(|path, _| paths.contains(path));
        }
        result
    }

    /// The task to read a file, if necessary.
    fn task(
        &mut self,
        file: &PluginFile,
        listed: ListedContent,
        mode: ScanMode,
        now: Instant,
        pending: &mut bool,
    ) -> Option<ReadTask> {
        let ListedContent { stamp, hashed, locked } = listed;
        let key = file.key()?;
        let record = file.record.as_ref();
        let origin = locked.as_ref().map(|locked| &locked.origin);
        let same = record.is_some_and(|record| {
            record.stamp == stamp
                && record.origin.as_ref() == origin
                && record.retry_at.is_none_or(|retry_at| now < retry_at)
        });
        let read = match mode {
            ScanMode::Full => true,
            ScanMode::Changed => !same,
            ScanMode::ListOnly => false,
            ScanMode::Settled(_) if hashed.is_some() => true,
            ScanMode::Settled(time) if !same => {
                let settled = has_settled(&mut self.changing, &key.0, stamp, time, now);
                *pending |= !settled;
                settled
            }
            ScanMode::Settled(_) => {
                self.changing.remove(&key.0);
                false
            }
        };
        // A full scan also retries files that failed.
        let known_digest = record.filter(|record| {
            record.retry_at.is_none()
                && record.origin.as_ref() == origin
                && (mode != ScanMode::Full || matches!(file.state.content(), Some(Ok(_))))
        });
        read.then(|| ReadTask {
            key,
            stamp,
            must_be_stable: matches!(mode, ScanMode::Settled(_)),
            known_digest: known_digest.and_then(|record| record.digest),
            hashed,
            locked,
        })
    }

    /// Keeps files that are gone but may just be replaced. Returns whether there are any.
    fn retain_changing(
        &mut self,
        removed: impl Iterator<Item = (Option<usize>, PluginFile)>,
        order: &mut Vec<(Option<usize>, PluginFile)>,
        mode: ScanMode,
        now: Instant,
    ) -> bool {
        let mut removed = removed.filter(|(_, file)| file.record.is_some()).peekable();
        if removed.peek().is_none() || !self.location.changes_slowly() {
            return false;
        }
        let listed: BTreeSet<Arc<Path>> = order.iter().filter_map(|(_, file)| file.path.clone()).collect();
        let mut waiting = false;
        for (at, file) in removed {
            let Some(path) = file.path.as_ref().filter(|path| !listed.contains(*path)) else { continue };
            let stays = match mode {
                ScanMode::Settled(time) => !has_settled(&mut self.changing, path, None, time, now),
                ScanMode::ListOnly => self.changing.contains_key(path),
                ScanMode::Full | ScanMode::Changed => false,
            };
            if stays {
                waiting = true;
                order.push((at, file));
            }
        }
        // Sorted by name, which restores their positions.
        order.sort_by(|(_, one), (_, other)| one.path.cmp(&other.path));
        waiting
    }

    /// Records that the directory cannot be listed. Its files stay. Returns `false` if the error was already recorded.
    pub(crate) fn set_unreadable(&mut self, error: &HostError) -> bool {
        self.is_listed = true;
        let is_no_folder =
            matches!(error, HostError::Directory { error, .. } if error.kind() == ErrorKind::NotFound);
        let absent = is_no_folder || matches!(error, HostError::LockGone(_));
        if absent && self.files.is_empty() {
            // The directory or lock does not exist yet.
            return false;
        }
        let error = LoadError::DirectoryGone(error.to_string());
        let note = PluginFile::found(self.location.path().into(), Err(error));
        if self.files.iter().any(|file| file.listing_key() == note.listing_key()) {
            return false;
        }
        let is_note = |file: &PluginFile| {
            let PluginState::Refused(error) = &file.state else { return false };
            matches!(**error, LoadError::DirectoryGone(_))
        };
        self.files.retain(|file| !is_note(file));
        self.files.push(note);
        true
    }

    /// Applies the results of reading files. Returns whether all files were stable. The next scan sees files that were
    /// added or removed meanwhile.
    pub(crate) fn apply_reads(&mut self, read: Vec<ReadFile>) -> bool {
        let mut all_stable = true;
        let mut contents = HashMap::with_capacity(read.len());
        for ReadFile { key, content, .. } in read {
            match content {
                Some(content) => {
                    self.changing.remove(&key.0);
                    contents.insert(key, content);
                }
                None => all_stable = false,
            }
        }
        for file in &mut self.files {
            if let Some(read) = file.key().and_then(|key| contents.remove(&key)) {
                self.index_is_stale |= !read.from_index;
                file.record_read(read.record, read.content);
            }
        }
        all_stable
    }

    /// The index, if files were read since the last one. Contains the files whose stamp identifies their content.
    pub(crate) fn take_index(&mut self) -> Option<DirectoryIndex> {
        if !std::mem::take(&mut self.index_is_stale) {
            return None;
        }
        let mut index = DirectoryIndex::default();
        for file in &self.files {
            let name = file.path.as_ref().and_then(|path| path.file_name());
            if let (Some(name), Some(record), Some(Ok(plugin))) = (name, &file.record, file.state.content())
                && let (Some(stamp), true) = (record.stamp, record.is_stable)
            {
                let hashed = FileDigest { digest: plugin.digest, bytes: plugin.bytes };
                index.insert(name.to_owned(), stamp, hashed);
            }
        }
        Some(index)
    }
}

/// Whether a changed file is due to be read.
fn has_settled(
    changing: &mut BTreeMap<Arc<Path>, PendingChange>,
    path: &Arc<Path>,
    stamp: Option<Stamp>,
    time: Duration,
    now: Instant,
) -> bool {
    let change = changing.entry(Arc::clone(path)).or_insert_with(|| PendingChange::new(stamp, now));
    change.is_due(stamp, time, now)
}
