//! Components from files, read with care: the plugin directory may hold anything.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use crate::error::LoadError;

/// Largest component that is read, in bytes. CPython's is 18 MB.
pub const MAX_COMPONENT_BYTES: u64 = 64 << 20;

/// Reads a component from a file, which must be a regular one and not too large.
pub(crate) fn read_component(path: &Path) -> Result<Vec<u8>, LoadError> {
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
    let file: File = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    let size = meta.len();
    if !meta.is_file() {
        return Err(LoadError::NotAFile("special file"));
    }
    if size > MAX_COMPONENT_BYTES {
        return Err(LoadError::TooLarge { size, most: MAX_COMPONENT_BYTES });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    file.take(MAX_COMPONENT_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_COMPONENT_BYTES {
        return Err(LoadError::TooLarge { size: bytes.len() as u64, most: MAX_COMPONENT_BYTES });
    }
    Ok(bytes)
}
