//! The tables of the file and every operation on them, inside one transaction.
//!
//! | table | key | value |
//! |---|---|---|
//! | `entries` | bucket, key | expiry (ms since 1970, 8 bytes, 0: never), its time to live (s, 4 bytes), the value |
//! | `expiry` | plugin, expiry, key of `entries` | bytes that the entry counts |
//! | `usage` | plugin id | keys, bytes of keys and values |
//! | `meta` | `format` | 1 |
//!
//! A bucket is written as length and text of the plugin id (1 + n bytes), the scope (1 byte), length and text of the
//! owner (2 + n bytes). Lengths come first, so no id, owner or key can be read as a part of another; the key stands
//! last, so that a bucket's keys lie together in the order of their bytes. Numbers are big-endian.
//!
//! What is counted is changed in the transaction that changes what is counted.

use std::ops::Bound;

use redb::{ReadTransaction, ReadableTable, Table, TableDefinition, TableError, WriteTransaction};
use toolbay_core::session::kv::{KvError, Quota};

use super::place::{CLOCK_SLACK_MS, EntryKey, Expiry, live, parse, parse_place, plugin_prefix};

pub(super) const ENTRIES: TableDefinition<&[u8], &[u8]> = TableDefinition::new("entries");
pub(super) const EXPIRY: TableDefinition<&[u8], u64> = TableDefinition::new("expiry");
pub(super) const USAGE: TableDefinition<&str, (u64, u64)> = TableDefinition::new("usage");
pub(super) const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const FORMAT: &str = "format";
/// Grows when what is stored changes its meaning.
const VERSION: u64 = 1;

/// Expired entries that a write takes out along the way.
const SWEEP: usize = 64;
/// Entries that are looked at from the end when a quota is used up: a full plugin may write often.
const SWEEP_AHEAD: usize = 1024;
/// Up to so many bytes a plugin's entries are counted again before its first write. A larger count is trusted.
const RECOUNT_BYTES: u64 = 64 << 20;
const HEADER: usize = 12;

/// What the storage itself failed with: the transaction is not to be committed.
pub(super) type Stored<T> = Result<T, redb::Error>;

/// Milliseconds since 1970.
pub(super) type Now = u64;

/// The first byte string that is not behind `prefix`.
fn end_of(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return Bound::Excluded(end);
        }
    }
    Bound::Unbounded
}

/// The rows whose key begins with `prefix`, from `start` on.
pub(super) fn rows<'t, V: redb::Value + 'static>(
    table: &'t impl ReadableTable<&'static [u8], V>,
    start: Bound<&[u8]>,
    prefix: &[u8],
) -> Stored<redb::Range<'t, &'static [u8], V>> {
    let end = end_of(prefix);
    let end = end.as_ref().map(Vec::as_slice);
    Ok(table.range::<&[u8]>((start, end))?)
}

/// What is to be done by the one writer.
#[derive(Debug)]
pub(super) enum Operation {
    Set { value: Vec<u8>, ttl_s: Option<u32>, quota: Quota },
    Remove,
    Increment { by: i64, quota: Quota },
    Replace { expected: Option<Vec<u8>>, value: Vec<u8>, quota: Quota },
}

impl Operation {
    /// Bytes that it holds in memory while it waits.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Set { value, .. } => value.len(),
            Self::Remove | Self::Increment { .. } => 0,
            Self::Replace { expected, value, .. } => value.len() + expected.as_ref().map_or(0, Vec::len),
        }
    }
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Sum(i64),
    Replaced(bool),
    Removed(u64),
}

/// The tables of a write transaction.
pub(super) struct Tables<'t> {
    entries: Table<'t, &'static [u8], &'static [u8]>,
    expiry: Table<'t, &'static [u8], u64>,
    usage: Table<'t, &'static str, (u64, u64)>,
    now: Now,
}

