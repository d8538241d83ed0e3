//! Files that come with a turn, and files to hand back: the port to them.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use toolbay_policy::text::is_hidden;

/// Most bytes of an attachment's name: what file systems take.
pub const MAX_NAME_BYTES: usize = 255;
/// Most bytes of what tools make in one turn that is held in memory: what eight calls may make by default.
pub const MAX_MADE_BYTES: u64 = 256 << 20;
/// Most attachments that tools make in one turn that is held in memory: each costs some, also an empty one.
const MAX_MADE: usize = 1024;
/// Says what is wrong with an attachment's name. It may be shown and become a file's name: nothing in it leads to
/// another folder or cannot be seen.
///
/// # Errors
/// It is empty, longer than [`MAX_NAME_BYTES`], `.` or `..`, or has `/`, `\\` or a hidden character.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return Err(format!("the name has {} bytes; a name has 1 to {MAX_NAME_BYTES}", name.len()));
    }
    if name == "." || name == ".." || name.contains(|c| c == '/' || c == '\\' || is_hidden(c)) {
        return Err("the name is a path or has characters that cannot be seen".to_owned());
    }
    Ok(())
}

/// A file of the turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// How tools and links (`attachment:<id>`) name it. Means nothing outside the turn.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// Its media type.
    pub media_type: String,
    /// Its bytes.
    pub size: u64,
}

/// Why an attachment was not read or made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttachmentError {
    /// There is none of this id.
    #[error("there is no such attachment")]
    NotFound,
    /// It has so many bytes, more than may be read or made.
    #[error("the attachment has {0} bytes, which is too large")]
    TooLarge(u64),
    /// Anything else; for people to read.
    #[error("{0}")]
    Other(String),
}

/// The files of a turn. An id is looked up in what the turn has, never used as a path: no attachment widens the reach
/// over files.
///
/// The host filters what tools see and read by their grants, checks names, media types and sizes of new ones, and never
/// asks for more than it may hand over. It bounds what one call makes; how much a turn of many calls makes is bounded
/// by whoever keeps it.
pub trait Attachments: Send + Sync + fmt::Debug {
    /// What is there: what came with the turn, and what was made in it.
    fn list(&self) -> BoxFuture<'_, Vec<Attachment>>;

    /// The bytes of one, if they are at most `most`.
    fn read<'a>(&'a self, id: &'a str, most: u64) -> BoxFuture<'a, Result<Vec<u8>, AttachmentError>>;

    /// Takes a new one.
    fn create<'a>(
        &'a self,
        name: &'a str,
        media_type: &'a str,
        data: Vec<u8>,
    ) -> BoxFuture<'a, Result<Attachment, AttachmentError>>;
}

/// The files of one turn, in memory.
#[derive(Debug)]
pub struct MemoryAttachments {
    kept: Mutex<Vec<Kept>>,
    most_bytes: u64,
}

impl Default for MemoryAttachments {
    fn default() -> Self {
        Self::within(MAX_MADE_BYTES)
    }
}

#[derive(Debug, Clone)]
struct Kept {
    about: Attachment,
    data: Arc<[u8]>,
    made_by_a_tool: bool,
}

impl MemoryAttachments {
    /// A turn without files, in which tools make [`MAX_MADE_BYTES`] at most.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A turn without files, in which tools make so many bytes at most, whatever one call may make.
    #[must_use]
    pub fn within(most_bytes: u64) -> Self {
        Self { kept: Mutex::default(), most_bytes }
    }

    /// Adds a file that comes with the turn; returns what tools will see of it.
    pub fn add(&self, name: &str, media_type: &str, data: impl Into<Arc<[u8]>>) -> Attachment {
        let mut all = self.kept.lock();
        keep(&mut all, name, media_type, data.into(), false)
    }

    /// What tools made so far, in their order, with the bytes.
    #[must_use]
    pub fn created(&self) -> Vec<(Attachment, Arc<[u8]>)> {
        let all = self.kept.lock();
        let made = all.iter().filter(|kept| kept.made_by_a_tool);
        made.map(|kept| (kept.about.clone(), Arc::clone(&kept.data))).collect()
    }

    fn make(&self, name: &str, media_type: &str, data: Vec<u8>) -> Result<Attachment, AttachmentError> {
        let mut all = self.kept.lock();
        let made = all.iter().filter(|kept| kept.made_by_a_tool);
        let (count, bytes) =
            made.fold((0, 0_u64), |(n, sum), kept| (n + 1, sum.saturating_add(kept.about.size)));
        if count >= MAX_MADE || bytes.saturating_add(data.len() as u64) > self.most_bytes {
            return Err(AttachmentError::Other(format!(
                "the tools of this turn made {count} attachments of {bytes} bytes; there is room for {MAX_MADE} of \
                 {} bytes",
                self.most_bytes
            )));
        }
        Ok(keep(&mut all, name, media_type, data.into(), true))
    }

    fn look(&self, id: &str, most: u64) -> Result<Vec<u8>, AttachmentError> {
        let all = self.kept.lock();
        let kept = all.iter().find(|kept| kept.about.id == id).ok_or(AttachmentError::NotFound)?;
        let data = Arc::clone(&kept.data);
        drop(all);
        if data.len() as u64 > most {
            return Err(AttachmentError::TooLarge(data.len() as u64));
        }
        Ok(data.to_vec())
    }
}

fn keep(
    all: &mut Vec<Kept>,
    name: &str,
    media_type: &str,
    data: Arc<[u8]>,
    made_by_a_tool: bool,
) -> Attachment {
    let about = Attachment {
        id: format!("a{}", all.len() + 1),
        name: name.to_owned(),
        media_type: media_type.to_owned(),
        size: data.len() as u64,
    };
    all.push(Kept { about: about.clone(), data, made_by_a_tool });
    about
}

impl Attachments for MemoryAttachments {
    fn list(&self) -> BoxFuture<'_, Vec<Attachment>> {
        Box::pin(async {
            let all = self.kept.lock();
            all.iter().map(|kept| kept.about.clone()).collect()
        })
    }

    fn read<'a>(&'a self, id: &'a str, most: u64) -> BoxFuture<'a, Result<Vec<u8>, AttachmentError>> {
        Box::pin(async move { self.look(id, most) })
    }

    fn create<'a>(
        &'a self,
        name: &'a str,
        media_type: &'a str,
        data: Vec<u8>,
    ) -> BoxFuture<'a, Result<Attachment, AttachmentError>> {
        Box::pin(async move { self.make(name, media_type, data) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tools_of_a_turn_make_has_a_bound() {
        let make = |turn: &MemoryAttachments, bytes: usize| {
            futures_util::FutureExt::now_or_never(turn.create("a", "text/plain", vec![0; bytes])).unwrap()
        };
        let turn = MemoryAttachments::within(100);
        turn.add("from the caller", "text/plain", vec![0; 1000]);
        assert!(make(&turn, 60).is_ok() && make(&turn, 40).is_ok());
        let refused = make(&turn, 1).unwrap_err();
        assert!(refused.to_string().contains("room"), "{refused}");
        assert!(make(&turn, 0).is_ok());
        let turn = MemoryAttachments::new();
        assert_eq!((0..MAX_MADE + 5).filter(|_| make(&turn, 0).is_ok()).count(), MAX_MADE);
        assert_eq!(turn.created().len(), MAX_MADE);
    }

    #[test]
    fn names_are_no_paths() {
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
