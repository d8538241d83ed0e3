//! What is read from the tables, inside one read transaction.

use std::ops::Bound;

use redb::{ReadTransaction, ReadableTable};
use toolbay_core::session::kv::Bucket;

use super::place::{EntryInfo, EntryKey, bucket_prefix, live, parse, parse_place, plugin_prefix};
use super::tables::{ENTRIES, Now, Stored, USAGE, count, rows};

/// The keys of a bucket with a prefix, after `after`, that live.
pub(super) fn keys(
    transaction: &ReadTransaction,
    bucket: &Bucket,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
    now: Now,
) -> Stored<Vec<String>> {
    let entries = transaction.open_table(ENTRIES)?;
    let own = bucket_prefix(bucket);
    let from = EntryKey::new(bucket, prefix).bytes;
    let behind = after.filter(|after| *after >= prefix).map(|after| EntryKey::new(bucket, after).bytes);
    let start = behind.as_deref().map_or(Bound::Included(from.as_slice()), Bound::Excluded);
    let mut found = Vec::new();
    if behind.as_ref().is_some_and(|behind| !behind.starts_with(&from)) {
        // `after` lies behind all that has the prefix.
        return Ok(found);
    }
    for row in rows(&entries, start, &from)? {
        if found.len() >= limit {
            break;
        }
        let (place, stored) = row?;
        if live(stored.value(), now).is_some()
            && let Some(key) = place.value().get(own.len()..)
        {
            found.extend(String::from_utf8(key.to_vec()));
        }
    }
    Ok(found)
}

/// What each plugin keeps that lives, counted entry by entry: plugin, keys, bytes.
pub(super) fn usage(transaction: &ReadTransaction, now: Now) -> Stored<Vec<(String, u64, u64)>> {
    let (entries, usage) = (transaction.open_table(ENTRIES)?, transaction.open_table(USAGE)?);
    let mut found = Vec::new();
    for row in usage.iter()? {
        let (plugin, _) = row?;
        let (keys, bytes) = count(&entries, plugin.value(), |stored| live(stored, now).is_some())?;
        found.push((plugin.value().to_owned(), keys, bytes));
    }
    Ok(found)
}

/// What the table of counts says of a plugin.
#[cfg(test)]
pub(super) fn noted(transaction: &ReadTransaction, plugin: &str) -> Stored<(u64, u64)> {
    Ok(transaction.open_table(USAGE)?.get(plugin)?.map_or((0, 0), |used| used.value()))
}

/// A plugin's entries that live, in their order, at most `most`; and whether there are more.
pub(super) fn entries(
    transaction: &ReadTransaction,
    plugin: &str,
    most: usize,
    now: Now,
) -> Stored<(Vec<EntryInfo>, bool)> {
    let (table, prefix) = (transaction.open_table(ENTRIES)?, plugin_prefix(plugin));
    let mut found = Vec::new();
    for row in rows(&table, Bound::Included(&prefix), &prefix)? {
        let (place, stored) = row?;
        let Some(value) = live(stored.value(), now) else { continue };
        let Some((scope, owner, key)) = parse_place(place.value()) else { continue };
        if found.len() == most {
            return Ok((found, true));
        }
        let expires_ms = parse(stored.value()).0.map(|expiry| expiry.at_ms);
        found.push(EntryInfo { scope, owner, key, bytes: value.len() as u64, expires_ms });
    }
    Ok((found, false))
}
