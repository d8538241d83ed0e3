//! Calls of one plugin do not delay calls of another, and a tool that keeps faulting is suspended.

use std::time::{Duration, Instant};

use integration_tests::{NEIGHBOUR, SETTLED, TestHost, fault, hints, outcome, value};
use serde_json::json;
use toolbay::core::tool::content::ErrorCode;
use toolbay::core::tool::fault::FaultKind;
use toolbay::{CallResult, Filter, HostBuilder, ToolCall, TurnContext};

use crate::sandbox::compile_bombs::soon;

/// Starts `count` calls of a tool and waits until some of them run.
async fn start(
    host: &TestHost,
    tool: &str,
    args: &str,
    count: usize,
) -> tokio::task::JoinHandle<Vec<CallResult>> {
    let free = host.host.available_call_permits();
    let (view, running) = (host.host.view(Filter::default()), host.host.clone());
    let calls = (0..count).map(|n| ToolCall::new(n.to_string(), tool, args)).collect();
    let task = tokio::spawn(async move { running.call_all(&view, calls, TurnContext::default()).await });
    while host.host.available_call_permits() == free {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    task
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_with_thousands_of_calls_delays_a_neighbour_by_a_round() {
    let host =
        TestHost::new(&[("greedy", guest_artifacts::HOSTILE_SLEEP)], "[host]\nparallel_calls = 2").await;
    let greedy = start(&host, "greedy__sleep", r#"{"ms": 20}"#, 2000).await;
    for _ in 0..10 {
        let start = Instant::now();
        assert_eq!(value(&host.call(&format!("{NEIGHBOUR}__echo"), json!({})).await), "{}");
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}; all of them are 20 s", start.elapsed());
    }
    assert!(!greedy.is_finished());
    greedy.abort();
}

/// Longer than any test takes, and shorter than the timeout of a call.
const SLEEP: &str = r#"{"ms": 25000}"#;
/// A call without a result after this time waited for a sleeping call.
const STARVED: Duration = Duration::from_secs(15);

/// Makes calls of a tool, one after the other, while other calls wait.
async fn not_starved(host: &TestHost, tool: &str, args: serde_json::Value) {
    for n in 0..10 {
        let called = tokio::time::timeout(STARVED, host.call(tool, args.clone())).await;
        let delivered = called.unwrap_or_else(|_| panic!("call {n} of `{tool}` waits for those that sleep"));
        assert_eq!(outcome(&delivered), "ok", "{delivered:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_sleeping_calls_on_four_plugins_leave_a_fifth_its_place() {
    let sleepers = ["a", "b", "c", "d"].map(|id| (id, guest_artifacts::HOSTILE_SLEEP));
    // The same holds if the policy removes the limit per plugin.
    for policy in ["", "[limits]\nconcurrency = 64"] {
        let host = TestHost::new(&sleepers, policy).await;
        let mut all = Vec::new();
        for (id, _) in sleepers {
            all.push(start(&host, &format!("{id}__sleep"), SLEEP, 25).await);
        }
        not_starved(&host, &format!("{NEIGHBOUR}__echo"), json!({})).await;
        assert!(all.iter().all(|calls| !calls.is_finished()));
        all.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// Nested calls may sleep, because the parent call has lent its permit.
#[tokio::test(flavor = "multi_thread")]
async fn tools_waiting_for_nested_calls_leave_room_for_other_plugins() {
    let policy = ["a", "b", "c", "d", "e"].map(|id| format!("[plugins.{id}.grant]\ninvoke = [\"*\"]\n"));
    let callers = ["a", "b", "c", "d", "e"].map(|id| (id, guest_artifacts::CAP_INVOKE));
    let guests: Vec<_> = callers.into_iter().chain([("slow", guest_artifacts::HOSTILE_SLEEP)]).collect();
    let host = TestHost::new(&guests, &policy.concat()).await;
    let inner = &*format!(r#"{{"calls": [["slow__sleep", {SLEEP}]]}}"#);
    let calls = |id| (0..25).map(move |n| ToolCall::new(n.to_string(), format!("{id}__invoke"), inner));
    let all: Vec<_> = ["a", "b", "c", "d"]
        .map(|id| {
            let (view, running, calls) =
                (host.host.view(Filter::default()), host.host.clone(), calls(id).collect());
            tokio::spawn(async move { running.call_all(&view, calls, TurnContext::default()).await })
        })
        .into();
    // Nested calls run up to the limit of their caller.
    while host.host.available_call_permits() > 56 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    not_starved(&host, "e__invoke", json!({"calls": [["neighbour__echo", {}]]})).await;
    assert!(all.iter().all(|calls| !calls.is_finished()));
    all.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Programs have their own limit.
#[tokio::test(flavor = "multi_thread")]
async fn programs_of_two_plugins_leave_room_for_those_of_a_third() {
    let granted = ["a", "b", "c"].map(|id| format!("[plugins.{id}.grant]\nprocess = [\"sleep *\"]\n"));
    let policy = format!(
        "[host]\nprocesses = 8\n[programs.sleep]\npath = \"/bin/sleep\"\nsandbox = \"best-effort\"\n{}",
        granted.concat()
    );
    let guests = ["a", "b", "c"].map(|id| (id, guest_artifacts::CAP_PROCESS));
    let host = TestHost::new(&guests, &policy).await;
    let long = r#"{"program": "sleep", "args": ["25"]}"#;
    let mut all = Vec::new();
    for id in ["a", "b"] {
        all.push(start(&host, &format!("{id}__no_files"), long, 12).await);
    }
    for _ in 0..5 {
        let short = host.ask("c__no_files", json!({"program": "sleep", "args": ["0"]}));
        let said = tokio::time::timeout(STARVED, short).await.expect("it waits for those that sleep");
        assert_eq!(said["code"], 0, "{said}");
    }
    all.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_of_one_plugin_does_not_refuse_another() {
    let policy = "[host]\nparallel_calls = 1\nqueued_calls = 50\n\
        [plugins.greedy.grant]\nfs_read = [\"$workspace\"]\nfs_write = [\"$workspace\"]";
    let host = TestHost::new(&[("greedy", guest_artifacts::CAP_FILES)], policy).await;
    std::fs::write(host.root().join("a"), "").unwrap();
    // Each runs until there is a file `end`: one holds the place, and all others arrive meanwhile.
    let args = r#"{"path": "a", "until": "end", "text": "x"}"#;
    let greedy = start(&host, "greedy__read_wait_write", args, 200).await;
    let mut refused = 0;
    soon("they are not refused", || {
        refused += host.audit.take().len();
        refused >= 149
    })
    .await;
    std::fs::write(host.root().join("end"), "").unwrap();
    for _ in 0..5 {
        assert_eq!(outcome(&host.call(&format!("{NEIGHBOUR}__echo"), json!({})).await), "ok");
    }
    let results = greedy.await.unwrap();
    let busy: Vec<_> = results.iter().filter(|r| outcome(r) == "busy").collect();
    assert!(results.iter().all(|r| matches!(outcome(r), "ok" | "busy")), "{results:?}");
    // One more, if all places of the queue were taken before the first call began.
    assert!((149..=150).contains(&busy.len()), "{}", busy.len());
    for refused in busy {
        let fault = fault(refused);
        assert!(fault.retry_after_ms.is_some_and(|ms| (10..=60_000).contains(&ms)), "{fault:?}");
        assert!(fault.message.contains("try again in") && hints(refused).contains("[host] queued_calls = …"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_runs_up_to_its_limit_of_parallel_calls() {
    let policy = "[host]\nqueue_timeout = \"300ms\"\n[plugins.greedy.limits]\nconcurrency = 3";
    let host = TestHost::new(&[("greedy", guest_artifacts::HOSTILE_SLEEP)], policy).await;
    let greedy = start(&host, "greedy__sleep", r#"{"ms": 1500}"#, 8).await;
    host.until_running(3).await;
    tokio::time::sleep(SETTLED).await;
    assert_eq!(host.host.available_call_permits(), 61);
    assert_eq!(outcome(&host.call(&format!("{NEIGHBOUR}__echo"), json!({})).await), "ok");
    assert!(!greedy.is_finished(), "they still sleep");
    let results = greedy.await.unwrap();
    let busy: Vec<_> = results.iter().filter(|r| outcome(r) == "busy").collect();
    assert_eq!((results.iter().filter(|r| outcome(r) == "ok").count(), busy.len()), (3, 5));
    assert!(busy.iter().all(|r| hints(r).contains("[plugins.greedy.limits] concurrency = …")));
    assert_eq!(host.host.available_call_permits(), 64);
}

/// A call releases its permit before its reducer requests one. With a single permit, anything else deadlocks.
#[tokio::test(flavor = "multi_thread")]
async fn reducers_and_metadata_queries_take_a_permit_without_deadlock() {
    let policy = "[host]\nparallel_calls = 1\n[limits]\nconcurrency = 1";
    let host = TestHost::empty_with(policy, HostBuilder::no_cache);
    host.load("r", guest_artifacts::REDUCE_GOOD).await;
    let view = host.host.view(Filter::default());
    let calls = (0..20).map(|n| ToolCall::new(n.to_string(), "r__produce", "{}")).collect();
    let (results, ()) = tokio::join!(
        host.host.call_all(&view, calls, TurnContext::default()),
        host.load("late", guest_artifacts::API_ECHO),
    );
    assert!(results.iter().all(|r| outcome(r) == "ok"));
    assert!(host.audit.take().iter().all(|record| record.reducer == Some("reduced")));
    assert_eq!(host.host.available_call_permits(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_only_faults_is_not_called_for_a_while() {
    let policy =
        "[host]\nbreaker_faults = 3\nbreaker_pause = \"1s\"\n[plugins.alloc.limits]\nmemory = \"16MiB\"";
    let host = TestHost::new(&[("alloc", guest_artifacts::HOSTILE_ALLOC)], policy).await;
    for _ in 0..3 {
        assert_eq!(outcome(&host.call("alloc__grow", json!({})).await), "out_of_memory");
    }
    let refused = host.call("alloc__grow", json!({})).await;
    let suspended = fault(&refused);
    assert_eq!((suspended.kind, refused.usage.fuel), (FaultKind::Suspended, Some(0)), "nothing ran");
    assert_eq!(refused.result.as_ref().unwrap_err().code(), ErrorCode::NotAvailable);
    assert!(suspended.retry_after_ms.is_some_and(|ms| ms <= 1000), "{suspended:?}");
    for part in
        ["`alloc__grow` faulted 3 times in a row", "`out_of_memory`", "the limit `breaker_faults` is 3"]
    {
        assert!(suspended.message.contains(part), "{suspended}");
    }
    // Other tools of the plugin and other plugins are not affected.
    assert_eq!(outcome(&host.call("alloc__hold", json!({"mib": 1})).await), "ok");
    assert_eq!(outcome(&host.call(&format!("{NEIGHBOUR}__echo"), json!({})).await), "ok");
    let start = Instant::now();
    let probe = loop {
        let probe = host.call("alloc__grow", json!({})).await;
        if outcome(&probe) != "suspended" {
            break probe;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "it is never called again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(outcome(&probe), "out_of_memory", "a probe");
    let again = host.call("alloc__grow", json!({})).await;
    assert!(fault(&again).retry_after_ms.is_some_and(|ms| (1001..=2000).contains(&ms)), "{again:?}");
    // A reload resets the circuit breaker.
    host.load("alloc", guest_artifacts::HOSTILE_ALLOC).await;
    assert_eq!(outcome(&host.call("alloc__grow", json!({})).await), "out_of_memory");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_cancellations_and_good_calls_between_open_no_circuit() {
    let policy = "[host]\nbreaker_faults = 2\nbreaker_pause = \"1h\"";
    let host = TestHost::new(&[("trap", guest_artifacts::HOSTILE_TRAP)], policy).await;
    for _ in 0..5 {
        assert_eq!(outcome(&host.call("trap__trap", json!({"how": "panic"})).await), "trap");
        assert_eq!(outcome(&host.call("trap__trap", json!({"how": "nothing"})).await), "input_invalid");
        let turn = TurnContext::default();
        turn.cancel.cancel();
        assert_eq!(outcome(&host.call_in("trap__trap", "{}", turn).await), "cancelled");
    }
    for _ in 0..5 {
        let error = host.call("neighbour__error", json!({"code": "execution-failed"})).await;
        assert_eq!(outcome(&error), "execution_failed");
    }
    let off = TestHost::new(&[("trap", guest_artifacts::HOSTILE_TRAP)], "[host]\nbreaker_faults = 0").await;
    for _ in 0..30 {
        assert_eq!(outcome(&off.call("trap__trap", json!({})).await), "trap");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_faulting_reducer_is_skipped_and_results_stay_complete() {
    let host = TestHost::new(&[("r", guest_artifacts::REDUCE_BAD)], "[host]\nbreaker_faults = 2").await;
    let mut notes = Vec::new();
    for _ in 0..4 {
        assert_eq!(outcome(&host.call("r__produce", json!({"reduce": "trap"})).await), "ok");
        notes.push(host.audit.take()[0].reducer.unwrap());
    }
    assert_eq!(notes, ["trap", "trap", "suspended", "suspended"]);
}

/// Calls in the queue when the circuit opens are refused when they are scheduled.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_faults_stops_after_the_first_few() {
    let policy = "[host]\nparallel_calls = 1\nbreaker_faults = 3";
    let host = TestHost::new(&[("trap", guest_artifacts::HOSTILE_TRAP)], policy).await;
    let calls = (0..50).map(|n| ToolCall::new(n.to_string(), "trap__trap", "{}")).collect();
    let results = host.host.call_all(&host.host.view(Filter::default()), calls, TurnContext::default()).await;
    let count = |what| results.iter().filter(|r| outcome(r) == what).count();
    assert_eq!((count("trap"), count("suspended")), (3, 47));
}
