//! The cost of a guest's `get` beside redb's own `get` on the same file, in one run.
//!
//! `cargo bench --bench all -- kv` prints the table. The sides alternate in short rounds, so that a slow machine slows
//! all. The time of the guest is that of a call with many gets minus a call without, divided by the gets.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use redb::{Builder, ConcurrencyMode, Database, ReadableDatabase, TableDefinition};
use serde_json::{Value, json};
use toolbay::core::session::kv::{Bucket, KvStore, Quota};
use toolbay::policy::capability::kv::KvScope;
use toolbay::{Filter, Host, PluginId, Policy, RedbStore, ToolCall, TurnContext, View};

use crate::figures::median;

const ROUNDS: usize = 60;
const GETS: u32 = 2000;
const KEY: &str = "key";
const QUOTA: Quota = Quota { value_bytes: 1 << 20, bytes: 16 << 20, keys: 10_000 };
const PLAIN: TableDefinition<&[u8], &[u8]> = TableDefinition::new("plain");
/// The limit as a multiple of redb's own get (docs/explanation/performance.md).
const TARGET_US: f64 = 5.0;

pub(crate) fn run() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    gets(&runtime, dir.path());
    sets(&runtime, dir.path());
}

/// A database beside the store with the same durability, with the key in it.
fn database(path: &Path, mode: ConcurrencyMode) -> Database {
    let database = Builder::new().set_concurrency_mode(mode).create(path).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(PLAIN).unwrap().insert(KEY.as_bytes(), [b'v'; 100].as_slice()).unwrap();
    write.commit().unwrap();
    database
}

fn get(database: &Database) -> usize {
    let read = database.begin_read().unwrap();
    let table = read.open_table(PLAIN).unwrap();
    let value = table.get(KEY.as_bytes()).unwrap().unwrap().value().to_vec();
    value.len()
}

fn gets(runtime: &tokio::runtime::Runtime, dir: &Path) {
    let exclusive = database(&dir.join("exclusive.redb"), ConcurrencyMode::ExclusiveWriter);
    let shared = database(&dir.join("shared.redb"), ConcurrencyMode::MultiWriter);
    let store = Arc::new(RedbStore::in_dir(&dir.join("state")));
    let bucket = Bucket::new(PluginId::new("k").unwrap(), KvScope::Plugin, "").unwrap();
    runtime.block_on(store.set(&bucket, KEY, vec![b'v'; 100], None, QUOTA)).unwrap();
    let guest = KvGuest::new(runtime, Arc::clone(&store));
    let mut rows: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        rows[0].push(each(|| assert_eq!(get(&exclusive), 100)));
        rows[1].push(each(|| assert_eq!(get(&shared), 100)));
        let found = || runtime.block_on(store.get(&bucket, KEY)).unwrap().unwrap().len();
        rows[2].push(each(|| assert_eq!(found(), 100)));
        rows[3].push((guest.call(runtime, GETS) - guest.call(runtime, 0)) / f64::from(GETS));
    }
    let [exclusive, shared, store, guest] = rows.map(|mut times| median(&mut times));
    println!("\n| get of 100 bytes | p50 µs | over redb in the same mode |\n|---|---|---|");
    println!("| redb, one process | {exclusive:.2} | |");
    println!("| redb, shared by processes | {shared:.2} | 0 |");
    println!("| `RedbStore` | {store:.2} | {:.2} |", store - shared);
    println!("| `kv.get` of a guest | {guest:.2} | {:.2} |", guest - shared);
    let (over, met) = (guest - shared, if guest - shared <= TARGET_US { "met" } else { "missed" });
    println!(
        "\ntarget: at most {TARGET_US} µs over redb: {over:.2} µs, {met}; over redb for one process: {:.2} µs",
        guest - exclusive
    );
}

/// Durable writes, one after the other and 64 at once.
fn sets(runtime: &tokio::runtime::Runtime, dir: &Path) {
    let store = Arc::new(RedbStore::in_dir(&dir.join("state")));
    let bucket = Bucket::new(PluginId::new("k").unwrap(), KvScope::Plugin, "").unwrap();
    let set = |n: usize| {
        let (store, bucket) = (Arc::clone(&store), bucket.clone());
        async move { store.set(&bucket, &format!("k{n}"), vec![b'v'; 100], None, QUOTA).await.unwrap() }
    };
    let start = Instant::now();
    (0..100).for_each(|n| runtime.block_on(set(n)));
    let alone = 100.0 / start.elapsed().as_secs_f64();
    let start = Instant::now();
    for _ in 0..20 {
        let tasks: Vec<_> = (0..64).map(|n| runtime.spawn(set(n))).collect();
        tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    }
    let together = 20.0 * 64.0 / start.elapsed().as_secs_f64();
    println!("\n| acknowledged writes of 100 bytes | a second |\n|---|---|");
    println!("| one after the other | {alone:.0} |\n| 64 at once | {together:.0} |");
}

/// Microseconds of one iteration of many.
fn each(run: impl Fn()) -> f64 {
    let start = Instant::now();
    (0..GETS).for_each(|_| run());
    start.elapsed().as_secs_f64() * 1e6 / f64::from(GETS)
}

struct KvGuest {
    host: Host,
    view: View,
}

impl KvGuest {
    fn new(runtime: &tokio::runtime::Runtime, store: Arc<RedbStore>) -> Self {
        let policy = "version = 1\n[plugins.k.grant]\nkv = [\"plugin\"]\n";
        let policy = Policy::parse(policy, Path::new("/"), None).unwrap();
        let host = Host::builder(policy).kv(store).build().unwrap();
        let bytes = std::fs::read(guest_artifacts::CAP_KV).unwrap();
        runtime.block_on(host.load_bytes(PluginId::new("k").unwrap(), bytes)).unwrap();
        let view = host.view(Filter::default());
        Self { host, view }
    }

    /// Microseconds of a call with this number of gets.
    fn call(&self, runtime: &tokio::runtime::Runtime, times: u32) -> f64 {
        let args = json!({"key": KEY, "times": times}).to_string();
        let calls = vec![ToolCall::new("1", "k__gets", args)];
        let start = Instant::now();
        let results = runtime.block_on(self.host.call_all(&self.view, calls, TurnContext::default()));
        let took = start.elapsed().as_secs_f64() * 1e6;
        let structured = results[0].result.as_ref().unwrap().structured.as_ref().unwrap();
        let found: Value = serde_json::from_str(structured.get()).unwrap();
        assert_eq!(found["bytes"], u64::from(times) * 100);
        took
    }
}
