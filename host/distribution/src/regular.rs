//! Opens regular files by path.

use std::fs::File;
use std::io::{Error, ErrorKind, Read as _, Result};
use std::path::Path;

/// Reads a file of at most `most` bytes.
pub(crate) fn read_text(path: &Path, most: u64) -> Result<String> {
    let mut text = String::new();
    if open_regular(path)?.take(most + 1).read_to_string(&mut text)? as u64 > most {
        return Err(Error::other(format!("it has more than {most} bytes")));
    }
    Ok(text)
}

/// Opens a regular file for reading. The file type is checked first: opening a FIFO would block.
pub(crate) fn open_regular(path: &Path) -> Result<File> {
    if std::fs::metadata(path)?.is_file() {
        return File::open(path);
    }
    Err(Error::new(ErrorKind::InvalidInput, "it is not a regular file"))
}
