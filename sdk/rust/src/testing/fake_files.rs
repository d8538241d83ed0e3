//! The files of a fake host: a flat map of paths, and the versions that the session has read.

use std::collections::{BTreeMap, BTreeSet};

use crate::files::{DirEntry, FileData, FileKind, FileStat};

use crate::bindings::imports::toolbay::plugin::files::FileError;

type FakeFilesReply<T> = Result<T, FileError>;

/// A directory exists if it contains something or was created.
#[derive(Debug, Default)]
pub(crate) struct FakeFiles {
    files: BTreeMap<String, FakeFile>,
    made: BTreeSet<String>,
    denied: Vec<String>,
    /// The version of each path that this session last read.
    seen: BTreeMap<String, u64>,
    writes: u64,
    /// Whether the running tool reads for itself, so that the session has not read what it reads.
    pub(crate) internal_reads: bool,
}

#[derive(Debug)]
struct FakeFile {
    data: Vec<u8>,
    /// The number of the write that created this version.
    version: u64,
}

impl FakeFile {
    fn stat(&self) -> FileStat {
        FileStat {
            kind: FileKind::File,
            size: self.data.len() as u64,
            modified_ms: self.version,
            version: format!("v{}", self.version),
        }
    }
}

impl FakeFiles {
    pub(crate) fn put(&mut self, path: &str, data: &[u8]) -> FileStat {
        self.writes += 1;
        let file = FakeFile { data: data.to_vec(), version: self.writes };
        let stat = file.stat();
        self.files.insert(normal(path), file);
        stat
    }

    pub(crate) fn deny(&mut self, path: &str) {
        self.denied.push(normal(path));
    }

    pub(crate) fn text(&self, path: &str) -> Option<String> {
        String::from_utf8(self.files.get(&normal(path))?.data.clone()).ok()
    }

    pub(crate) fn read(
        &mut self,
        path: &str,
        offset: u64,
        max_bytes: Option<u64>,
    ) -> FakeFilesReply<FileData> {
        let path = self.allowed(path)?;
        let file = match self.files.get(&path) {
            Some(file) => file,
            None if self.is_dir(&path) => return Err(FileError::Other("is a directory".to_owned())),
            None => return Err(FileError::NotFound),
        };
        if !self.internal_reads {
            self.seen.insert(path, file.version);
        }
        let bytes = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let data = file.data.iter().skip(bytes(offset)).take(bytes(max_bytes.unwrap_or(u64::MAX)));
        Ok(FileData { data: data.copied().collect(), stat: file.stat() })
    }

    pub(crate) fn write(
        &mut self,
        path: &str,
        data: &[u8],
        expected: Option<&str>,
    ) -> FakeFilesReply<FileStat> {
        let path = self.allowed(path)?;
        let version = self.files.get(&path).map(|file| file.version);
        let fresh = match expected {
            Some(expected) => version.is_some_and(|version| format!("v{version}") == expected),
            None => self.seen.get(&path).is_none_or(|seen| Some(*seen) == version),
        };
        if !fresh {
            return Err(FileError::Stale);
        }
        let stat = self.put(&path, data);
        self.seen.insert(path, self.writes);
        Ok(stat)
    }

    pub(crate) fn stat(&self, path: &str) -> FakeFilesReply<FileStat> {
        let path = self.allowed(path)?;
        match self.files.get(&path) {
            Some(file) => Ok(file.stat()),
            None if self.is_dir(&path) => {
                Ok(FileStat { kind: FileKind::Directory, size: 0, modified_ms: 0, version: "dir".to_owned() })
            }
            None => Err(FileError::NotFound),
        }
    }

    pub(crate) fn read_dir(&self, path: &str) -> FakeFilesReply<Vec<DirEntry>> {
        let path = self.allowed(path)?;
        if self.files.contains_key(&path) {
            return Err(FileError::Other("is not a directory".to_owned()));
        }
        if !self.is_dir(&path) {
            return Err(FileError::NotFound);
        }
        let mut entries = BTreeMap::new();
        for (below, kind) in self.paths() {
            let Some(rest) = under(below, &path).filter(|rest| !rest.is_empty()) else { continue };
            match rest.split_once('/') {
                Some((directory, _)) => entries.insert(directory, FileKind::Directory),
                None => entries.insert(rest, kind),
            };
        }
        Ok(entries.into_iter().map(|(name, kind)| DirEntry { name: name.to_owned(), kind }).collect())
    }

    pub(crate) fn make_dir(&mut self, path: &str) -> FakeFilesReply<()> {
        let path = self.allowed(path)?;
        self.made.insert(path);
        Ok(())
    }

    pub(crate) fn remove(&mut self, path: &str) -> FakeFilesReply<()> {
        let path = self.allowed(path)?;
        if self.files.remove(&path).is_some() || self.made.remove(&path) {
            Ok(())
        } else {
            Err(FileError::NotFound)
        }
    }

    fn allowed(&self, path: &str) -> FakeFilesReply<String> {
        let path = normal(path);
        if self.denied.iter().any(|denied| under(&path, denied).is_some()) {
            return Err(FileError::Denied("not granted".to_owned()));
        }
        Ok(path)
    }

    fn is_dir(&self, path: &str) -> bool {
        path.is_empty()
            || self.paths().any(|(below, kind)| {
                under(below, path).is_some_and(|rest| !rest.is_empty() || kind == FileKind::Directory)
            })
    }

    fn paths(&self) -> impl Iterator<Item = (&str, FileKind)> {
        let files = self.files.keys().map(|path| (path.as_str(), FileKind::File));
        files.chain(self.made.iter().map(|path| (path.as_str(), FileKind::Directory)))
    }
}

/// Returns a path without `./`, doubled slashes and a trailing slash. The root is empty.
fn normal(path: &str) -> String {
    let parts: Vec<_> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    parts.join("/")
}

/// Returns the path relative to a directory, if the directory contains it.
fn under<'a>(path: &'a str, directory: &str) -> Option<&'a str> {
    if directory.is_empty() {
        return Some(path);
    }
    let rest = path.strip_prefix(directory)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}
