//! The one thread that opens the store and writes to it.
//!
//! What waits in the queue goes into one transaction, so that one flush to disk serves all calls that wait for it. A call
//! hears of its write when that is on disk. A call that gave up before its turn is left out; the others are not touched.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::RwLock;
use redb::{Durability, Error, WriteTransaction};
use tokio::sync::{mpsc, oneshot};
use toolbay_core::session::kv::KvError;

use super::open::{Open, Problem};
use super::place::EntryKey;
use super::tables::{Answer, Now, Operation, Tables};

/// Writes that wait; whoever comes then waits to be let in. As many as calls run at once.
pub(super) const QUEUE: usize = 64;
/// Most writes of one transaction.
const BATCH: usize = 64;
/// Bytes after which a transaction takes no further write.
const BATCH_BYTES: usize = 16 << 20;

/// What the writer is asked for.
#[derive(Debug)]
pub(super) enum Task {
    /// To open the store.
    Open,
    /// An operation on a key of a plugin.
    Write { plugin: String, key: EntryKey, operation: Operation },
    /// To remove all of a plugin.
    Clear { plugin: String },
}

/// A task, and where its end is told.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) task: Task,
    pub(super) reply: oneshot::Sender<Result<Answer, KvError>>,
}

/// What the readers and the writer share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) dir: Option<PathBuf>,
    /// How long a lock of another process is waited for.
    pub(super) wait: Duration,
    open: RwLock<Option<Arc<Open>>>,
}

impl Shared {
    pub(super) fn new(dir: Option<PathBuf>, wait: Duration) -> Self {
        Self { dir, wait, open: RwLock::default() }
    }

    /// The store, if it is open.
    pub(super) fn open(&self) -> Option<Arc<Open>> {
        self.open.read().clone()
    }

    fn set(&self, open: Option<Arc<Open>>) {
        // Dropped outside the lock: closing takes a while.
        let old = std::mem::replace(&mut *self.open.write(), open);
        drop(old);
    }

    /// Closes what cannot be used any more; the next use opens it again. redb refuses every write after one that
    /// failed, for instance because the disk was full. A file that is in use by others can be read all the same.
    pub(super) fn after(&self, problem: &Problem) {
        match problem {
            Problem::InUse => {}
            Problem::Io(_) | Problem::Storage(_) => self.close(),
        }
    }

    fn close(&self) {
        if self.open().is_some_and(|open| open.is_on_disk()) {
            self.set(None);
        }
    }
}

/// The time of the wall clock.
pub(super) fn now() -> Now {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Serves until nobody can send any more.
pub(super) fn run(shared: &Arc<Shared>, queue: &mut mpsc::Receiver<Job>) {
    let mut writer = Writer { shared, recounted: BTreeSet::new(), swept: String::new() };
    while let Some(first) = queue.blocking_recv() {
        let mut bytes = first.task.bytes();
        let mut batch = vec![first];
        while batch.len() < BATCH && bytes < BATCH_BYTES {
            let Ok(job) = queue.try_recv() else { break };
            bytes += job.task.bytes();
            batch.push(job);
        }
        writer.serve(batch);
    }
}

impl Task {
    fn bytes(&self) -> usize {
        match self {
            Self::Write { operation, .. } => operation.bytes(),
            Self::Open | Self::Clear { .. } => 0,
        }
    }
}

struct Writer<'a> {
    shared: &'a Arc<Shared>,
    /// Plugins whose usage was counted again.
    recounted: BTreeSet<String>,
    /// The plugin whose expired entries were taken out last.
    swept: String,
}

impl Writer<'_> {
    fn serve(&mut self, mut batch: Vec<Job>) {
        batch.retain(|job| !job.reply.is_closed());
        if batch.is_empty() {
            return;
        }
        // A file that was changed from outside can make redb panic.
        let done = catch_unwind(AssertUnwindSafe(|| self.commit(&batch)))
            .unwrap_or_else(|_| Err(Problem::Storage("the file is damaged".to_owned())));
        match done {
            Ok(answers) => {
                for (job, answer) in batch.into_iter().zip(answers) {
                    job.reply.send(answer).ok();
                }
            }
            Err(problem) => {
                self.shared.after(&problem);
                let error = tell(&problem);
                for job in batch {
                    job.reply.send(Err(error.clone())).ok();
                }
            }
        }
    }

    /// Does all of a batch in one transaction; its answers in their order.
    fn commit(&mut self, batch: &[Job]) -> Result<Vec<Result<Answer, KvError>>, Problem> {
        let open = self.open()?;
        if batch.iter().all(|job| matches!(job.task, Task::Open)) {
            return Ok(batch.iter().map(|_| Ok(Answer::Done)).collect());
        }
        let turn = open.take_turn()?;
        let mut transaction = open.database.begin_write().map_err(Error::from)?;
        drop(turn);
        transaction.set_durability(Durability::Immediate).map_err(Error::from)?;
        // What fails half-way leaves a state in memory that only opening again puts right.
        self.transact(transaction, batch).inspect_err(|_| {
            self.recounted.clear();
            self.shared.close();
        })
    }

    fn transact(
        &mut self,
        transaction: WriteTransaction,
        batch: &[Job],
    ) -> Result<Vec<Result<Answer, KvError>>, Problem> {
        let mut tables = Tables::open(&transaction, now())?;
        let mut answers = Vec::with_capacity(batch.len());
        let mut changed = false;
        for job in batch {
            let answer = match &job.task {
                Task::Open => Ok(Answer::Done),
                Task::Clear { plugin } => Ok(Answer::Removed(tables.clear(plugin)?)),
                Task::Write { plugin, key, operation } => {
                    if self.recounted.insert(plugin.clone()) {
                        changed |= tables.recount(plugin)?;
                    }
                    tables.apply(plugin, key, operation)?
                }
            };
            changed |= !matches!(answer, Err(_) | Ok(Answer::Replaced(false)));
            answers.push(answer);
        }
        self.swept = tables.sweep_next(&self.swept)?.unwrap_or_default();
        drop(tables);
        if changed {
            transaction.commit().map_err(Error::from)?;
        } else {
            // Nothing to wait for the disk for.
            transaction.abort().map_err(Error::from)?;
        }
        Ok(answers)
    }

    fn open(&self) -> Result<Arc<Open>, Problem> {
        if let Some(open) = self.shared.open().filter(|open| open.is_in_place()) {
            return Ok(open);
        }
        self.shared.close();
        let open = Arc::new(Open::new(self.shared.dir.as_deref(), self.shared.wait)?);
        self.shared.set(Some(Arc::clone(&open)));
        Ok(open)
    }
}

/// What a plugin is told of a store that cannot be used.
const UNUSABLE: &str = "the key-value store of the host cannot be used; its log says why";

/// What a plugin is told of a problem; the operator hears the rest in the log.
pub(super) fn tell(problem: &Problem) -> KvError {
    KvError::Other(match problem {
        Problem::InUse => "the key-value store is in use by another process; try again".to_owned(),
        // Only a broken file is worth advice that costs the state of every plugin.
        Problem::Io(problem) => {
            tracing::error!(
                "the key-value store cannot be used now: {problem}; its content is not lost: leave the file where it is and \
                 make room on the disk, or mend what the error says"
            );
            UNUSABLE.to_owned()
        }
        Problem::Storage(problem) => {
            tracing::error!(
                "the key-value store cannot be used: {problem}; the file is left as it is: if it is broken, restore a copy that `toolbay kv backup` made (a plain copy of a file in use can be broken), or move it away and an empty one is made"
            );
            UNUSABLE.to_owned()
        }
    })
}
