//! The default store: a file shared by several processes, or memory.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use redb::{Error, ReadTransaction, ReadableDatabase};
use tokio::sync::{mpsc, oneshot};
use toolbay_core::session::kv::{Bucket, KvError, KvStore, Quota};
use toolbay_policy::name::PluginId;
use toolbay_state::private::DEFAULT_STATE_WAIT;

use super::backup;
use super::encoding::{EntryInfo, EntryKey, live_value};
use super::open::{KvStoreError, OpenStore};
use super::panic::contain;
use super::read::{self, KvUsage};
use super::tables::{ENTRIES, KvOperation, StoreResult, TimestampMs, WriteReply};
use super::writer::{self, QUEUE_CAPACITY, SharedStore, WriteRequest, WriterTask, now_ms, to_guest_error};

/// A key-value store in a redb file, `kv.redb`, which any number of hosts and processes can share, or in memory.
///
/// The store is opened at its first use. A get runs on the caller's thread and waits for no writer. Writes go through
/// one thread, which commits all waiting writes in one transaction; an acknowledged write is on disk. A file that
/// cannot be read is never changed or removed: every operation fails until the file is moved away.
pub struct RedbStore {
    shared: Arc<SharedStore>,
    queue: Mutex<Option<mpsc::Sender<WriteRequest>>>,
}

impl fmt::Debug for RedbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbStore").field("dir", &self.shared.dir).finish_non_exhaustive()
    }
}

impl RedbStore {
    /// Creates a store in a folder. The first use creates the folder for this user only (mode 0700).
    #[must_use]
    pub fn in_dir(dir: &Path) -> Self {
        Self::new(Some(dir), DEFAULT_STATE_WAIT)
    }

    /// Like [`RedbStore::in_dir`], but waits up to `limit` for other processes that write.
    #[must_use]
    pub fn in_dir_with_wait(dir: &Path, limit: Duration) -> Self {
        Self::new(Some(dir), limit)
    }

    /// Creates a store in memory.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::new(None, DEFAULT_STATE_WAIT)
    }

    /// Creates a store in a folder, or in memory.
    pub fn new(dir: Option<&Path>, wait: Duration) -> Self {
        Self { shared: Arc::new(SharedStore::new(dir.map(Path::to_path_buf), wait)), queue: Mutex::default() }
    }

    /// Returns at most `max_entries` entries of a plugin, of all scopes, in the order of the file; and whether there are
    /// more.
    ///
    /// # Errors
    /// When the store cannot be used.
    pub async fn entries(
        &self,
        plugin: &PluginId,
        max_entries: usize,
    ) -> Result<(Vec<EntryInfo>, bool), KvError> {
        let plugin = plugin.as_str().to_owned();
        self.read_blocking(move |transaction, now| read::entries(transaction, &plugin, max_entries, now))
            .await
    }

    /// Returns the usage of each plugin, counted entry by entry, in the order of their ids.
    ///
    /// # Errors
    /// When the store cannot be used.
    pub async fn usage(&self) -> Result<Vec<KvUsage>, KvError> {
        self.read_blocking(read::usage).await
    }

    /// Writes a consistent copy of the store to a new file while other processes use it. Returns the number of
    /// entries. The copy is a valid `kv.redb`.
    ///
    /// # Errors
    /// When the store cannot be used, or the file already exists or cannot be written; a partial copy is removed.
    pub async fn backup(&self, file: &Path) -> Result<u64, KvError> {
        let open = self.open_store().await?;
        let (reader, file) = (Arc::clone(&self.shared), file.to_path_buf());
        let copying = tokio::task::spawn_blocking(move || {
            contain(|| backup::write(&open, &file, reader.wait)).map_err(|problem| match problem {
                KvStoreError::InUse => to_guest_error(&KvStoreError::InUse),
                KvStoreError::Io(problem) | KvStoreError::Storage(problem) => KvError::Other(problem),
            })
        });
        copying.await.unwrap_or_else(|_| Err(writer_ended_error()))
    }

    /// Removes all entries of a plugin. Returns their number.
    ///
    /// # Errors
    /// When the store cannot be used.
    pub async fn clear(&self, plugin: &PluginId) -> Result<u64, KvError> {
        match self.send_task(WriterTask::Clear { plugin: plugin.as_str().to_owned() }).await? {
            WriteReply::Removed(entries) => Ok(entries),
            _ => Err(writer_ended_error()),
        }
    }

    /// Sends a task to the writer thread, and starts the thread if needed.
    async fn send_task(&self, task: WriterTask) -> Result<WriteReply, KvError> {
        let queue = self.writer_queue()?;
        let (reply, receiver) = oneshot::channel();
        if queue.send(WriteRequest { task, reply }).await.is_err() {
            return Err(writer_ended_error());
        }
        receiver.await.unwrap_or_else(|_| Err(writer_ended_error()))
    }

    fn writer_queue(&self) -> Result<mpsc::Sender<WriteRequest>, KvError> {
        let mut queue = self.queue.lock();
        if let Some(queue) = queue.as_ref().filter(|queue| !queue.is_closed()) {
            return Ok(queue.clone());
        }
        let (sender, mut receiver) = mpsc::channel(QUEUE_CAPACITY);
        let shared = Arc::clone(&self.shared);
        // The thread ends with the last sender: with this store and the calls that wait for it.
        let thread = std::thread::Builder::new().name("toolbay-kv".to_owned());
        thread
            .spawn(move || writer::run(&shared, &mut receiver))
            .map_err(|e| KvError::Other(format!("cannot start the thread of the key-value store: {e}")))?;
        *queue = Some(sender.clone());
        Ok(sender)
    }

    /// Returns the open store; the writer opens it if needed.
    async fn open_store(&self) -> Result<Arc<OpenStore>, KvError> {
        loop {
            if let Some(open) = self.shared.current() {
                return Ok(open);
            }
            // The loop ends: the task opens the store or fails.
            self.send_task(WriterTask::Open).await?;
        }
    }

    /// Reads on the caller's thread.
    fn read_in_place<T>(
        &self,
        open: &OpenStore,
        query: impl FnOnce(&ReadTransaction, TimestampMs) -> StoreResult<T>,
    ) -> Result<T, KvError> {
        let found = contain(|| {
            let read = open.database.begin_read().map_err(Error::from)?;
            query(&read, now_ms()).map_err(KvStoreError::from)
        });
        found.map_err(|problem| {
            self.shared.handle_error(&problem);
            to_guest_error(&problem)
        })
    }

    /// Reads on a blocking thread.
    async fn read_blocking<T: Send + 'static>(
        &self,
        query: impl FnOnce(&ReadTransaction, TimestampMs) -> StoreResult<T> + Send + 'static,
    ) -> Result<T, KvError> {
        let open = self.open_store().await?;
        let reader = Self { shared: Arc::clone(&self.shared), queue: Mutex::default() };
        let reading = tokio::task::spawn_blocking(move || reader.read_in_place(&open, query));
        reading.await.unwrap_or_else(|_| Err(writer_ended_error()))
    }

    async fn write(&self, bucket: &Bucket, key: &str, operation: KvOperation) -> Result<WriteReply, KvError> {
        let plugin = bucket.plugin().as_str().to_owned();
        self.send_task(WriterTask::Write { plugin, key: EntryKey::new(bucket, key), operation }).await
    }
}

