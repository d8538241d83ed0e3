//! Files under the operator's globs, with a guard against blind overwrites.
//!
//! | error of the host | error of the tool | subject |
//! |---|---|---|
//! | denied | `not-available` | `denied` |
//! | not found | `execution-failed` | `not-found` |
//! | stale | `stale-write` | the path |
//! | too large | `execution-failed` | `too-large` |
//! | other | `execution-failed` | none |

use crate::bindings::imports::toolbay::plugin::files::FileError;
use crate::host::files as host;
use crate::{Error, Result, host_errors};

pub use crate::bindings::imports::toolbay::plugin::files::{DirEntry, FileData, FileKind, FileStat};

/// Reads a whole file.
pub fn read(path: &str) -> Result<FileData> {
    host::read(path, 0, None).map_err(|error| host_errors::files(path, error))
}

/// Reads at most `max_bytes` from `offset` on.
pub fn read_part(path: &str, offset: u64, max_bytes: u64) -> Result<FileData> {
    host::read(path, offset, Some(max_bytes)).map_err(|error| host_errors::files(path, error))
}

/// Reads a whole file that must be UTF-8.
pub fn read_text(path: &str) -> Result<String> {
    String::from_utf8(read(path)?.data).map_err(|_| not_text(path))
}

/// Reads a file in chunks.
pub fn chunks(path: &str, chunk_bytes: u64) -> Chunks<'_> {
    Chunks { path, chunk_bytes, offset: 0, stat: None, done: false }
}

/// Writes a whole file atomically and returns its new metadata.
///
/// With `expected_version`, the write fails as stale unless the file is at that version. Without, it fails if the file
/// changed since this session last read it. What a tool with `internal_reads` reads does not count as read by the
/// session.
pub fn write(path: &str, data: impl AsRef<[u8]>, expected_version: Option<&str>) -> Result<FileStat> {
    host::write(path, data.as_ref(), expected_version).map_err(|error| host_errors::files(path, error))
}

/// Returns the metadata of a path.
pub fn stat(path: &str) -> Result<FileStat> {
    host::stat(path).map_err(|error| host_errors::files(path, error))
}

/// Lists a directory.
pub fn read_dir(path: &str) -> Result<Vec<DirEntry>> {
    host::read_dir(path).map_err(|error| host_errors::files(path, error))
}

/// Creates a directory.
pub fn make_dir(path: &str) -> Result<()> {
    host::make_dir(path).map_err(|error| host_errors::files(path, error))
}

/// Removes a file or an empty directory.
pub fn remove(path: &str) -> Result<()> {
    host::remove(path).map_err(|error| host_errors::files(path, error))
}

/// Returns the error for a write to a file that changed since it was read.
pub fn stale(path: &str) -> Error {
    host_errors::files(path, FileError::Stale)
}

/// Returns the error for a file that is not UTF-8 text.
pub fn not_text(path: &str) -> Error {
    Error::failed(format!("`{path}` is not UTF-8 text")).at("not-text")
}

/// The chunks of a file, from [`chunks`].
///
/// The iterator ends with an error if the file changes between two chunks.
#[derive(Debug)]
pub struct Chunks<'a> {
    path: &'a str,
    chunk_bytes: u64,
    offset: u64,
    stat: Option<FileStat>,
    done: bool,
}

impl Chunks<'_> {
    /// Returns the metadata of the file, once a chunk was read.
    pub fn stat(&self) -> Option<&FileStat> {
        self.stat.as_ref()
    }

    fn read(&mut self) -> Result<Option<Vec<u8>>> {
        let FileData { data, stat } = read_part(self.path, self.offset, self.chunk_bytes)?;
        if self.stat.as_ref().is_some_and(|before| before.version != stat.version) {
            return Err(Error::failed(format!("`{}` changed while it was read", self.path)).at("changed"));
        }
        self.offset = self.offset.saturating_add(data.len() as u64);
        self.done = data.is_empty() || self.offset >= stat.size;
        self.stat = Some(stat);
        Ok((!data.is_empty()).then_some(data))
    }
}

impl Iterator for Chunks<'_> {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let piece = self.read();
        self.done |= piece.is_err();
        piece.transpose()
    }
}
