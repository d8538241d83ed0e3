//! Key-value storage of plugins that all replicas share. Each operation is one request to the leader of the plugin's stream;
//! those that depend on the value are repeated until no other replica wrote meanwhile. Within a replica, they wait for each
//! other, so that only replicas compete for a key, and not all calls of all replicas.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use toolbay_core::session::kv::{Bucket, KvError, KvStore, Quota};
use toolbay_policy::name::PluginId;

use crate::clock::StoreClock;
use crate::nats::{Condition, Connection, ConnectionError, Entries, EntryError, StoredEntry, decode, encode};

/// Most attempts of an operation that depends on the value. Each conflict means that another replica wrote it. Even twenty
/// replicas that write without end let one of them lose so often once in 10²² operations; the deadline of the call is nearer.
const MAX_ATTEMPTS: u32 = 1000;
/// Most queues before those that nobody uses are removed.
const MAX_IDLE_QUEUES: usize = 256;

/// The key-value storage of all plugins.
#[derive(Debug)]
pub struct NatsKvStore {
    connection: Connection,
    clock: StoreClock,
    open: Mutex<HashMap<PluginId, Entries>>,
    queues: KeyQueues,
}

/// The operations of this replica on each key that depend on its value.
#[derive(Debug, Default)]
struct KeyQueues(Mutex<HashMap<(PluginId, String), Weak<KeyQueue>>>);

/// The operations on one key. The one that runs holds the lock.
type KeyQueue = tokio::sync::Mutex<()>;

impl KeyQueues {
    /// Waits for the earlier operations on a key.
    async fn wait(&self, plugin: &PluginId, key: &str) -> OwnedMutexGuard<()> {
        let queue = {
            let mut queues = self.0.lock();
            if queues.len() >= MAX_IDLE_QUEUES {
                queues.retain(|_, queue| queue.strong_count() > 0);
            }
            let slot = queues.entry((plugin.clone(), key.to_owned())).or_default();
            let queue = slot.upgrade().unwrap_or_default();
            *slot = Arc::downgrade(&queue);
            queue
        };
        queue.lock_owned().await
    }
}

impl NatsKvStore {
    /// A store that opens the stream of each plugin when it is first used.
    #[must_use]
    pub fn new(connection: Connection, clock: StoreClock) -> Self {
        Self { connection, clock, open: Mutex::default(), queues: KeyQueues::default() }
    }

    async fn entries(&self, plugin: &PluginId) -> Result<Entries, KvError> {
        if let Some(entries) = self.open.lock().get(plugin) {
            return Ok(entries.clone());
        }
        let entries = match self.connection.entries(plugin).await {
            Ok(entries) => entries,
            Err(ConnectionError::Unpublished { .. }) => {
                return Err(KvError::Other(format!(
                    "the shared state has no storage for `{plugin}`: the operator runs `toolbay shared publish` with a \
                     policy that grants it `kv`"
                )));
            }
            Err(error) => return Err(KvError::Other(error.to_string())),
        };
        self.open.lock().insert(plugin.clone(), entries.clone());
        Ok(entries)
    }

    /// Reads an entry that has not expired.
    async fn read(&self, entries: &Entries, key: &str) -> Result<CurrentEntry, KvError> {
        let entry = entries.read(key).await?;
        let now = self.clock.now();
        // One that has expired is still there until the whole second is over.
        let revision = entry.as_ref().map(|entry| entry.revision);
        let is_alive = |entry: &StoredEntry| entry.expires.is_none_or(|expires| now < expires);
        Ok(CurrentEntry { condition: Condition::Revision(revision), entry: entry.filter(is_alive) })
    }

    /// When an entry keeps its expiry.
    fn expiry(&self, entry: Option<&StoredEntry>) -> Option<(u64, Duration)> {
        let expires = entry.and_then(|entry| entry.expires)?;
        Some((expires, Duration::from_millis(expires.saturating_sub(self.clock.now()))))
    }
}

/// An entry, and the condition under which it is still the same.
struct CurrentEntry {
    entry: Option<StoredEntry>,
    condition: Condition,
}

/// The tokens of a bucket.
fn tokens(bucket: &Bucket) -> String {
    format!("{}.{}", bucket.scope().as_str(), encode(bucket.owner()))
}

