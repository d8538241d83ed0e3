//! A plugin directory as it was seen last. A file that has not changed is not read again, also not by the next process, if
//! there is a cache for its index; one that is being written is left alone until it has been the same for a while.
//!
//! A directory decides nothing: from its files and the policy, [`crate::plugins::installed`] makes what runs.

mod reading;

pub(crate) use reading::{FileReader, ReadFile};

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{HostError, LoadError};
use crate::plugins::cache::{Hashed, Index};
use crate::plugins::digest::Digest;
use crate::plugins::file::{PendingChange, Stamp};
use crate::plugins::loader::{Candidate, Loader, candidates};
use crate::plugins::state::{FileKey, PluginFile, PluginState};

/// How a directory is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Every file is read again, whatever it looks like.
    Anew,
    /// What has changed is read.
    Changed,
    /// What has changed, and then has been the same for that long, is read.
    Settled(Duration),
    /// Nothing is read: only what is known is put in order.
    Known,
}

/// The result of a look.
#[derive(Debug, Default)]
pub(crate) struct ScanResult {
    /// Whether something there is still changing.
    pub(crate) pending: bool,
    /// Whether other files are listed than before.
    pub(crate) changed: bool,
    /// The files to read.
    pub(crate) tasks: Vec<ReadTask>,
}

/// A plugin directory.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    pub(crate) files: Vec<PluginFile>,
    /// Whether it was looked at.
    pub(crate) is_listed: bool,
    /// Files that have changed, as they were when they were seen first; without a stamp: gone.
    changing: BTreeMap<Arc<Path>, PendingChange>,
    /// Whether files were read since its index was made.
    unsaved: bool,
}

/// A file as its directory lists it.
pub(crate) struct ListedFile {
    candidate: Candidate,
    stamp: Option<Stamp>,
    /// What it was hashed to, by the index.
    hashed: Option<Hashed>,
}

/// A file that is to be read.
#[derive(Debug)]
pub(crate) struct ReadTask {
    key: FileKey,
    /// What it was when the directory was listed.
    seen: Option<Stamp>,
    /// Whether it must still be that once it was read, or it is being written.
    still: bool,
    /// The digest of the content that needs no new judgement.
    judged: Option<Digest>,
    /// What it was hashed to by another process, if it is as it was.
    hashed: Option<Hashed>,
}

/// The files that a directory lists now, with what each is now, and what it was hashed to before this process knew
/// anything (`is_new`). A file that the operator pinned is hashed at each start. Blocks.
pub(crate) fn list(
    dir: &Path,
    is_new: bool,
    loader: &Loader,
    how: Look,
) -> Result<Vec<ListedFile>, HostError> {
    let (policy, looks) = (&loader.services.policy, how != Look::Known);
    let indexed = is_new && !matches!(how, Look::Known | Look::Anew);
    let cache = loader.shared.engines.cache().filter(|_| indexed);
    let index = cache.map(|cache| cache.index(dir)).unwrap_or_default();
    let of = |candidate: Candidate| {
        let stamp = looks.then(|| Stamp::of_component(&candidate.file, candidate.beside)).flatten();
        let pinned = candidate.id.as_ref().is_ok_and(|id| policy.pinned_sha256(id).is_some());
        let name = candidate.file.file_name().filter(|_| !pinned);
        let hashed = name.and_then(|name| index.of(name, stamp)).cloned();
        ListedFile { candidate, stamp, hashed }
    };
    Ok(candidates(dir, policy)?.into_iter().map(of).collect())
}

