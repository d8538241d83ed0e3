//! Reading files and making plugins of them. What the cache knows comes first and together; what has to be compiled comes
//! after it, small ones first, in the order in which it is ready: what is quick to be had does not wait for what is slow.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};

use super::{Key, Known, Task};
use crate::error::LoadError;
use crate::plugins::digest::Digest;
use crate::plugins::file::Stamp;
use crate::plugins::installed::Outcome;
use crate::plugins::loader::{Asked, Contents, Loader};
use crate::plugins::plugin::Origin;

/// When a file is tried again that could not be read or prepared for a reason which may pass.
const RETRY: Duration = Duration::from_secs(60);
/// How long what is ready waits for more that is, to be put in together.
const GATHER: Duration = Duration::from_millis(200);
/// So many times as long as it takes to put a batch in, the next one is gathered at least: with thousands of plugins that
/// is what costs.
const SHARE: u32 = 10;

/// What came of a file of a directory; `None`: it is being written.
pub(crate) type Found = (PathBuf, Key, Option<Known>);

/// Most files that one task reads, and how many tasks there are for each processor: to hand a file over takes as long as to
/// look at it.
const MOST_OF_TASK: usize = 256;
const TASKS_EACH: usize = 8;

/// A file that is to be read, with its directory.
type Work = (PathBuf, Task);

/// Files that are being read.
pub(crate) struct Reading<'a> {
    loader: &'a Loader,
    tasks: Option<Vec<Work>>,
    slow: BoxStream<'a, Found>,
    /// How many are still to come.
    left: usize,
    /// Whether something was handed out that had to be compiled.
    waited: bool,
    /// When the last batch was handed out.
    given: Instant,
}

/// What reading one file came to.
enum Read {
    Done(Option<Known>),
    /// It has to be compiled.
    Slow {
        bytes: u64,
    },
}

impl<'a> Reading<'a> {
    /// Reads files of directories, several at once.
    pub(crate) fn new(loader: &'a Loader, tasks: Vec<Work>) -> Self {
        let left = tasks.len();
        let (slow, given) = (stream::empty().boxed(), Instant::now());
        Self { loader, tasks: Some(tasks), slow, left, waited: false, given }
    }

