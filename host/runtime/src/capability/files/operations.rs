//! What is done below one granted folder, by the handle that was opened at load. Blocking.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use cap_std::fs::{
    Dir, File, FileType, Metadata, MetadataExt, OpenOptions, OpenOptionsExt, Permissions, PermissionsExt,
};

use super::grants::Root;
use super::reads::Reader;
use crate::bindings::host::files::{DirEntry, FileData, FileError, FileKind, FileStat};

/// Most bytes that one read returns; a larger file is read in parts.
const MAX_READ: u64 = 8 << 20;
/// Most entries that a listing returns.
const MAX_ENTRIES: usize = 10_000;

/// One operation on one path, resolved to the granted folder above it.
#[derive(Debug)]
pub(crate) struct Operation {
    root: Arc<Root>,
    full: PathBuf,
    relative: PathBuf,
    shown: String,
    reader: Reader,
}

impl Operation {
    pub(super) fn new(root: Arc<Root>, full: PathBuf, shown: String, reader: Reader) -> Self {
        let relative = match full.strip_prefix(&root.path) {
            Ok(rest) if !rest.as_os_str().is_empty() => rest.to_path_buf(),
            _ => PathBuf::from("."),
        };
        Self { root, full, relative, shown, reader }
    }

    fn dir(&self) -> &Dir {
        &self.root.dir
    }

    fn failed(&self, error: &std::io::Error) -> FileError {
        let shown = &self.shown;
        match error.kind() {
            std::io::ErrorKind::NotFound => FileError::NotFound,
            std::io::ErrorKind::PermissionDenied => FileError::Denied(format!(
                "`{shown}`: {error}; links out of the granted folder are not followed"
            )),
            _ => FileError::Other(format!("`{shown}`: {error}")),
        }
    }

    /// Opens a regular file. Looked at before it is opened and again after: a FIFO or a device never is waited for.
    fn open(&self) -> Result<(File, Metadata), FileError> {
        let regular = |meta: &Metadata| match meta.file_type() {
            kind if kind.is_file() => Ok(()),
            kind => Err(FileError::Other(format!("`{}` is a {}, not a file", self.shown, name_of(kind)))),
        };
        let meta = self.dir().metadata(&self.relative).map_err(|e| self.failed(&e))?;
        regular(&meta)?;
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
        let file = self.dir().open_with(&self.relative, &options).map_err(|e| self.failed(&e))?;
        let meta = file.metadata().map_err(|e| self.failed(&e))?;
        regular(&meta)?;
        Ok((file, meta))
    }

    pub(crate) fn read(&self, offset: u64, max_bytes: Option<u64>) -> Result<FileData, FileError> {
        let (mut file, meta) = self.open()?;
        let left = meta.len().saturating_sub(offset);
        if max_bytes.is_none() && left > MAX_READ {
            return Err(FileError::TooLarge(meta.len()));
        }
        let most = max_bytes.unwrap_or(MAX_READ).min(MAX_READ);
        let mut data = Vec::with_capacity(usize::try_from(most.min(left)).unwrap_or(0));
        file.seek(SeekFrom::Start(offset)).map_err(|e| self.failed(&e))?;
        file.take(most).read_to_end(&mut data).map_err(|e| self.failed(&e))?;
        let stat = stat_of(&meta);
        self.reader.saw(&self.full, &stat.version);
        Ok(FileData { data, stat })
    }

    pub(crate) fn stat(&self) -> Result<FileStat, FileError> {
        self.dir().metadata(&self.relative).map(|meta| stat_of(&meta)).map_err(|e| self.failed(&e))
    }

