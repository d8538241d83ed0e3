//! The entries of one plugin: values of bytes that may expire, in a stream of their own whose limits are the quota.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use async_nats::{HeaderMap, header};
use bytes::Bytes;
use futures_util::TryStreamExt as _;

use super::describe;
use super::publish::{PublishFailure, publish};
use crate::protocol::Revision;

/// When an entry expires, in milliseconds of the store's clock since 1970. The TTL of NATS has whole seconds.
const EXPIRES: &str = "Toolbay-Expires";

/// The entries of one plugin. Clones share the connection.
#[derive(Debug, Clone)]
pub struct Entries {
    stream: Stream,
    context: Context,
    /// The start of the subjects.
    prefix: String,
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEntry {
    /// The value.
    pub value: Bytes,
    /// Its revision.
    pub revision: Revision,
    /// When it expires, in milliseconds of the store's clock since 1970; `None`: never.
    pub expires: Option<u64>,
}

/// The condition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Whatever is there.
    Always,
    /// The entry has this revision; `None`: there is none.
    Revision(Option<Revision>),
}

/// The reason why an entry was not read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The entry has another revision. Nothing was written.
    #[error("the entry was changed meanwhile")]
    Changed,
    /// The stream is full. Nothing was written.
    #[error("the entries are as many or as large as they may be")]
    Full,
    /// NATS does not take messages of this size. Nothing was written.
    #[error("the value is larger than `max_payload` of NATS")]
    TooLarge,
    /// The store did not answer. A write may have happened.
    #[error("the shared state did not answer: {0}")]
    Unavailable(String),
}

impl Entries {
    pub(super) fn new(stream: Stream, context: Context, prefix: String) -> Self {
        Self { stream, context, prefix }
    }

    /// Reads an entry from the leader. The caller judges whether it has expired.
    ///
    /// # Errors
    /// See [`EntryError::Unavailable`].
    pub async fn read(&self, key: &str) -> Result<Option<StoredEntry>, EntryError> {
        let subject = format!("{}{key}", self.prefix);
        match self.stream.get_last_raw_message_by_subject(&subject).await {
            Ok(message) => Ok(Some(StoredEntry {
                value: message.payload,
                revision: Revision(message.sequence),
                expires: message.headers.get(EXPIRES).and_then(|text| text.as_str().parse().ok()),
            })),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(EntryError::Unavailable(describe(&error))),
        }
    }

    /// Writes an entry that expires at `expires`, which is `life` from now.
    ///
    /// # Errors
    /// See [`EntryError`].
    pub async fn write(
        &self,
        key: &str,
        value: Vec<u8>,
        condition: Condition,
        expiry: Option<(u64, Duration)>,
    ) -> Result<Revision, EntryError> {
        let expected = match condition {
            Condition::Always => None,
            Condition::Revision(revision) => Some(revision.map_or(0, |Revision(revision)| revision)),
        };
        let mut headers = HeaderMap::new();
        if let Some((expires, life)) = expiry {
            let seconds = life.as_millis().div_ceil(1000).max(1);
            headers.insert(header::NATS_MESSAGE_TTL, seconds.to_string());
            headers.insert(EXPIRES, expires.to_string());
        }
        let subject = format!("{}{key}", self.prefix);
        Ok(publish(&self.context, subject, headers, value.into(), expected).await?)
    }

    /// Removes an entry, if it exists.
    ///
    /// # Errors
    /// See [`EntryError::Unavailable`].
    pub async fn remove(&self, key: &str) -> Result<(), EntryError> {
        let purged = self.stream.purge().filter(format!("{}{key}", self.prefix)).await;
        purged.map(drop).map_err(|error| EntryError::Unavailable(describe(&error)))
    }

    /// The keys below these tokens, without them.
    ///
    /// # Errors
    /// See [`EntryError::Unavailable`].
    pub async fn keys(&self, tokens: &str) -> Result<Vec<String>, EntryError> {
        let unavailable = |error: &dyn std::error::Error| EntryError::Unavailable(describe(error));
        let start = format!("{}{tokens}.", self.prefix);
        let found = self.stream.info_with_subjects(format!("{start}>")).await;
        let subjects: BTreeMap<String, usize> = found
            .map_err(|error| unavailable(&error))?
            .try_collect()
            .await
            .map_err(|error| unavailable(&error))?;
        Ok(subjects.keys().filter_map(|subject| subject.strip_prefix(&start)).map(str::to_owned).collect())
    }
}

impl From<PublishFailure> for EntryError {
    fn from(failure: PublishFailure) -> Self {
        match failure {
            PublishFailure::LostRace => Self::Changed,
            PublishFailure::Full => Self::Full,
            PublishFailure::TooLarge => Self::TooLarge,
            PublishFailure::Unanswered(problem) => Self::Unavailable(problem),
        }
    }
}