    /// The next that are ready; `None`: all were.
    pub(crate) async fn next(&mut self) -> Option<Vec<Found>> {
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
    async fn quick(&mut self, tasks: Vec<Work>) -> Vec<Found> {
        let loader = self.loader;
        let asked = Arc::new(Asked::default());
        let (mut quick, mut slow) = (Vec::new(), Vec::new());
        let mut read = stream::iter(parts(tasks)).map(|part| part.read(loader, &asked)).buffered(at_once());
        while let Some(part) = read.next().await {
            for ((dir, task), read) in part {
                match read {
                    Read::Done(known) => quick.push((dir, task.key, known)),
                    Read::Slow { bytes } => slow.push((bytes, dir, task)),
                }
            }
        }
        slow.sort_by_key(|(bytes, ..)| *bytes);
        let compile = move |(_, dir, task): (u64, PathBuf, Task)| async move {
            let task = Arc::new(task);
            let known = compile_one(loader, &task).await;
            (dir, task.key.clone(), known)
        };
        self.slow = stream::iter(slow).map(compile).buffer_unordered(at_once()).boxed();
        quick
    }

    async fn compiled(&mut self) -> Vec<Found> {
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

/// Files that one task reads.
struct Part(Vec<Work>);

/// Splits what is to be read, so that no processor waits long for another.
fn parts(mut tasks: Vec<Work>) -> Vec<Part> {
    let size = tasks.len().div_ceil(at_once() * TASKS_EACH).clamp(1, MOST_OF_TASK);
    let mut parts = Vec::with_capacity(tasks.len().div_ceil(size));
    while !tasks.is_empty() {
        let rest = tasks.split_off(size.min(tasks.len()));
        parts.push(Part(std::mem::replace(&mut tasks, rest)));
    }
    parts
}

impl Part {
    async fn read(self, loader: &Loader, asked: &Arc<Asked>) -> Vec<(Work, Read)> {
        let all = Arc::new(self.0);
        let (loader, asked, tasks) = (loader.clone(), Arc::clone(asked), Arc::clone(&all));
        let read = tokio::task::spawn_blocking(move || {
            tasks.iter().map(|(_, task)| read_one(&loader, &asked, task)).collect::<Vec<_>>()
        });
        let read = read.await;
        let all = Arc::into_inner(all).unwrap_or_default();
        match read {
            Ok(read) => all.into_iter().zip(read).collect(),
            Err(error) => {
                let failed = |work: Work| {
                    let error = LoadError::Host(error.to_string());
                    let known = refused(error, work.1.seen, None);
                    (work, Read::Done(Some(known)))
                };
                all.into_iter().map(failed).collect()
            }
        }
    }
}

/// Makes a plugin of a file, unless it has to be compiled. A file that is what it was when it was hashed is not opened.
fn read_one(loader: &Loader, asked: &Asked, task: &Task) -> Read {
    if let Some(known) = unread(loader, asked, task) {
        return Read::Done(Some(known));
    }
    match open(task) {
        Err(known) => Read::Done(known.map(|known| *known)),
        Ok((contents, now)) => match loader.known(&contents.origin, asked) {
            Ok(Some(plugin)) => Read::Done(Some(now.with(Ok(plugin)))),
            Ok(None) => Read::Slow { bytes: contents.origin.bytes },
            Err(error) => Read::Done(Some(now.refused(error))),
        },
    }
}

/// A plugin by what its file was hashed to, if the cache knows it.
fn unread(loader: &Loader, asked: &Asked, task: &Task) -> Option<Known> {
    let hashed = task.hashed.clone()?;
    let origin = Origin {
        id: task.key.1.clone(),
        digest: hashed.digest,
        bytes: hashed.bytes,
        file: Some(Arc::clone(&task.file)),
        given: None,
    };
    let plugin = loader.known(&origin, asked).ok()??;
    let digest = Some(origin.digest);
    let (stamp, outcome) = (task.seen, Ok(plugin));
    Some(Known { stamp, stands: true, outcome, digest, again: None, unopened: true })
}

/// Makes a plugin of a file that has to be compiled. It is read once more: the bytes of all of them together may be much.
async fn compile_one(loader: &Loader, task: &Arc<Task>) -> Option<Known> {
    let failed = |error: LoadError| Some(refused(error, task.seen, None));
    let (of_task, of_loader) = (Arc::clone(task), loader.clone());
    let read = tokio::task::spawn_blocking(move || {
        let (contents, now) = open(&of_task)?;
        // Another one with the same bytes may have been compiled meanwhile.
        let known = of_loader.known(&contents.origin, &Asked::default());
        Ok::<_, Option<Box<Known>>>((contents, now, known))
    });
    let (contents, now, known) = match read.await {
        Ok(Ok(read)) => read,
        Ok(Err(known)) => return known.map(|known| *known),
        Err(error) => return failed(LoadError::Host(error.to_string())),
    };
    let prepared = match known {
        Ok(None) => loader.compile(contents).await,
        Ok(Some(plugin)) => Ok(plugin),
        Err(error) => Err(error),
    };
    Some(match prepared {
        Ok(plugin) => now.with(Ok(plugin)),
        Err(error) => now.refused(error),
    })
}

/// Reads a file. `Err`: there is no more to be done, for it is being written, can not be read, or is what it was.
fn open(task: &Task) -> Result<(Contents, Now), Option<Box<Known>>> {
    let Task { key: (_, id), file, seen, still, known, .. } = task;
    let began = SystemTime::now();
    let (contents, stamp) =
        Loader::read(id.clone(), file).map_err(|error| Some(Box::new(refused(error, *seen, None))))?;
    if *still && stamp != *seen {
        return Err(None);
    }
    let stands = stamp.is_some_and(|stamp| stamp.stands_since(began));
    let digest = contents.origin.digest.clone();
    // Content decides: what is the same is the same plugin. What was refused for a reason that may pass is not.
    match known {
        Some(known) if known.digest.as_ref() == Some(&digest) && known.again.is_none() => {
            Err(Some(Box::new(Known { stamp, stands, unopened: false, ..known.clone() })))
        }
        _ => Ok((contents, Now { stamp, stands, digest })),
    }
}

/// What a file was when it was read.
struct Now {
    stamp: Option<Stamp>,
    stands: bool,
    digest: Digest,
}

impl Now {
    fn with(self, outcome: Outcome) -> Known {
        let Self { stamp, stands, digest } = self;
        Known { stamp, stands, outcome, digest: Some(digest), again: None, unopened: false }
    }

    fn refused(self, error: LoadError) -> Known {
        refused(error, self.stamp, Some(self.digest))
    }
}

/// A file that is no plugin, and when it is worth another look without having changed.
fn refused(error: LoadError, stamp: Option<Stamp>, digest: Option<Digest>) -> Known {
    let passes = matches!(error, LoadError::Unreadable(_) | LoadError::Host(_));
    let again = passes.then(|| Instant::now() + RETRY);
    Known { stamp, stands: false, outcome: Err(Arc::new(error)), digest, again, unopened: false }
}
