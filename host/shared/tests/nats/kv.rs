//! Key-value storage that servers share.

use std::sync::Arc;
use std::time::Duration;

use toolbay_core::session::kv::{Bucket, KvError, KvStore, Quota};
use toolbay_policy::capability::kv::KvScope;
use toolbay_policy::name::PluginId;
use toolbay_shared::clock::StoreClock;
use toolbay_shared::storage::NatsKvStore;

use crate::server::{CLUSTER, NatsServer, plugin, storage_plan};

const QUOTA: Quota = Quota { value_bytes: 2 << 20, bytes: 2 << 20, keys: 50 };

fn bucket(scope: KvScope, owner: &str) -> Bucket {
    Bucket::new(plugin(), scope, owner).unwrap()
}

/// A store of each of two servers.
async fn stores(server: &NatsServer) -> [Arc<NatsKvStore>; 2] {
    server.create_storage(&storage_plan(QUOTA.keys, QUOTA.bytes, Duration::from_secs(60))).await;
    // Their own clocks differ: the second one has never seen that of the store.
    [
        Arc::new(server.replica("a").await.0.kv_store()),
        Arc::new(NatsKvStore::new(server.connect("b").await, StoreClock::default())),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_the_same_on_all_servers() {
    let server = NatsServer::start();
    let [one, two] = stores(&server).await;
    let (all, session) = (bucket(KvScope::Plugin, ""), bucket(KvScope::Session, "s.\0*>"));
    for key in ["a", "a.b", "ü *>", "\0", &"k".repeat(512)] {
        one.set(&all, key, key.as_bytes().to_vec(), None, QUOTA).await.unwrap();
        assert_eq!(two.get(&all, key).await.unwrap().unwrap(), key.as_bytes(), "{key:?}");
        assert_eq!(two.get(&session, key).await.unwrap(), None, "{key:?}");
    }
    two.set(&session, "mine", Vec::new(), None, QUOTA).await.unwrap();
    assert_eq!(one.get(&session, "mine").await.unwrap().unwrap(), b"");
    let listed = one.keys(&all, "", None, 1000).await.unwrap();
    assert_eq!(listed, ["\0", "a", "a.b", &"k".repeat(512), "ü *>"]);
    assert_eq!(one.keys(&all, "a", Some("a"), 1000).await.unwrap(), ["a.b"]);
    assert_eq!(one.keys(&all, "", None, 2).await.unwrap(), ["\0", "a"]);
    one.remove(&all, "a").await.unwrap();
    one.remove(&all, "a").await.unwrap();
    two.set(&all, "\0", Vec::new(), Some(Duration::ZERO), QUOTA).await.unwrap();
    assert_eq!(two.keys(&all, "", None, 2).await.unwrap(), ["a.b", &"k".repeat(512)]);
}

/// In a cluster, NATS refuses a concurrent write with an error of its own. A third of the increments failed.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_increments_at_once_on_three_nats_servers_all_count() {
    const EACH: usize = 10;
    const TASKS: usize = 1000;
    let servers = NatsServer::cluster();
    servers[0].publication_on(CLUSTER).await;
    let plan = storage_plan(QUOTA.keys, QUOTA.bytes, Duration::from_secs(60));
    servers[0].create_storage_on(&plan, CLUSTER).await;
    let mut stores = Vec::new();
    for server in &servers {
        let connection = server.connect("r").await;
        stores.push(Arc::new(NatsKvStore::new(connection, StoreClock::default())));
    }
    let all = bucket(KvScope::Plugin, "");
    let mut tasks = Vec::new();
    for at in 0..TASKS {
        let (store, all) = (Arc::clone(&stores[at % stores.len()]), all.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..EACH {
                store.increment(&all, "n", 1, QUOTA).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let total = (TASKS * EACH).to_string();
    assert_eq!(stores[0].get(&all, "n").await.unwrap().unwrap(), total.into_bytes());
    // One of several that replace the same value wins; for the others it is another value, and no error.
    let replace = |at: usize| {
        let (store, all) = (Arc::clone(&stores[at % stores.len()]), all.clone());
        async move { store.replace(&all, "r", None, at.to_string().into_bytes(), QUOTA).await.unwrap() }
    };
    let won = futures_util::future::join_all((0..60).map(replace)).await;
    assert_eq!(won.iter().filter(|won| **won).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_increment_counts_once() {
    let server = NatsServer::start();
    let stores = stores(&server).await;
    let all = bucket(KvScope::Plugin, "");
    let mut tasks = Vec::new();
    for at in 0..8 {
        let (store, all) = (Arc::clone(&stores[at % 2]), all.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..10 {
                store.increment(&all, "n", 1, QUOTA).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let [one, two] = &stores;
    assert_eq!(one.get(&all, "n").await.unwrap().unwrap(), b"80");
    one.set(&all, "t", b"text".to_vec(), None, QUOTA).await.unwrap();
    assert_eq!(two.increment(&all, "t", 1, QUOTA).await, Err(KvError::NotANumber));
    one.set(&all, "t", i64::MAX.to_string().into_bytes(), None, QUOTA).await.unwrap();
    assert!(matches!(two.increment(&all, "t", 1, QUOTA).await, Err(KvError::Other(_))));
    let text = |text: &str| text.as_bytes().to_vec();
    assert!(!one.replace(&all, "n", Some(text("79")), text("x"), QUOTA).await.unwrap());
    assert!(one.replace(&all, "n", Some(text("80")), text("x"), QUOTA).await.unwrap());
    assert!(!two.replace(&all, "n", None, text("y"), QUOTA).await.unwrap());
    assert!(two.replace(&all, "new", None, text("y"), QUOTA).await.unwrap());
    one.remove(&all, "new").await.unwrap();
    assert!(two.replace(&all, "new", None, text("z"), QUOTA).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_expires_once_however_it_is_changed() {
    let server = NatsServer::start();
    let [one, two] = stores(&server).await;
    let all = bucket(KvScope::Plugin, "");
    one.set(&all, "n", b"1".to_vec(), Some(Duration::from_secs(2)), QUOTA).await.unwrap();
    let end = std::time::Instant::now() + Duration::from_secs(2);
    let mut last = 1;
    while let Some(value) = two.get(&all, "n").await.unwrap() {
        let late = std::time::Instant::now().saturating_duration_since(end);
        assert!(late < Duration::from_millis(500), "{late:?}");
        assert_eq!(value, last.to_string().into_bytes());
        if std::time::Instant::now() < end - Duration::from_millis(300) {
            last = two.increment(&all, "n", 1, QUOTA).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(std::time::Instant::now() > end - Duration::from_millis(100) && last > 5, "{last}");
    assert_eq!(one.increment(&all, "n", 1, QUOTA).await, Ok(1), "it starts again");
    one.set(&all, "n", b"1".to_vec(), None, QUOTA).await.unwrap();
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(one.get(&all, "n").await.unwrap().unwrap(), b"1", "no expiry is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quota_of_a_plugin_holds_for_all_servers() {
    let server = NatsServer::start();
    let [one, two] = stores(&server).await;
    let all = bucket(KvScope::Plugin, "");
    for n in 0..50 {
        let store = if n % 2 == 0 { &one } else { &two };
        store.set(&all, &n.to_string(), vec![0; 1000], None, QUOTA).await.unwrap();
    }
    assert_eq!(two.set(&all, "50", vec![0], None, QUOTA).await, Err(KvError::QuotaExceeded));
    two.set(&all, "7", vec![1; 1000], None, QUOTA).await.unwrap();
    one.remove(&all, "7").await.unwrap();
    two.set(&all, "50", vec![0], None, QUOTA).await.unwrap();
    one.remove(&all, "8").await.unwrap();
    one.remove(&all, "9").await.unwrap();
    let beyond = KvError::Other("the value is larger than `max_payload` of NATS".to_owned());
    assert_eq!(two.set(&all, "8", vec![0; (1 << 20) + 1], None, QUOTA).await, Err(beyond));
    for key in ["8", "9"] {
        two.set(&all, key, vec![0; 1_000_000], None, QUOTA).await.unwrap();
    }
    assert_eq!(two.set(&all, "10", vec![0; 100_000], None, QUOTA).await, Err(KvError::QuotaExceeded));
    let small = Quota { value_bytes: 10, ..QUOTA };
    assert_eq!(one.set(&all, "9", vec![0; 11], None, small).await, Err(KvError::TooLarge(11)));
    let other = Bucket::new(PluginId::new("other").unwrap(), KvScope::Plugin, "").unwrap();
    let missing = one.get(&other, "k").await.unwrap_err();
    assert!(missing.to_string().contains("toolbay shared publish"), "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_answer_is_an_error() {
    let mut server = NatsServer::start();
    let [one, _] = stores(&server).await;
    let all = bucket(KvScope::Plugin, "");
    one.set(&all, "k", b"v".to_vec(), None, QUOTA).await.unwrap();
    server.kill();
    let failed = one.set(&all, "k", b"w".to_vec(), None, QUOTA).await.unwrap_err();
    assert!(failed.to_string().contains("did not answer"), "{failed}");
    server.restart();
    let mut value = None;
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while value.is_none() && std::time::Instant::now() < end {
        value = one.get(&all, "k").await.unwrap_or(None);
    }
    assert!(value.is_some());
}
