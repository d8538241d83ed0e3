//! Components from files, read with care: the plugin directory may hold anything.

use std::fs::{File, Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::error::LoadError;

/// Largest component that is read, in bytes. CPython's is 18 MB.
pub const MAX_COMPONENT_BYTES: u64 = 64 << 20;

/// Which file it is and when it changed last. As long as it is the same, so is the content, but for writers that hide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    mode: u32,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Of what a path leads to; where that can not be looked at, of the link. `None`: there is nothing.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let meta = std::fs::metadata(path).or_else(|_| std::fs::symlink_metadata(path));
        meta.ok().as_ref().map(Self::from)
    }
}

impl From<&Metadata> for Stamp {
    fn from(meta: &Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            mode: meta.mode(),
            size: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// Reads a component from a file, which must be a regular one and not too large; with what the file was, if
/// that stayed the same while it was read.
pub(crate) fn read_component(path: &Path) -> Result<(Vec<u8>, Option<Stamp>), LoadError> {
    let kind = std::fs::metadata(path)?.file_type();
    if !kind.is_file() {
        return Err(LoadError::NotAFile(if kind.is_dir() {
            "folder"
        } else if kind.is_fifo() {
            "FIFO"
        } else {
            "special file"
        }));
    }
    // Looked at again once it is open; and opened so that a FIFO put there in between is not waited for.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut file: File = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    let size = meta.len();
    if !meta.is_file() {
        return Err(LoadError::NotAFile("special file"));
    }
    if size > MAX_COMPONENT_BYTES {
        return Err(LoadError::TooLarge { size, most: MAX_COMPONENT_BYTES });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    (&mut file).take(MAX_COMPONENT_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_COMPONENT_BYTES {
        return Err(LoadError::TooLarge { size: bytes.len() as u64, most: MAX_COMPONENT_BYTES });
    }
    let stamp = Stamp::from(&meta);
    let stayed = stamp == Stamp::from(&file.metadata()?);
    Ok((bytes, stayed.then_some(stamp)))
}
