//! Reads component files defensively, because a plugin directory may contain anything.

use std::fs::Metadata;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use toolbay_sandbox::compile::MAX_COMPONENT_BYTES;
use toolbay_state::regular::open_regular;

use crate::error::LoadError;
use crate::plugins::plain_component;

/// Maximum size of a component's `plugin.toml`, in bytes.
const MAX_MANIFEST_BYTES: u64 = toolbay_core::tool::manifest::MAX_BYTES as u64;

/// Age from which a file's stamp identifies its content. A second change within one clock tick leaves the stamp
/// unchanged, and the coarsest file system clock ticks every two seconds.
const STABLE_AGE: Duration = Duration::from_secs(3);

/// How long a changing file is left alone. With the pause between two scans, such a file is read within two seconds.
/// The content may be incomplete; the file is read again when it changes again.
const MAX_UNSETTLED: Duration = Duration::from_millis(1500);

/// A file that changed since it was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingChange {
    /// The stamp at the last scan; `None` if the file did not exist.
    stamp: Option<Stamp>,
    /// When the file got this stamp.
    since: Instant,
    /// When the change was first seen.
    first_seen: Instant,
}

impl PendingChange {
    pub(crate) fn new(stamp: Option<Stamp>, now: Instant) -> Self {
        Self { stamp, since: now, first_seen: now }
    }

    /// Whether to read the file, whose stamp is `stamp` now: it was unchanged for `settle`, or it exists and has been
    /// changing for too long.
    pub(crate) fn is_due(&mut self, stamp: Option<Stamp>, settle: Duration, now: Instant) -> bool {
        if self.stamp != stamp {
            (self.stamp, self.since) = (stamp, now);
        }
        now.saturating_duration_since(self.since) >= settle
            || (stamp.is_some()
                && now.saturating_duration_since(self.first_seen) >= settle.max(MAX_UNSETTLED))
    }
}

/// The identity and modification times of a file. While they are unchanged, the content is unchanged, unless a writer
/// resets the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    file: FileIdentity,
    /// The `plugin.toml`, which is part of the component.
    manifest: Option<FileIdentity>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct FileIdentity {
    device: u64,
    inode: u64,
    mode: u32,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp of the file at a path, or of the link if its target is not accessible. `None` if there is neither.
    pub(crate) fn from_path(path: &Path) -> Option<Self> {
        FileIdentity::from_path(path).map(|file| Self { file, manifest: None })
    }

    /// The stamp of a component, including its `plugin.toml` if there may be one.
    pub(crate) fn from_component(path: &Path, has_manifest: bool) -> Option<Self> {
        let one = FileIdentity::from_path(path)?;
        Some(Self {
            file: one,
            manifest: has_manifest
                .then(|| FileIdentity::from_path(&plain_component::manifest_path(path)))
                .flatten(),
        })
    }

    /// Whether the stamp identifies content that was read at this time. Decided by the change time (`ctime`), which
    /// programs cannot set.
    pub(crate) fn is_stable_since(&self, read: SystemTime) -> bool {
        let since = read.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let all = [Some(&self.file), self.manifest.as_ref()];
        all.into_iter().flatten().all(|one| {
            let (seconds, nanos) = one.changed;
            let (Ok(seconds), Ok(nanos)) = (u64::try_from(seconds), u32::try_from(nanos)) else {
                return false;
            };
            since.checked_sub(Duration::new(seconds, nanos)).is_some_and(|age| age >= STABLE_AGE)
        })
    }
}

impl FileIdentity {
    fn from_path(path: &Path) -> Option<Self> {
        let meta = std::fs::metadata(path).or_else(|_| std::fs::symlink_metadata(path));
        meta.ok().as_ref().map(Self::from)
    }
}

