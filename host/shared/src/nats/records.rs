//! Records of a bucket: read from the leader, written under a condition, watched in order.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::header;
use async_nats::jetstream::Context;
use async_nats::jetstream::kv::{Entry, Operation, Store, Watch};
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::publish::{PublishFailure, publish};
use crate::protocol::{Revision, Written};

/// Most bytes of a record. Larger values belong into an object store.
const MAX_RECORD_BYTES: usize = 256 << 10;
/// How long NATS shows that a record was removed. A watch that was interrupted for longer begins with all records.
const REMOVAL_LIFE: Duration = Duration::from_secs(60);

/// The records of one bucket. Clones share the connection.
#[derive(Debug, Clone)]
pub struct Records {
    store: Store,
    context: Context,
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<T> {
    /// The value.
    pub value: T,
    /// Its revision.
    pub revision: Revision,
}

/// What a read found.
pub type Read<T> = Result<Option<Record<T>>, ReadError>;

/// The reason why a record cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The store does not answer.
    #[error("the shared state does not answer: {0}")]
    Unavailable(String),
    /// Something else wrote the record.
    #[error(
        "the record `{key}` of `{bucket}` is damaged ({problem}): remove it with `nats kv del {bucket} {key}`"
    )]
    Damaged {
        /// The bucket.
        bucket: String,
        /// The key.
        key: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl ReadError {
    pub(crate) fn unavailable(error: impl std::fmt::Display) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl Records {
    pub(super) fn new(store: Store, context: Context) -> Self {
        Self { store, context }
    }

    /// The name of the bucket for the tools of NATS.
    #[must_use]
    pub fn bucket(&self) -> &str {
        &self.store.name
    }

    /// Reads a record.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn read<T: DeserializeOwned>(&self, key: &str) -> Read<T> {
        let entry = self.store.entry(key).await.map_err(ReadError::unavailable)?;
        entry.as_ref().map_or(Ok(None), |entry| self.parse(entry))
    }

    /// The value of an entry; `None` if it was removed.
    ///
    /// # Errors
    /// Fails if the value is damaged.
    pub fn parse<T: DeserializeOwned>(&self, entry: &Entry) -> Read<T> {
        if entry.operation != Operation::Put {
            return Ok(None);
        }
        let value = serde_json::from_slice(&entry.value).map_err(|error| ReadError::Damaged {
            bucket: self.store.name.clone(),
            key: entry.key.clone(),
            problem: error.to_string(),
        })?;
        Ok(Some(Record { value, revision: Revision(entry.revision) }))
    }

    /// Writes a record that has this revision; with `None`, one that does not exist.
    pub async fn write(&self, key: &str, expected: Option<Revision>, value: &impl Serialize) -> Written {
        self.write_with(key, expected, value, HeaderMap::new()).await
    }

    /// As [`Records::write`], for a record that disappears after `life`, in whole seconds and at least one.
    pub async fn write_for(
        &self,
        key: &str,
        expected: Option<Revision>,
        value: &impl Serialize,
        life: Duration,
    ) -> Written {
        self.write_with(key, expected, value, life_header(life)).await
    }

    async fn write_with(
        &self,
        key: &str,
        expected: Option<Revision>,
        value: &impl Serialize,
        headers: HeaderMap,
    ) -> Written {
        let Some(bytes) = to_bytes(value) else { return Written::Conflict };
        let of_none = match expected {
            Some(Revision(revision)) => return self.write_after(key, bytes, headers, revision).await,
            None => self.write_after(key, bytes.clone(), headers.clone(), 0).await,
        };
        if of_none != Written::Conflict {
            return of_none;
        }
        // A record that was removed leaves a message that says so, which expires.
        match self.store.entry(key).await {
            Ok(Some(entry)) if entry.operation != Operation::Put => {
                self.write_after(key, bytes, headers, entry.revision).await
            }
            Ok(_) => Written::Conflict,
            Err(error) => {
                tracing::debug!(%error, key, "a record that is to be created cannot be read");
                Written::Conflict
            }
        }
    }

    /// Writes a record whose last message has this position; zero: there is none.
    async fn write_after(&self, key: &str, bytes: Bytes, headers: HeaderMap, expected: u64) -> Written {
        let subject = format!("{}{key}", self.store.prefix);
        match publish(&self.context, subject, headers, bytes, Some(expected)).await {
            Ok(revision) => Written::Stored(revision),
            Err(PublishFailure::LostRace) => Written::Conflict,
            Err(error) => {
                tracing::debug!(%error, key, "a record was not written");
                Written::Unknown
            }
        }
    }

    /// Writes a record whatever it has, which disappears after `life`, in whole seconds and at least one. Returns its
    /// revision; `None` if there was no reply.
    pub async fn put(&self, key: &str, value: &impl Serialize, life: Duration) -> Option<Revision> {
        let bytes = to_bytes(value)?;
        let subject = format!("{}{key}", self.store.prefix);
        match publish(&self.context, subject, life_header(life), bytes, None).await {
            Ok(revision) => Some(revision),
            Err(error) => {
                tracing::debug!(%error, key, "a record was not written");
                None
            }
        }
    }

    /// Removes a record that has this revision. Whether it did is not known.
    pub async fn remove(&self, key: &str, Revision(expected): Revision) {
        let removed = self.store.purge_expect_revision_with_ttl(key, expected, REMOVAL_LIFE).await;
        if let Err(error) = removed {
            tracing::debug!(%error, key, "a record was not removed");
        }
    }

    /// The keys that start with `prefix`.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn keys(&self, prefix: &str) -> Result<Vec<String>, ReadError> {
        let keys = self.store.keys().await.map_err(ReadError::unavailable)?;
        let keys: Vec<String> = keys.try_collect().await.map_err(ReadError::unavailable)?;
        Ok(keys.into_iter().filter(|key| key.starts_with(prefix)).collect())
    }

    /// All records and then their changes, in the order of the stream.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn watch(&self) -> Result<Watch, ReadError> {
        self.watch_below("").await
    }

    /// As [`Records::watch`], for the keys that start with these tokens, which end with a dot.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn watch_below(&self, tokens: &str) -> Result<Watch, ReadError> {
        let watching = self.store.watch_many_with_history([format!("{tokens}>")]).await;
        watching.map_err(ReadError::unavailable)
    }
}

fn life_header(life: Duration) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::NATS_MESSAGE_TTL, life.as_millis().div_ceil(1000).max(1).to_string());
    headers
}

fn to_bytes(value: &impl Serialize) -> Option<Bytes> {
    let bytes = serde_json::to_vec(value).ok().filter(|bytes| bytes.len() <= MAX_RECORD_BYTES);
    if bytes.is_none() {
        tracing::error!("a record exceeds {MAX_RECORD_BYTES} bytes and is not written");
    }
    bytes.map(Bytes::from)
}
