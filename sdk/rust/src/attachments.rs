//! Files of the conversation turn, and files that the tool returns.

use crate::bindings::imports::toolbay::plugin::attachments::AttachmentError;
use crate::host::attachments as host;
use crate::{Error, Result};

pub use crate::bindings::imports::toolbay::plugin::attachments::Attachment;

/// Lists the attachments of the turn.
pub fn all() -> Vec<Attachment> {
    host::all()
}

/// Reads an attachment.
pub fn read(id: &str) -> Result<Vec<u8>> {
    host::read(id).map_err(|error| describe(id, error))
}

/// Stores a new attachment; link to it with `attachment:<id>`.
pub fn create(name: &str, mime_type: &str, data: impl AsRef<[u8]>) -> Result<Attachment> {
    host::create(name, mime_type, data.as_ref()).map_err(|error| describe(name, error))
}

fn describe(name: &str, error: AttachmentError) -> Error {
    match error {
        AttachmentError::Denied(reason) => {
            Error::not_available(format!("no access to the attachment `{name}`: {reason}")).at("denied")
        }
        AttachmentError::NotFound => Error::failed(format!("no attachment `{name}`")).at("not-found"),
        AttachmentError::TooLarge(bytes) => {
            Error::failed(format!("the attachment `{name}` is too large: {bytes} bytes")).at("too-large")
        }
        AttachmentError::Other(message) => Error::failed(format!("the attachment `{name}`: {message}")),
    }
}
