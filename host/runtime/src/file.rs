//! Components from files, read with care: the plugin directory may hold anything.

use std::fs::{File, Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::error::LoadError;
use crate::foreign;

/// Largest component that is read, in bytes. CPython's is 18 MB.
pub const MAX_COMPONENT_BYTES: u64 = 64 << 20;
/// Largest file beside a component that is read, in bytes.
const MAX_MANIFEST_BYTES: u64 = toolbay_core::manifest::MAX_BYTES as u64;

/// Which file it is and when it changed last. As long as it is the same, so is the content, but for writers that hide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    file: One,
    /// The file beside it, which is part of the component.
    beside: Option<One>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct One {
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
        One::of(path).map(|file| Self { file, beside: None })
    }

    /// Of a component with what stands beside it.
    pub(crate) fn of_component(path: &Path) -> Option<Self> {
        One::of(path).map(|file| Self { file, beside: One::of(&foreign::beside(path)) })
    }
}

impl One {
    fn of(path: &Path) -> Option<Self> {
        let meta = std::fs::metadata(path).or_else(|_| std::fs::symlink_metadata(path));
        meta.ok().as_ref().map(Self::from)
    }
}

impl From<&Metadata> for One {
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

/// Reads a component from a file, which must be a regular one and not too large, with the file beside it put in; and with
/// what both were, if that stayed the same while they were read.
pub(crate) fn read_component(path: &Path) -> Result<(Vec<u8>, Option<Stamp>), LoadError> {
    let (mut bytes, file) = read(path, MAX_COMPONENT_BYTES)?;
    let beside = foreign::beside(path);
    // A link that leads nowhere is there, too, and is told.
    let beside = if std::fs::symlink_metadata(&beside).is_ok() {
        let (text, stamp) = read(&beside, MAX_MANIFEST_BYTES).map_err(|error| about(&beside, error))?;
        foreign::put_in(&mut bytes, &text)?;
        Some(stamp)
    } else {
        None
    };
    let stamp = match (file, beside) {
        (Some(file), None) => Some(Stamp { file, beside: None }),
        (Some(file), Some(Some(beside))) => Some(Stamp { file, beside: Some(beside) }),
        _ => None,
    };
    Ok((bytes, stamp))
}

/// Says of which file an error is.
fn about(file: &Path, error: LoadError) -> LoadError {
    let file = file.display();
    match error {
        LoadError::Unreadable(error) => {
            LoadError::Unreadable(std::io::Error::new(error.kind(), format!("`{file}`: {error}")))
        }
        other => LoadError::Metadata(format!("the file `{file}` beside it {other}")),
    }
}

/// Reads a regular file, with what it was, if that stayed the same meanwhile.
fn read(path: &Path, most: u64) -> Result<(Vec<u8>, Option<One>), LoadError> {
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
    if size > most {
        return Err(LoadError::TooLarge { size, most });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    (&mut file).take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(LoadError::TooLarge { size: bytes.len() as u64, most });
    }
    let stamp = One::from(&meta);
    let stayed = stamp == One::from(&file.metadata()?);
    Ok((bytes, stayed.then_some(stamp)))
}
