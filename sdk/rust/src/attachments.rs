//! Files of the conversation turn, and files that the tool returns.

use crate::host::attachments as host;
use crate::{Result, host_errors};

pub use crate::bindings::imports::toolbay::plugin::attachments::Attachment;

/// Lists the attachments of the turn.
pub fn all() -> Vec<Attachment> {
    host::all()
}

/// Reads an attachment.
pub fn read(id: &str) -> Result<Vec<u8>> {
    host::read(id).map_err(|error| host_errors::attachments(id, error))
}

/// Stores a new attachment; link to it with `attachment:<id>`.
pub fn create(name: &str, mime_type: &str, data: impl AsRef<[u8]>) -> Result<Attachment> {
    host::create(name, mime_type, data.as_ref()).map_err(|error| host_errors::attachments(name, error))
}
