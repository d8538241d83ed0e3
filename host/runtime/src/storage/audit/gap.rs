//! How many records are missing, kept where a full disk does not lose the number: the length of a file without content.
//!
//! A file that is only made longer takes no room on the disk, so it can count where nothing can be written, and another
//! process finds the number after a restart.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::file::{beside, open_beside};

/// Counts records that could not be written.
#[derive(Debug)]
pub(super) struct GapCounter {
    path: PathBuf,
    /// `None`: it cannot be opened, or the audit is no file.
    file: Option<File>,
    is_kept: bool,
    /// What could not be added to the file.
    unkept: u64,
}

impl GapCounter {
    /// The file of an audit's counter.
    pub(super) fn path_of(audit: &Path) -> PathBuf {
        beside(audit, ".gap")
    }

    /// The counter of an audit; `is_kept`: that is a file, beside which there may be another.
    pub(super) fn new(audit: &Path, is_kept: bool) -> Self {
        let mut counter = Self { path: Self::path_of(audit), file: None, is_kept, unkept: 0 };
        counter.open();
        counter
    }

    fn open(&mut self) -> Option<&File> {
        if self.file.is_none() && self.is_kept {
            self.file = open_beside(&self.path).ok();
        }
        self.file.as_ref()
    }

    /// Adds to the number. Never waits: what another process holds locked is added later.
    pub(super) fn add(&mut self, records: u64) {
        self.unkept = self.unkept.saturating_add(records);
        let unkept = self.unkept;
        let added = self.open().and_then(|file| {
            file.try_lock().ok()?;
            let longer = file.metadata().and_then(|meta| file.set_len(meta.len().saturating_add(unkept)));
            drop(file.unlock());
            longer.ok()
        });
        if added.is_some() {
            self.unkept = 0;
        }
    }

    /// How many records are missing that no line tells of yet.
    pub(super) fn pending(&self) -> u64 {
        let kept = self.file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |meta| meta.len());
        kept.saturating_add(self.unkept)
    }

    /// Hands the number to `write`, and forgets it once that is done. A process that is killed in between leaves the
    /// number, which is then told twice: rather that than never.
    pub(super) fn take(&mut self, write: impl FnOnce(u64) -> io::Result<()>) -> io::Result<()> {
        let Some(file) = self.open() else {
            write(self.unkept)?;
            self.unkept = 0;
            return Ok(());
        };
        // Another process that holds it writes the line.
        if file.try_lock().is_err() {
            return Ok(());
        }
        let kept = file.metadata().map_or(0, |meta| meta.len());
        let lost = kept.saturating_add(self.unkept);
        let written = if lost > 0 { write(lost) } else { Ok(()) };
        let emptied = written.and_then(|()| if kept > 0 { self.empty() } else { Ok(()) });
        if let Some(file) = &self.file {
            drop(file.unlock());
        }
        emptied?;
        self.unkept = 0;
        Ok(())
    }

    fn empty(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.set_len(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_outlives_the_process_and_is_told_once() {
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
        let mut told = 0;
        one.take(|lost| {
            told = lost;
            Ok(())
        })
        .unwrap();
        assert_eq!((told, one.pending(), other.pending()), (308, 0, 0));
    }

    #[test]
    fn without_a_file_the_number_is_in_memory() {
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
