//! Reading files and making plugins of them. What the cache knows comes first and together; what has to be compiled comes
//! after it, small ones first, in the order in which it is ready: what is quick to be had does not wait for what is slow.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};

use super::ReadTask;
use crate::error::LoadError;
use crate::plugins::file::Stamp;
use crate::plugins::loader::{CacheAnswers, Contents, Loader};
use crate::plugins::plugin::{Origin, Plugin};
use crate::plugins::state::{Content, FileKey, FileRecord};

/// When a file is tried again that could not be read or prepared for a reason which may pass.
const RETRY: Duration = Duration::from_secs(60);
/// How long what is ready waits for more that is, to be put in together.
const GATHER: Duration = Duration::from_millis(200);
/// So many times as long as it takes to put a batch in, the next one is gathered at least: with thousands of plugins that
/// is what costs.
const SHARE: u32 = 10;

/// A file that was read.
pub(crate) struct ReadFile {
    /// The index of its directory.
    pub(crate) directory: usize,
    pub(crate) key: FileKey,
    /// `None`: it is being written.
    pub(crate) content: Option<FileContent>,
}

/// The content of a file that was read, and the file as it was then.
pub(crate) struct FileContent {
    pub(crate) record: FileRecord,
    pub(crate) content: Content,
    /// Whether the index said what is in it, and nobody opened it.
    pub(crate) from_index: bool,
}

/// Most files that one task reads, and how many tasks there are for each processor: to hand a file over takes as long as to
/// look at it.
const MOST_OF_TASK: usize = 256;
const TASKS_EACH: usize = 8;

/// A file that is to be read, with the index of its directory.
type Work = (usize, ReadTask);

/// Reads files.
pub(crate) struct FileReader<'a> {
    loader: &'a Loader,
    tasks: Option<Vec<Work>>,
    slow: BoxStream<'a, ReadFile>,
    /// How many are still to come.
    left: usize,
    /// Whether something was handed out that had to be compiled.
    waited: bool,
    /// When the last batch was handed out.
    given: Instant,
}

/// The result of reading a file without compiling it.
enum QuickRead {
    Done(Option<FileContent>),
    MustCompile { bytes: u64 },
}

impl<'a> FileReader<'a> {
    /// Reads files of directories, several at once.
    pub(crate) fn new(loader: &'a Loader, tasks: Vec<Work>) -> Self {
        let left = tasks.len();
        let (slow, given) = (stream::empty().boxed(), Instant::now());
        Self { loader, tasks: Some(tasks), slow, left, waited: false, given }
    }

    /// The next that are ready; `None`: all were.
    pub(crate) async fn next(&mut self) -> Option<Vec<ReadFile>> {
        let batch = match self.tasks.take() {
            Some(tasks) => self.quick(tasks).await,
            None => Vec::new(),
        };
        let batch = if batch.is_empty() { self.compiled().await } else { batch };
        self.given = Instant::now();
        self.left = self.left.saturating_sub(batch.len());
        (!batch.is_empty()).then_some(batch)
    }

    /// Whether there is no more to come.
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Whether nothing has been waited for so far: all that was handed out was read just now.
    pub(crate) fn is_at_once(&self) -> bool {
        !self.waited
    }

