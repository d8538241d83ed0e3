//! A consistent copy of the store, made while others write to it.

use std::path::Path;
use std::time::Duration;

use redb::{
    Error, Key, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, Value, WriteTransaction,
};

use super::open::{Open, Problem};
use super::tables::{ENTRIES, EXPIRY, META, Stored, USAGE};

/// Copies every table to a new file; tells how many entries there are.
///
/// # Errors
/// When there is a file already, or one of the two cannot be used; a partial copy is removed.
pub(super) fn write(from: &Open, file: &Path, wait: Duration) -> Result<u64, Problem> {
    let shown = file.display();
    if std::fs::symlink_metadata(file).is_ok() {
        return Err(Problem::Storage(format!("`{shown}` exists already")));
    }
    let read = from.database.begin_read().map_err(Error::from)?;
    let copied = Open::create_file(file, wait).and_then(|to| {
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

fn copy_tables(read: &ReadTransaction, write: &WriteTransaction) -> Stored<u64> {
    copy(read, write, META)?;
    copy(read, write, USAGE)?;
    copy(read, write, EXPIRY)?;
    copy(read, write, ENTRIES)
}

/// Copies one table; tells how many rows it has.
fn copy<K: Key, V: Value>(
    read: &ReadTransaction,
    write: &WriteTransaction,
    table: TableDefinition<'static, K, V>,
) -> Stored<u64> {
    let mut to = write.open_table(table)?;
    let mut rows = 0;
    for row in read.open_table(table)?.iter()? {
        let (key, value) = row?;
        to.insert(key.value(), value.value())?;
        rows += 1;
    }
    Ok(rows)
}
