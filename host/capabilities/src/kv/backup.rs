//! Consistent backups of the store while it is in use.

use std::path::Path;
use std::time::Duration;

use redb::{
    Error, Key, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, Value, WriteTransaction,
};

use super::open::{KvStoreError, OpenStore};
use super::tables::{ENTRIES, EXPIRY, META, StoreResult, USAGE};

/// Copies every table to a new file. Returns the number of entries.
///
/// # Errors
/// When the file exists already, or one of the files cannot be used; a partial copy is removed.
pub(super) fn write(from: &OpenStore, file: &Path, wait: Duration) -> Result<u64, KvStoreError> {
    let shown = file.display();
    if std::fs::symlink_metadata(file).is_ok() {
        return Err(KvStoreError::Storage(format!("`{shown}` exists already")));
    }
    let read = from.database.begin_read().map_err(Error::from)?;
    let copied = OpenStore::create_file(file, wait).and_then(|to| {
        let write = to.database.begin_write().map_err(Error::from)?;
        let entries = copy_tables(&read, &write)?;
        write.commit().map_err(Error::from)?;
        Ok(entries)
    });
    if copied.is_err() {
        std::fs::remove_file(file).ok();
    }
    copied
}

fn copy_tables(read: &ReadTransaction, write: &WriteTransaction) -> StoreResult<u64> {
    copy(read, write, META)?;
    copy(read, write, USAGE)?;
    copy(read, write, EXPIRY)?;
    copy(read, write, ENTRIES)
}

/// Copies one table. Returns the number of rows.
fn copy<K: Key, V: Value>(
    read: &ReadTransaction,
    write: &WriteTransaction,
    table: TableDefinition<'static, K, V>,
) -> StoreResult<u64> {
    let mut to = write.open_table(table)?;
    let mut rows = 0;
    for row in read.open_table(table)?.iter()? {
        let (key, value) = row?;
        to.insert(key.value(), value.value())?;
        rows += 1;
    }
    Ok(rows)
}
