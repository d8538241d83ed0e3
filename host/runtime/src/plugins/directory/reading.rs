//! Reads files and loads their plugins. Cached components come first and together. The others are compiled, smallest
//! first, and returned as they become ready, so that fast plugins do not wait for slow ones.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use toolbay_core::tool::PluginOrigin;

use super::ReadTask;
use crate::error::LoadError;
use crate::plugins::file::Stamp;
use crate::plugins::loader::{CacheLookups, ComponentSource, Loader, LockedComponent};
use crate::plugins::plugin::{ComponentOrigin, Plugin};
use crate::plugins::state::{FileKey, FileRecord, ReadOutcome};

/// When a file is read again after a transient error.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// How long finished plugins wait for more, to be registered together.
const BATCH_DELAY: Duration = Duration::from_millis(200);
/// Minimum delay of a batch, as a multiple of the time to register the previous batch. With thousands of plugins,
/// registration dominates.
const BATCH_DELAY_FACTOR: u32 = 10;

/// A file that was read.
pub(crate) struct ReadFile {
    /// The index of its directory.
    pub(crate) directory: usize,
    pub(crate) key: FileKey,
    /// `None` if the file is being written.
    pub(crate) content: Option<FileContent>,
}

/// The content of a file, and the file at the time it was read.
pub(crate) struct FileContent {
    pub(crate) record: FileRecord,
    pub(crate) content: ReadOutcome,
    /// Whether the content is known from the index, without opening the file.
    pub(crate) from_index: bool,
}

/// Maximum number of files per task, and number of tasks per core. Handing a file to another thread takes as long as a
/// `stat`.
const MAX_TASK_FILES: usize = 256;
const TASKS_PER_CORE: usize = 8;

/// A file to be read, with the index of its directory.
type DirectoryTask = (usize, ReadTask);

/// Reads files and compiles their components in the background.
pub(crate) struct FileReader<'a> {
    loader: &'a Loader,
    tasks: Option<Vec<DirectoryTask>>,
    slow: BoxStream<'a, ReadFile>,
    /// The number of files that are not returned yet.
    left: usize,
    /// Whether a returned file had to be compiled.
    compiled_any: bool,
    /// When the last batch was returned.
    last_batch: Instant,
}

impl ReadTask {
    fn origin(&self) -> Option<Arc<PluginOrigin>> {
        self.locked.as_ref().map(|locked| Arc::clone(&locked.origin))
    }
}

/// The result of reading a file without compiling it.
enum QuickRead {
    Done(Option<Box<FileContent>>),
    MustCompile { bytes: u64 },
}

impl<'a> FileReader<'a> {
    /// Creates a reader for files of several directories.
    pub(crate) fn new(loader: &'a Loader, tasks: Vec<DirectoryTask>) -> Self {
        let left = tasks.len();
        let (slow, last_batch) = (stream::empty().boxed(), Instant::now());
        Self { loader, tasks: Some(tasks), slow, left, compiled_any: false, last_batch }
    }

    /// The next batch of files; `None` after the last one.
    pub(crate) async fn next(&mut self) -> Option<Vec<ReadFile>> {
        let batch = match self.tasks.take() {
            Some(tasks) => self.read_cached(tasks).await,
            None => Vec::new(),
        };
        let batch = if batch.is_empty() { self.next_compiled().await } else { batch };
        self.last_batch = Instant::now();
        self.left = self.left.saturating_sub(batch.len());
        (!batch.is_empty()).then_some(batch)
    }

    /// Whether all files were returned.
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Whether no time was spent on compiling so far.
    pub(crate) fn is_immediate(&self) -> bool {
        !self.compiled_any
    }

