//! Attachments: files that come with a turn and files that tools create in it. The port and an implementation in
//! memory.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use toolbay_policy::hidden_chars::is_hidden;

/// Most bytes of an attachment's name: the limit of common file systems.
pub const MAX_NAME_BYTES: usize = 255;
/// Most bytes that tools may create in one turn in memory: the default limit of eight calls.
pub const MAX_CREATED_BYTES: u64 = 256 << 20;
/// Most attachments that tools may create in one turn in memory: even an empty one takes memory.
const MAX_CREATED: usize = 1024;
/// Checks an attachment's name. A name can be displayed and become a file name, so it must not be a path or contain
/// invisible characters.
///
/// # Errors
/// The name is empty, longer than [`MAX_NAME_BYTES`], `.` or `..`, or has `/`, `\\` or an invisible character.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return Err(format!("the name has {} bytes; a name has 1 to {MAX_NAME_BYTES} bytes", name.len()));
    }
    if name == "." || name == ".." || name.contains(|c| c == '/' || c == '\\' || is_hidden(c)) {
        return Err("the name is a path or has invisible characters".to_owned());
    }
    Ok(())
}

/// A file of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The id in tools and links (`attachment:<id>`). It is valid in its turn only.
    pub id: String,
    /// The file name.
    pub name: String,
    /// The media type.
    pub media_type: String,
    /// The size in bytes.
    pub size: u64,
}

/// The reason why an attachment was not read or created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttachmentError {
    /// No attachment has this id.
    #[error("there is no such attachment")]
    NotFound,
    /// The attachment has this many bytes, more than the limit.
    #[error("the attachment has {0} bytes, which is too large")]
    TooLarge(u64),
    /// Any other error, with a message for people.
    #[error("{0}")]
    Other(String),
}

/// The attachments of a turn. An id is looked up among them and never used as a path, so attachments give no access to
/// other files.
///
/// The host filters the attachments by the grants of the tool, checks the name, media type and size of new ones, and
/// limits the bytes that one call creates. The implementation limits the bytes of a turn with many calls.
pub trait Attachments: Send + Sync + fmt::Debug {
    /// The attachments that came with the turn and those that tools created.
    fn list(&self) -> BoxFuture<'_, Vec<Attachment>>;

    /// The bytes of an attachment, if they are at most `most`.
    fn read<'a>(&'a self, id: &'a str, most: u64) -> BoxFuture<'a, Result<Vec<u8>, AttachmentError>>;

    /// Creates an attachment.
    fn create<'a>(
        &'a self,
        name: &'a str,
        media_type: &'a str,
        data: Vec<u8>,
    ) -> BoxFuture<'a, Result<Attachment, AttachmentError>>;
}

/// The attachments of one turn in memory.
#[derive(Debug)]
pub struct MemoryAttachments {
    stored: Mutex<Vec<StoredAttachment>>,
    most_bytes: u64,
}

impl Default for MemoryAttachments {
    fn default() -> Self {
        Self::with_byte_limit(MAX_CREATED_BYTES)
    }
}

#[derive(Debug, Clone)]
struct StoredAttachment {
    attachment: Attachment,
    data: Arc<[u8]>,
    made_by_a_tool: bool,
}

impl MemoryAttachments {
    /// No attachments; tools may create [`MAX_CREATED_BYTES`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// No attachments; all calls of the turn together may create `most_bytes`.
    #[must_use]
    pub fn with_byte_limit(most_bytes: u64) -> Self {
        Self { stored: Mutex::default(), most_bytes }
    }

    /// Adds a file that comes with the turn, and returns its attachment.
    pub fn add(&self, name: &str, media_type: &str, data: impl Into<Arc<[u8]>>) -> Attachment {
        let mut all = self.stored.lock();
        push_attachment(&mut all, name, media_type, data.into(), false)
    }

