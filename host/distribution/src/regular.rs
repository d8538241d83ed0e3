//! Opens regular files by path.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

/// Opens a regular file for reading. The file type is checked first: opening a FIFO would block.
pub(crate) fn open_regular(path: &Path) -> Result<File> {
    if std::fs::metadata(path)?.is_file() {
        return File::open(path);
    }
    Err(Error::new(ErrorKind::InvalidInput, "it is not a regular file"))
}
