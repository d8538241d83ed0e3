//! The default store: a file that several processes may share, or memory.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use redb::{Error, ReadTransaction, ReadableDatabase};
use tokio::sync::{mpsc, oneshot};
use toolbay_core::session::kv::{Bucket, KvError, KvStore, Quota};
use toolbay_policy::name::PluginId;

use super::backup;
use super::open::{Open, Problem};
use super::place::{EntryInfo, EntryKey, live};
use super::read;
use super::tables::{Answer, ENTRIES, Now, Operation, Stored};
use super::writer::{self, Job, QUEUE, Shared, Task, now, tell};
use crate::storage::private::DEFAULT_STATE_WAIT;

/// State in a redb file, `kv.redb`, which any number of hosts and processes may have open, or in memory.
///
/// Opened at its first use. A get is answered in place; it waits for no writer. Writes go through one thread, which puts
/// all that wait into one transaction: a write that was acknowledged is on disk. A file that cannot be read is never
/// changed or removed: every operation then is an error, until somebody moves it away.
pub struct RedbStore {
    shared: Arc<Shared>,
    queue: Mutex<Option<mpsc::Sender<Job>>>,
}

/// What a plugin keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvUsage {
    /// The plugin's id.
    pub plugin: String,
    /// Its keys.
    pub keys: u64,
    /// Bytes of its keys and values.
    pub bytes: u64,
}

impl fmt::Debug for RedbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbStore").field("dir", &self.shared.dir).finish_non_exhaustive()
    }
}

impl RedbStore {
    /// The store in a folder, which is made at the first use if it is not there, for this user only (mode 0700).
    #[must_use]
    pub fn in_dir(dir: &Path) -> Self {
        Self::new(Some(dir), DEFAULT_STATE_WAIT)
    }

    /// The same, waiting up to `limit` for other processes that write.
    #[must_use]
    pub fn in_dir_with_wait(dir: &Path, limit: Duration) -> Self {
        Self::new(Some(dir), limit)
    }

