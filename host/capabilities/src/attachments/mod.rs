//! `attachments`: the files of the conversation's turn, and files that tools create.
//!
//! A tool sees only attachments of the media types granted to it, by handle; the handle does not reveal the folder of
//! a file. A new attachment needs a plain name, a granted media type and room in the call's quota.

use std::sync::Arc;

use toolbay_core::session::attachment::{self, check_name};
use toolbay_policy::GrantKey;
use toolbay_policy::capability::attachment::{
    AttachmentAccess, AttachmentRule, UNKNOWN_MEDIA_TYPE, media_type,
};
use toolbay_policy::limits::{CallLimits, Limit};
use toolbay_sandbox::engine::AsyncSupport;
use wasmtime::component::Linker;

use super::Capabilities;
use crate::HasCapabilities;
use crate::bindings::host::attachments::{self as contract, Attachment, AttachmentError, Host};
use crate::capability::Capability;
use crate::state::{GuestState, capabilities_of};

/// The files of the conversation, and those that the call creates.
pub(crate) struct Attachments;

impl Capability for Attachments {
    const KEYS: &'static [GrantKey] = &[GrantKey::Attachments];

    type State = AttachmentUsage;

    fn begin(_: &CallLimits) -> AttachmentUsage {
        AttachmentUsage::default()
    }

    fn link(linker: &mut Linker<GuestState>, _: AsyncSupport) -> wasmtime::Result<()> {
        contract::add_to_linker::<_, HasCapabilities>(linker, capabilities_of)
    }
}

/// The attachments that one call created.
#[derive(Debug, Default)]
pub(crate) struct AttachmentUsage {
    files: u32,
    bytes: u64,
}

impl Capabilities {
    fn attachments(&self) -> Option<Arc<dyn attachment::Attachments>> {
        self.grantee.ctx.as_ref()?.turn.attachments.clone()
    }

    fn attachment_rules(&self) -> &[AttachmentRule] {
        self.grantee.granted.as_ref().map_or(&[], |granted| &granted.grants.attachments)
    }

    fn allows_attachment(&self, access: AttachmentAccess, media: &str) -> bool {
        self.attachment_rules().iter().any(|rule| rule.matches(access, media))
    }

    /// Whether any grant has this access.
    fn has_attachment_grant(&self, access: AttachmentAccess) -> bool {
        self.attachment_rules().iter().any(|rule| rule.access == access)
    }

    /// Checks the grant to create a file of this media type and returns the normalised type.
    fn check_create(&self, name: &str, media: &str) -> Result<String, AttachmentError> {
        let Some(media) = media_type(media) else {
            // Without any grant, a malformed type gets the same refusal as a well-formed one.
            if self.has_attachment_grant(AttachmentAccess::Create) {
                return Err(AttachmentError::Other(
                    "the media type is malformed: write a type such as `image/png`".to_owned(),
                ));
            }
            return Err(AttachmentError::Denied(self.grantee.refuse(GrantKey::Attachments, "create")));
        };
        let entry = format!("create {media}");
        if !self.allows_attachment(AttachmentAccess::Create, &media) {
            return Err(AttachmentError::Denied(self.grantee.refuse(GrantKey::Attachments, &entry)));
        }
        check_name(name).map_err(AttachmentError::Other)?;
        self.grantee.note(GrantKey::Attachments, &entry, true);
        Ok(media)
    }

    /// Counts a new file against the call's quota.
    fn count_attachment(&mut self, size: u64) -> Result<(), AttachmentError> {
        if size > self.grantee.limits.attachment_bytes {
            return Err(AttachmentError::TooLarge(size));
        }
        let (files, bytes) = (self.attachment_usage.files, self.attachment_usage.bytes);
        let used_up = if files >= self.grantee.limits.attachments {
            Limit::Attachments
        } else if bytes.saturating_add(size) > self.grantee.limits.attachment_bytes {
            Limit::AttachmentBytes
        } else {
            self.attachment_usage = AttachmentUsage { files: files + 1, bytes: bytes + size };
            return Ok(());
        };
        let what = format!("the call has created {files} attachments with {bytes} bytes");
        Err(AttachmentError::Other(self.grantee.limit_error(&what, used_up)))
    }
}

fn to_wit(about: attachment::Attachment) -> Attachment {
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
        if !self.has_attachment_grant(AttachmentAccess::Read) {
            // The contract has no error here; the audit and the operator's hint record the refusal.
            drop(self.grantee.refuse(GrantKey::Attachments, "read"));
            return Vec::new();
        }
        self.grantee.note(GrantKey::Attachments, "read", true);
        let Some(attachments) = self.attachments() else { return Vec::new() };
        let all = attachments.list().await;
        all.into_iter()
            .filter(|one| self.allows_attachment(AttachmentAccess::Read, &one.media_type))
            .map(to_wit)
            .collect()
    }

    async fn read(&mut self, id: String) -> Result<Vec<u8>, AttachmentError> {
        if !self.has_attachment_grant(AttachmentAccess::Read) {
            return Err(AttachmentError::Denied(self.grantee.refuse(GrantKey::Attachments, "read")));
        }
        let attachments = self.attachments().ok_or(AttachmentError::NotFound)?;
        let all = attachments.list().await;
        let about = all.into_iter().find(|one| one.id == id).ok_or(AttachmentError::NotFound)?;
        let media = media_type(&about.media_type).unwrap_or_else(|| UNKNOWN_MEDIA_TYPE.to_owned());
        let entry = format!("read {media}");
        if !self.allows_attachment(AttachmentAccess::Read, &media) {
            return Err(AttachmentError::Denied(self.grantee.refuse(GrantKey::Attachments, &entry)));
        }
        self.grantee.note(GrantKey::Attachments, &entry, true);
        // Checked before the copy, which would double the memory.
        let max = self.grantee.limits.host_call_bytes;
        if about.size > max {
            return Err(AttachmentError::TooLarge(about.size));
        }
        let data = attachments.read(&id, max).await?;
        if data.len() as u64 > max {
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
        // An attachment leaves the host, so it is redacted like a result.
        let name = self.redacted(&name).into_owned();
        let media = self.check_create(&name, &mime_type)?;
        let data = self.redacted_bytes(data).await;
        let data = data.map_err(|fault| AttachmentError::Other(fault.message))?;
        let Some(attachments) = self.attachments() else {
            return Err(AttachmentError::Other("the caller of the tool accepts no attachments".to_owned()));
        };
        self.count_attachment(data.len() as u64)?;
        Ok(to_wit(attachments.create(&name, &media, data).await?))
    }
}
