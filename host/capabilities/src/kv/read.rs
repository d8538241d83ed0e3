//! Reads from the tables, within one read transaction.

use std::ops::Bound;

use redb::{ReadTransaction, ReadableTable};
use toolbay_core::session::kv::Bucket;

use super::encoding::{
    EntryInfo, EntryKey, bucket_prefix, decode_key, decode_value, live_value, plugin_prefix,
};
use super::tables::{ENTRIES, StoreResult, TimestampMs, USAGE, count_entries, rows_with_prefix};

/// The stored data of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvUsage {
    /// The plugin's id.
    pub plugin: String,
    /// The number of keys.
    pub keys: u64,
    /// The bytes of its keys and values.
    pub bytes: u64,
}

/// The live keys of a bucket that have a prefix and follow `after`.
pub(super) fn keys(
    transaction: &ReadTransaction,
    bucket: &Bucket,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
    now: TimestampMs,
) -> StoreResult<Vec<String>> {
    let entries = transaction.open_table(ENTRIES)?;
    let own = bucket_prefix(bucket);
    let from = EntryKey::new(bucket, prefix).bytes;
    let behind = after.filter(|after| *after >= prefix).map(|after| EntryKey::new(bucket, after).bytes);
    let start = behind.as_deref().map_or(Bound::Included(from.as_slice()), Bound::Excluded);
    let mut found = Vec::new();
    if behind.as_ref().is_some_and(|behind| !behind.starts_with(&from)) {
        // `after` follows every key with the prefix.
        return Ok(found);
    }
    for row in rows_with_prefix(&entries, start, &from)? {
        if found.len() >= limit {
            break;
        }
        let (entry_key, stored) = row?;
        if live_value(stored.value(), now).is_some()
            && let Some(key) = entry_key.value().get(own.len()..)
        {
            found.extend(String::from_utf8(key.to_vec()));
        }
    }
    Ok(found)
}

/// The live entries of each plugin, counted entry by entry.
pub(super) fn usage(transaction: &ReadTransaction, now: TimestampMs) -> StoreResult<Vec<KvUsage>> {
    let (entries, usage) = (transaction.open_table(ENTRIES)?, transaction.open_table(USAGE)?);
    let mut found = Vec::new();
    for row in usage.iter()? {
        let (plugin, _) = row?;
        let (keys, bytes) =
            count_entries(&entries, plugin.value(), |stored| live_value(stored, now).is_some())?;
        found.push(KvUsage { plugin: plugin.value().to_owned(), keys, bytes });
    }
    Ok(found)
}

/// The live entries of a plugin in key order, at most `max`, and whether there are more.
pub(super) fn entries(
    transaction: &ReadTransaction,
    plugin: &str,
    max: usize,
    now: TimestampMs,
) -> StoreResult<(Vec<EntryInfo>, bool)> {
    let (table, prefix) = (transaction.open_table(ENTRIES)?, plugin_prefix(plugin));
    let mut found = Vec::new();
    for row in rows_with_prefix(&table, Bound::Included(&prefix), &prefix)? {
        let (entry_key, stored) = row?;
        let Some(value) = live_value(stored.value(), now) else { continue };
        let Some((scope, owner, key)) = decode_key(entry_key.value()) else { continue };
        if found.len() == max {
            return Ok((found, true));
        }
        let expires_ms = decode_value(stored.value()).0.map(|expiry| expiry.at_ms);
        found.push(EntryInfo { scope, owner, key, bytes: value.len() as u64, expires_ms });
    }
    Ok((found, false))
}