/// Makes the tables of a new file.
pub(super) fn create(transaction: &WriteTransaction) -> Stored<()> {
    transaction.open_table(ENTRIES)?;
    transaction.open_table(EXPIRY)?;
    transaction.open_table(USAGE)?;
    let mut meta = transaction.open_table(META)?;
    if meta.get(FORMAT)?.is_none() {
        meta.insert(FORMAT, VERSION)?;
    }
    Ok(())
}

/// Whether the file is of this version; `None` if it is new.
pub(super) fn version(transaction: &ReadTransaction) -> Stored<Option<u64>> {
    match transaction.open_table(META) {
        Ok(meta) => Ok(meta.get(FORMAT)?.map(|version| version.value())),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Checks the format of a file.
///
/// # Errors
/// Says what to do with a file of another format.
pub(super) fn check_version(found: u64) -> Result<(), String> {
    crate::storage::private::check_version(found, VERSION)
}

impl<'t> Tables<'t> {
    pub(super) fn open(transaction: &'t WriteTransaction, now: Now) -> Stored<Self> {
        Ok(Self {
            entries: transaction.open_table(ENTRIES)?,
            expiry: transaction.open_table(EXPIRY)?,
            usage: transaction.open_table(USAGE)?,
            now,
        })
    }

    /// Does one operation. `Ok(Err(_))` has changed nothing but to take out what had expired.
    pub(super) fn apply(
        &mut self,
        plugin: &str,
        key: &EntryKey,
        operation: &Operation,
    ) -> Stored<Result<Answer, KvError>> {
        let kept = self.entries.get(key.bytes())?.map(|stored| stored.value().to_vec());
        let current = kept.as_deref().and_then(|stored| live(stored, self.now));
        let expiry = kept.as_deref().filter(|_| current.is_some()).and_then(|stored| parse(stored).0);
        let put = |this: &mut Self, value: &[u8], expiry, quota, answer| {
            let done = this.put(plugin, key, value, expiry, quota)?;
            Ok(done.map(|()| answer))
        };
        match operation {
            Operation::Set { ttl_s: Some(0), .. } | Operation::Remove => {
                self.take(plugin, key)?;
                Ok(Ok(Answer::Done))
            }
            Operation::Set { value, ttl_s, quota } => {
                let expiry = ttl_s.map(|ttl| Expiry::after(self.now, ttl));
                put(self, value, expiry, *quota, Answer::Done)
            }
            Operation::Increment { by, quota } => {
                let Some(number) = current.map_or(Some(0), number) else {
                    return Ok(Err(KvError::NotANumber));
                };
                let Some(sum) = number.checked_add(*by) else {
                    let problem = format!("{number} and {by} add up to more than 64 bits hold");
                    return Ok(Err(KvError::Other(problem)));
                };
                put(self, sum.to_string().as_bytes(), expiry, *quota, Answer::Sum(sum))
            }
            Operation::Replace { expected, value, quota } => {
                if current != expected.as_deref() {
                    return Ok(Ok(Answer::Replaced(false)));
                }
                put(self, value, expiry, *quota, Answer::Replaced(true))
            }
        }
    }

    /// Writes an entry, if the quota has room for it.
    fn put(
        &mut self,
        plugin: &str,
        key: &EntryKey,
        value: &[u8],
        expiry: Option<Expiry>,
        quota: Quota,
    ) -> Stored<Result<(), KvError>> {
        if value.len() as u64 > quota.value_bytes {
            return Ok(Err(KvError::TooLarge(value.len() as u64)));
        }
        if !self.fits(plugin, key, value, quota)? {
            // What has expired does not count, swept or not.
            while self.sweep(plugin, SWEEP)? {}
            self.sweep_ahead(plugin)?;
            if !self.fits(plugin, key, value, quota)? {
                return Ok(Err(KvError::QuotaExceeded));
            }
        }
        self.take(plugin, key)?;
        let mut stored = Vec::with_capacity(HEADER + value.len());
        stored.extend_from_slice(&expiry.map_or(0, |expiry| expiry.at_ms).to_be_bytes());
        stored.extend_from_slice(&expiry.map_or(0, |expiry| expiry.ttl_s).to_be_bytes());
        stored.extend_from_slice(value);
        self.entries.insert(key.bytes(), stored.as_slice())?;
        let counted = (key.key_bytes + value.len()) as u64;
        if let Some(expiry) = expiry {
            self.expiry.insert(expiry_key(plugin, expiry.at_ms, key.bytes()).as_slice(), counted)?;
        }
        let (keys, bytes) = self.used(plugin)?;
        self.usage.insert(plugin, (keys + 1, bytes + counted))?;
        Ok(Ok(()))
    }

    /// Whether there is room. What does not grow is let through even above the quota, which may have been lowered.
    fn fits(&self, plugin: &str, key: &EntryKey, value: &[u8], quota: Quota) -> Stored<bool> {
        let (keys, bytes) = self.used(plugin)?;
        let kept = self.entries.get(key.bytes())?.map(|stored| counted(key.key_bytes, stored.value()));
        let new = (key.key_bytes + value.len()) as u64;
        let more_keys = kept.is_none() && keys >= quota.keys;
        let more_bytes = new > kept.unwrap_or(0)
            && bytes.saturating_sub(kept.unwrap_or(0)).saturating_add(new) > quota.bytes;
        Ok(!more_keys && !more_bytes)
    }

    /// Takes an entry out, with all that belongs to it.
    fn take(&mut self, plugin: &str, key: &EntryKey) -> Stored<()> {
        let Some((expiry, size)) = self
            .entries
            .remove(key.bytes())?
            .map(|stored| (parse(stored.value()).0, counted(key.key_bytes, stored.value())))
        else {
            return Ok(());
        };
        if let Some(expiry) = expiry {
            self.expiry.remove(expiry_key(plugin, expiry.at_ms, key.bytes()).as_slice())?;
        }
        let (keys, bytes) = self.used(plugin)?;
        self.set_used(plugin, keys.saturating_sub(1), bytes.saturating_sub(size))
    }

    fn used(&self, plugin: &str) -> Stored<(u64, u64)> {
        Ok(self.usage.get(plugin)?.map_or((0, 0), |used| used.value()))
    }

    fn set_used(&mut self, plugin: &str, keys: u64, bytes: u64) -> Stored<()> {
        if keys == 0 {
            self.usage.remove(plugin)?;
        } else {
            self.usage.insert(plugin, (keys, bytes))?;
        }
        Ok(())
    }

    /// Takes out at most `most` entries of a plugin that have expired; tells whether there may be more.
    pub(super) fn sweep(&mut self, plugin: &str, most: usize) -> Stored<bool> {
        let prefix = plugin_prefix(plugin);
        let mut over = Vec::new();
        for row in rows(&self.expiry, Bound::Included(&prefix), &prefix)?.take(most) {
            let (key, _) = row?;
            let Some((at, place)) = key.value().get(prefix.len()..).and_then(<[u8]>::split_first_chunk::<8>)
            else {
                continue;
            };
            if u64::from_be_bytes(*at) > self.now {
                break;
            }
            over.push((key.value().to_vec(), place.to_vec(), u64::from_be_bytes(*at)));
        }
        let full = over.len() == most;
        for (row, place, at_ms) in over {
            let stored = self.entries.get(place.as_slice())?.map(|stored| parse(stored.value()).0);
            if stored.flatten().is_some_and(|expiry| expiry.at_ms == at_ms) {
                let key_bytes = parse_place(&place).map_or(0, |(_, _, key)| key.len());
                self.take(plugin, &EntryKey { bytes: place, key_bytes })?;
            } else {
                self.expiry.remove(row.as_slice())?;
            }
        }
        Ok(full)
    }

    /// Takes out what expired because the clock was set back: entries that would live longer than they were given. They
    /// stand behind those that live, so that the last ones are looked at; only a quota that is used up is worth it.
    fn sweep_ahead(&mut self, plugin: &str) -> Stored<()> {
        let prefix = plugin_prefix(plugin);
        let mut over = Vec::new();
        for row in rows(&self.expiry, Bound::Included(&prefix), &prefix)?.rev().take(SWEEP_AHEAD) {
            let (key, _) = row?;
            let Some((at, place)) = key.value().get(prefix.len()..).and_then(<[u8]>::split_first_chunk::<8>)
            else {
                continue;
            };
            // Not even with the shortest time that there is.
            if u64::from_be_bytes(*at) <= self.now.saturating_add(CLOCK_SLACK_MS) {
                break;
            }
            let stored = self.entries.get(place)?.and_then(|stored| parse(stored.value()).0);
            if stored.is_some_and(|expiry| expiry.is_over(self.now)) {
                let key_bytes = parse_place(place).map_or(0, |(_, _, key)| key.len());
                over.push(EntryKey { bytes: place.to_vec(), key_bytes });
            }
        }
        over.iter().try_for_each(|key| self.take(plugin, key))
    }

    /// Sweeps the plugin that comes after `last` in the order of ids, and returns it; `None` at the end.
    pub(super) fn sweep_next(&mut self, last: &str) -> Stored<Option<String>> {
        let next = self
            .usage
            .range::<&str>((Bound::Excluded(last), Bound::Unbounded))?
            .next()
            .transpose()?
            .map(|(plugin, _)| plugin.value().to_owned());
        if let Some(plugin) = &next {
            self.sweep(plugin, SWEEP)?;
        }
        Ok(next)
    }

    /// Counts a plugin's entries again, and puts the count right if it is off; tells whether it was.
    pub(super) fn recount(&mut self, plugin: &str) -> Stored<bool> {
        let noted = self.used(plugin)?;
        if noted.1 <= RECOUNT_BYTES {
            let found = count(&self.entries, plugin, |_| true)?;
            if found != noted {
                tracing::warn!(plugin, ?noted, ?found, "the key-value usage was off and is counted anew");
                self.set_used(plugin, found.0, found.1)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes out all entries of a plugin; tells how many.
    pub(super) fn clear(&mut self, plugin: &str) -> Stored<u64> {
        let prefix = plugin_prefix(plugin);
        let (start, end) = (Bound::Included(prefix.as_slice()), end_of(&prefix));
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

fn expiry_key(plugin: &str, at_ms: u64, place: &[u8]) -> Vec<u8> {
    let mut bytes = plugin_prefix(plugin);
    bytes.extend_from_slice(&at_ms.to_be_bytes());
    bytes.extend_from_slice(place);
    bytes
}

/// Bytes of key and value.
fn counted(key_bytes: usize, stored: &[u8]) -> u64 {
    (key_bytes + parse(stored).1.len()) as u64
}

/// A decimal number: an optional minus and digits, nothing else.
fn number(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    if text.starts_with('+') { None } else { text.parse().ok() }
}

/// Keys, and bytes of keys and values, of a plugin's entries that `is_meant`.
pub(super) fn count(
    entries: &impl ReadableTable<&'static [u8], &'static [u8]>,
    plugin: &str,
    is_meant: impl Fn(&[u8]) -> bool,
) -> Stored<(u64, u64)> {
    let prefix = plugin_prefix(plugin);
    let (mut keys, mut bytes) = (0, 0);
    for row in rows(entries, Bound::Included(&prefix), &prefix)? {
        let (place, stored) = row?;
        if is_meant(stored.value()) {
            let key_bytes = parse_place(place.value()).map_or(0, |(_, _, key)| key.len());
            keys += 1;
            bytes += counted(key_bytes, stored.value());
        }
    }
    Ok((keys, bytes))
}