    /// Reads the files with cached components, and starts to compile the others.
    async fn read_cached(&mut self, tasks: Vec<DirectoryTask>) -> Vec<ReadFile> {
        let loader = self.loader;
        let lookups = Arc::new(CacheLookups::default());
        let (mut quick, mut slow) = (Vec::new(), Vec::new());
        let mut read = stream::iter(split_tasks(tasks))
            .map(|part| read_part(part, loader, &lookups))
            .buffered(parallelism());
        while let Some(part) = read.next().await {
            for ((directory, task), read) in part {
                match read {
                    QuickRead::Done(content) => {
                        quick.push(ReadFile {
                            directory,
                            key: task.key,
                            content: content.map(|content| *content),
                        });
                    }
                    QuickRead::MustCompile { bytes } => slow.push((bytes, directory, task)),
                }
            }
        }
        slow.sort_by_key(|(bytes, ..)| *bytes);
        let compile = move |(_, directory, task): (u64, usize, ReadTask)| async move {
            let task = Arc::new(task);
            let content = compile_one(loader, &task).await;
            ReadFile { directory, key: task.key.clone(), content }
        };
        self.slow = stream::iter(slow).map(compile).buffer_unordered(parallelism()).boxed();
        quick
    }

    async fn next_compiled(&mut self) -> Vec<ReadFile> {
        let pause = BATCH_DELAY.max(self.last_batch.elapsed() * BATCH_DELAY_FACTOR);
        let Some(first) = self.slow.next().await else { return Vec::new() };
        self.compiled_any = true;
        let (mut batch, until) = (vec![first], tokio::time::Instant::now() + pause);
        while let Ok(Some(one)) = tokio::time::timeout_at(until, self.slow.next()).await {
            batch.push(one);
        }
        batch
    }
}

fn parallelism() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// Splits the tasks evenly over the cores.
fn split_tasks(mut tasks: Vec<DirectoryTask>) -> Vec<Vec<DirectoryTask>> {
    let size = tasks.len().div_ceil(parallelism() * TASKS_PER_CORE).clamp(1, MAX_TASK_FILES);
    let mut parts = Vec::with_capacity(tasks.len().div_ceil(size));
    while !tasks.is_empty() {
        let rest = tasks.split_off(size.min(tasks.len()));
        parts.push(std::mem::replace(&mut tasks, rest));
    }
    parts
}

async fn read_part(
    part: Vec<DirectoryTask>,
    loader: &Loader,
    lookups: &Arc<CacheLookups>,
) -> Vec<(DirectoryTask, QuickRead)> {
    let all = Arc::new(part);
    let (loader, lookups, tasks) = (loader.clone(), Arc::clone(lookups), Arc::clone(&all));
    let read = tokio::task::spawn_blocking(move || {
        tasks.iter().map(|(_, task)| read_one(&loader, &lookups, task)).collect::<Vec<_>>()
    });
    let read = read.await;
    let all = Arc::into_inner(all).unwrap_or_default();
    match read {
        Ok(read) => all.into_iter().zip(read).collect(),
        Err(error) => {
            let failed = |work: DirectoryTask| {
                let content = failed_content(&work.1, LoadError::Host(error.to_string()));
                (work, QuickRead::Done(Some(Box::new(content))))
            };
            all.into_iter().map(failed).collect()
        }
    }
}

/// Loads a plugin from a file, unless it must be compiled. A file with a valid index entry is not opened.
fn read_one(loader: &Loader, lookups: &CacheLookups, task: &ReadTask) -> QuickRead {
    if let Some(content) = plugin_from_index(loader, lookups, task) {
        return QuickRead::Done(Some(Box::new(content)));
    }
    match read_contents(task) {
        Err(content) => QuickRead::Done(content),
        Ok((contents, record)) => match loader.load_cached(&contents.origin, lookups).transpose() {
            Some(loaded) => QuickRead::Done(Some(Box::new(file_content(record, loaded)))),
            None => QuickRead::MustCompile { bytes: contents.origin.bytes },
        },
    }
}

/// Loads a plugin by the digest in the index, if it is cached.
fn plugin_from_index(loader: &Loader, lookups: &CacheLookups, task: &ReadTask) -> Option<FileContent> {
    let hashed = task.hashed.clone()?;
    if task.locked.as_ref().is_some_and(|locked| locked.digest.digest() != hashed.digest) {
        return None;
    }
    let (file, id) = task.key.clone();
    let origin = ComponentOrigin::new(id, hashed.digest, hashed.bytes, Some(file));
    let origin = ComponentOrigin { registry: task.origin(), ..origin };
    let plugin = loader.load_cached(&origin, lookups).ok()??;
    let record = FileRecord {
        stamp: task.stamp,
        is_stable: true,
        digest: Some(origin.digest),
        origin: origin.registry,
        retry_at: None,
    };
    Some(FileContent { record, content: ReadOutcome::Plugin(plugin), from_index: true })
}