    pub(crate) fn read_dir(&self) -> Result<Vec<DirEntry>, FileError> {
        let mut entries = Vec::new();
        for entry in self.dir().read_dir(&self.relative).map_err(|e| self.failed(&e))? {
            if entries.len() == MAX_ENTRIES {
                return Err(FileError::TooLarge(MAX_ENTRIES as u64));
            }
            let entry = entry.map_err(|e| self.failed(&e))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type().map_or(FileKind::Other, kind_of);
            entries.push(DirEntry { name, kind });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    pub(crate) fn make_dir(&self) -> Result<(), FileError> {
        self.dir().create_dir(&self.relative).map_err(|e| self.failed(&e))
    }

    /// Removes a file, a link or an empty folder; not the granted folder itself.
    pub(crate) fn remove(&self) -> Result<(), FileError> {
        let _turn = self.root.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.relative == Path::new(".") {
            return Err(FileError::Denied(format!("`{}` is the granted folder itself", self.shown)));
        }
        let meta = self.dir().symlink_metadata(&self.relative).map_err(|e| self.failed(&e))?;
        let done = if meta.is_dir() {
            self.dir().remove_dir(&self.relative)
        } else {
            self.dir().remove_file(&self.relative)
        };
        self.reader.forget(&self.full);
        done.map_err(|e| self.failed(&e))
    }

    /// Replaces a file's content in one step, unless it is not what the writer last saw.
    pub(crate) fn write(&self, data: &[u8], expected: Option<&str>) -> Result<FileStat, FileError> {
        let _turn = self.root.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let target = self.target()?;
        let old = match self.dir().metadata(&target) {
            Ok(meta) if meta.is_file() => Some(meta),
            Ok(meta) => {
                let kind = name_of(meta.file_type());
                return Err(FileError::Other(format!("`{}` is a {kind}, not a file", self.shown)));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(self.failed(&error)),
        };
        let seen = self.reader.last(&self.full);
        if let Some(expected) = expected.map(ToOwned::to_owned).or(seen)
            && old.as_ref().map(version_of) != Some(expected)
        {
            return Err(FileError::Stale);
        }
        let meta = self.replace(&target, data, old.as_ref()).map_err(|e| self.failed(&e))?;
        let stat = stat_of(&meta);
        self.reader.saw(&self.full, &stat.version);
        Ok(stat)
    }

    /// Where a write lands: behind the links, as long as they stay inside.
    fn target(&self) -> Result<PathBuf, FileError> {
        match self.dir().canonicalize(&self.relative) {
            Ok(path) => Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // A dangling link would be created elsewhere than it looks: refused.
                match self.dir().symlink_metadata(&self.relative) {
                    Ok(_) => Err(FileError::Denied(format!("`{}` is a link to nothing", self.shown))),
                    Err(_) => Ok(self.relative.clone()),
                }
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Writes beside the target and renames over it: a reader sees the old content or the new, never a part.
    fn replace(&self, target: &Path, data: &[u8], old: Option<&Metadata>) -> std::io::Result<Metadata> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let unique = format!(".toolbay-{}-{}.tmp", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let temporary = target.with_file_name(unique);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let mut file = self.dir().open_with(&temporary, &options)?;
        let write = || {
            file.write_all(data)?;
            if let Some(old) = old {
                // Not what makes a program run as somebody else.
                file.set_permissions(Permissions::from_mode(old.permissions().mode() & 0o777))?;
            }
            self.dir().rename(&temporary, self.dir(), target)?;
            file.metadata()
        };
        let mut write = write;
        write().inspect_err(|_| {
            // What is left of a failed write is ours to remove; if even that fails, the first error says more.
            self.dir().remove_file(&temporary).ok();
        })
    }
}

fn stat_of(meta: &Metadata) -> FileStat {
    let modified = meta.modified().ok().and_then(|t| t.into_std().duration_since(std::time::UNIX_EPOCH).ok());
    FileStat {
        kind: kind_of(meta.file_type()),
        size: meta.len(),
        modified_ms: modified.map_or(0, |t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX)),
        version: version_of(meta),
    }
}

/// Changes with every replacement (another inode) and every write in place (time and size).
fn version_of(meta: &Metadata) -> String {
    format!(
        "{:x}-{:x}-{:x}.{:x}-{:x}",
        meta.ino(),
        meta.size(),
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime_nsec()
    )
}

fn kind_of(kind: FileType) -> FileKind {
    if kind.is_file() {
        FileKind::File
    } else if kind.is_dir() {
        FileKind::Directory
    } else if kind.is_symlink() {
        FileKind::Symlink
    } else {
        FileKind::Other
    }
}

fn name_of(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "folder"
    } else if kind.is_symlink() {
        "symbolic link"
    } else {
        "special file"
    }
}
