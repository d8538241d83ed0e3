//! The files of sessions that servers share: data as objects, and one record for each session that lists them.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use toolbay_core::session::attachment::{Attachment, AttachmentError};
use toolbay_core::session::attachment_store::{
    AttachmentStore, FILE_OVERHEAD, MAX_FILE_AGE, MAX_SESSION_BYTES, MAX_SESSION_FILES,
};

use crate::bundle::ContentDigest;
use crate::clock::StoreClock;
use crate::nats::{Objects, ReadError, Records};
use crate::protocol::{Revision, Written};

/// The start of the keys of lists.
const FILES: &str = "files.";
/// Most attempts to change the list of a session. Each conflict means that another server changed it.
const MAX_ATTEMPTS: u32 = 50;

/// The files of all sessions with a name.
#[derive(Debug)]
pub(crate) struct NatsAttachmentStore {
    lists: Records,
    data: Objects,
    clock: StoreClock,
}

/// The files of a session, the oldest first.
#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredFiles {
    files: Vec<ListedFile>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct ListedFile {
    about: Attachment,
    /// When it was stored, in milliseconds of the store's clock.
    at: u64,
}

impl NatsAttachmentStore {
    pub(crate) fn new(lists: Records, data: Objects, clock: StoreClock) -> Self {
        Self { lists, data, clock }
    }

    /// The list of a session without expired files, and the revision of its record.
    async fn read(&self, session: &str) -> Result<(StoredFiles, Option<Revision>), ReadError> {
        let found = self.lists.read::<StoredFiles>(&key(session)).await?;
        let (mut list, revision) =
            found.map_or_else(Default::default, |record| (record.value, Some(record.revision)));
        let age = u64::try_from(MAX_FILE_AGE.as_millis()).unwrap_or(u64::MAX);
        let now = self.clock.now();
        list.files.retain(|file| now < file.at.saturating_add(age));
        Ok((list, revision))
    }

    async fn store(&self, session: &str, about: &Attachment, data: &[u8]) -> Result<(), AttachmentError> {
        if weight(about) > MAX_SESSION_BYTES {
            return Err(AttachmentError::TooLarge(about.size));
        }
        self.data.write(&object(session, &about.id), data).await.map_err(|error| failed(&error))?;
        for _ in 0..MAX_ATTEMPTS {
            let (mut list, revision) = self.read(session).await.map_err(|error| failed(&error))?;
            let removed = list.make_room(weight(about));
            list.files.push(ListedFile { about: about.clone(), at: self.clock.now() });
            match self.lists.write(&key(session), revision, &list).await {
                Written::Stored(_) => {
                    for old in removed {
                        self.data.remove(&object(session, &old.about.id)).await;
                    }
                    return Ok(());
                }
                Written::Conflict => {}
                Written::Unknown => break,
            }
        }
        Err(AttachmentError::Other("the shared state does not take the file".to_owned()))
    }

    async fn load(&self, session: &str, id: &str) -> Result<Arc<[u8]>, AttachmentError> {
        let (list, _) = self.read(session).await.map_err(|error| failed(&error))?;
        let file =
            list.files.into_iter().find(|file| file.about.id == id).ok_or(AttachmentError::NotFound)?;
        let most = usize::try_from(file.about.size).unwrap_or(usize::MAX);
        let data = self.data.read(&object(session, id), most).await.map_err(|error| failed(&error))?;
        data.map(Arc::from).ok_or(AttachmentError::NotFound)
    }
}

impl StoredFiles {
    /// Removes the oldest files until another one fits.
    fn make_room(&mut self, more: u64) -> Vec<ListedFile> {
        let mut sum = self.files.iter().map(|file| weight(&file.about)).sum::<u64>().saturating_add(more);
        let mut count = 0;
        for file in &self.files {
            if sum <= MAX_SESSION_BYTES && self.files.len() - count < MAX_SESSION_FILES {
                break;
            }
            sum = sum.saturating_sub(weight(&file.about));
            count += 1;
        }
        self.files.drain(..count).collect()
    }
}

fn weight(about: &Attachment) -> u64 {
    about.size.saturating_add(FILE_OVERHEAD)
}

fn failed(error: &ReadError) -> AttachmentError {
    AttachmentError::Other(error.to_string())
}

/// The key of a session's list. The key of a session may have any characters and may be secret.
fn key(session: &str) -> String {
    format!("{FILES}{}", ContentDigest::of(session.as_bytes()))
}

fn object(session: &str, id: &str) -> String {
    format!("file-{}-{id}", ContentDigest::of(session.as_bytes()))
}

impl AttachmentStore for NatsAttachmentStore {
    fn put<'a>(
        &'a self,
        session: &'a str,
        attachment: &'a Attachment,
        data: Vec<u8>,
    ) -> BoxFuture<'a, Result<(), AttachmentError>> {
        Box::pin(async move { self.store(session, attachment, &data).await })
    }

    fn get<'a>(&'a self, session: &'a str, id: &'a str) -> BoxFuture<'a, Result<Arc<[u8]>, AttachmentError>> {
        Box::pin(self.load(session, id))
    }

    fn list<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Vec<Attachment>> {
        Box::pin(async move {
            match self.read(session).await {
                Ok((list, _)) => list.files.into_iter().map(|file| file.about).collect(),
                Err(error) => {
                    tracing::warn!(%error, "attachments cannot be listed");
                    Vec::new()
                }
            }
        })
    }

    fn remove_session(&self, _: &str) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(sizes: &[u64]) -> StoredFiles {
        let file = |size: &u64| ListedFile {
            about: Attachment {
                id: String::new(),
                name: String::new(),
                media_type: String::new(),
                size: *size,
            },
            at: 0,
        };
        StoredFiles { files: sizes.iter().map(file).collect() }
    }

    #[test]
    fn the_oldest_files_make_room() {
        let removed = |sizes: &[u64], more| list(sizes).make_room(more).len();
        assert_eq!(removed(&[1; MAX_SESSION_FILES - 1], 1), 0);
        assert_eq!(removed(&[1; MAX_SESSION_FILES], 1), 1);
        let half = MAX_SESSION_BYTES / 2 - FILE_OVERHEAD;
        assert_eq!(removed(&[half], MAX_SESSION_BYTES / 2), 0);
        assert_eq!(removed(&[half, 1], MAX_SESSION_BYTES / 2), 1);
        assert_eq!(removed(&[half, 1], MAX_SESSION_BYTES), 2);
    }
}