    /// All that need not be compiled; begins to compile the others.
    async fn quick(&mut self, tasks: Vec<Work>) -> Vec<ReadFile> {
        let loader = self.loader;
        let answers = Arc::new(CacheAnswers::default());
        let (mut quick, mut slow) = (Vec::new(), Vec::new());
        let mut read =
            stream::iter(parts(tasks)).map(|part| read_part(part, loader, &answers)).buffered(at_once());
        while let Some(part) = read.next().await {
            for ((directory, task), read) in part {
                match read {
                    QuickRead::Done(content) => quick.push(ReadFile { directory, key: task.key, content }),
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
        self.slow = stream::iter(slow).map(compile).buffer_unordered(at_once()).boxed();
        quick
    }

    async fn compiled(&mut self) -> Vec<ReadFile> {
        let pause = GATHER.max(self.given.elapsed() * SHARE);
        let Some(first) = self.slow.next().await else { return Vec::new() };
        self.waited = true;
        let (mut batch, until) = (vec![first], tokio::time::Instant::now() + pause);
        while let Ok(Some(one)) = tokio::time::timeout_at(until, self.slow.next()).await {
            batch.push(one);
        }
        batch
    }
}

fn at_once() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// Splits what is to be read, so that no processor waits long for another.
fn parts(mut tasks: Vec<Work>) -> Vec<Vec<Work>> {
    let size = tasks.len().div_ceil(at_once() * TASKS_EACH).clamp(1, MOST_OF_TASK);
    let mut parts = Vec::with_capacity(tasks.len().div_ceil(size));
    while !tasks.is_empty() {
        let rest = tasks.split_off(size.min(tasks.len()));
        parts.push(std::mem::replace(&mut tasks, rest));
    }
    parts
}

async fn read_part(part: Vec<Work>, loader: &Loader, answers: &Arc<CacheAnswers>) -> Vec<(Work, QuickRead)> {
    let all = Arc::new(part);
    let (loader, answers, tasks) = (loader.clone(), Arc::clone(answers), Arc::clone(&all));
    let read = tokio::task::spawn_blocking(move || {
        tasks.iter().map(|(_, task)| read_one(&loader, &answers, task)).collect::<Vec<_>>()
    });
    let read = read.await;
    let all = Arc::into_inner(all).unwrap_or_default();
    match read {
        Ok(read) => all.into_iter().zip(read).collect(),
        Err(error) => {
            let failed = |work: Work| {
                let content = judge(unread(work.1.seen), Err(LoadError::Host(error.to_string())));
                (work, QuickRead::Done(Some(content)))
            };
            all.into_iter().map(failed).collect()
        }
    }
}

/// Makes a plugin of a file, unless it has to be compiled. A file that is what it was when it was hashed is not opened.
fn read_one(loader: &Loader, answers: &CacheAnswers, task: &ReadTask) -> QuickRead {
    if let Some(content) = by_index(loader, answers, task) {
        return QuickRead::Done(Some(content));
    }
    match open(task) {
        Err(content) => QuickRead::Done(content.map(|content| *content)),
        Ok((contents, record)) => match loader.known(&contents.origin, answers) {
            Ok(None) => QuickRead::MustCompile { bytes: contents.origin.bytes },
            Ok(Some(plugin)) => QuickRead::Done(Some(judge(record, Ok(plugin)))),
            Err(error) => QuickRead::Done(Some(judge(record, Err(error)))),
        },
    }
}

/// A plugin by what its file was hashed to, if the cache knows it.
fn by_index(loader: &Loader, answers: &CacheAnswers, task: &ReadTask) -> Option<FileContent> {
    let hashed = task.hashed.clone()?;
    let (file, id) = task.key.clone();
    let origin = Origin { id, digest: hashed.digest, bytes: hashed.bytes, file: Some(file), given: None };
    let plugin = loader.known(&origin, answers).ok()??;
    let record = FileRecord { stamp: task.seen, stands: true, digest: Some(origin.digest), again: None };
    Some(FileContent { record, content: Content::Plugin(plugin), from_index: true })
}

/// Makes a plugin of a file that has to be compiled. It is read once more: the bytes of all of them together may be much.
async fn compile_one(loader: &Loader, task: &Arc<ReadTask>) -> Option<FileContent> {
    let (of_task, of_loader) = (Arc::clone(task), loader.clone());
    let read = tokio::task::spawn_blocking(move || {
        let (contents, record) = open(&of_task)?;
        // Another one with the same bytes may have been compiled meanwhile.
        let known = of_loader.known(&contents.origin, &CacheAnswers::default());
        Ok::<_, Option<Box<FileContent>>>((contents, record, known))
    });
    let (contents, record, known) = match read.await {
        Ok(Ok(read)) => read,
        Ok(Err(content)) => return content.map(|content| *content),
        Err(error) => {
            return Some(judge(unread(task.seen), Err(LoadError::Host(error.to_string()))));
        }
    };
    let judged = match known {
        Ok(None) => loader.compile(contents).await,
        Ok(Some(plugin)) => Ok(plugin),
        Err(error) => Err(error),
    };
    Some(judge(record, judged))
}

/// Reads a file. `Err`: there is no more to be done, for it is being written, cannot be read, or is what it was.
fn open(task: &ReadTask) -> Result<(Contents, FileRecord), Option<Box<FileContent>>> {
    let ReadTask { key: (path, id), seen, still, judged, .. } = task;
    let began = SystemTime::now();
    let (contents, stamp) =
        Loader::read(id.clone(), path).map_err(|error| Some(Box::new(judge(unread(*seen), Err(error)))))?;
    if *still && stamp != *seen {
        return Err(None);
    }
    let stands = stamp.is_some_and(|stamp| stamp.stands_since(began));
    let record = FileRecord { stamp, stands, digest: Some(contents.origin.digest.clone()), again: None };
    // Content decides: what is the same is the same plugin. What was refused for a reason that may pass is not.
    if judged.is_some() && *judged == record.digest {
        return Err(Some(Box::new(FileContent { record, content: Content::Unchanged, from_index: false })));
    }
    Ok((contents, record))
}

/// The record of a file that could not be read.
fn unread(stamp: Option<Stamp>) -> FileRecord {
    FileRecord { stamp, stands: false, digest: None, again: None }
}

/// A file with what its content came to.
fn judge(mut record: FileRecord, judged: Result<Arc<Plugin>, LoadError>) -> FileContent {
    let content = match judged {
        Ok(plugin) => Content::Plugin(plugin),
        Err(error) => {
            let passes = matches!(error, LoadError::Unreadable(_) | LoadError::Host(_));
            record.again = passes.then(|| Instant::now() + RETRY);
            Content::Refused(Arc::new(error))
        }
    };
    FileContent { record, content, from_index: false }
}