fn writer_ended_error() -> KvError {
    KvError::Other("the key-value store has shut down".to_owned())
}

impl KvStore for RedbStore {
    fn get<'a>(
        &'a self,
        bucket: &'a Bucket,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, KvError>> {
        Box::pin(async move {
            let open = self.open_store().await?;
            let key = EntryKey::new(bucket, key);
            self.read_in_place(&open, |read, now| {
                let entries = read.open_table(ENTRIES)?;
                let stored = entries.get(key.bytes())?;
                Ok(stored.and_then(|stored| live_value(stored.value(), now).map(<[u8]>::to_vec)))
            })
        })
    }

    fn set<'a>(
        &'a self,
        bucket: &'a Bucket,
        key: &'a str,
        value: Vec<u8>,
        ttl: Option<Duration>,
        quota: Quota,
    ) -> BoxFuture<'a, Result<(), KvError>> {
        // Rounded up to whole seconds: no entry expires early.
        let seconds = |ttl: Duration| ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
        let ttl_s = ttl.map(|ttl| u32::try_from(seconds(ttl)).unwrap_or(u32::MAX));
        Box::pin(async move {
            let operation = KvOperation::Set { value, ttl_s, quota };
            self.write(bucket, key, operation).await.map(|_| ())
        })
    }

    fn remove<'a>(&'a self, bucket: &'a Bucket, key: &'a str) -> BoxFuture<'a, Result<(), KvError>> {
        Box::pin(async move { self.write(bucket, key, KvOperation::Remove).await.map(|_| ()) })
    }

    fn keys<'a>(
        &'a self,
        bucket: &'a Bucket,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<String>, KvError>> {
        let (bucket, prefix, after) = (bucket.clone(), prefix.to_owned(), after.map(ToOwned::to_owned));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Box::pin(self.read_blocking(move |transaction, now| {
            read::keys(transaction, &bucket, &prefix, after.as_deref(), limit, now)
        }))
    }

    fn increment<'a>(
        &'a self,
        bucket: &'a Bucket,
        key: &'a str,
        by: i64,
        quota: Quota,
    ) -> BoxFuture<'a, Result<i64, KvError>> {
        Box::pin(async move {
            match self.write(bucket, key, KvOperation::Increment { by, quota }).await? {
                WriteReply::Sum(sum) => Ok(sum),
                _ => Err(writer_ended_error()),
            }
        })
    }

    fn replace<'a>(
        &'a self,
        bucket: &'a Bucket,
        key: &'a str,
        expected: Option<Vec<u8>>,
        value: Vec<u8>,
        quota: Quota,
    ) -> BoxFuture<'a, Result<bool, KvError>> {
        Box::pin(async move {
            match self.write(bucket, key, KvOperation::Replace { expected, value, quota }).await? {
                WriteReply::Replaced(did) => Ok(did),
                _ => Err(writer_ended_error()),
            }
        })
    }
}