impl From<&Metadata> for FileIdentity {
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

/// Reads a component from a regular file and embeds its `plugin.toml`. Also returns the stamp of both, if they did not
/// change meanwhile.
pub(crate) fn read_component(path: &Path) -> Result<(Vec<u8>, Option<Stamp>), LoadError> {
    let (mut bytes, file) = read(path, MAX_COMPONENT_BYTES)?;
    let manifest_path = plain_component::manifest_path(path);
    // A dangling link counts as a manifest, too, so that it is reported.
    let manifest = if std::fs::symlink_metadata(&manifest_path).is_ok() {
        let (text, stamp) = read(&manifest_path, MAX_MANIFEST_BYTES)
            .map_err(|error| with_file_name(&manifest_path, error))?;
        plain_component::embed_manifest(&mut bytes, &text)?;
        Some(stamp)
    } else {
        None
    };
    let stamp = match (file, manifest) {
        (Some(file), None) => Some(Stamp { file, manifest: None }),
        (Some(file), Some(Some(manifest))) => Some(Stamp { file, manifest: Some(manifest) }),
        _ => None,
    };
    Ok((bytes, stamp))
}

/// Adds the file name to an error.
fn with_file_name(file: &Path, error: LoadError) -> LoadError {
    let file = file.display();
    match error {
        LoadError::Unreadable(error) => {
            LoadError::Unreadable(std::io::Error::new(error.kind(), format!("`{file}`: {error}")))
        }
        other => LoadError::Metadata(format!("its manifest `{file}` {other}")),
    }
}

/// Reads a regular file. Also returns its identity, if it did not change meanwhile.
fn read(path: &Path, limit: u64) -> Result<(Vec<u8>, Option<FileIdentity>), LoadError> {
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
    let mut file = open_regular(path)?;
    let meta = file.metadata()?;
    let size = meta.len();
    if size > limit {
        return Err(LoadError::TooLarge { size, limit });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    (&mut file).take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(LoadError::TooLarge { size: bytes.len() as u64, limit });
    }
    let stamp = FileIdentity::from(&meta);
    let stayed = stamp == FileIdentity::from(&file.metadata()?);
    Ok((bytes, stayed.then_some(stamp)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_never_settles_is_still_read() {
        let dir = tempfile::tempdir().unwrap();
        let first = Stamp::from_path(dir.path()).unwrap();
        let stamp = |size: u64| Some(Stamp { file: FileIdentity { size, ..first.file }, ..first });
        let (start, settle) = (Instant::now(), Duration::from_millis(300));
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut change = PendingChange::new(stamp(0), start);
        // The file changes at each scan.
        let due = (1..100).find(|n| change.is_due(stamp(*n), settle, at(n * 150)));
        assert_eq!(due.map(|n| n * 150), Some(1500));
        let mut change = PendingChange::new(stamp(0), start);
        assert!(!change.is_due(stamp(0), settle, at(299)) && change.is_due(stamp(0), settle, at(300)));
        // A file that comes and goes counts as removed only once it stays away.
        let mut change = PendingChange::new(None, start);
        let there = |n: u64| stamp(1).filter(|_| n % 2 == 1);
        assert_eq!((1..100).find(|n| change.is_due(there(*n), settle, at(n * 150))), Some(11));
        let mut change = PendingChange::new(stamp(0), start);
        let due = (1..100).find(|n| change.is_due(stamp(*n), Duration::from_secs(3), at(n * 150)));
        assert_eq!(due.map(|n| n * 150), Some(3000));
    }

    #[test]
    fn a_stamp_is_stable_once_it_is_old() {
        let dir = tempfile::tempdir().unwrap();
        let (file, manifest) = (dir.path().join("a.wasm"), dir.path().join("a.plugin.toml"));
        std::fs::write(&file, "a").unwrap();
        std::fs::write(&manifest, "b").unwrap();
        let at = |seconds: u64, nanos: i64| {
            let mut stamp = Stamp::from_component(&file, true).unwrap();
            stamp.file.changed = (1_000_000, 500);
            stamp.manifest.as_mut().unwrap().changed = (999_999, nanos);
            stamp.is_stable_since(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
        };
        assert!(at(1_000_004, 0) && !at(1_000_003, 0) && !at(999_000, 0));
        assert!(!at(1_000_004, -1), "an invalid time");
        let mut young = Stamp::from_component(&file, true).unwrap();
        young.file.changed.0 = 0;
        assert!(!young.is_stable_since(SystemTime::now()), "the manifest is young");
        // A program can set the modification time, but not the change time.
        let times = std::fs::FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
        std::fs::File::options().write(true).open(&file).unwrap().set_times(times).unwrap();
        assert!(!Stamp::from_component(&file, false).unwrap().is_stable_since(SystemTime::now()));
    }
}
