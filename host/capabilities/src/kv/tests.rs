//! Effects of the clock on entries, and the encoding of keys. The rest is tested through the host.

use redb::backends::InMemoryBackend;
use redb::{Database, ReadTransaction, ReadableDatabase};
use toolbay_core::session::kv::{Bucket, Quota};
use toolbay_policy::capability::kv::KvScope;
use toolbay_policy::name::PluginId;

use super::encoding::EntryKey;
use super::read::{self, KvUsage};
use super::tables::{self, KvOperation, KvTables, StoreResult, TimestampMs, USAGE, WriteReply};

const QUOTA: Quota = Quota { value_bytes: 1000, bytes: 1000, keys: 10 };
/// A time in 2026, in milliseconds.
const T: TimestampMs = 1_790_000_000_000;
const HOUR: TimestampMs = 3_600_000;

fn database() -> Database {
    let database = Database::builder().create_with_backend(InMemoryBackend::new()).unwrap();
    let write = database.begin_write().unwrap();
    tables::create(&write).unwrap();
    write.commit().unwrap();
    database
}

fn bucket(plugin: &str, owner: &str) -> Bucket {
    let scope = if owner.is_empty() { KvScope::Plugin } else { KvScope::Session };
    Bucket::new(PluginId::new(plugin).unwrap(), scope, owner).unwrap()
}

fn apply(database: &Database, now: TimestampMs, key: &str, operation: &KvOperation) -> WriteReply {
    let write = database.begin_write().unwrap();
    let entry_key = EntryKey::new(&bucket("p", ""), key);
    let answer = KvTables::open(&write, now).unwrap().apply("p", &entry_key, operation).unwrap().unwrap();
    write.commit().unwrap();
    answer
}

fn set(database: &Database, now: TimestampMs, key: &str, ttl_s: u32) {
    apply(database, now, key, &KvOperation::Set { value: b"1".to_vec(), ttl_s: Some(ttl_s), quota: QUOTA });
}

/// The usage table's count of a plugin.
fn recorded_usage(transaction: &ReadTransaction, plugin: &str) -> StoreResult<(u64, u64)> {
    Ok(transaction.open_table(USAGE)?.get(plugin)?.map_or((0, 0), |used| used.value()))
}

fn keys(database: &Database, now: TimestampMs) -> Vec<String> {
    let transaction = database.begin_read().unwrap();
    read::keys(&transaction, &bucket("p", ""), "", None, 100, now).unwrap()
}

#[test]
fn an_entry_expires_after_its_ttl_when_the_clock_jumps() {
    for (ttl_s, later, there) in [
        (60, 0, true),
        (60, 59_999, true),
        (60, 60_000, false),
        (60, HOUR as i64, false),
        // Clocks of two processes differ a little.
        (60, -1, true),
        (60, -59_000, true),
        // The clock was set back, so the remaining life exceeds the time to live.
        (60, -61_000, false),
        (60, -(24 * HOUR as i64), false),
        (u32::MAX, HOUR as i64, true),
    ] {
        let database = database();
        set(&database, T, "a", ttl_s);
        let now = T.checked_add_signed(later).unwrap();
        assert_eq!(!keys(&database, now).is_empty(), there, "{ttl_s} s, after {later} ms");
        let number = apply(&database, now, "a", &KvOperation::Increment { by: 1, quota: QUOTA });
        assert_eq!(number, WriteReply::Sum(if there { 2 } else { 1 }), "{ttl_s} s, after {later} ms");
    }
}

#[test]
fn extreme_clock_values_do_no_harm() {
    for now in [0, 1, u64::MAX - 1, u64::MAX] {
        let database = database();
        set(&database, now, "a", u32::MAX);
        apply(&database, now, "b", &KvOperation::Set { value: b"1".to_vec(), ttl_s: None, quota: QUOTA });
        assert!(keys(&database, T).contains(&"b".to_owned()), "an entry without expiry stays: {now}");
    }
}

#[test]
fn expired_entries_are_swept_in_batches_and_do_not_count() {
    let database = database();
    for n in 0..5 {
        set(&database, T, &format!("short{n}"), 1);
        set(&database, T, &format!("long{n}"), 3600);
    }
    let write = database.begin_write().unwrap();
    let mut tables = KvTables::open(&write, T + 2000).unwrap();
    assert!(tables.sweep("p", 3).unwrap(), "there may be more");
    assert!(!tables.sweep("p", 3).unwrap());
    assert!(!tables.sweep("p", 3).unwrap());
    drop(tables);
    write.commit().unwrap();
    let transaction = database.begin_read().unwrap();
    assert_eq!(recorded_usage(&transaction, "p").unwrap(), (5, 5 * 6));
    let usage = |keys, bytes| [KvUsage { plugin: "p".to_owned(), keys, bytes }];
    assert_eq!(read::usage(&transaction, T + 2000).unwrap(), usage(5, 30));
    assert_eq!(read::usage(&transaction, T + 2 * HOUR).unwrap(), usage(0, 0), "hidden at once");
}

#[test]
fn entries_expired_by_a_clock_set_back_free_their_quota() {
    let database = database();
    for n in 0..5 {
        set(&database, T + 1000 * HOUR, &format!("ahead{n}"), 60);
        set(&database, T, &format!("lives{n}"), u32::MAX);
    }
    // The quota is ten keys; the five from the future count as expired and cannot be removed by name.
    assert_eq!(keys(&database, T).len(), 5);
    for n in 0..5 {
        set(&database, T, &format!("new{n}"), 3600);
    }
    assert_eq!(keys(&database, T).len(), 10);
    let transaction = database.begin_read().unwrap();
    assert_eq!(recorded_usage(&transaction, "p").unwrap().0, 10);
}

#[test]
fn an_overwritten_entry_is_not_swept_at_its_old_expiry() {
    let database = database();
    set(&database, T, "a", 1);
    set(&database, T, "a", 3600);
    let write = database.begin_write().unwrap();
    KvTables::open(&write, T + 2000).unwrap().sweep("p", 100).unwrap();
    write.commit().unwrap();
    assert_eq!(keys(&database, T + 2000), ["a"]);
}

#[test]
fn encoded_keys_are_unique() {
    let long = "s".repeat(300);
    let mut seen = std::collections::BTreeSet::new();
    let owners = ["", "a", "ab", "b", "\0", "\0\u{1}", "a\0", &long];
    for plugin in ["p", "pp", "p-p", "P"] {
        for owner in owners {
            for key in ["a", "ab", "b", "\0", "p", "\0\0b", "a\0"] {
                let entry_key = EntryKey::new(&bucket(plugin, owner), key);
                assert!(seen.insert(entry_key.bytes().to_vec()), "{plugin} {owner} {key:?}");
            }
        }
    }
}
