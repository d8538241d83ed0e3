//! The thread that opens the store and writes to it.
//!
//! All waiting writes are committed in one transaction, so that one flush to disk serves them all. A call gets its
//! result when the write is on disk. Writes of cancelled calls are skipped.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::RwLock;
use redb::{Durability, Error, WriteTransaction};
use tokio::sync::{mpsc, oneshot};
use toolbay_core::session::kv::KvError;

use super::encoding::EntryKey;
use super::open::{KvStoreError, OpenStore};
use super::panic::contain;
use super::tables::{KvOperation, KvTables, TimestampMs, WriteReply};

/// Capacity of the queue, as many writes as calls run at once. Further senders wait.
pub(super) const QUEUE_CAPACITY: usize = 64;
/// Maximum number of writes of one transaction.
const MAX_BATCH: usize = 64;
/// A transaction with this many bytes takes no further write.
const MAX_BATCH_BYTES: usize = 16 << 20;

/// A task of the writer.
#[derive(Debug)]
pub(super) enum WriterTask {
    /// Open the store.
    Open,
    /// Apply an operation to a key of a plugin.
    Write { plugin: String, key: EntryKey, operation: KvOperation },
    /// Remove all entries of a plugin.
    Clear { plugin: String },
}

/// A task with the channel for its result.
#[derive(Debug)]
pub(super) struct WriteRequest {
    pub(super) task: WriterTask,
    pub(super) reply: oneshot::Sender<Result<WriteReply, KvError>>,
}

/// The state shared by readers and writer.
#[derive(Debug)]
pub(super) struct SharedStore {
    pub(super) dir: Option<PathBuf>,
    /// How long to wait for a lock of another process.
    pub(super) wait: Duration,
    open: RwLock<Option<Arc<OpenStore>>>,
}

impl SharedStore {
    pub(super) fn new(dir: Option<PathBuf>, wait: Duration) -> Self {
        Self { dir, wait, open: RwLock::default() }
    }

    /// The store, if open.
    pub(super) fn current(&self) -> Option<Arc<OpenStore>> {
        self.open.read().clone()
    }

    fn replace(&self, open: Option<Arc<OpenStore>>) {
        // Dropped without the lock, since closing takes a while.
        let old = std::mem::replace(&mut *self.open.write(), open);
        let close = || {
            drop(old);
            Ok(())
        };
        contain(close).ok();
    }

    /// Closes a store that can no longer be used; the next use opens it again. redb refuses all writes after a failed
    /// one, for example on a full disk. A file in use by others can still be read.
    pub(super) fn handle_error(&self, problem: &KvStoreError) {
        match problem {
            KvStoreError::InUse => {}
            KvStoreError::Io(_) | KvStoreError::Storage(_) => self.close(),
        }
    }

    fn close(&self) {
        if self.current().is_some_and(|open| open.is_on_disk()) {
            self.replace(None);
        }
    }
}

/// The time of the wall clock.
pub(super) fn now_ms() -> TimestampMs {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Serves requests until the last sender is dropped.
pub(super) fn run(shared: &Arc<SharedStore>, queue: &mut mpsc::Receiver<WriteRequest>) {
    let mut writer = KvWriter { shared, recounted: BTreeSet::new(), last_swept: String::new() };
    while let Some(first) = queue.blocking_recv() {
        let mut bytes = first.task.bytes();
        let mut batch = vec![first];
        while batch.len() < MAX_BATCH && bytes < MAX_BATCH_BYTES {
            let Ok(request) = queue.try_recv() else { break };
            bytes += request.task.bytes();
            batch.push(request);
        }
        writer.serve(batch);
    }
}

impl WriterTask {
    fn bytes(&self) -> usize {
        match self {
            Self::Write { operation, .. } => operation.bytes(),
            Self::Open | Self::Clear { .. } => 0,
        }
    }
}

struct KvWriter<'a> {
    shared: &'a Arc<SharedStore>,
    /// The plugins whose usage was counted again.
    recounted: BTreeSet<String>,
    /// The plugin that was swept last.
    last_swept: String,
}

