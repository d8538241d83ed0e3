//! The tables of the file and every operation on them, each within one transaction.
//!
//! | table | key | value |
//! |---|---|---|
//! | `entries` | bucket, key | expiry (ms since 1970, 8 bytes, 0: never), time to live (s, 4 bytes), value |
//! | `expiry` | plugin, expiry, key of `entries` | bytes that the entry counts |
//! | `usage` | plugin id | number of keys, bytes of keys and values |
//! | `meta` | `format` | 1 |
//!
//! A bucket is encoded as length and text of the plugin id (1 + n bytes), the scope (1 byte), and length and text of
//! the owner (2 + n bytes). Lengths come first, so that no id, owner or key can be read as part of another. The key
//! comes last, so that the keys of a bucket are adjacent and in byte order. Numbers are big-endian.
//!
//! A transaction that changes entries also changes their counts.

use std::ops::Bound;

use redb::{ReadTransaction, ReadableTable, Table, TableDefinition, TableError, WriteTransaction};
use toolbay_core::session::kv::{KvError, Quota};

use super::encoding::{CLOCK_SLACK_MS, EntryKey, Expiry, decode_value, live_value, plugin_prefix};

pub(super) const ENTRIES: TableDefinition<&[u8], &[u8]> = TableDefinition::new("entries");
pub(super) const EXPIRY: TableDefinition<&[u8], u64> = TableDefinition::new("expiry");
pub(super) const USAGE: TableDefinition<&str, (u64, u64)> = TableDefinition::new("usage");
pub(super) const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const FORMAT: &str = "format";
/// Incremented when the meaning of stored data changes.
const VERSION: u64 = 1;

/// Expired entries that a write removes along the way.
const SWEEP_BATCH: usize = 64;
/// Entries examined from the end of `expiry` when a quota is used up. Bounded, since a full plugin may write often.
const SWEEP_AHEAD_BATCH: usize = 1024;
/// A plugin with at most this many bytes is counted again before its first write. A larger count is trusted.
const RECOUNT_BYTES: u64 = 64 << 20;
const VALUE_HEADER_BYTES: usize = 12;

/// The result of a storage operation. After an error the transaction must not be committed.
pub(super) type StoreResult<T> = Result<T, redb::Error>;

/// Milliseconds since 1970.
pub(super) type TimestampMs = u64;

/// The end of the range of byte strings with `prefix`.
fn prefix_end(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return Bound::Excluded(end);
        }
    }
    Bound::Unbounded
}

/// The rows whose key starts with `prefix`, from `start` on.
pub(super) fn rows_with_prefix<'t, V: redb::Value + 'static>(
    table: &'t impl ReadableTable<&'static [u8], V>,
    start: Bound<&[u8]>,
    prefix: &[u8],
) -> StoreResult<redb::Range<'t, &'static [u8], V>> {
    let end = prefix_end(prefix);
    let end = end.as_ref().map(Vec::as_slice);
    Ok(table.range::<&[u8]>((start, end))?)
}

/// An operation of the writer on one key.
#[derive(Debug)]
pub(super) enum KvOperation {
    Set { value: Vec<u8>, ttl_s: Option<u32>, quota: Quota },
    Remove,
    Increment { by: i64, quota: Quota },
    Replace { expected: Option<Vec<u8>>, value: Vec<u8>, quota: Quota },
}

impl KvOperation {
    /// Bytes that the operation holds in memory while it waits.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Set { value, .. } => value.len(),
            Self::Remove | Self::Increment { .. } => 0,
            Self::Replace { expected, value, .. } => value.len() + expected.as_ref().map_or(0, Vec::len),
        }
    }
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteReply {
    Done,
    Sum(i64),
    Replaced(bool),
    Removed(u64),
}

/// The tables of a write transaction.
pub(super) struct KvTables<'t> {
    entries: Table<'t, &'static [u8], &'static [u8]>,
    expiry: Table<'t, &'static [u8], u64>,
    usage: Table<'t, &'static str, (u64, u64)>,
    now: TimestampMs,
}

