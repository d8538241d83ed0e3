//! Cancellation: whatever a call does when it is cancelled, its work stops soon, other calls continue, and no resource
//! is left behind.

use std::time::{Duration, Instant};

use integration_tests::{NEIGHBOUR, SETTLED, TestHost, in_a_process, outcome, value};
use serde_json::json;
use toolbay::{Filter, PluginId, ToolCall, TurnContext};

use crate::sandbox::compile_bombs::soon;
use crate::sandbox::leaks::ProcessResources;

/// The bound is half a second. A loaded machine may take longer. By itself, a reduction and a metadata query end after
/// five seconds, and a call after two minutes.
const AT_ONCE: Duration = Duration::from_secs(3);
const LIMITS: &str = "[host]\nparallel_calls = 8\n[limits]\nfuel = 1_000_000_000_000\ntimeout = \"120s\"";

/// Starts a call, cancels it, and checks that it ends and that another call works.
async fn cancelled(host: &TestHost, tool: &str, args: &str) {
    let places = host.host.available_call_permits();
    let turn = TurnContext::default();
    let cancel = turn.cancel.clone();
    let canceller = async {
        host.until_running(1).await;
        // A call that is reduced runs first, for a moment.
        tokio::time::sleep(2 * SETTLED).await;
        cancel.cancel();
        Instant::now()
    };
    let (delivered, cancelled) = tokio::join!(host.call_in(tool, args, turn), canceller);
    let took = cancelled.elapsed();
    assert!(took < AT_ONCE, "{tool} {args} went on for {took:?}");
    assert!(matches!(outcome(&delivered), "cancelled" | "ok"), "{tool} {args}: {:?}", delivered.result);
    soon("a place is still taken", || host.host.available_call_permits() == places).await;
    let after = host.call(&format!("{NEIGHBOUR}__echo"), json!({})).await;
    assert_eq!(value(&after), "{}", "{tool} {args}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_call_does_it_ends_when_it_is_cancelled() {
    if in_a_process("calls::cancellation::whatever_a_call_does_it_ends_when_it_is_cancelled", "ulimit -c 0") {
        return;
    }
    let guests = [
        ("spin", guest_artifacts::HOSTILE_SPIN),
        ("sleep", guest_artifacts::HOSTILE_SLEEP),
        ("calls", guest_artifacts::HOSTILE_HOSTCALLS),
        ("r", guest_artifacts::REDUCE_BAD),
    ];
    let host = TestHost::new(&guests, LIMITS).await;
    let ways = [
        ("spin__spin", "{}"),
        ("sleep__sleep", "{}"),
        ("sleep__naps", "{}"),
        ("sleep__poll", "{}"),
        ("calls__log", "{}"),
        ("calls__progress", "{}"),
        ("calls__context", "{}"),
        // The call is finished, but its reducer still runs.
        ("r__produce", r#"{"reduce": "spin"}"#),
        ("r__produce", r#"{"reduce": "sleep"}"#),
    ];
    // A first round creates what stays by design: threads of the pools and mapped code.
    for (tool, args) in ways {
        cancelled(&host, tool, args).await;
    }
    let before = ProcessResources::now();
    for (tool, args) in ways {
        cancelled(&host, tool, args).await;
    }
    let after = ProcessResources::now();
    assert!(after.threads <= before.threads + 2 && after.files <= before.files, "{before:?}, then {after:?}");
    let cpu = ProcessResources::cpu();
    tokio::time::sleep(Duration::from_millis(400)).await;
    let used = ProcessResources::cpu() - cpu;
    assert!(used < Duration::from_millis(200), "{used:?} of CPU in 400 ms after all were cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_for_a_place_leaves_at_once() {
    let policy = LIMITS.replace("parallel_calls = 8", "parallel_calls = 1");
    let granted = "[plugins.f.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace\"]\n";
    let guests = [("sleep", guest_artifacts::HOSTILE_SLEEP), ("f", guest_artifacts::CAP_FILES)];
    let host = TestHost::new(&guests, &format!("{granted}{policy}")).await;
    std::fs::write(host.root().join("a"), "").unwrap();
    // It runs until there is a file `end`.
    let running = {
        let (host, view) = (host.host.clone(), host.host.view(Filter::default()));
        let args = r#"{"path": "a", "until": "end", "text": "x"}"#;
        let calls = vec![ToolCall::new("1", "f__read_wait_write", args)];
        tokio::spawn(async move { host.call_all(&view, calls, TurnContext::default()).await })
    };
    host.until_running(1).await;
    let turn = TurnContext::default();
    let cancel = turn.cancel.clone();
    let view = host.host.view(Filter::default());
    let waiting = {
        let host = host.host.clone();
        let calls = (0..500).map(|n| ToolCall::new(n.to_string(), "sleep__sleep", "{}")).collect();
        tokio::spawn(async move { host.call_all(&view, calls, turn).await })
    };
    soon("none waits", || host.host.pipeline().running().count() > 1).await;
    tokio::time::sleep(SETTLED).await;
    let start = Instant::now();
    cancel.cancel();
    let results = waiting.await.unwrap();
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    assert!(results.iter().all(|r| outcome(r) == "cancelled" && r.usage.fuel == Some(0)));
    std::fs::write(host.root().join("end"), "").unwrap();
    assert_eq!(outcome(&running.await.unwrap()[0]), "ok", "the one that ran was not touched");
    assert_eq!(host.host.available_call_permits(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_metadata_query_can_be_cancelled() {
    let host = TestHost::new(&[], LIMITS).await;
    for path in [guest_artifacts::HOSTILE_METADATA_SPIN, guest_artifacts::HOSTILE_METADATA_SLEEP] {
        let bytes = std::fs::read(path).unwrap();
        let loading = {
            let host = host.host.clone();
            tokio::spawn(async move { host.load_bytes(PluginId::new("bad").unwrap(), bytes).await })
        };
        soon("it is not asked", || host.host.available_call_permits() < 8 || loading.is_finished()).await;
        let start = Instant::now();
        loading.abort();
        drop(loading.await);
        soon("its place is still taken", || host.host.available_call_permits() == 8).await;
        assert!(start.elapsed() < AT_ONCE, "{path}: {:?}", start.elapsed());
        assert!(host.host.plugin("bad").is_none());
    }
    assert_eq!(value(&host.call(&format!("{NEIGHBOUR}__echo"), json!({})).await), "{}");
}

/// The record of a dropped call has its usage, like any other record.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_call_is_recorded_with_its_usage() {
    let host = TestHost::new(&[("spin", guest_artifacts::HOSTILE_SPIN)], LIMITS).await;
    drop(host.audit.take());
    let spun = async {
        host.until_running(1).await;
        tokio::time::sleep(2 * SETTLED).await;
    };
    tokio::select! {
        ended = host.call("spin__spin", json!({"a": 1})) => panic!("{ended:?}"),
        () = spun => {}
    }
    let records = host.audit.take();
    let [record] = records.as_slice() else { panic!("{records:?}") };
    assert_eq!((record.outcome, record.usage.args_bytes), ("cancelled", 7));
    let usage = record.usage;
    assert!(usage.fuel > Some(1000) && usage.wall_us > 1000 && usage.peak_memory_bytes > 1000, "{usage:?}");
}