/// Loads a plugin by compiling. The file is read again, because keeping the bytes of all files could take too much
/// memory.
async fn compile_one(loader: &Loader, task: &Arc<ReadTask>) -> Option<FileContent> {
    let (of_task, of_loader) = (Arc::clone(task), loader.clone());
    let read = tokio::task::spawn_blocking(move || {
        let (contents, record) = read_contents(&of_task)?;
        // Another file with the same content may have been compiled meanwhile.
        let known = of_loader.load_cached(&contents.origin, &CacheLookups::default());
        Ok::<_, Option<Box<FileContent>>>((contents, record, known))
    });
    let (contents, record, known) = match read.await {
        Ok(Ok(read)) => read,
        Ok(Err(content)) => return content.map(|content| *content),
        Err(error) => return Some(failed_content(task, LoadError::Host(error.to_string()))),
    };
    let loaded = match known.transpose() {
        Some(loaded) => loaded,
        None => loader.compile(contents).await,
    };
    Some(file_content(record, loaded))
}

/// Reads a file. The error is the final result: `None` if the file is being written, or that it is unreadable or
/// unchanged.
fn read_contents(task: &ReadTask) -> Result<(ComponentSource, FileRecord), Option<Box<FileContent>>> {
    let ReadTask { key: (path, id), stamp: listed, must_be_stable, known_digest, locked, .. } = task;
    let began = SystemTime::now();
    let (contents, stamp) = Loader::read(id.clone(), path, task.origin())
        .and_then(|read| check_locked(read, locked.as_ref()))
        .map_err(|error| Some(Box::new(failed_content(task, missing_blob(error, locked.is_some())))))?;
    if *must_be_stable && stamp != *listed {
        return Err(None);
    }
    let is_stable = stamp.is_some_and(|stamp| stamp.is_stable_since(began));
    let digest = Some(contents.origin.digest);
    let record = FileRecord { stamp, is_stable, digest, origin: task.origin(), retry_at: None };
    // The same content means the same plugin, unless it was refused for a transient error.
    if known_digest.is_some() && *known_digest == record.digest {
        return Err(Some(Box::new(FileContent {
            record,
            content: ReadOutcome::Unchanged,
            from_index: false,
        })));
    }
    Ok((contents, record))
}

/// Refuses a component whose content is not the locked one.
fn check_locked(
    read: (ComponentSource, Option<Stamp>),
    locked: Option<&LockedComponent>,
) -> Result<(ComponentSource, Option<Stamp>), LoadError> {
    let found = read.0.origin.digest;
    match locked.map(|locked| locked.digest.digest()).filter(|locked| *locked != found) {
        Some(locked) => Err(LoadError::CorruptBlob { found: found.to_string(), locked: locked.to_string() }),
        None => Ok(read),
    }
}

/// Says what to do about a locked component that is not in the store.
fn missing_blob(error: LoadError, is_locked: bool) -> LoadError {
    match error {
        LoadError::Unreadable(error) if is_locked && error.kind() == ErrorKind::NotFound => {
            LoadError::MissingBlob
        }
        other => other,
    }
}

/// The content of a file that could not be read.
fn failed_content(task: &ReadTask, error: LoadError) -> FileContent {
    let (stamp, origin) = (task.stamp, task.origin());
    file_content(FileRecord { stamp, is_stable: false, digest: None, origin, retry_at: None }, Err(error))
}

/// The content of a file, with its plugin or the error.
fn file_content(mut record: FileRecord, loaded: Result<Arc<Plugin>, LoadError>) -> FileContent {
    let content = match loaded {
        Ok(plugin) => ReadOutcome::Plugin(plugin),
        Err(error) => {
            let passes = matches!(error, LoadError::Unreadable(_) | LoadError::Host(_));
            record.retry_at = passes.then(|| Instant::now() + RETRY_AFTER);
            ReadOutcome::Refused(Arc::new(error))
        }
    };
    FileContent { record, content, from_index: false }
}