fn key_of(bucket: &Bucket, key: &str) -> String {
    format!("{}.{}", tokens(bucket), encode(key))
}

impl From<EntryError> for KvError {
    fn from(error: EntryError) -> Self {
        match error {
            EntryError::Full => Self::QuotaExceeded,
            other => Self::Other(other.to_string()),
        }
    }
}

fn check_size(value: &[u8], quota: Quota) -> Result<(), KvError> {
    let bytes = value.len() as u64;
    if bytes > quota.value_bytes { Err(KvError::TooLarge(bytes)) } else { Ok(()) }
}

fn too_busy() -> KvError {
    KvError::Other("too many servers write this key at once".to_owned())
}

impl KvStore for NatsKvStore {
    fn get<'a>(
        &'a self,
        bucket: &'a Bucket,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, KvError>> {
        Box::pin(async move {
            let entries = self.entries(bucket.plugin()).await?;
            let found = self.read(&entries, &key_of(bucket, key)).await?;
            Ok(found.entry.map(|entry| entry.value.into()))
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
        Box::pin(async move {
            if ttl == Some(Duration::ZERO) {
                return self.remove(bucket, key).await;
            }
            check_size(&value, quota)?;
            let entries = self.entries(bucket.plugin()).await?;
            let expiry = ttl.map(|ttl| {
                let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
                (self.clock.now().saturating_add(millis), ttl)
            });
            let written = entries.write(&key_of(bucket, key), value, Condition::Always, expiry).await;
            written.map(drop).map_err(KvError::from)
        })
    }

    fn remove<'a>(&'a self, bucket: &'a Bucket, key: &'a str) -> BoxFuture<'a, Result<(), KvError>> {
        Box::pin(async move {
            let entries = self.entries(bucket.plugin()).await?;
            entries.remove(&key_of(bucket, key)).await.map_err(KvError::from)
        })
    }

    fn keys<'a>(
        &'a self,
        bucket: &'a Bucket,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<String>, KvError>> {
        Box::pin(async move {
            let entries = self.entries(bucket.plugin()).await?;
            let tokens = entries.keys(&tokens(bucket)).await?;
            let is_listed =
                |key: &String| key.starts_with(prefix) && after.is_none_or(|after| **key > *after);
            let mut keys: Vec<String> =
                tokens.iter().filter_map(|token| decode(token)).filter(is_listed).collect();
            keys.sort_unstable();
            keys.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
            Ok(keys)
        })
    }

    fn increment<'a>(
        &'a self,
        bucket: &'a Bucket,
        key: &'a str,
        by: i64,
        quota: Quota,
    ) -> BoxFuture<'a, Result<i64, KvError>> {
        Box::pin(async move {
            let (entries, key) = (self.entries(bucket.plugin()).await?, key_of(bucket, key));
            let _turn = self.queues.wait(bucket.plugin(), &key).await;
            for _ in 0..MAX_ATTEMPTS {
                let CurrentEntry { entry, condition } = self.read(&entries, &key).await?;
                let number = entry.as_ref().map_or(Ok(0), |entry| parse_number(&entry.value))?;
                let beyond = || KvError::Other(format!("the sum of {number} and {by} exceeds 64 bits"));
                let sum = number.checked_add(by).ok_or_else(beyond)?;
                let value = sum.to_string().into_bytes();
                check_size(&value, quota)?;
                match entries.write(&key, value, condition, self.expiry(entry.as_ref())).await {
                    Ok(_) => return Ok(sum),
                    Err(EntryError::Changed) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(too_busy())
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
            check_size(&value, quota)?;
            let (entries, key) = (self.entries(bucket.plugin()).await?, key_of(bucket, key));
            let _turn = self.queues.wait(bucket.plugin(), &key).await;
            for _ in 0..MAX_ATTEMPTS {
                let CurrentEntry { entry, condition } = self.read(&entries, &key).await?;
                if entry.as_ref().map(|entry| &*entry.value) != expected.as_deref() {
                    return Ok(false);
                }
                let expiry = self.expiry(entry.as_ref());
                match entries.write(&key, value.clone(), condition, expiry).await {
                    Ok(_) => return Ok(true),
                    // The value may be the same as before.
                    Err(EntryError::Changed) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(too_busy())
        })
    }
}

fn parse_number(value: &[u8]) -> Result<i64, KvError> {
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).ok_or(KvError::NotANumber)
}