    /// The attachments that tools created so far, in order, with their bytes.
    #[must_use]
    pub fn created(&self) -> Vec<(Attachment, Arc<[u8]>)> {
        let all = self.stored.lock();
        let created = all.iter().filter(|kept| kept.made_by_a_tool);
        created.map(|kept| (kept.attachment.clone(), Arc::clone(&kept.data))).collect()
    }
}

fn push_attachment(
    all: &mut Vec<StoredAttachment>,
    name: &str,
    media_type: &str,
    data: Arc<[u8]>,
    made_by_a_tool: bool,
) -> Attachment {
    let attachment = Attachment {
        id: format!("a{}", all.len() + 1),
        name: name.to_owned(),
        media_type: media_type.to_owned(),
        size: data.len() as u64,
    };
    all.push(StoredAttachment { attachment: attachment.clone(), data, made_by_a_tool });
    attachment
}

impl Attachments for MemoryAttachments {
    fn list(&self) -> BoxFuture<'_, Vec<Attachment>> {
        Box::pin(async {
            let all = self.stored.lock();
            all.iter().map(|kept| kept.attachment.clone()).collect()
        })
    }

    fn read<'a>(&'a self, id: &'a str, most: u64) -> BoxFuture<'a, Result<Vec<u8>, AttachmentError>> {
        Box::pin(async move {
            let all = self.stored.lock();
            let stored =
                all.iter().find(|stored| stored.attachment.id == id).ok_or(AttachmentError::NotFound)?;
            let data = Arc::clone(&stored.data);
            drop(all);
            if data.len() as u64 > most {
                return Err(AttachmentError::TooLarge(data.len() as u64));
            }
            Ok(data.to_vec())
        })
    }

    fn create<'a>(
        &'a self,
        name: &'a str,
        media_type: &'a str,
        data: Vec<u8>,
    ) -> BoxFuture<'a, Result<Attachment, AttachmentError>> {
        Box::pin(async move {
            let mut all = self.stored.lock();
            let created = all.iter().filter(|kept| kept.made_by_a_tool);
            let (count, bytes) =
                created.fold((0, 0_u64), |(n, sum), kept| (n + 1, sum.saturating_add(kept.attachment.size)));
            if count >= MAX_CREATED || bytes.saturating_add(data.len() as u64) > self.most_bytes {
                return Err(AttachmentError::Other(format!(
                    "the tools of this turn have created {count} attachments with {bytes} bytes; the limits are \
                     {MAX_CREATED} attachments and {} bytes",
                    self.most_bytes
                )));
            }
            Ok(push_attachment(&mut all, name, media_type, data.into(), true))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_attachments_that_tools_create_in_a_turn_are_bounded() {
        let make = |turn: &MemoryAttachments, bytes: usize| {
            futures_util::FutureExt::now_or_never(turn.create("a", "text/plain", vec![0; bytes])).unwrap()
        };
        let turn = MemoryAttachments::with_byte_limit(100);
        turn.add("from the caller", "text/plain", vec![0; 1000]);
        assert!(make(&turn, 60).is_ok() && make(&turn, 40).is_ok());
        let refused = make(&turn, 1).unwrap_err();
        assert!(refused.to_string().contains("the limits are"), "{refused}");
        assert!(make(&turn, 0).is_ok());
        let turn = MemoryAttachments::new();
        assert_eq!((0..MAX_CREATED + 5).filter(|_| make(&turn, 0).is_ok()).count(), MAX_CREATED);
        assert_eq!(turn.created().len(), MAX_CREATED);
    }

    #[test]
    fn a_name_cannot_be_a_path() {
        for good in ["a", "report.pdf", "übersicht 2.txt", ".hidden", "a..b", &"n".repeat(255)] {
            assert_eq!(check_name(good), Ok(()), "{good:?}");
        }
        for bad in
            ["", ".", "..", "a/b", "/etc/passwd", "..\\x", "a\0", "a\nb", "\u{202e}gpj.exe", &"n".repeat(256)]
        {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }
}