impl KvWriter<'_> {
    fn serve(&mut self, mut batch: Vec<WriteRequest>) {
        batch.retain(|request| !request.reply.is_closed());
        if batch.is_empty() {
            return;
        }
        match contain(|| self.commit(&batch)) {
            Ok(replies) => {
                for (request, reply) in batch.into_iter().zip(replies) {
                    request.reply.send(reply).ok();
                }
            }
            Err(problem) => {
                self.shared.handle_error(&problem);
                let error = to_guest_error(&problem);
                for request in batch {
                    request.reply.send(Err(error.clone())).ok();
                }
            }
        }
    }

    /// Runs a batch in one transaction. Returns its results in order.
    fn commit(&mut self, batch: &[WriteRequest]) -> Result<Vec<Result<WriteReply, KvError>>, KvStoreError> {
        let open = self.open()?;
        if batch.iter().all(|request| matches!(request.task, WriterTask::Open)) {
            return Ok(batch.iter().map(|_| Ok(WriteReply::Done)).collect());
        }
        let writer_lock = open.lock_writer()?;
        let mut transaction = open.database.begin_write().map_err(Error::from)?;
        drop(writer_lock);
        transaction.set_durability(Durability::Immediate).map_err(Error::from)?;
        // After a partial failure, redb's state in memory is unusable until the file is opened again.
        self.transact(transaction, batch).inspect_err(|_| {
            self.recounted.clear();
            self.shared.close();
        })
    }

    fn transact(
        &mut self,
        transaction: WriteTransaction,
        batch: &[WriteRequest],
    ) -> Result<Vec<Result<WriteReply, KvError>>, KvStoreError> {
        let mut tables = KvTables::open(&transaction, now_ms())?;
        let mut replies = Vec::with_capacity(batch.len());
        let mut changed = false;
        for request in batch {
            let reply = match &request.task {
                WriterTask::Open => Ok(WriteReply::Done),
                WriterTask::Clear { plugin } => Ok(WriteReply::Removed(tables.clear(plugin)?)),
                WriterTask::Write { plugin, key, operation } => {
                    if self.recounted.insert(plugin.clone()) {
                        changed |= tables.recount(plugin)?;
                    }
                    tables.apply(plugin, key, operation)?
                }
            };
            changed |= !matches!(reply, Err(_) | Ok(WriteReply::Replaced(false)));
            replies.push(reply);
        }
        self.last_swept = tables.sweep_next(&self.last_swept)?.unwrap_or_default();
        drop(tables);
        if changed {
            transaction.commit().map_err(Error::from)?;
        } else {
            // Nothing changed, so there is no flush to wait for.
            transaction.abort().map_err(Error::from)?;
        }
        Ok(replies)
    }

    fn open(&self) -> Result<Arc<OpenStore>, KvStoreError> {
        if let Some(open) = self.shared.current().filter(|open| open.is_current_file()) {
            return Ok(open);
        }
        self.shared.close();
        let open = Arc::new(OpenStore::new(self.shared.dir.as_deref(), self.shared.wait)?);
        self.shared.replace(Some(Arc::clone(&open)));
        Ok(open)
    }
}

/// The guest's error for a store that cannot be used.
const UNUSABLE: &str = "the key-value store of the host cannot be used; its log says why";

/// Converts a problem to the guest's error; the log has the details for the operator.
pub(super) fn to_guest_error(problem: &KvStoreError) -> KvError {
    KvError::Other(match problem {
        KvStoreError::InUse => "the key-value store is in use by another process; try again".to_owned(),
        // Only a damaged file justifies advice that costs the state of every plugin.
        KvStoreError::Io(problem) => {
            tracing::error!(
                "the key-value store cannot be used now: {problem}; this damages no content: leave the file in \
                 place, and free disk space or fix the reported problem"
            );
            UNUSABLE.to_owned()
        }
        KvStoreError::Storage(problem) => {
            tracing::error!(
                "the key-value store cannot be used: {problem}; the host leaves the file as it is; if it is damaged, \
                 restore a copy that `toolbay kv backup` made (a plain copy of a file in use can be damaged), or \
                 move the file away to start with an empty store"
            );
            UNUSABLE.to_owned()
        }
    })
}
