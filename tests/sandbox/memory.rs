//! The memory budgets of the host, for guests and for undelivered results; and memory that the host lacks, which is no
//! fault of a plugin.

use std::fs;
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use integration_tests::{TestHost, fault, hints, in_a_process, outcome, value};
use serde_json::json;
use toolbay::core::call::invoke::Failure;
use toolbay::core::session::Session;
use toolbay::core::tool::content::{BlockBody, ContentBlock};
use toolbay::core::tool::fault::FaultKind;
use toolbay::{CallResult, Filter, ToolCall, TurnContext};

use super::leaks::MemoryCheck;

async fn many(host: &TestHost, tool: &str, args: serde_json::Value, count: usize) -> Vec<CallResult> {
    let calls = (0..count).map(|n| ToolCall::new(n.to_string(), tool, args.to_string())).collect();
    host.host.call_all(&host.host.view(Filter::default()), calls, TurnContext::default()).await
}

/// How often each outcome occurred.
fn count(all: &[CallResult], wanted: &str) -> usize {
    all.iter().filter(|one| outcome(one) == wanted).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn structured_content_of_a_result_is_bounded_by_result_bytes() {
    let raised = "[plugins.raised.limits]\nresult_bytes = \"2MiB\"\n[host]\nbreaker_faults = 3";
    let guests = [("big", guest_artifacts::HOSTILE_OUTPUT), ("raised", guest_artifacts::HOSTILE_OUTPUT)];
    let host = TestHost::new(&guests, raised).await;
    for tool in ["structured", "blob"] {
        let call = async |plugin: &str, mib: u32| {
            let delivered = host.call(&format!("{plugin}__{tool}"), json!({"mib": mib})).await;
            assert_eq!(outcome(&delivered), "ok");
            let is_hinted =
                hints(&delivered).contains(&format!("[plugins.{plugin}.limits] result_bytes = …"));
            let is_data = |block: &ContentBlock| !matches!(block.body, BlockBody::Text(_));
            let has_data = delivered.structured().is_some() || delivered.content().iter().any(is_data);
            (has_data, is_hinted)
        };
        assert_eq!(call("big", 1).await, (false, true), "{tool}");
        assert_eq!(call("raised", 1).await, (true, false), "{tool}");
        assert_eq!(call("raised", 3).await, (false, true), "{tool}");
    }
    let meta = json!({"json": format!("\"{}\"", "x".repeat(300 << 10))});
    assert!(hints(&host.call("big__meta", meta).await).contains("result_bytes"));
    // A text is truncated whatever else the result has.
    assert_eq!(outcome(&host.call("big__text", json!({"mib": 4})).await), "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn undelivered_results_stay_within_their_budget() {
    if in_a_process("sandbox::memory::undelivered_results_stay_within_their_budget", "true") {
        return;
    }
    let policy =
        "[limits]\nresult_bytes = \"16MiB\"\n[host]\nresult_memory = \"64MiB\"\nqueue_timeout = \"500ms\"";
    let host = TestHost::new(&[("big", guest_artifacts::HOSTILE_OUTPUT)], policy).await;
    assert_eq!(outcome(&host.call("big__structured", json!({"mib": 1})).await), "ok");
    for (tool, args) in [("structured", json!({"mib": 14})), ("blob", json!({"mib": 14}))] {
        let memory = MemoryCheck::peak_from_here();
        let all = many(&host, &format!("big__{tool}"), args, 64).await;
        let (ok, busy) = (count(&all, "ok"), count(&all, "busy"));
        assert!((1..=4).contains(&ok) && ok + busy == 64, "{tool}: {ok} ok, {busy} busy");
        let refused = all.iter().find(|one| outcome(one) == "busy").unwrap();
        assert_eq!(fault(refused).limit.as_ref().unwrap().name, "result_memory");
        assert!(fault(refused).retry_after_ms.is_some());
        assert!(memory.more_mib() < 420, "{tool}: {} MiB more", memory.more_mib());
        assert!(host.host.pipeline().result_memory().used() > 0);
        drop(all);
        assert_eq!(host.host.pipeline().result_memory().used(), 0, "what is dropped is free");
    }
    assert_eq!(outcome(&host.call("big__structured", json!({"mib": 14})).await), "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_texts_are_counted_until_they_are_cut() {
    if in_a_process("sandbox::memory::large_texts_are_counted_until_they_are_cut", "true") {
        return;
    }
    let policy = "[host]\nresult_memory = \"64MiB\"\nguest_memory = \"256MiB\"\n[limits]\nconcurrency = 64";
    let host = TestHost::new(&[("big", guest_artifacts::HOSTILE_OUTPUT)], policy).await;
    assert_eq!(outcome(&host.call("big__text", json!({"mib": 8})).await), "ok");
    let memory = MemoryCheck::peak_from_here();
    let turn = TurnContext { session: Arc::new(Session::with_random_key()), ..TurnContext::default() };
    let calls = (0..128).map(|n| ToolCall::new(n.to_string(), "big__text", json!({"mib": 8}).to_string()));
    let all = host.host.call_all(&host.host.view(Filter::default()), calls.collect(), turn).await;
    assert!(count(&all, "ok") >= 1 && count(&all, "ok") + count(&all, "busy") == 128);
    // Guests, results, waiting calls, output saved for `read_output`, and what the allocator keeps.
    assert!(memory.more_mib() < 640, "{} MiB more", memory.more_mib());
}

#[tokio::test(flavor = "multi_thread")]
async fn guests_share_a_budget_and_calls_wait_for_it() {
    let policy = "[host]\nguest_memory = \"96MiB\"\nbreaker_faults = 2";
    let host = TestHost::new(&[("alloc", guest_artifacts::HOSTILE_ALLOC)], policy).await;
    // The host knows nothing about the tool yet, so some calls find the memory taken while they run.
    for delivered in many(&host, "alloc__hold", json!({"mib": 40}), 8).await {
        if outcome(&delivered) != "ok" {
            let fault = fault(&delivered);
            assert_eq!((fault.kind, fault.limit.as_ref().unwrap().name), (FaultKind::Busy, "guest_memory"));
        }
    }
    assert_eq!(outcome(&host.call("alloc__hold", json!({"mib": 40})).await), "ok", "no breaker counted it");
    // Now it knows the size, and calls wait for each other.
    let all = many(&host, "alloc__hold", json!({"mib": 40}), 8).await;
    assert_eq!(count(&all, "ok"), 8, "{all:?}");
    // Alone more than the budget, so waiting would not help.
    let policy = "[host]\nguest_memory = \"32MiB\"";
    let host = TestHost::new(&[("alloc", guest_artifacts::HOSTILE_ALLOC)], policy).await;
    let never = host.call("alloc__hold", json!({"mib": 40})).await;
    let fault = fault(&never);
    assert_eq!((fault.kind, fault.limit.as_ref().unwrap().name), (FaultKind::OutOfMemory, "guest_memory"));
    assert!(hints(&never).contains("[host] guest_memory = …"), "{never:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_that_wait_make_room_for_calls() {
    let policy =
        "[plugins.reused]\nreuse = 100\n[host]\nguest_memory = \"40MiB\"\ninstance_idle_timeout = \"10m\"";
    let host = TestHost::new(
        &[("reused", guest_artifacts::API_REUSED), ("alloc", guest_artifacts::HOSTILE_ALLOC)],
        policy,
    )
    .await;
    let tools: Vec<String> = {
        let view = host.host.view(Filter::default());
        let own = view.definitions().map(|entry| entry.def.name.as_str().to_owned());
        own.filter(|name| name.starts_with("reused__")).collect()
    };
    for tool in &tools {
        for n in 0..3 {
            let turn = TurnContext {
                session: Arc::new(Session::with_name(&n.to_string())),
                ..TurnContext::default()
            };
            drop(host.call_in(tool, "{}", turn).await);
        }
    }
    for _ in 0..2 {
        assert_eq!(outcome(&host.call("alloc__hold", json!({"mib": 32})).await), "ok");
    }
}

/// The failure of a call for which the host lacked a resource.
fn host_failed(delivered: &CallResult) -> &str {
    match &delivered.result {
        Err(Failure::Host(message)) => message,
        other => panic!("{other:?}"),
    }
}

fn address_space_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

fn limit_address_space(bytes: &str) {
    let mut command = Command::new("prlimit");
    command.args(["--pid", &std::process::id().to_string(), &format!("--as={bytes}:")]);
    assert!(command.status().unwrap().success());
}

/// Without an instance pool, each instance reserves the address space of its memory when it is created.
#[tokio::test(flavor = "multi_thread")]
async fn memory_that_the_host_could_not_get_is_not_the_plugins_fault() {
    if in_a_process(
        "sandbox::memory::memory_that_the_host_could_not_get_is_not_the_plugins_fault",
        "ulimit -S -v 60000000",
    ) {
        return;
    }
    let policy = "[host]\nbreaker_faults = 3\n[plugins.e]\nreuse = 1";
    let host = TestHost::new(&[("e", guest_artifacts::API_ECHO)], policy).await;
    assert_eq!(outcome(&host.call("e__echo", json!({})).await), "ok");
    limit_address_space(&((address_space_kib() << 10) + (512 << 20)).to_string());
    for n in 0..6 {
        let delivered = host.call("e__echo", json!({ "n": n })).await;
        assert!(host_failed(&delivered).contains("`e` could not run"), "{delivered:?}");
    }
    limit_address_space("60000000000");
    assert_eq!(
        value(&host.call("e__echo", json!({"a": 1})).await),
        r#"{"a":1}"#,
        "the tool is called as before"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trap_of_a_guest_while_the_host_has_no_descriptors_is_not_counted() {
    let name = "sandbox::memory::a_trap_of_a_guest_while_the_host_has_no_descriptors_is_not_counted";
    if in_a_process(name, "ulimit -S -n 200") {
        return;
    }
    let host = TestHost::new(&[("t", guest_artifacts::HOSTILE_TRAP)], "[host]\nbreaker_faults = 3").await;
    let view = host.host.view(Filter::default());
    let tool = view.definitions().map(|entry| entry.def.name.as_str().to_owned());
    let tool = tool.into_iter().find(|name| name.starts_with("t__")).unwrap();
    assert_eq!(outcome(&host.call(&tool, json!({})).await), "trap");
    let mut taken = Vec::new();
    let error = loop {
        match fs::File::open("/dev/null") {
            Ok(file) => taken.push(file),
            Err(error) => break error,
        }
    };
    assert_eq!(error.raw_os_error(), Some(24), "{:?}", io::Error::last_os_error());
    for _ in 0..6 {
        assert!(host_failed(&host.call(&tool, json!({})).await).contains("no file descriptors are left"));
    }
    drop(taken);
    for expected in ["trap", "trap", "suspended"] {
        let delivered =
            tokio::time::timeout(Duration::from_secs(20), host.call(&tool, json!({}))).await.unwrap();
        assert_eq!(outcome(&delivered), expected);
    }
}
