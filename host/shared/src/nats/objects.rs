//! Objects of a bucket: values of any size, by name.

use std::time::Duration;

use async_nats::jetstream::object_store::{GetErrorKind, InfoErrorKind, ObjectStore};
use tokio::io::AsyncReadExt as _;

use super::records::ReadError;

/// How long the transfer of one object may take.
const TRANSFER: Duration = Duration::from_secs(120);

/// The objects of one bucket. Clones share the connection.
#[derive(Clone)]
pub struct Objects {
    store: ObjectStore,
    bucket: String,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects").field("bucket", &self.bucket).finish_non_exhaustive()
    }
}

impl Objects {
    pub(super) fn new(store: ObjectStore, bucket: String) -> Self {
        Self { store, bucket }
    }

    /// Whether there is an object.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn contains(&self, name: &str) -> Result<bool, ReadError> {
        match self.store.info(name).await {
            Ok(info) => Ok(!info.deleted),
            Err(error) if error.kind() == InfoErrorKind::NotFound => Ok(false),
            Err(error) => Err(ReadError::Unavailable(error.to_string())),
        }
    }

    /// Reads an object of at most `most` bytes; `None` if there is none.
    ///
    /// # Errors
    /// The store does not answer, or the object is larger or damaged.
    pub async fn read(&self, name: &str, most: usize) -> Result<Option<Vec<u8>>, ReadError> {
        let mut object = match self.store.get(name).await {
            Ok(object) => object,
            Err(error) if error.kind() == GetErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ReadError::Unavailable(error.to_string())),
        };
        let size = object.info().size;
        if size > most {
            return Err(self.damaged(name, format!("it has {size} bytes; the limit is {most} bytes")));
        }
        let mut bytes = Vec::with_capacity(size);
        match tokio::time::timeout(TRANSFER, object.read_to_end(&mut bytes)).await {
            Ok(Ok(_)) if bytes.len() == size => Ok(Some(bytes)),
            Ok(Ok(read)) => Err(self.damaged(name, format!("it has {read} of {size} bytes"))),
            Ok(Err(error)) => Err(ReadError::Unavailable(error.to_string())),
            Err(_) => Err(ReadError::Unavailable("the transfer took too long".to_owned())),
        }
    }

    /// Writes an object.
    ///
    /// # Errors
    /// The store does not take it.
    pub async fn write(&self, name: &str, bytes: &[u8]) -> Result<(), ReadError> {
        let mut rest = bytes;
        match tokio::time::timeout(TRANSFER, self.store.put(name, &mut rest)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(ReadError::Unavailable(error.to_string())),
            Err(_) => Err(ReadError::Unavailable("the transfer took too long".to_owned())),
        }
    }

    /// Removes an object, if it exists. Without an answer it stays.
    pub async fn remove(&self, name: &str) {
        if let Err(error) = self.store.delete(name).await {
            tracing::debug!(%error, name, "an object was not removed");
        }
    }

    fn damaged(&self, name: &str, problem: String) -> ReadError {
        ReadError::Damaged { bucket: self.bucket.clone(), key: name.to_owned(), problem }
    }
}
