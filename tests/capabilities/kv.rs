//! `kv`: what a scope opens, and every attempt to reach the state of others. Concurrent calls are in
//! `kv_concurrent`, the file of the store in `kv_file`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use integration_tests::{TestHost, fault, hints, refusal, structured};
use serde_json::{Value, json};
use toolbay::core::call::Identity;
use toolbay::core::session::kv::{Bucket, KvError, KvStore, Quota};
use toolbay::core::tool::fault::FaultKind;
use toolbay::policy::capability::kv::KvScope;
use toolbay::{Filter, PluginId, RedbStore, Session, TurnContext};

pub(super) const ALL: &str = r#"
    [plugins.k.grant]
    kv = ["tool", "plugin", "session", "agent"]
    [plugins.kk.grant]
    kv = ["tool", "plugin", "session", "agent"]
"#;
pub(super) const QUOTA: Quota = Quota { value_bytes: 1 << 20, bytes: 16 << 20, keys: 10_000 };

pub(super) async fn host(policy: &str) -> TestHost {
    TestHost::new(&[("k", guest_artifacts::CAP_KV), ("kk", guest_artifacts::CAP_KV)], policy).await
}

fn session(id: &str) -> TurnContext {
    TurnContext { session: Session::with_name(id).into(), ..TurnContext::default() }
}

fn agent(agent: Option<&str>, personality: Option<&str>) -> TurnContext {
    let owned = |id: Option<&str>| id.map(ToOwned::to_owned);
    let identity =
        Identity { agent_id: owned(agent), personality_id: owned(personality), ..Identity::default() };
    TurnContext { identity, ..TurnContext::default() }
}

async fn ask_as(host: &TestHost, turn: TurnContext, tool: &str, args: Value) -> Value {
    structured(&host.call_in(tool, &args.to_string(), turn).await)
}

