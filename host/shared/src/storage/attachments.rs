//! The files of sessions that replicas share.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use toolbay_core::session::attachment::{Attachment, AttachmentError};
use toolbay_core::session::attachment_store::{
    AttachmentStore, FILE_OVERHEAD, MAX_FILE_AGE, MAX_SESSION_BYTES, MAX_SESSION_FILES,
};

use super::items::{ItemLimits, SessionItems};
use crate::clock::StoreClock;
use crate::nats::{Objects, Records};

const LIMITS: ItemLimits = ItemLimits {
    name: "files",
    count: MAX_SESSION_FILES,
    bytes: MAX_SESSION_BYTES,
    overhead: FILE_OVERHEAD,
    age: MAX_FILE_AGE,
};

/// The files of all sessions with a name.
#[derive(Debug)]
pub(crate) struct NatsAttachmentStore(SessionItems<Attachment>);

impl NatsAttachmentStore {
    pub(crate) fn new(lists: Records, data: Objects, clock: StoreClock) -> Self {
        Self(SessionItems::new(lists, data, clock, LIMITS))
    }
}

fn failed(error: &dyn std::error::Error) -> AttachmentError {
    AttachmentError::Other(error.to_string())
}

impl AttachmentStore for NatsAttachmentStore {
    fn put<'a>(
        &'a self,
        session: &'a str,
        attachment: &'a Attachment,
        data: Vec<u8>,
    ) -> BoxFuture<'a, Result<(), AttachmentError>> {
        Box::pin(async move {
            if attachment.size.saturating_add(FILE_OVERHEAD) > MAX_SESSION_BYTES {
                return Err(AttachmentError::TooLarge(attachment.size));
            }
            let inserted = self.0.insert(session, &attachment.id, attachment, &data).await;
            inserted.map_err(|error| failed(&error))
        })
    }

    fn get<'a>(&'a self, session: &'a str, id: &'a str) -> BoxFuture<'a, Result<Arc<[u8]>, AttachmentError>> {
        Box::pin(async move {
            let loaded = self.0.load(session, id).await.map_err(|error| failed(&error))?;
            loaded.map(|(_, data)| data.into()).ok_or(AttachmentError::NotFound)
        })
    }

    fn list<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Vec<Attachment>> {
        Box::pin(async move {
            let listed = self.0.list(session).await;
            let listed = listed.inspect_err(|error| tracing::warn!(%error, "attachments cannot be listed"));
            listed.unwrap_or_default().into_iter().map(|item| item.about).collect()
        })
    }

    fn remove_session(&self, _: &str) {}
}