impl Directory {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, files: Vec::new(), is_listed: false, changing: BTreeMap::new(), unsaved: false }
    }

    /// Whether none of its files was ever read.
    pub(crate) fn is_new(&self) -> bool {
        self.files.iter().all(|file| file.record.is_none())
    }

    /// Takes over what it lists now, and says what is to be read: that takes time, in which it may be looked at again.
    pub(crate) fn look(&mut self, listed: Vec<ListedFile>, how: Look) -> ScanResult {
        let now = Instant::now();
        let mut result = ScanResult::default();
        let before = std::mem::take(&mut self.files);
        let (count, mut order) = (before.len(), Vec::with_capacity(listed.len()));
        let before = before.into_iter().enumerate();
        let mut old: HashMap<_, _> = before.map(|(at, file)| (file.listed(), (Some(at), file))).collect();
        for ListedFile { candidate: Candidate { file, id, .. }, stamp, hashed } in listed {
            let new = PluginFile::found(file, id);
            let (at, file) = old.remove(&new.listed()).unwrap_or((None, new));
            result.tasks.extend(self.task(&file, stamp, hashed, how, now, &mut result.pending));
            order.push((at, file));
        }
        result.pending |= self.keep_changing(old.into_values(), &mut order, how, now);
        result.changed =
            order.len() != count || order.iter().enumerate().any(|(at, (was, _))| *was != Some(at));
        self.files = order.into_iter().map(|(_, file)| file).collect();
        self.is_listed = true;
        // What came and went meanwhile is not remembered.
        if !self.changing.is_empty() {
            let paths: BTreeSet<&Arc<Path>> =
                self.files.iter().filter_map(|file| file.path.as_ref()).collect();
            self.changing.retain(|path, _| paths.contains(path));
        }
        result
    }

    /// The task to read a file, if it is to be read.
    fn task(
        &mut self,
        file: &PluginFile,
        stamp: Option<Stamp>,
        hashed: Option<Hashed>,
        how: Look,
        now: Instant,
        pending: &mut bool,
    ) -> Option<ReadTask> {
        let key = file.key()?;
        let record = file.record.as_ref();
        let same = record
            .is_some_and(|record| record.stamp == stamp && record.again.is_none_or(|again| now < again));
        let read = match how {
            Look::Anew => true,
            Look::Changed => !same,
            Look::Known => false,
            Look::Settled(_) if hashed.is_some() => true,
            Look::Settled(time) if !same => {
                let settled = settled(&mut self.changing, &key.0, stamp, time, now);
                *pending |= !settled;
                settled
            }
            Look::Settled(_) => {
                self.changing.remove(&key.0);
                false
            }
        };
        // A full rescan also retries the files that failed.
        let judged = record.filter(|record| {
            record.again.is_none() && (how != Look::Anew || matches!(file.state.content(), Some(Ok(_))))
        });
        read.then(|| ReadTask {
            key,
            seen: stamp,
            still: matches!(how, Look::Settled(_)),
            judged: judged.and_then(|record| record.digest.clone()),
            hashed,
        })
    }

    /// Keeps the places of files that are gone and may only be about to be replaced. Returns whether there are such.
    fn keep_changing(
        &mut self,
        gone: impl Iterator<Item = (Option<usize>, PluginFile)>,
        order: &mut Vec<(Option<usize>, PluginFile)>,
        how: Look,
        now: Instant,
    ) -> bool {
        let mut gone = gone.filter(|(_, file)| file.record.is_some()).peekable();
        if gone.peek().is_none() {
            return false;
        }
        let listed: BTreeSet<Arc<Path>> = order.iter().filter_map(|(_, file)| file.path.clone()).collect();
        let mut waiting = false;
        for (at, file) in gone {
            let Some(path) = file.path.as_ref().filter(|path| !listed.contains(*path)) else { continue };
            let stays = match how {
                Look::Settled(time) => !settled(&mut self.changing, path, None, time, now),
                Look::Known => self.changing.contains_key(path),
                Look::Anew | Look::Changed => false,
            };
            if stays {
                waiting = true;
                order.push((at, file));
            }
        }
        // Where the files stand in the order of their names is where they stood.
        order.sort_by(|(_, one), (_, other)| one.path.cmp(&other.path));
        waiting
    }

    /// It cannot be listed: it gives what it gave before, and says so. Returns whether it had not said so yet.
    pub(crate) fn gone(&mut self, error: &HostError) -> bool {
        self.is_listed = true;
        let absent =
            matches!(error, HostError::Directory { error, .. } if error.kind() == ErrorKind::NotFound);
        if absent && self.files.is_empty() {
            // It is not there yet, and nothing is lost.
            return false;
        }
        let error = LoadError::DirectoryGone(error.to_string());
        let note = PluginFile::found(self.path.as_path().into(), Err(error));
        if self.files.iter().any(|file| file.listed() == note.listed()) {
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

    /// Remembers what was read; returns whether all of it stood still meanwhile. What came and went in that time, the
    /// next look sees.
    pub(crate) fn learn(&mut self, read: Vec<ReadFile>) -> bool {
        let mut stood_still = true;
        let mut contents = HashMap::with_capacity(read.len());
        for ReadFile { key, content, .. } in read {
            match content {
                Some(content) => {
                    self.changing.remove(&key.0);
                    contents.insert(key, content);
                }
                None => stood_still = false,
            }
        }
        for file in &mut self.files {
            if let Some(read) = file.key().and_then(|key| contents.remove(&key)) {
                self.unsaved |= !read.from_index;
                file.read(read.record, read.content);
            }
        }
        stood_still
    }

    /// Its index, if files were read since the last one; each file whose stamp alone says what is in it.
    pub(crate) fn index(&mut self) -> Option<Index> {
        if !std::mem::take(&mut self.unsaved) {
            return None;
        }
        let mut index = Index::default();
        for file in &self.files {
            let name = file.path.as_ref().and_then(|path| path.file_name());
            if let (Some(name), Some(record), Some(Ok(plugin))) = (name, &file.record, file.state.content())
                && let (Some(stamp), true) = (record.stamp, record.stands)
            {
                let hashed = Hashed { digest: plugin.digest.clone(), bytes: plugin.bytes };
                index.put(name.to_owned(), stamp, hashed);
            }
        }
        Some(index)
    }
}

/// Whether a file that is not as it was is to be read.
fn settled(
    changing: &mut BTreeMap<Arc<Path>, PendingChange>,
    path: &Arc<Path>,
    stamp: Option<Stamp>,
    time: Duration,
    now: Instant,
) -> bool {
    let change = changing.entry(Arc::clone(path)).or_insert_with(|| PendingChange::new(stamp, now));
    change.is_due(stamp, time, now)
}
