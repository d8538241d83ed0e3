//! Objects of a bucket: values of any size, by name.

use std::time::Duration;

use async_nats::jetstream::object_store::{GetErrorKind, InfoErrorKind, ObjectStore, PutErrorKind};
use tokio::io::AsyncReadExt as _;

use super::records::ReadError;

/// How long the transfer of one object may take.
const TRANSFER: Duration = Duration::from_secs(120);
/// How long a transfer may bring nothing. An object that is removed while it is read never ends on its own.
const STALL: Duration = Duration::from_secs(5);
/// How often a write begins, and the pause between: a stream takes nothing while it has no leader, as after its creation.
const WRITES: u32 = 6;
const WRITE_PAUSE: Duration = Duration::from_millis(500);

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
            Err(error) => Err(ReadError::unavailable(error)),
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
            Err(error) => return Err(ReadError::unavailable(error)),
        };
        let size = object.info().size;
        if size > most {
            return Err(self.damaged(name, format!("it has {size} bytes; the limit is {most} bytes")));
        }
        let mut bytes = Vec::with_capacity(size);
        let transfer = async {
            while bytes.len() <= size {
                match tokio::time::timeout(STALL, object.read_buf(&mut bytes)).await {
                    Ok(Ok(0)) => return Ok(()),
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => return Err(ReadError::unavailable(error)),
                    Err(_) => {
                        return Err(ReadError::Unavailable(format!("the transfer of `{name}` stopped")));
                    }
                }
            }
            Ok(())
        };
        match tokio::time::timeout(TRANSFER, transfer).await {
            Ok(Ok(())) if bytes.len() == size => Ok(Some(bytes)),
            Ok(Ok(())) => Err(self.damaged(name, format!("it has {} of {size} bytes", bytes.len()))),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ReadError::Unavailable("the transfer took too long".to_owned())),
        }
    }

    /// Writes an object.
    ///
    /// # Errors
    /// The store does not take it.
    pub async fn write(&self, name: &str, bytes: &[u8]) -> Result<(), ReadError> {
        let transfer = async {
            let mut begun = 0;
            loop {
                let mut rest = bytes;
                begun += 1;
                match self.store.put(name, &mut rest).await {
                    Ok(_) => return Ok(()),
                    Err(error) if error.kind() == PutErrorKind::PublishChunks && begun < WRITES => {
                        tokio::time::sleep(WRITE_PAUSE).await;
                    }
                    Err(error) => return Err(ReadError::unavailable(error)),
                }
            }
        };
        let late = || ReadError::Unavailable("the transfer took too long".to_owned());
        tokio::time::timeout(TRANSFER, transfer).await.unwrap_or_else(|_| Err(late()))
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
