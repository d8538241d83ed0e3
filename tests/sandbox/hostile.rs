//! Guests that misbehave. Each case goes through `TestHost::provoke`, which checks the outcome, that a neighbour is not
//! affected, and that no resource is left behind.

use std::time::{Duration, Instant};

use integration_tests::{NEIGHBOUR, SETTLED, TestHost, fault, hints, outcome, structured, value};
use serde_json::{Value, json};
use toolbay::core::tool::fault::FaultKind;
use toolbay::{Filter, ToolCall, TurnContext};

const SOON: Duration = Duration::from_secs(20);

/// Provokes, and expects a fault of `kind` by the limit `limit`, with the setting that raises it.
async fn by_limit(host: &TestHost, tool: &str, args: Value, kind: FaultKind, limit: &str) {
    let delivered = host.provoke(tool, args.clone(), SOON).await;
    let fault = fault(&delivered);
    assert_eq!(fault.kind, kind, "{tool} {args}: {fault}");
    let hit = fault.limit.as_ref().unwrap_or_else(|| panic!("{tool} {args}: no limit in {fault}"));
    let plugin = tool.split_once("__").unwrap().0;
    assert_eq!(hit.name, limit, "{tool} {args}: {fault}");
    let setting = hit.setting.to_string();
    assert_eq!(setting, format!("[plugins.{plugin}.limits] {limit} = …"));
    assert!(fault.message.contains(&hit.value) && !fault.message.contains(&setting), "{fault}");
    assert!(hints(&delivered).contains(&setting), "{delivered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_ends_by_fuel_or_by_the_clock() {
    let guests = [("spin", guest_artifacts::HOSTILE_SPIN), ("slow", guest_artifacts::HOSTILE_SPIN)];
    let policy = "[plugins.spin.limits]\nfuel = 50_000_000\n[plugins.slow.limits]\ntimeout = \"300ms\"\nfuel = 1_000_000_000_000";
    let host = TestHost::new(&guests, policy).await;
    for _ in 0..3 {
        by_limit(&host, "spin__spin", json!({}), FaultKind::OutOfFuel, "fuel").await;
        by_limit(&host, "slow__spin", json!({}), FaultKind::Deadline, "timeout").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_waits_ends_by_the_clock() {
    let host = TestHost::new(
        &[("sleep", guest_artifacts::HOSTILE_SLEEP)],
        "[plugins.sleep.limits]\ntimeout = \"300ms\"",
    )
    .await;
    for tool in ["sleep__sleep", "sleep__naps", "sleep__poll"] {
        by_limit(&host, tool, json!({}), FaultKind::Deadline, "timeout").await;
    }
    assert_eq!(value(&host.provoke("sleep__sleep", json!({"ms": 10}), SOON).await), "slept");
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_sleepers_take_the_time_of_one() {
    let host = TestHost::new(&[("sleep", guest_artifacts::HOSTILE_SLEEP)], "").await;
    let calls = (0..16).map(|n| ToolCall::new(n.to_string(), "sleep__sleep", r#"{"ms": 500}"#)).collect();
    let start = std::time::Instant::now();
    let results = host.host.call_all(&host.host.view(Filter::default()), calls, TurnContext::default()).await;
    assert!(results.iter().all(|r| outcome(r) == "ok"));
    assert!(start.elapsed() < Duration::from_secs(4), "one after the other would be eight seconds");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_bounded_and_its_refusal_can_be_survived() {
    let host = TestHost::new(
        &[("alloc", guest_artifacts::HOSTILE_ALLOC)],
        "[plugins.alloc.limits]\nmemory = \"16MiB\"",
    )
    .await;
    by_limit(&host, "alloc__grow", json!({}), FaultKind::OutOfMemory, "memory").await;
    by_limit(&host, "alloc__hold", json!({"mib": 100}), FaultKind::OutOfMemory, "memory").await;
    let survived = host.provoke("alloc__reserve", json!({}), SOON).await;
    let got: u64 = value(&survived).parse().unwrap();
    assert!((8..16).contains(&got), "{got} MiB of 16");
    assert!(survived.usage.peak_memory_bytes <= 16 << 20, "{:?}", survived.usage);
    assert_eq!(outcome(&host.provoke("alloc__hold", json!({"mib": 8}), SOON).await), "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_die_is_a_trap_with_last_words() {
    let host = TestHost::new(&[("trap", guest_artifacts::HOSTILE_TRAP)], "").await;
    for (how, part) in [
        ("panic", "a panic of the guest"),
        ("unreachable", "unreachable"),
        ("exit0", "exit status 0"),
        ("exit1", "exit status 1"),
        ("abort", "trapped"),
        ("stack", "trapped"),
        ("bounds", "out of bounds"),
        ("signature", "indirect call type mismatch"),
    ] {
        let delivered = host.provoke("trap__trap", json!({"how": how}), SOON).await;
        let fault = fault(&delivered);
        assert_eq!(fault.kind, FaultKind::Trap, "{how}: {fault}");
        assert!(fault.message.contains(part), "{how}: {fault}");
        assert!(
            !fault.message.contains("wasm backtrace")
                && !fault.message.contains("wasm trap")
                && fault.message.chars().count() < 1000,
            "{how}: {fault}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_much_output_never_crosses() {
    let host = TestHost::new(
        &[("big", guest_artifacts::HOSTILE_OUTPUT)],
        "[plugins.big.limits]\nmemory = \"512MiB\"",
    )
    .await;
    for tool in ["big__text", "big__error", "big__blob", "big__structured"] {
        by_limit(&host, tool, json!({}), FaultKind::OutputTooLarge, "host_call_bytes").await;
    }
    assert_eq!(outcome(&host.provoke("big__text", json!({"mib": 8}), SOON).await), "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_breaks_the_contract_is_a_fault() {
    let strict = "[results]\nschema_mismatch = \"error\"\n";
    let host = TestHost::new(&[("bad", guest_artifacts::HOSTILE_OUTPUT)], strict).await;
    for (tool, args) in [
        ("bad__blocks", json!({})),
        ("bad__deep", json!({})),
        ("bad__json", json!({})),
        ("bad__json", json!({"json": r#"{"a":1,"a":2}"#})),
        ("bad__json", json!({"json": ""})),
        ("bad__nan", json!({})),
        ("bad__meta", json!({})),
        ("bad__schema", json!({})),
        ("bad__schema_without", json!({})),
    ] {
        let delivered = host.provoke(tool, args.clone(), SOON).await;
        assert_eq!(fault(&delivered).kind, FaultKind::BadOutput, "{tool} {args}");
    }
    // Arguments with an obvious reading are corrected.
    for cost in ["nan", "infinite", "negative"] {
        let delivered = host.provoke("bad__cost", json!({"cost": cost}), SOON).await;
        assert_eq!(integration_tests::output(&delivered).cost_usd, None, "{cost}");
    }
    let delivered = host.provoke("bad__priority", json!({}), SOON).await;
    assert_eq!(integration_tests::output(&delivered).content[0].annotations.as_ref().unwrap().priority, None);
    assert_eq!(
        structured(&host.provoke("bad__schema", json!({"json": "{\"n\":1}"}), SOON).await),
        json!({"n": 1})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_does_not_match_its_schema_is_marked() {
    let host = TestHost::new(&[("bad", guest_artifacts::HOSTILE_OUTPUT)], "").await;
    for tool in ["bad__schema", "bad__schema_without"] {
        let delivered = host.provoke(tool, json!({}), SOON).await;
        let mark = delivered.content().last().unwrap_or_else(|| panic!("{tool}: {delivered:?}"));
        assert!(format!("{mark:?}").contains("does not match its schema"), "{mark:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn guest_output_beyond_the_limit_is_dropped() {
    let host = TestHost::new(&[("loud", guest_artifacts::HOSTILE_STDOUT)], "").await;
    for tool in ["loud__forge", "loud__flood", "loud__ansi", "loud__all"] {
        assert_eq!(value(&host.provoke(tool, json!({}), SOON).await), "done", "{tool}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_sees_nothing_of_the_host() {
    let host = TestHost::new(&[("env", guest_artifacts::HOSTILE_ENV)], "").await;
    let seen = structured(&host.provoke("env__look", json!({}), SOON).await);
    for key in ["env", "args", "preopens"] {
        assert_eq!(seen[key], json!([]), "{key}");
    }
    assert_eq!(seen["stdin_bytes"], json!({"ok": 0}));
    for group in ["dirs", "files"] {
        for (path, said) in seen[group].as_object().unwrap() {
            assert!(said["error"].is_string(), "{path}: {said}");
        }
    }
    for key in ["tcp_connect", "tcp_connect_out", "tcp_listen", "udp_bind", "dns_localhost", "dns_example"] {
        assert!(seen[key]["error"].is_string(), "{key}: {}", seen[key]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_are_bounded() {
    let host = TestHost::new(&[("handles", guest_artifacts::HOSTILE_HANDLES)], "").await;
    for tool in ["handles__pollables", "handles__streams"] {
        by_limit(&host, tool, json!({}), FaultKind::OutOfMemory, "handles").await;
    }
    let sockets = host.provoke("handles__sockets", json!({}), SOON).await;
    assert!(matches!(outcome(&sockets), "ok" | "out_of_memory"), "{sockets:?}");
    assert_eq!(value(&host.provoke("handles__pollables", json!({"n": 100}), SOON).await), "100");
}

#[tokio::test(flavor = "multi_thread")]
async fn host_calls_in_a_loop_end_like_any_loop() {
    let policy = "[plugins.loops.limits]\ntimeout = \"300ms\"\nfuel = 1_000_000_000_000\n\
        [plugins.calls.limits]\nmemory = \"512MiB\"";
    let guests = ["loops", "calls"].map(|id| (id, guest_artifacts::HOSTILE_HOSTCALLS));
    let host = TestHost::new(&guests, policy).await;
    for tool in ["loops__log", "loops__progress", "loops__context", "loops__config"] {
        by_limit(&host, tool, json!({}), FaultKind::Deadline, "timeout").await;
    }
    for tool in ["calls__big_log", "calls__big_progress", "calls__big_attribute"] {
        assert_eq!(outcome(&host.provoke(tool, json!({}), SOON).await), "ok", "{tool}: 10 MiB may cross");
        by_limit(&host, tool, json!({"mib": 20}), FaultKind::OutputTooLarge, "host_call_bytes").await;
    }
    by_limit(&host, "calls__many_fields", json!({}), FaultKind::OutputTooLarge, "host_call_bytes").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spinning_guests_on_every_core_block_no_other() {
    let guests = ["spin", "brief"].map(|id| (id, guest_artifacts::HOSTILE_SPIN));
    let policy = "[limits]\nfuel = 1_000_000_000_000\n[plugins.brief.limits]\ntimeout = \"300ms\"";
    let host = TestHost::new(&guests, policy).await;
    let turn = TurnContext::default();
    let cancel = turn.cancel.clone();
    let eight = |tool: &'static str, turn: TurnContext| {
        let (host, view) = (host.host.clone(), host.host.view(Filter::default()));
        let calls = (0..8).map(|n| ToolCall::new(n.to_string(), tool, "{}")).collect();
        tokio::spawn(async move { host.call_all(&view, calls, turn).await })
    };
    let spinners = eight("spin__spin", turn);
    host.until_running(8).await;
    tokio::time::sleep(SETTLED).await;
    for _ in 0..5 {
        let start = std::time::Instant::now();
        assert_eq!(value(&host.call("neighbour__echo", json!({})).await), "{}");
        // If they blocked it, it would wait for their timeout of 30 seconds.
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{:?} beside eight spinning guests",
            start.elapsed()
        );
    }
    assert!(!spinners.is_finished(), "they were still at it");
    cancel.cancel();
    assert!(spinners.await.unwrap().iter().all(|r| outcome(r) == "cancelled"));
    let spinners = eight("brief__spin", TurnContext::default());
    assert!(spinners.await.unwrap().iter().all(|r| outcome(r) == "deadline"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_ends_at_once() {
    let guests = [("spin", guest_artifacts::HOSTILE_SPIN), ("sleep", guest_artifacts::HOSTILE_SLEEP)];
    let host = TestHost::new(&guests, "[limits]\nfuel = 1_000_000_000_000").await;
    for tool in ["spin__spin", "sleep__sleep", "sleep__poll"] {
        let turn = TurnContext::default();
        let cancel = turn.cancel.clone();
        let canceller = async {
            host.until_running(1).await;
            tokio::time::sleep(SETTLED).await;
            cancel.cancel();
            std::time::Instant::now()
        };
        let (delivered, cancelled) = tokio::join!(host.call_in(tool, "{}", turn), canceller);
        let ended = cancelled.elapsed();
        assert_eq!(outcome(&delivered), "cancelled", "{tool}");
        // The bound is half a second. A loaded machine may take longer.
        assert!(ended < Duration::from_secs(5), "{tool} went on for {ended:?}");
    }
    assert_eq!(host.host.available_call_permits(), 64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_batch_frees_its_places() {
    let host = TestHost::new(&[("sleep", guest_artifacts::HOSTILE_SLEEP)], "").await;
    let calls = (0..8).map(|n| ToolCall::new(n.to_string(), "sleep__sleep", "{}")).collect();
    let view = host.host.view(Filter::default());
    let batch = host.host.call_all(&view, calls, TurnContext::default());
    tokio::select! {
        results = batch => panic!("{results:?}"),
        () = host.until_running(8) => {}
    }
    host.until_running(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_the_queue_the_answer_is_busy() {
    let policy = "[host]\nparallel_calls = 2\nqueued_calls = 2\nqueue_timeout = \"10s\"\n[plugins.sleep.limits]\ntimeout = \"2s\"";
    let host = TestHost::new(&[("sleep", guest_artifacts::HOSTILE_SLEEP)], policy).await;
    let calls = (0..10).map(|n| ToolCall::new(n.to_string(), "sleep__sleep", r#"{"ms": 300}"#)).collect();
    let results = host.host.call_all(&host.host.view(Filter::default()), calls, TurnContext::default()).await;
    let count = |what| results.iter().filter(|r| outcome(r) == what).count();
    assert_eq!((count("ok"), count("busy")), (4, 6));
    let busy = results.iter().find(|r| outcome(r) == "busy").unwrap();
    assert_eq!(fault(busy).limit.as_ref().unwrap().setting.to_string(), "[host] queued_calls = …");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_worst_wishes_are_compared_in_a_moment() {
    let policy = r#"
        [programs.echo]
        path = "/bin/echo"
        [plugins.wishes.grant]
        process = ["echo *"]
        fs_read = ["$workspace"]
        [profile.one]
        [profile.two]
        process = ["echo a*"]
    "#;
    let host = TestHost::new(&[], policy).await;
    let start = Instant::now();
    // All of it runs on one thread. If the comparison ran there, the neighbour would wait for it.
    let neighbour = async {
        let mut most = Duration::ZERO;
        for _ in 0..50 {
            let start = Instant::now();
            let said = host.call(&format!("{NEIGHBOUR}__echo"), json!({"a": 1})).await;
            assert_eq!(value(&said), r#"{"a":1}"#);
            most = most.max(start.elapsed());
        }
        most
    };
    let (_, most) = tokio::join!(host.load("wishes", guest_artifacts::HOSTILE_WISHES), neighbour);
    println!("loaded in {:?}, the neighbour waited {most:?} at most", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    assert!(most < Duration::from_secs(5), "{most:?}");
    for (tool, bytes, times) in [("wishes__run", 250_000, 5), ("wishes__read", 4000, 5)] {
        let args = json!({"bytes": bytes, "times": times});
        let delivered = host.provoke(tool, args, Duration::from_secs(60)).await;
        assert_eq!(structured(&delivered)["refused"], times, "{delivered:?}");
    }
}