/// Creates the tables of a new file.
pub(super) fn create(transaction: &WriteTransaction) -> StoreResult<()> {
    transaction.open_table(ENTRIES)?;
    transaction.open_table(EXPIRY)?;
    transaction.open_table(USAGE)?;
    let mut meta = transaction.open_table(META)?;
    if meta.get(FORMAT)?.is_none() {
        meta.insert(FORMAT, VERSION)?;
    }
    Ok(())
}

/// The format version of the file; `None` for a new file.
pub(super) fn version(transaction: &ReadTransaction) -> StoreResult<Option<u64>> {
    match transaction.open_table(META) {
        Ok(meta) => Ok(meta.get(FORMAT)?.map(|version| version.value())),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Checks the format version of a file.
///
/// # Errors
/// When the version differs; the text says what to do.
pub(super) fn check_version(found: u64) -> Result<(), String> {
    toolbay_state::private::check_version(found, VERSION)
}

impl<'t> KvTables<'t> {
    pub(super) fn open(transaction: &'t WriteTransaction, now: TimestampMs) -> StoreResult<Self> {
        Ok(Self {
            entries: transaction.open_table(ENTRIES)?,
            expiry: transaction.open_table(EXPIRY)?,
            usage: transaction.open_table(USAGE)?,
            now,
        })
    }

    /// Applies one operation. `Ok(Err(_))` has changed nothing except removing expired entries.
    pub(super) fn apply(
        &mut self,
        plugin: &str,
        key: &EntryKey,
        operation: &KvOperation,
    ) -> StoreResult<Result<WriteReply, KvError>> {
        let existing = self.entries.get(key.bytes())?.map(|stored| stored.value().to_vec());
        let current = existing.as_deref().and_then(|stored| live_value(stored, self.now));
        let expiry =
            existing.as_deref().filter(|_| current.is_some()).and_then(|stored| decode_value(stored).0);
        let put = |this: &mut Self, value: &[u8], expiry, quota, answer| {
            let done = this.put_entry(plugin, key, value, expiry, quota)?;
            Ok(done.map(|()| answer))
        };
        match operation {
            KvOperation::Set { ttl_s: Some(0), .. } | KvOperation::Remove => {
                self.remove_entry(plugin, key)?;
                Ok(Ok(WriteReply::Done))
            }
            KvOperation::Set { value, ttl_s, quota } => {
                let expiry = ttl_s.map(|ttl| Expiry::from_ttl(self.now, ttl));
                put(self, value, expiry, *quota, WriteReply::Done)
            }
            KvOperation::Increment { by, quota } => {
                let Some(number) = current.map_or(Some(0), parse_integer) else {
                    return Ok(Err(KvError::NotANumber));
                };
                let Some(sum) = number.checked_add(*by) else {
                    let problem = format!("the sum of {number} and {by} exceeds 64 bits");
                    return Ok(Err(KvError::Other(problem)));
                };
                put(self, sum.to_string().as_bytes(), expiry, *quota, WriteReply::Sum(sum))
            }
            KvOperation::Replace { expected, value, quota } => {
                if current != expected.as_deref() {
                    return Ok(Ok(WriteReply::Replaced(false)));
                }
                put(self, value, expiry, *quota, WriteReply::Replaced(true))
            }
        }
    }

    /// Writes an entry if the quota allows it.
    fn put_entry(
        &mut self,
        plugin: &str,
        key: &EntryKey,
        value: &[u8],
        expiry: Option<Expiry>,
        quota: Quota,
    ) -> StoreResult<Result<(), KvError>> {
        if value.len() as u64 > quota.value_bytes {
            return Ok(Err(KvError::TooLarge(value.len() as u64)));
        }
        if !self.fits(plugin, key, value, quota)? {
            // Expired entries do not count, whether or not they have been swept.
            while self.sweep(plugin, SWEEP_BATCH)? {}
            self.sweep_ahead(plugin)?;
            if !self.fits(plugin, key, value, quota)? {
                return Ok(Err(KvError::QuotaExceeded));
            }
        }
        self.remove_entry(plugin, key)?;
        let mut stored = Vec::with_capacity(VALUE_HEADER_BYTES + value.len());
        stored.extend_from_slice(&expiry.map_or(0, |expiry| expiry.at_ms).to_be_bytes());
        stored.extend_from_slice(&expiry.map_or(0, |expiry| expiry.ttl_s).to_be_bytes());
        stored.extend_from_slice(value);
        self.entries.insert(key.bytes(), stored.as_slice())?;
        let counted = (key.key_bytes + value.len()) as u64;
        if let Some(expiry) = expiry {
            self.expiry.insert(expiry_key(plugin, expiry.at_ms, key.bytes()).as_slice(), counted)?;
        }
        let (keys, bytes) = self.recorded_usage(plugin)?;
        self.usage.insert(plugin, (keys + 1, bytes + counted))?;
        Ok(Ok(()))
    }

    /// Whether the quota allows the entry. An entry that does not grow is allowed even above the quota, which the
    /// operator may have lowered.
    fn fits(&self, plugin: &str, key: &EntryKey, value: &[u8], quota: Quota) -> StoreResult<bool> {
        let (keys, bytes) = self.recorded_usage(plugin)?;
        let existing =
            self.entries.get(key.bytes())?.map(|stored| entry_bytes(key.key_bytes, stored.value()));
        let new = (key.key_bytes + value.len()) as u64;
        let more_keys = existing.is_none() && keys >= quota.keys;
        let more_bytes = new > existing.unwrap_or(0)
            && bytes.saturating_sub(existing.unwrap_or(0)).saturating_add(new) > quota.bytes;
        Ok(!more_keys && !more_bytes)
    }

    /// Removes an entry together with its expiry and its count.
    fn remove_entry(&mut self, plugin: &str, key: &EntryKey) -> StoreResult<()> {
        let Some((expiry, size)) = self
            .entries
            .remove(key.bytes())?
            .map(|stored| (decode_value(stored.value()).0, entry_bytes(key.key_bytes, stored.value())))
        else {
            return Ok(());
        };
        if let Some(expiry) = expiry {
            self.expiry.remove(expiry_key(plugin, expiry.at_ms, key.bytes()).as_slice())?;
        }
        let (keys, bytes) = self.recorded_usage(plugin)?;
        self.set_usage(plugin, keys.saturating_sub(1), bytes.saturating_sub(size))
    }

    fn recorded_usage(&self, plugin: &str) -> StoreResult<(u64, u64)> {
        Ok(self.usage.get(plugin)?.map_or((0, 0), |used| used.value()))
    }

    fn set_usage(&mut self, plugin: &str, keys: u64, bytes: u64) -> StoreResult<()> {
        if keys == 0 {
            self.usage.remove(plugin)?;
        } else {
            self.usage.insert(plugin, (keys, bytes))?;
        }
        Ok(())
    }

    /// Removes at most `max` expired entries of a plugin. Returns whether there may be more.
    pub(super) fn sweep(&mut self, plugin: &str, max: usize) -> StoreResult<bool> {
        let prefix = plugin_prefix(plugin);
        let mut expired = Vec::new();
        for row in rows_with_prefix(&self.expiry, Bound::Included(&prefix), &prefix)?.take(max) {
            let (key, _) = row?;
            let Some((at_ms, entry_key)) = decode_expiry_key(key.value(), &prefix) else { continue };
            if at_ms > self.now {
                break;
            }
            expired.push((key.value().to_vec(), EntryKey::from_stored(entry_key), at_ms));
        }
        let full = expired.len() == max;
        for (row, entry_key, at_ms) in expired {
            let stored =
                self.entries.get(entry_key.bytes())?.and_then(|stored| decode_value(stored.value()).0);
            if stored.is_some_and(|expiry| expiry.at_ms == at_ms) {
                self.remove_entry(plugin, &entry_key)?;
            } else {
                self.expiry.remove(row.as_slice())?;
            }
        }
        Ok(full)
    }

    /// Removes entries that count as expired because the clock was set back: their remaining life exceeds their time
    /// to live. They follow the live ones, so the last entries are examined; only a used-up quota justifies the cost.
    fn sweep_ahead(&mut self, plugin: &str) -> StoreResult<()> {
        let prefix = plugin_prefix(plugin);
        let mut expired = Vec::new();
        for row in
            rows_with_prefix(&self.expiry, Bound::Included(&prefix), &prefix)?.rev().take(SWEEP_AHEAD_BATCH)
        {
            let (key, _) = row?;
            let Some((at_ms, entry_key)) = decode_expiry_key(key.value(), &prefix) else { continue };
            // Too early to be expired, even with the shortest time to live.
            if at_ms <= self.now.saturating_add(CLOCK_SLACK_MS) {
                break;
            }
            let stored = self.entries.get(entry_key)?.and_then(|stored| decode_value(stored.value()).0);
            if stored.is_some_and(|expiry| expiry.is_expired(self.now)) {
                expired.push(EntryKey::from_stored(entry_key));
            }
        }
        expired.iter().try_for_each(|key| self.remove_entry(plugin, key))
    }

    /// Sweeps the plugin that follows `last` in the order of ids, and returns it; `None` at the end.
    pub(super) fn sweep_next(&mut self, last: &str) -> StoreResult<Option<String>> {
        let next = self
            .usage
            .range::<&str>((Bound::Excluded(last), Bound::Unbounded))?
            .next()
            .transpose()?
            .map(|(plugin, _)| plugin.value().to_owned());
        if let Some(plugin) = &next {
            self.sweep(plugin, SWEEP_BATCH)?;
        }
        Ok(next)
    }

    /// Counts a plugin's entries and corrects the recorded usage. Returns whether it was wrong.
    pub(super) fn recount(&mut self, plugin: &str) -> StoreResult<bool> {
        let recorded = self.recorded_usage(plugin)?;
        if recorded.1 <= RECOUNT_BYTES {
            let found = count_entries(&self.entries, plugin, |_| true)?;
            if found != recorded {
                tracing::warn!(
                    plugin,
                    ?recorded,
                    ?found,
                    "the recorded key-value usage was wrong and has been corrected"
                );
                self.set_usage(plugin, found.0, found.1)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes all entries of a plugin. Returns their number.
    pub(super) fn clear(&mut self, plugin: &str) -> StoreResult<u64> {
        let prefix = plugin_prefix(plugin);
        let (start, end) = (Bound::Included(prefix.as_slice()), prefix_end(&prefix));
        let range = (start, end.as_ref().map(Vec::as_slice));
        let mut removed = 0;
        self.entries.retain_in::<&[u8], _>(range, |_, _| {
            removed += 1;
            false
        })?;
        self.expiry.retain_in::<&[u8], _>(range, |_, _| false)?;
        self.usage.remove(plugin)?;
        Ok(removed)
    }
}

fn expiry_key(plugin: &str, at_ms: u64, entry_key: &[u8]) -> Vec<u8> {
    let mut bytes = plugin_prefix(plugin);
    bytes.extend_from_slice(&at_ms.to_be_bytes());
    bytes.extend_from_slice(entry_key);
    bytes
}

/// Splits a key of `expiry` with this prefix into the time and the key of the entry.
fn decode_expiry_key<'k>(key: &'k [u8], prefix: &[u8]) -> Option<(u64, &'k [u8])> {
    let (at, entry_key) = key.get(prefix.len()..)?.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*at), entry_key))
}

/// The bytes of an entry's key and value.
fn entry_bytes(key_bytes: usize, stored: &[u8]) -> u64 {
    (key_bytes + decode_value(stored).1.len()) as u64
}

/// Parses a decimal number: an optional minus sign and digits.
fn parse_integer(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    if text.starts_with('+') { None } else { text.parse().ok() }
}

/// Counts the keys, and the bytes of keys and values, of a plugin's entries whose stored value `is_counted` accepts.
pub(super) fn count_entries(
    entries: &impl ReadableTable<&'static [u8], &'static [u8]>,
    plugin: &str,
    is_counted: impl Fn(&[u8]) -> bool,
) -> StoreResult<(u64, u64)> {
    let prefix = plugin_prefix(plugin);
    let (mut keys, mut bytes) = (0, 0);
    for row in rows_with_prefix(entries, Bound::Included(&prefix), &prefix)? {
        let (entry_key, stored) = row?;
        if is_counted(stored.value()) {
            keys += 1;
            bytes += entry_bytes(EntryKey::from_stored(entry_key.value()).key_bytes, stored.value());
        }
    }
    Ok((keys, bytes))
}
