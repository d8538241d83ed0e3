//! Components from files, read with care: the plugin directory may hold anything.

use std::fs::{File, Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use crate::error::LoadError;
use crate::plugins::foreign;

/// Largest component that is read, in bytes. CPython's is 18 MB.
pub const MAX_COMPONENT_BYTES: u64 = 64 << 20;
/// Largest file beside a component that is read, in bytes.
const MAX_MANIFEST_BYTES: u64 = toolbay_core::tool::manifest::MAX_BYTES as u64;

/// How long a file must have been as it is before its stamp alone says what is in it. A change within the same tick of the
/// clock leaves the stamp as it is, and the coarsest clock of a file system ticks every two seconds.
const STANDS: Duration = Duration::from_secs(3);

/// How long a file may go on changing before it is read all the same: with the pause between two looks it is read within
/// two seconds. What is read may be a part of what is being written; it is read again when the file changes again.
const MAX_UNSETTLED: Duration = Duration::from_millis(1500);

/// A file that is not as it was when it was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingChange {
    /// What it was at the last look; `None`: it was not there.
    stamp: Option<Stamp>,
    /// Since when it is that.
    since: Instant,
    /// When it was first seen changed.
    began: Instant,
}

impl PendingChange {
    pub(crate) fn new(stamp: Option<Stamp>, now: Instant) -> Self {
        Self { stamp, since: now, began: now }
    }

    /// Whether it is time to read the file, which is `stamp` now: it has been the same for `settle`, or it is there and
    /// has been changing for longer than anybody should wait.
    pub(crate) fn is_due(&mut self, stamp: Option<Stamp>, settle: Duration, now: Instant) -> bool {
        if self.stamp != stamp {
            (self.stamp, self.since) = (stamp, now);
        }
        now.saturating_duration_since(self.since) >= settle
            || (stamp.is_some() && now.saturating_duration_since(self.began) >= settle.max(MAX_UNSETTLED))
    }
}

/// Which file it is and when it changed last. As long as it is the same, so is the content, but for writers that hide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    file: One,
    /// The file beside it, which is part of the component.
    beside: Option<One>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct One {
    device: u64,
    inode: u64,
    mode: u32,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Of what a path leads to; where that cannot be looked at, of the link. `None`: there is nothing.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        One::of(path).map(|file| Self { file, beside: None })
    }

    /// Of a component, with what stands beside it if something may.
    pub(crate) fn of_component(path: &Path, beside: bool) -> Option<Self> {
        let one = One::of(path)?;
        Some(Self { file: one, beside: beside.then(|| One::of(&foreign::beside(path))).flatten() })
    }

    /// Whether what was read at a time stands for as long as this stamp does. The time of the last change of any kind
    /// decides, which no program sets.
    pub(crate) fn stands_since(&self, read: SystemTime) -> bool {
        let since = read.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let all = [Some(&self.file), self.beside.as_ref()];
        all.into_iter().flatten().all(|one| {
            let (seconds, nanos) = one.changed;
            let (Ok(seconds), Ok(nanos)) = (u64::try_from(seconds), u32::try_from(nanos)) else {
                return false;
            };
            since.checked_sub(Duration::new(seconds, nanos)).is_some_and(|age| age >= STANDS)
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_never_settles_is_read_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let first = Stamp::of(dir.path()).unwrap();
        let stamp = |size: u64| Some(Stamp { file: One { size, ..first.file }, ..first });
        let (start, settle) = (Instant::now(), Duration::from_millis(300));
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut change = PendingChange::new(stamp(0), start);
        // It changes at each look.
        let due = (1..100).find(|n| change.is_due(stamp(*n), settle, at(n * 150)));
        assert_eq!(due.map(|n| n * 150), Some(1500));
        let mut change = PendingChange::new(stamp(0), start);
        assert!(!change.is_due(stamp(0), settle, at(299)) && change.is_due(stamp(0), settle, at(300)));
        // One that comes and goes is gone only once it stays away.
        let mut change = PendingChange::new(None, start);
        let there = |n: u64| stamp(1).filter(|_| n % 2 == 1);
        assert_eq!((1..100).find(|n| change.is_due(there(*n), settle, at(n * 150))), Some(11));
        let mut change = PendingChange::new(stamp(0), start);
        let due = (1..100).find(|n| change.is_due(stamp(*n), Duration::from_secs(3), at(n * 150)));
        assert_eq!(due.map(|n| n * 150), Some(3000));
    }

    #[test]
    fn a_stamp_stands_once_it_is_old() {
        let dir = tempfile::tempdir().unwrap();
        let (file, beside) = (dir.path().join("a.wasm"), dir.path().join("a.plugin.toml"));
        std::fs::write(&file, "a").unwrap();
        std::fs::write(&beside, "b").unwrap();
        let at = |seconds: u64, nanos: i64| {
            let mut stamp = Stamp::of_component(&file, true).unwrap();
            stamp.file.changed = (1_000_000, 500);
            stamp.beside.as_mut().unwrap().changed = (999_999, nanos);
            stamp.stands_since(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
        };
        assert!(at(1_000_004, 0) && !at(1_000_003, 0) && !at(999_000, 0));
        assert!(!at(1_000_004, -1), "no time at all");
        let mut young = Stamp::of_component(&file, true).unwrap();
        young.file.changed.0 = 0;
        assert!(!young.stands_since(SystemTime::now()), "what stands beside it is young");
        // Its own time of writing can be set; the time of that cannot.
        let times = std::fs::FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
        File::options().write(true).open(&file).unwrap().set_times(times).unwrap();
        assert!(!Stamp::of_component(&file, false).unwrap().stands_since(SystemTime::now()));
    }
}
