//! Reading files and making plugins of them. What the cache knows comes first and together; what has to be compiled comes
//! after it, small ones first, in the order in which it is ready: what is quick to be had does not wait for what is slow.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};

use super::{Key, Known, Task};
use crate::error::LoadError;
use crate::file::Stamp;
use crate::loader::Loader;

/// When a file is tried again that could not be read or prepared for a reason which may pass.
const RETRY: Duration = Duration::from_secs(60);
/// How long what is ready waits for more that is, to be put in together.
const GATHER: Duration = Duration::from_millis(200);
/// So many times as long as it takes to put a batch in, the next one is gathered at least: with thousands of plugins that
/// is what costs.
const SHARE: u32 = 10;

/// What came of a file of a directory; `None`: it is being written.
pub(crate) type Found = (PathBuf, Key, Option<Known>);

/// Files that are being read.
pub(crate) struct Reading<'a> {
    loader: &'a Loader,
    tasks: Option<Vec<(PathBuf, Task)>>,
    slow: BoxStream<'a, Found>,
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
    pub(crate) fn new(loader: &'a Loader, tasks: Vec<(PathBuf, Task)>) -> Self {
        Self { loader, tasks: Some(tasks), slow: stream::empty().boxed(), given: Instant::now() }
    }

    /// The next that are ready; `None`: all were.
    pub(crate) async fn next(&mut self) -> Option<Vec<Found>> {
        let batch = match self.tasks.take() {
            Some(tasks) => self.quick(tasks).await,
            None => Vec::new(),
        };
        let batch = if batch.is_empty() { self.compiled().await } else { batch };
        self.given = Instant::now();
        (!batch.is_empty()).then_some(batch)
    }

    /// All that need not be compiled; begins to compile the others.
    async fn quick(&mut self, tasks: Vec<(PathBuf, Task)>) -> Vec<Found> {
        let loader = self.loader;
        let read = stream::iter(tasks)
            .map(|(dir, task)| async move { (read_one(loader, &task, false).await, dir, task) })
            .buffered(at_once())
            .collect::<Vec<_>>();
        let (mut quick, mut slow) = (Vec::new(), Vec::new());
        for (read, dir, task) in read.await {
            match read {
                Read::Done(known) => quick.push((dir, task.key, known)),
                Read::Slow { bytes } => slow.push((bytes, dir, task)),
            }
        }
        slow.sort_by_key(|(bytes, ..)| *bytes);
        // Read once more: the bytes of all of them together may be much.
        let compile = move |(_, dir, task): (u64, PathBuf, Task)| async move {
            let known = match read_one(loader, &task, true).await {
                Read::Done(known) => known,
                Read::Slow { .. } => None,
            };
            (dir, task.key, known)
        };
        self.slow = stream::iter(slow).map(compile).buffer_unordered(at_once()).boxed();
        quick
    }

    async fn compiled(&mut self) -> Vec<Found> {
        let pause = GATHER.max(self.given.elapsed() * SHARE);
        let Some(first) = self.slow.next().await else { return Vec::new() };
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

async fn read_one(loader: &Loader, task: &Task, compile: bool) -> Read {
    let Task { key: (_, id), file, seen, still, known } = task;
    let (contents, stamp) = match loader.read(id.clone(), file).await {
        Ok(read) => read,
        Err(error) => return Read::Done(Some(refused(error, *seen, None))),
    };
    if *still && stamp != *seen {
        return Read::Done(None);
    }
    let digest = contents.origin.digest.to_string();
    // Content decides: what is the same is the same plugin. What was refused for a reason that may pass is not.
    if let Some(known) = known
        && known.digest.as_ref() == Some(&digest)
        && known.again.is_none()
    {
        return Read::Done(Some(Known { stamp, ..known.clone() }));
    }
    let prepared = match loader.known(&contents).await {
        Ok(Some(plugin)) => Ok(plugin),
        Ok(None) if !compile => return Read::Slow { bytes: contents.origin.bytes },
        Ok(None) => loader.compile(contents).await,
        Err(error) => Err(error),
    };
    Read::Done(Some(match prepared {
        Ok(plugin) => Known { stamp, outcome: Ok(plugin), digest: Some(digest), again: None },
        Err(error) => refused(error, stamp, Some(digest)),
    }))
}

/// A file that is no plugin, and when it is worth another look without having changed.
fn refused(error: LoadError, stamp: Option<Stamp>, digest: Option<String>) -> Known {
    let passes = matches!(error, LoadError::Unreadable(_) | LoadError::Host(_));
    let again = passes.then(|| Instant::now() + RETRY);
    Known { stamp, outcome: Err(Arc::new(error)), digest, again }
}