/// All parties of a test that might share state: plugin, tool, caller, scope.
fn owners() -> Vec<(&'static str, &'static str, TurnContext, &'static str)> {
    vec![
        ("k", "do", TurnContext::default(), "plugin"),
        ("kk", "do", TurnContext::default(), "plugin"),
        ("k", "do", TurnContext::default(), "tool"),
        ("k", "other", TurnContext::default(), "tool"),
        ("kk", "do", TurnContext::default(), "tool"),
        ("k", "do", session("1"), "session"),
        ("k", "do", session("2"), "session"),
        ("k", "do", session("do"), "session"),
        ("k", "do", session("1\0"), "session"),
        ("k", "do", session("11"), "session"),
        ("kk", "do", session("1"), "session"),
        ("k", "do", agent(Some("1"), None), "agent"),
        ("k", "do", agent(Some("2"), Some("1")), "agent"),
        ("k", "do", agent(None, Some("1")), "agent"),
        ("k", "do", agent(None, Some("agent:1")), "agent"),
        ("kk", "do", agent(Some("1"), None), "agent"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn granted_operations_succeed() {
    let host = host(ALL).await;
    let run = |args: Value| ask_as(&host, session("s"), "k__do", args);
    for scope in ["tool", "plugin", "session"] {
        let with = |op: Value| {
            let mut args = json!({"scope": scope, "key": "a"});
            args.as_object_mut().unwrap().extend(op.as_object().unwrap().clone());
            args
        };
        assert_eq!(run(with(json!({}))).await, json!({"value": null}), "{scope}");
        assert_eq!(run(with(json!({"op": "set", "value": "1"}))).await, json!({}));
        assert_eq!(run(with(json!({}))).await, json!({"value": "1"}));
        assert_eq!(run(with(json!({"op": "increment", "by": -3}))).await, json!({"sum": -2}));
        assert_eq!(
            run(with(json!({"op": "replace", "expected": "1", "value": "x"}))).await,
            json!({"did": false})
        );
        assert_eq!(
            run(with(json!({"op": "replace", "expected": "-2", "value": "x"}))).await,
            json!({"did": true})
        );
        assert_eq!(run(with(json!({"op": "replace", "value": "y"}))).await, json!({"did": false}));
        assert_eq!(run(with(json!({"op": "keys"}))).await, json!({"keys": ["a"]}));
        assert_eq!(run(with(json!({"op": "remove"}))).await, json!({}));
        assert_eq!(run(with(json!({"op": "remove"}))).await, json!({}), "what is not there is removed too");
        assert_eq!(run(with(json!({"op": "replace", "value": "y"}))).await, json!({"did": true}));
        assert_eq!(run(with(json!({"key": "never"}))).await, json!({"value": null}));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_scope_is_denied_by_itself() {
    for granted in ["tool", "plugin", "session", "agent"] {
        let host = host(&format!("[plugins.k.grant]\nkv = [\"{granted}\"]")).await;
        let turn = || TurnContext { session: session("s").session, ..agent(Some("a"), None) };
        for scope in ["tool", "plugin", "session", "agent"] {
            for op in ["get", "set", "remove", "keys", "increment", "replace"] {
                let args = json!({"op": op, "scope": scope, "key": "a", "value": "1"});
                let said = ask_as(&host, turn(), "k__do", args.clone()).await;
                if scope == granted {
                    assert!(said.get("error").is_none_or(|e| e != "denied"), "{scope} {op}: {said}");
                    continue;
                }
                assert_eq!(said["error"], "denied", "{scope} {op}: {said}");
                assert!(said["message"].as_str().unwrap().contains("`toolbay explain k__do`"), "{said}");
                let other = ask_as(&host, turn(), "kk__do", args).await;
                assert_eq!(other["error"], "denied", "another plugin's grant is not its own: {other}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn undeclared_scopes_are_denied_and_missing_required_ones_make_the_tool_unavailable() {
    let host = host(ALL).await;
    assert_eq!(host.ask("k__undeclared", json!({"key": "a"})).await["error"], "denied");
    assert_eq!(host.ask("k__only_tool", json!({"key": "a", "scope": "tool"})).await["value"], json!(null));
    assert_eq!(host.ask("k__only_tool", json!({"key": "a", "scope": "plugin"})).await["error"], "denied");
    let narrow = "[plugins.k.grant]\nkv = [\"plugin\"]\n[plugins.k.tools.do]\nkv = []";
    let host = self::host(narrow).await;
    assert_eq!(host.ask("k__do", json!({"key": "a"})).await["error"], "denied");
    assert_eq!(host.ask("k__other", json!({"key": "a"})).await["value"], json!(null));
    let none = self::host("").await;
    let delivered = none.call("k__must", json!({"key": "a"})).await;
    assert!(!refusal(&delivered).message.contains("[plugins"), "{delivered:?}");
    assert!(hints(&delivered).contains("[plugins.k.grant]"), "{delivered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn plugins_do_not_see_keys_of_each_other() {
    let host = host(ALL).await;
    for (n, (plugin, tool, turn, scope)) in owners().into_iter().enumerate() {
        let name = format!("{plugin}__{tool}");
        let listed = ask_as(&host, turn.clone(), &name, json!({"op": "keys", "scope": scope})).await;
        assert_eq!(listed, json!({"keys": []}), "{n}: what others set is not listed");
        for key in ["shared", &format!("own-{n}")] {
            let got = ask_as(&host, turn.clone(), &name, json!({"scope": scope, "key": key})).await;
            assert_eq!(got, json!({"value": null}), "{n} {key}");
            let args = json!({"op": "set", "scope": scope, "key": key, "value": n.to_string()});
            assert_eq!(ask_as(&host, turn.clone(), &name, args).await, json!({}));
        }
    }
    for (n, (plugin, tool, turn, scope)) in owners().into_iter().enumerate() {
        let name = format!("{plugin}__{tool}");
        let got = ask_as(&host, turn.clone(), &name, json!({"scope": scope, "key": "shared"})).await;
        assert_eq!(got, json!({"value": n.to_string()}), "{n}: the last of all did not overwrite it");
        let listed = ask_as(&host, turn.clone(), &name, json!({"op": "keys", "scope": scope})).await;
        assert_eq!(listed, json!({"keys": [format!("own-{n}"), "shared"]}), "{n}");
        let args = json!({"op": "remove", "scope": scope, "key": "shared"});
        ask_as(&host, turn, &name, args).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_can_be_made_to_mean_another_bucket() {
    let host = host(ALL).await;
    let set = |who: TurnContext, key: &str| {
        ask_as(&host, who, "k__do", json!({"op": "set", "scope": "session", "key": key, "value": "canary"}))
    };
    set(session("ab"), "c").await;
    set(session("a"), "x").await;
    for key in
        ["bc", "abc", "\0bc", "../ab/c", "ab\0c", "\u{1}ks\0\u{2}abc", "s\0\u{2}abc", "ab/c", "*", "%", "b"]
    {
        let args = json!({"scope": "session", "key": key});
        assert_eq!(ask_as(&host, session("a"), "k__do", args).await, json!({"value": null}), "{key:?}");
        let args = json!({"op": "keys", "scope": "session", "prefix": key});
        assert_eq!(ask_as(&host, session("a"), "k__do", args).await, json!({"keys": []}), "{key:?}");
        let args = json!({"op": "keys", "scope": "session", "after": key});
        let listed = ask_as(&host, session("a"), "k__do", args).await;
        let own = if key < "x" { json!(["x"]) } else { json!([]) };
        assert_eq!(listed["keys"], own, "{key:?}");
    }
    for owner in ["", "a\0", "A", "abc", "ä"] {
        let said = ask_as(&host, session(owner), "k__do", json!({"op": "keys", "scope": "session"})).await;
        assert!(!said.to_string().contains("\"c\"") && !said.to_string().contains("\"x\""), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_needs_a_session_or_an_agent() {
    let host = host(ALL).await;
    let long = "s".repeat(100_000);
    for (turn, scope) in [
        (TurnContext::default(), "session"),
        (session(""), "session"),
        (session(&long), "session"),
        (TurnContext::default(), "agent"),
        (agent(Some(""), Some("")), "agent"),
        (agent(Some(&long), None), "agent"),
    ] {
        for op in ["get", "set", "keys", "increment"] {
            let args = json!({"op": op, "scope": scope, "key": "a", "value": "1"});
            let said = ask_as(&host, turn.clone(), "k__do", args).await;
            assert_eq!(said["error"], "other", "{scope} {op}: {said}");
            let message = said["message"].as_str().unwrap();
            assert!(message.contains(scope) && message.len() < 200, "{message}");
        }
    }
}

/// Asks until the answer is this one, because a time is up.
async fn until(host: &TestHost, args: Value, answer: Value) {
    let start = Instant::now();
    loop {
        let said = host.ask("k__do", args.clone()).await;
        if said == answer {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{args}: {said}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_is_gone_when_its_time_is_up_for_every_operation() {
    let host = host(ALL).await;
    for key in ["get", "keys", "replace", "increment"] {
        let args = json!({"op": "set", "key": key, "value": "7", "ttl": 2});
        assert_eq!(host.ask("k__do", args).await, json!({}));
    }
    host.ask("k__do", json!({"op": "set", "key": "long", "value": "7", "ttl": u32::MAX})).await;
    assert_eq!(host.ask("k__do", json!({"op": "increment", "key": "increment"})).await["sum"], 8);
    let replaced = json!({"op": "replace", "key": "replace", "expected": "7", "value": "8"});
    assert_eq!(host.ask("k__do", replaced).await["did"], true, "its time runs on");
    until(&host, json!({"key": "get"}), json!({"value": null})).await;
    until(&host, json!({"op": "keys"}), json!({"keys": ["long"]})).await;
    let replaced = json!({"op": "replace", "key": "replace", "expected": "8", "value": "9"});
    assert_eq!(host.ask("k__do", replaced).await["did"], false);
    assert_eq!(
        host.ask("k__do", json!({"op": "replace", "key": "replace", "value": "9"})).await["did"],
        true
    );
    assert_eq!(host.ask("k__do", json!({"op": "increment", "key": "increment"})).await["sum"], 1);
    host.ask("k__do", json!({"op": "set", "key": "long", "value": "7", "ttl": 0})).await;
    assert_eq!(host.ask("k__do", json!({"key": "long"})).await, json!({"value": null}), "no time at all");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_quota_is_reached_at_its_number_and_given_back() {
    let limits = "[plugins.k.limits]\nkv_value_bytes = 100\nkv_bytes = 1000\nkv_keys = 5\n";
    let host = host(&format!("{limits}{ALL}")).await;
    let set =
        |key: &str, bytes: usize| host.ask("k__do", json!({"op": "set", "key": key, "value_bytes": bytes}));
    assert_eq!(set("v", 100).await, json!({}));
    assert_eq!(set("v", 101).await, json!({"error": "too-large", "size": 101}));
    let swapped = json!({"op": "replace", "key": "new", "value_bytes": 101});
    assert_eq!(host.ask("k__do", swapped).await, json!({"error": "too-large", "size": 101}));
    // Five keys in total, for every scope and operation.
    for key in ["a", "b", "c"] {
        assert_eq!(set(key, 1).await, json!({}));
    }
    let increment = json!({"op": "increment", "scope": "tool", "key": "n"});
    assert_eq!(host.ask("k__do", increment.clone()).await, json!({"sum": 1}));
    for args in [
        json!({"op": "set", "key": "d", "value": "1"}),
        json!({"op": "increment", "key": "d"}),
        json!({"op": "replace", "key": "d", "value": "1"}),
        json!({"op": "set", "scope": "tool", "key": "d", "value": ""}),
    ] {
        assert_eq!(host.ask("k__do", args.clone()).await, json!({"error": "quota-exceeded"}), "{args}");
    }
    assert_eq!(host.ask("k__do", increment).await, json!({"sum": 2}), "what is there can be changed");
    assert_eq!(host.ask("kk__do", json!({"op": "set", "key": "d", "value": "1"})).await, json!({}));
    host.ask("k__do", json!({"op": "remove", "key": "a"})).await;
    assert_eq!(set("d", 1).await, json!({}), "given back");
    // Expired entries free their quota, swept or not.
    host.ask("k__do", json!({"op": "set", "key": "d", "value": "1", "ttl": 1})).await;
    assert_eq!(set("e", 1).await, json!({"error": "quota-exceeded"}));
    until(&host, json!({"op": "set", "key": "e", "value_bytes": 1}), json!({})).await;

    let limits = "[plugins.k.limits]\nkv_bytes = 1000\n";
    let host = self::host(&format!("{limits}{ALL}")).await;
    let set =
        |key: &str, bytes: usize| host.ask("k__do", json!({"op": "set", "key": key, "value_bytes": bytes}));
    assert_eq!(set("half", 496).await, json!({}));
    assert_eq!(set("full", 497).await, json!({"error": "quota-exceeded"}), "keys count");
    assert_eq!(set("full", 496).await, json!({}));
    let empty = json!({"op": "set", "key": "x", "value": ""});
    assert_eq!(
        host.ask("k__do", empty.clone()).await,
        json!({"error": "quota-exceeded"}),
        "an empty one too"
    );
    assert_eq!(set("half", 497).await, json!({"error": "quota-exceeded"}));
    for _ in 0..20 {
        assert_eq!(set("half", 496).await, json!({}), "overwriting counts once");
    }
    assert_eq!(set("half", 495).await, json!({}));
    assert_eq!(host.ask("k__do", empty).await, json!({}), "a byte was given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lowered_quota_lets_a_plugin_shrink() {
    let store = Arc::new(RedbStore::in_memory());
    let bucket = Bucket::new(PluginId::new("k").unwrap(), KvScope::Plugin, "").unwrap();
    for key in ["a", "b", "c"] {
        store.set(&bucket, key, vec![0; 100], None, QUOTA).await.unwrap();
    }
    let low = Quota { bytes: 50, keys: 1, ..QUOTA };
    assert_eq!(store.set(&bucket, "a", vec![0; 101], None, low).await, Err(KvError::QuotaExceeded));
    assert_eq!(store.set(&bucket, "d", vec![0; 1], None, low).await, Err(KvError::QuotaExceeded));
    assert_eq!(store.set(&bucket, "a", vec![0; 10], None, low).await, Ok(()));
    assert_eq!(store.remove(&bucket, "b").await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_keys_and_numbers_end_in_an_error_or_work() {
    let host = host(ALL).await;
    for key in
        ["\0", "a\0b", "ü", "日本語", "\u{10ffff}", " ", "a b", "../..", "\n\r\x1b[31m", "%s%n", "\u{202e}"]
    {
        let args = json!({"op": "set", "key": key, "value": key});
        assert_eq!(host.ask("k__do", args).await, json!({}), "{key:?}");
        assert_eq!(host.ask("k__do", json!({"key": key})).await["value"], key, "{key:?}");
        let listed = host.ask("k__do", json!({"op": "keys", "prefix": key})).await;
        assert_eq!(listed["keys"][0], key, "{key:?}");
    }
    assert_eq!(host.ask("k__do", json!({"op": "set", "key_bytes": 512, "value": "1"})).await, json!({}));
    for args in [
        json!({"op": "set", "key": "", "value": "1"}),
        json!({"op": "get", "key": ""}),
        json!({"op": "set", "key_bytes": 513, "value": "1"}),
        json!({"op": "get", "key_bytes": 5_000_000}),
        json!({"op": "remove", "key_bytes": 513}),
        json!({"op": "increment", "key_bytes": 513}),
        json!({"op": "replace", "key_bytes": 513}),
        json!({"op": "keys", "prefix_bytes": 513}),
        json!({"op": "keys", "prefix_bytes": 5_000_000}),
        json!({"op": "keys", "after": "x".repeat(513)}),
    ] {
        let said = host.ask("k__do", args.clone()).await;
        assert_eq!(said["error"], "other", "{args:.100}: {said}");
        assert!(said.to_string().len() < 300, "{said}");
    }
    for (value, sum) in [
        ("0", json!({"sum": 1})),
        ("-1", json!({"sum": 0})),
        ("007", json!({"sum": 8})),
        ("9223372036854775806", json!({"sum": i64::MAX})),
        ("", json!({"error": "not-a-number"})),
        ("+1", json!({"error": "not-a-number"})),
        (" 1", json!({"error": "not-a-number"})),
        ("1.0", json!({"error": "not-a-number"})),
        ("0x1", json!({"error": "not-a-number"})),
        ("٣", json!({"error": "not-a-number"})),
        ("9223372036854775808", json!({"error": "not-a-number"})),
        ("1\0", json!({"error": "not-a-number"})),
    ] {
        host.ask("k__do", json!({"op": "set", "key": "n", "value": value})).await;
        assert_eq!(host.ask("k__do", json!({"op": "increment", "key": "n"})).await, sum, "{value:?}");
    }
    for (value, by) in [(i64::MAX, 1), (i64::MIN, -1), (i64::MIN, i64::MIN), (1, i64::MAX)] {
        host.ask("k__do", json!({"op": "set", "key": "n", "value": value.to_string()})).await;
        let said = host.ask("k__do", json!({"op": "increment", "key": "n", "by": by})).await;
        assert_eq!(said["error"], "other", "{value} + {by}: {said}");
        assert_eq!(host.ask("k__do", json!({"key": "n"})).await["value"], value.to_string(), "unchanged");
    }
    let huge = host.call("k__do", json!({"op": "set", "key": "huge", "value_bytes": 20 << 20})).await;
    assert_eq!(fault(&huge).kind, FaultKind::OutputTooLarge);
    let large = host.ask("k__do", json!({"op": "set", "key": "huge", "value_bytes": (1 << 20) + 1})).await;
    assert_eq!(large["error"], "too-large", "{large}");
    assert_eq!(host.ask("k__do", json!({"key": "huge"})).await["value"], json!(null));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_is_sorted_bounded_and_continues_at_its_cursor() {
    let store = Arc::new(RedbStore::in_memory());
    let host = TestHost::empty_with(ALL, |builder| builder.kv(Arc::clone(&store) as _));
    host.load("k", guest_artifacts::CAP_KV).await;
    let bucket = Bucket::new(PluginId::new("k").unwrap(), KvScope::Plugin, "").unwrap();
    let keys: Vec<String> = (0..2100).map(|n| format!("p/{:05}", n * 7919 % 100_000)).collect();
    let sets = keys.iter().map(|key| store.set(&bucket, key, b"1".to_vec(), None, QUOTA));
    for done in futures(sets).await {
        done.unwrap();
    }
    for key in ["o", "p", "p0", "q", "p/\u{10ffff}"] {
        store.set(&bucket, key, b"1".to_vec(), None, QUOTA).await.unwrap();
    }
    let list = |args: Value| {
        let mut all = json!({"op": "keys"});
        all.as_object_mut().unwrap().extend(args.as_object().unwrap().clone());
        let host = &host;
        async move {
            let said = host.ask("k__do", all).await;
            let keys = said["keys"].as_array().unwrap_or_else(|| panic!("{said}"));
            keys.iter().map(|key| key.as_str().unwrap().to_owned()).collect::<Vec<_>>()
        }
    };
    let mut sorted = keys.clone();
    sorted.sort();
    sorted.push("p/\u{10ffff}".to_owned());
    for (limit, count) in [(0u64, 0), (1, 1), (999, 999), (1000, 1000), (1001, 1000), (u32::MAX.into(), 1000)]
    {
        let listed = list(json!({"prefix": "p/", "limit": limit})).await;
        assert_eq!(listed, sorted[..count], "{limit}");
    }
    let mut paged: Vec<String> = Vec::new();
    loop {
        let after = paged.last().cloned();
        let page = list(json!({"prefix": "p/", "after": after, "limit": 700})).await;
        if page.is_empty() {
            break;
        }
        paged.extend(page);
        // Entries added or removed during a listing do not disturb it.
        store.remove(&bucket, paged.last().unwrap()).await.unwrap();
    }
    assert_eq!(paged, sorted);
    for (args, expected) in [
        (json!({"after": "p/\u{10ffff}"}), vec!["p0", "q"]),
        (json!({"prefix": "p/", "after": "p0"}), vec![]),
        (json!({"prefix": "p/", "after": "q"}), vec![]),
        (json!({"prefix": "p/", "after": "a", "limit": 1}), vec![sorted[0].as_str()]),
        (json!({"prefix": "p/", "after": "p/", "limit": 1}), vec![sorted[0].as_str()]),
        (json!({"prefix": "p/", "after": "", "limit": 1}), vec![sorted[0].as_str()]),
        (json!({"prefix": "", "limit": 2}), vec!["o", "p"]),
        (json!({"prefix": "z"}), vec![]),
        (json!({"prefix": "\u{10ffff}"}), vec![]),
    ] {
        assert_eq!(list(args.clone()).await, expected, "{args}");
    }
}

/// Runs futures concurrently and waits for all of them.
async fn futures<F: Future>(all: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = all.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, slot) in running.iter_mut().zip(&mut done) {
            if slot.is_none()
                && let std::task::Poll::Ready(output) = future.as_mut().poll(context)
            {
                *slot = Some(output);
            }
        }
        if done.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_queries_and_reducers_have_no_state() {
    let store = Arc::new(RedbStore::in_memory());
    let policy = "[plugins.k.grant]\nkv = [\"plugin\"]";
    let host = TestHost::empty_with(policy, |builder| builder.kv(Arc::clone(&store) as _).no_cache());
    host.load("k", guest_artifacts::CAP_KV_SEALED).await;
    let view = host.host.view(Filter::default());
    assert_eq!(view.definitions().next().unwrap().def.description, "denied");
    let delivered = host.call("k__shown", json!({})).await;
    assert!(!format!("{delivered:?}").contains("REACHED"), "{delivered:?}");
    assert_eq!(store.usage().await.unwrap(), []);
}

/// The rows of the tables of a page whose first column is code, without the code marks.
fn rows(page: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| line.trim_matches('|').split('|').map(|c| c.trim().replace('`', "")).collect();
    page.lines().filter(|line| line.starts_with("| `")).map(cells).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_of_the_page_match_behaviour() {
    let page = include_str!("../../docs/reference/capabilities/kv.md");
    let (_, page) = page.split_once("\n## Examples\n").unwrap();
    let (examples, _) = page.split_once("\n## Limits\n").unwrap();
    let host = host(ALL).await;
    let rows = rows(examples);
    assert!(!rows.is_empty());
    for row in rows {
        let [operation, answer] = &row[..] else { panic!("{row:?}") };
        let words: Vec<String> = operation
            .split(' ')
            .map(|word| match word.split_once('×') {
                Some((text, times)) => text.repeat(times.parse().unwrap()),
                None => word.to_owned(),
            })
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let some = |word: &str| if word == "-" { json!(null) } else { json!(word) };
        let args = match words[..] {
            [op @ ("get" | "remove"), scope, key] => json!({"op": op, "scope": scope, "key": key}),
            ["set", scope, key, value] => json!({"op": "set", "scope": scope, "key": key, "value": value}),
            ["increment", scope, key, by] => {
                json!({"op": "increment", "scope": scope, "key": key, "by": by.parse::<i64>().unwrap()})
            }
            ["replace", scope, key, expected, value] => {
                json!({"op": "replace", "scope": scope, "key": key, "expected": some(expected), "value": value})
            }
            ["keys", scope, prefix, after, limit] => {
                let (prefix, limit) = (some(prefix), limit.parse::<u64>().unwrap());
                json!({"op": "keys", "scope": scope, "prefix": prefix, "after": some(after), "limit": limit})
            }
            _ => panic!("{operation}"),
        };
        let said = ask_as(&host, session("s1"), "k__do", args).await;
        let text = match &said {
            said if said["error"].is_string() => said["error"].as_str().unwrap().to_owned(),
            said if said.get("value") == Some(&Value::Null) => "nothing".to_owned(),
            said if said["value"].is_string() => said["value"].as_str().unwrap().to_owned(),
            said if said["sum"].is_i64() => said["sum"].to_string(),
            said if said["did"].is_boolean() => said["did"].to_string(),
            said if said["keys"].is_array() => {
                let keys = said["keys"].as_array().unwrap().iter().map(|key| key.as_str().unwrap());
                keys.collect::<Vec<_>>().join(" ")
            }
            _ => "ok".to_owned(),
        };
        assert_eq!(&text, answer, "{operation:.100}");
    }
}
