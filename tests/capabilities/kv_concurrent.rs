//! `kv` under concurrent calls: no update is lost, no quota is exceeded, and a cancelled call does not affect others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use integration_tests::{TestHost, fault, outcome, structured};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolbay::core::call::invoke::BoxFuture;
use toolbay::core::session::kv::{Bucket, KvError, KvStore, Quota};
use toolbay::core::tool::fault::FaultKind;
use toolbay::policy::capability::kv::KvScope;
use toolbay::{Filter, PluginId, RedbStore, ToolCall, TurnContext};

use super::kv::{ALL, QUOTA, host};
use crate::sandbox::compile_bombs::soon;

/// Calls one tool 64 times concurrently.
async fn race(host: &TestHost, tool: &str, args: Value) -> Vec<Value> {
    let calls = (0..64).map(|n| ToolCall::new(n.to_string(), tool, args.to_string())).collect();
    let view = host.host.view(Filter::default());
    host.host.call_all(&view, calls, TurnContext::default()).await.iter().map(structured).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_increment_is_lost_among_64_calls() {
    let host = host(&format!("[plugins.k.limits]\nconcurrency = 64\n{ALL}")).await;
    let said = race(&host, "k__count", json!({"times": 10})).await;
    assert!(said.iter().all(|one| one["sum"].is_i64()), "{said:?}");
    assert_eq!(host.ask("k__do", json!({"key": "n"})).await["value"], "640");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_replacement_is_lost_among_64_calls() {
    let host = host(&format!("[plugins.k.limits]\nconcurrency = 64\n{ALL}")).await;
    let said = race(&host, "k__swap", json!({"times": 2})).await;
    assert!(said.iter().all(|one| one["lost"].is_u64()), "{said:?}");
    assert_eq!(host.ask("k__do", json!({"key": "n"})).await["value"], "128");
    let once = race(&host, "k__do", json!({"op": "replace", "key": "lock", "value": "me"})).await;
    assert_eq!(once.iter().filter(|one| one["did"] == true).count(), 1, "one gets the lock");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_race_for_the_last_of_a_quota_do_not_exceed_it() {
    let limits = "[plugins.k.limits]\nconcurrency = 64\nkv_bytes = 1000\nkv_keys = 20\n";
    let host = host(&format!("{limits}{ALL}")).await;
    let view = host.host.view(Filter::default());
    let calls = (0..64).map(|n| {
        let args = json!({"op": "set", "key": format!("k{n:02}"), "value_bytes": 60});
        ToolCall::new(n.to_string(), "k__do", args.to_string())
    });
    let all = host.host.call_all(&view, calls.collect(), TurnContext::default()).await;
    let kept = all.iter().filter(|one| structured(one) == json!({})).count();
    assert_eq!(kept, 15, "15 of 63 bytes are 945");
    let full = all.iter().filter(|one| structured(one) == json!({"error": "quota-exceeded"})).count();
    assert_eq!(full, 49);
    assert_eq!(host.ask("k__do", json!({"op": "keys"})).await["keys"].as_array().unwrap().len(), 15);
}

/// A store that never answers, and counts the questions.
#[derive(Debug, Default)]
struct StuckStore(AtomicUsize);

impl StuckStore {
    fn ask<'a, T: Send + 'a>(&self) -> BoxFuture<'a, T> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::pending())
    }
}

impl KvStore for StuckStore {
    fn get<'a>(&'a self, _: &'a Bucket, _: &'a str) -> BoxFuture<'a, Result<Option<Vec<u8>>, KvError>> {
        self.ask()
    }
    fn set<'a>(
        &'a self,
        _: &'a Bucket,
        _: &'a str,
        _: Vec<u8>,
        _: Option<Duration>,
        _: Quota,
    ) -> BoxFuture<'a, Result<(), KvError>> {
        self.ask()
    }
    fn remove<'a>(&'a self, _: &'a Bucket, _: &'a str) -> BoxFuture<'a, Result<(), KvError>> {
        self.ask()
    }
    fn keys<'a>(
        &'a self,
        _: &'a Bucket,
        _: &'a str,
        _: Option<&'a str>,
        _: u32,
    ) -> BoxFuture<'a, Result<Vec<String>, KvError>> {
        self.ask()
    }
    fn increment<'a>(
        &'a self,
        _: &'a Bucket,
        _: &'a str,
        _: i64,
        _: Quota,
    ) -> BoxFuture<'a, Result<i64, KvError>> {
        self.ask()
    }
    fn replace<'a>(
        &'a self,
        _: &'a Bucket,
        _: &'a str,
        _: Option<Vec<u8>>,
        _: Vec<u8>,
        _: Quota,
    ) -> BoxFuture<'a, Result<bool, KvError>> {
        self.ask()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_for_the_store_ends_when_it_is_cancelled_or_its_time_is_up() {
    let policy = format!("{ALL}[plugins.kk.limits]\ntimeout = \"300ms\"\n");
    let store = Arc::new(StuckStore::default());
    let kv = Arc::clone(&store);
    let host = TestHost::empty_with(&policy, |builder| builder.kv(kv));
    host.load("k", guest_artifacts::CAP_KV).await;
    host.load("kk", guest_artifacts::CAP_KV).await;
    host.load("neighbour", guest_artifacts::API_ECHO).await;
    for op in ["get", "set", "remove", "keys", "increment", "replace"] {
        let args = json!({"op": op, "key": "a", "value": "1"});
        let cancel = CancellationToken::new();
        let turn = TurnContext { cancel: cancel.clone(), ..TurnContext::default() };
        let text = args.to_string();
        let call = host.call_in("k__do", &text, turn);
        let before = store.0.load(Ordering::SeqCst);
        let stop = async {
            soon("the store is asked", || store.0.load(Ordering::SeqCst) > before).await;
            cancel.cancel();
        };
        let (delivered, ()) = tokio::join!(call, stop);
        assert_eq!(outcome(&delivered), "cancelled", "{op}");
    }
    let late = host.provoke("kk__do", json!({"op": "get", "key": "a"}), Duration::from_secs(20)).await;
    assert_eq!(fault(&late).kind, FaultKind::Deadline);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_calls_lose_no_writes_of_others() {
    let store = Arc::new(RedbStore::in_memory());
    let bucket = Bucket::new(PluginId::new("k").unwrap(), KvScope::Plugin, "").unwrap();
    let tasks: Vec<_> = (0..400)
        .map(|n| {
            let (store, bucket) = (Arc::clone(&store), bucket.clone());
            (n, tokio::spawn(async move { store.increment(&bucket, "n", 1, QUOTA).await }))
        })
        .collect();
    let mut kept = 0;
    for (n, task) in tasks {
        if n % 2 == 0 {
            task.abort();
        } else {
            task.await.unwrap().unwrap();
            kept += 1;
        }
    }
    let sum: i64 =
        String::from_utf8(store.get(&bucket, "n").await.unwrap().unwrap()).unwrap().parse().unwrap();
    assert!((kept..=400).contains(&sum), "{sum}");
    assert_eq!(store.usage().await.unwrap()[0].keys, 1);
}
