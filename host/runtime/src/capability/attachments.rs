//! `attachments`: files that came with the turn, and files to hand back.
//!
//! A tool sees the files whose media types it was granted, one by one and by handle; the folder that a file came from
//! is no part of it. New files have a name that is no path, a media type that was granted, and a quota for each call.

use std::sync::Arc;

use toolbay_core::session::attachment::{self, Attachments, check_name};
use toolbay_policy::Key;
use toolbay_policy::capability::attachment::{Access, AttachmentRule, UNKNOWN_MEDIA, media_type};
use toolbay_policy::limits::Limit;

use super::Capabilities;
use crate::engine::bindings::host::attachments::{Attachment, AttachmentError, Host};

/// What one call made.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    files: u32,
    bytes: u64,
}

impl Capabilities {
    fn attachments(&self) -> Option<Arc<dyn Attachments>> {
        self.who.ctx.as_ref()?.turn.attachments.clone()
    }

    fn attachment_rules(&self) -> &[AttachmentRule] {
        self.who.granted.as_ref().map_or(&[], |granted| &granted.grants.attachments)
    }

    fn takes(&self, access: Access, media: &str) -> bool {
        self.attachment_rules().iter().any(|rule| rule.takes(access, media))
    }

    /// Whether anything of the kind is granted.
    fn has_attachments(&self, access: Access) -> bool {
        self.attachment_rules().iter().any(|rule| rule.access == access)
    }

    /// Checks the right to make a file of this type; returns the type as it is kept.
    fn may_create(&self, name: &str, media: &str) -> Result<String, AttachmentError> {
        let Some(media) = media_type(media) else {
            // Without a grant for any type it must not matter how the type is written.
            if self.has_attachments(Access::Create) {
                return Err(AttachmentError::Other("write a media type such as `image/png`".to_owned()));
            }
            return Err(AttachmentError::Denied(self.who.refuse(Key::Attachments, "create")));
        };
        let wish = format!("create {media}");
        if !self.takes(Access::Create, &media) {
            return Err(AttachmentError::Denied(self.who.refuse(Key::Attachments, &wish)));
        }
        check_name(name).map_err(AttachmentError::Other)?;
        self.who.note(Key::Attachments, &wish, true);
        Ok(media)
    }

    /// Takes a file's share of the call's quota.
    fn meter_attachment(&mut self, size: u64) -> Result<(), AttachmentError> {
        if size > self.who.limits.attachment_bytes {
            return Err(AttachmentError::TooLarge(size));
        }
        let (files, bytes) = (self.attachments.files, self.attachments.bytes);
        let used_up = if files >= self.who.limits.attachments {
            Limit::Attachments
        } else if bytes.saturating_add(size) > self.who.limits.attachment_bytes {
            Limit::AttachmentBytes
        } else {
            self.attachments = Meter { files: files + 1, bytes: bytes + size };
            return Ok(());
        };
        let what = format!("the call has made {files} attachments of {bytes} bytes");
        Err(AttachmentError::Other(self.who.over(&what, used_up)))
    }
}

fn shown(about: attachment::Attachment) -> Attachment {
    Attachment { id: about.id, name: about.name, mime_type: about.media_type, size: about.size }
}

impl From<attachment::AttachmentError> for AttachmentError {
    fn from(error: attachment::AttachmentError) -> Self {
        match error {
            attachment::AttachmentError::NotFound => Self::NotFound,
            attachment::AttachmentError::TooLarge(bytes) => Self::TooLarge(bytes),
            attachment::AttachmentError::Other(message) => Self::Other(message),
        }
    }
}

impl Host for Capabilities {
    async fn all(&mut self) -> Vec<Attachment> {
        if !self.has_attachments(Access::Read) {
            // The contract has no error here; the audit and the operator's hint tell of the wish.
            drop(self.who.refuse(Key::Attachments, "read"));
            return Vec::new();
        }
        self.who.note(Key::Attachments, "read", true);
        let Some(attachments) = self.attachments() else { return Vec::new() };
        let all = attachments.list().await;
        all.into_iter().filter(|one| self.takes(Access::Read, &one.media_type)).map(shown).collect()
    }

    async fn read(&mut self, id: String) -> Result<Vec<u8>, AttachmentError> {
        if !self.has_attachments(Access::Read) {
            return Err(AttachmentError::Denied(self.who.refuse(Key::Attachments, "read")));
        }
        let attachments = self.attachments().ok_or(AttachmentError::NotFound)?;
        let all = attachments.list().await;
        let about = all.into_iter().find(|one| one.id == id).ok_or(AttachmentError::NotFound)?;
        let media = media_type(&about.media_type).unwrap_or_else(|| UNKNOWN_MEDIA.to_owned());
        let wish = format!("read {media}");
        if !self.takes(Access::Read, &media) {
            return Err(AttachmentError::Denied(self.who.refuse(Key::Attachments, &wish)));
        }
        self.who.note(Key::Attachments, &wish, true);
        // Before it is copied: it would lie in memory twice.
        let most = self.who.limits.host_call_bytes;
        if about.size > most {
            return Err(AttachmentError::TooLarge(about.size));
        }
        let data = attachments.read(&id, most).await?;
        if data.len() as u64 > most {
            return Err(AttachmentError::TooLarge(data.len() as u64));
        }
        Ok(data)
    }

    async fn create(
        &mut self,
        name: String,
        mime_type: String,
        data: Vec<u8>,
    ) -> Result<Attachment, AttachmentError> {
        // It leaves the host as a result does.
        let (name, data) = (self.redacted(&name).into_owned(), self.redacted_bytes(data));
        let media = self.may_create(&name, &mime_type)?;
        let Some(attachments) = self.attachments() else {
            return Err(AttachmentError::Other("this caller takes no attachments".to_owned()));
        };
        self.meter_attachment(data.len() as u64)?;
        Ok(shown(attachments.create(&name, &media, data).await?))
    }
}