    /// A store that lives as long as this value.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::new(None, DEFAULT_STATE_WAIT)
    }

    /// A store in a folder, or in memory.
    pub(crate) fn new(dir: Option<&Path>, wait: Duration) -> Self {
        Self { shared: Arc::new(Shared::new(dir.map(Path::to_path_buf), wait)), queue: Mutex::default() }
    }

    /// A plugin's entries, of all scopes, in the order of the file, at most `most`; and whether there are more.
    ///
    /// # Errors
    /// When the store cannot be used.
    pub async fn entries(&self, plugin: &PluginId, most: usize) -> Result<(Vec<EntryInfo>, bool), KvError> {
        let plugin = plugin.as_str().to_owned();
        self.look(move |transaction, now| read::entries(transaction, &plugin, most, now)).await
    }

    /// What each plugin keeps, counted entry by entry, in the order of their ids.
    ///
    /// # Errors
    /// When the store cannot be used.
    pub async fn usage(&self) -> Result<Vec<KvUsage>, KvError> {
        let found = self.look(read::usage).await?;
        Ok(found.into_iter().map(|(plugin, keys, bytes)| KvUsage { plugin, keys, bytes }).collect())
    }

    /// Writes a consistent copy of the store to a new file while other processes use it; tells how many entries it has.
    /// The copy serves as a `kv.redb`.
    ///
    /// # Errors
    /// When the store cannot be used, the file exists already or it cannot be written; a partial copy is removed.
    pub async fn backup(&self, file: &Path) -> Result<u64, KvError> {
        let open = self.open().await?;
        let (reader, file) = (Arc::clone(&self.shared), file.to_path_buf());
        let copying = tokio::task::spawn_blocking(move || {
            backup::write(&open, &file, reader.wait).map_err(|problem| match problem {
                Problem::InUse => tell(&Problem::InUse),
                Problem::Io(problem) | Problem::Storage(problem) => KvError::Other(problem),
            })
        });
        copying.await.unwrap_or_else(|_| Err(unexpected()))
    }

    /// Removes everything of a plugin; tells how many entries.
    ///
    /// # Errors
    /// When the store cannot be used.
    pub async fn clear(&self, plugin: &PluginId) -> Result<u64, KvError> {
        match self.ask(Task::Clear { plugin: plugin.as_str().to_owned() }).await? {
            Answer::Removed(entries) => Ok(entries),
            _ => Err(unexpected()),
        }
    }

    /// Sends a task to the writer, which is started if it does not run yet.
    async fn ask(&self, task: Task) -> Result<Answer, KvError> {
        let queue = self.queue()?;
        let (reply, answer) = oneshot::channel();
        if queue.send(Job { task, reply }).await.is_err() {
            return Err(unexpected());
        }
        answer.await.unwrap_or_else(|_| Err(unexpected()))
    }

    fn queue(&self) -> Result<mpsc::Sender<Job>, KvError> {
        let mut queue = self.queue.lock();
        if let Some(queue) = queue.as_ref().filter(|queue| !queue.is_closed()) {
            return Ok(queue.clone());
        }
        let (sender, mut receiver) = mpsc::channel(QUEUE);
        let shared = Arc::clone(&self.shared);
        // Ends with the last sender: with this store and the calls that wait for it.
        let thread = std::thread::Builder::new().name("toolbay-kv".to_owned());
        thread
            .spawn(move || writer::run(&shared, &mut receiver))
            .map_err(|e| KvError::Other(format!("the key-value store has no thread: {e}")))?;
        *queue = Some(sender.clone());
        Ok(sender)
    }

    /// The store, opened by the writer if it is not.
    async fn open(&self) -> Result<Arc<Open>, KvError> {
        loop {
            if let Some(open) = self.shared.open() {
                return Ok(open);
            }
            // Ends: either it is open then, or there is an error.
            self.ask(Task::Open).await?;
        }
    }

    /// Reads in place.
    fn read<T>(
        &self,
        open: &Open,
        look: impl FnOnce(&ReadTransaction, Now) -> Stored<T>,
    ) -> Result<T, KvError> {
        // A file that was changed from outside can make redb panic.
        let found = catch_unwind(AssertUnwindSafe(|| {
            let read = open.database.begin_read().map_err(Error::from)?;
            look(&read, now()).map_err(Problem::from)
        }));
        let found = found.unwrap_or_else(|_| Err(Problem::Storage("the file is damaged".to_owned())));
        found.map_err(|problem| {
            self.shared.after(&problem);
            tell(&problem)
        })
    }

    /// Reads what may take a while, off the async threads.
    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&ReadTransaction, Now) -> Stored<T> + Send + 'static,
    ) -> Result<T, KvError> {
        let open = self.open().await?;
        let reader = Self { shared: Arc::clone(&self.shared), queue: Mutex::default() };
        let reading = tokio::task::spawn_blocking(move || reader.read(&open, look));
        reading.await.unwrap_or_else(|_| Err(unexpected()))
    }

    async fn write(&self, bucket: &Bucket, key: &str, operation: Operation) -> Result<Answer, KvError> {
        let plugin = bucket.plugin().as_str().to_owned();
        self.ask(Task::Write { plugin, key: EntryKey::new(bucket, key), operation }).await
    }
}

fn unexpected() -> KvError {
    KvError::Other("the key-value store has ended".to_owned())
}

impl KvStore for RedbStore {
    fn get<'a>(
        &'a self,
        bucket: &'a Bucket,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, KvError>> {
        Box::pin(async move {
            let open = self.open().await?;
            let key = EntryKey::new(bucket, key);
            self.read(&open, |read, now| {
                let entries = read.open_table(ENTRIES)?;
                let stored = entries.get(key.bytes())?;
                Ok(stored.and_then(|stored| live(stored.value(), now).map(<[u8]>::to_vec)))
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
        // Parts of a second count as a second: nothing ends before its time.
        let seconds = |ttl: Duration| ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
        let ttl_s = ttl.map(|ttl| u32::try_from(seconds(ttl)).unwrap_or(u32::MAX));
        Box::pin(async move {
            let operation = Operation::Set { value, ttl_s, quota };
            self.write(bucket, key, operation).await.map(|_| ())
        })
    }

    fn remove<'a>(&'a self, bucket: &'a Bucket, key: &'a str) -> BoxFuture<'a, Result<(), KvError>> {
        Box::pin(async move { self.write(bucket, key, Operation::Remove).await.map(|_| ()) })
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
        Box::pin(self.look(move |transaction, now| {
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
            match self.write(bucket, key, Operation::Increment { by, quota }).await? {
                Answer::Sum(sum) => Ok(sum),
                _ => Err(unexpected()),
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
            match self.write(bucket, key, Operation::Replace { expected, value, quota }).await? {
                Answer::Replaced(did) => Ok(did),
                _ => Err(unexpected()),
            }
        })
    }
}
