//! Locks for the writers of files.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

/// The locks of each mounted file system: a hung one blocks no writer of another.
pub(super) type FileLocksByDevice = Mutex<HashMap<rustix::fs::Dev, Arc<FileLocks>>>;

/// A fixed set of locks for all files of a device. Files that share a lock sometimes wait for each other.
#[derive(Debug, Default)]
pub(super) struct FileLocks {
    hash: RandomState,
    locks: [Mutex<()>; 32],
}

impl FileLocks {
    /// Locks a file, by its path with all links resolved.
    pub(super) fn lock(&self, file: &Path) -> MutexGuard<'_, ()> {
        let (first, rest) = (&self.locks[0], &self.locks);
        let at = usize::try_from(self.hash.hash_one(file) % rest.len() as u64).unwrap_or(0);
        rest.get(at).unwrap_or(first).lock()
    }
}
