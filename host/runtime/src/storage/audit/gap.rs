//! Counts missing records where a full disk does not lose the number: in the length of an empty file.
//!
//! Extending a file without writing to it takes no disk space. The counter therefore works when nothing else can be
//! written, and another process finds the number after a restart.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::file::{open_sidecar, with_suffix};

/// Counts records that could not be written.
#[derive(Debug)]
pub(super) struct GapCounter {
    path: PathBuf,
    /// `None`: the file cannot be opened, or the audit is not a regular file.
    file: Option<File>,
    is_persistent: bool,
    /// The number that is not in the file yet.
    unsaved: u64,
}

impl GapCounter {
    /// The path of an audit's counter.
    pub(super) fn path_for(audit: &Path) -> PathBuf {
        with_suffix(audit, ".gap")
    }

    /// Opens the counter of an audit. `is_persistent` is set if the audit is a regular file, which can have companion
    /// files.
    pub(super) fn new(audit: &Path, is_persistent: bool) -> Self {
        let mut counter = Self { path: Self::path_for(audit), file: None, is_persistent, unsaved: 0 };
        counter.open();
        counter
    }

    fn open(&mut self) -> Option<&File> {
        if self.file.is_none() && self.is_persistent {
            self.file = open_sidecar(&self.path).ok();
        }
        self.file.as_ref()
    }

    /// Adds to the count. Never waits: if another process holds the lock, the number is added later.
    pub(super) fn add(&mut self, records: u64) {
        self.unsaved = self.unsaved.saturating_add(records);
        let unsaved = self.unsaved;
        let added = self.open().and_then(|file| {
            file.try_lock().ok()?;
            let longer = file.metadata().and_then(|meta| file.set_len(meta.len().saturating_add(unsaved)));
            drop(file.unlock());
            longer.ok()
        });
        if added.is_some() {
            self.unsaved = 0;
        }
    }

    /// The number of missing records that no line reports yet.
    pub(super) fn pending(&self) -> u64 {
        let saved = self.file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |meta| meta.len());
        saved.saturating_add(self.unsaved)
    }

    /// Passes the count to `write`, and resets it after success. If the process is killed in between, the count is
    /// reported twice rather than never.
    pub(super) fn take(&mut self, write: impl FnOnce(u64) -> io::Result<()>) -> io::Result<()> {
        let unsaved = self.unsaved;
        let Some(file) = self.open() else {
            write(unsaved)?;
            self.unsaved = 0;
            return Ok(());
        };
        // The process that holds the lock writes the line.
        if file.try_lock().is_err() {
            return Ok(());
        }
        let saved = file.metadata().map_or(0, |meta| meta.len());
        let lost = saved.saturating_add(unsaved);
        let written = if lost > 0 { write(lost) } else { Ok(()) };
        let emptied = written.and_then(|()| if saved > 0 { file.set_len(0) } else { Ok(()) });
        drop(file.unlock());
        emptied?;
        self.unsaved = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_survives_a_restart_and_is_reported_once() {
        let dir = tempfile::tempdir().unwrap();
        let audit = dir.path().join("audit.jsonl");
        let mut first = GapCounter::new(&audit, true);
        first.add(300);
        first.add(7);
        drop(first);
        let (mut one, mut other) = (GapCounter::new(&audit, true), GapCounter::new(&audit, true));
        assert_eq!((one.pending(), other.pending()), (307, 307));
        assert!(one.take(|_| Err(io::ErrorKind::StorageFull.into())).is_err());
        assert_eq!(one.pending(), 307, "it was not written");
        other.add(1);
        let mut reported = 0;
        one.take(|lost| {
            reported = lost;
            Ok(())
        })
        .unwrap();
        assert_eq!((reported, one.pending(), other.pending()), (308, 0, 0));
    }

    #[test]
    fn without_a_file_the_count_is_in_memory() {
        let mut counter = GapCounter::new(Path::new("/no/such/folder/audit"), true);
        counter.add(2);
        counter.add(3);
        assert_eq!(counter.pending(), 5);
        counter
            .take(|lost| {
                assert_eq!(lost, 5);
                Ok(())
            })
            .unwrap();
        assert_eq!(counter.pending(), 0);
    }
}
