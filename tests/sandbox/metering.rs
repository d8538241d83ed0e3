//! Unmetered guests (`fuel = "none"`): only the timeout ends them, and every other limit applies.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use integration_tests::{SETTLED, TestHost, fault, outcome, policy, value};
use serde_json::{Value, json};
use toolbay::core::tool::fault::FaultKind;
use toolbay::{Filter, Host, PluginId, ToolCall, TurnContext};

const SOON: Duration = Duration::from_secs(20);
/// No guest is metered.
const NONE: &str = "[limits]\nfuel = \"none\"\n";

async fn by_limit(host: &TestHost, tool: &str, args: Value, kind: FaultKind, limit: &str) {
    let delivered = host.provoke(tool, args, SOON).await;
    let fault = fault(&delivered);
    assert_eq!((fault.kind, fault.limit.as_ref().unwrap().name), (kind, limit), "{tool}: {fault}");
    assert_eq!(delivered.usage.fuel, None, "{tool}: not counted is not zero");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_computes_without_fuel_ends_by_the_clock() {
    let guests = [("spin", guest_artifacts::HOSTILE_SPIN), ("calls", guest_artifacts::HOSTILE_HOSTCALLS)];
    let host = TestHost::new(&guests, &format!("{NONE}timeout = \"500ms\"")).await;
    for tool in ["spin__spin", "calls__log", "calls__progress", "calls__context", "calls__config"] {
        by_limit(&host, tool, json!({}), FaultKind::Deadline, "timeout").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_and_the_stack_are_bounded_without_fuel() {
    let guests = [("alloc", guest_artifacts::HOSTILE_ALLOC), ("trap", guest_artifacts::HOSTILE_TRAP)];
    let host = TestHost::new(&guests, &format!("{NONE}memory = \"16MiB\"")).await;
    by_limit(&host, "alloc__grow", json!({}), FaultKind::OutOfMemory, "memory").await;
    by_limit(&host, "alloc__hold", json!({"mib": 100}), FaultKind::OutOfMemory, "memory").await;
    let dug = host.provoke("trap__trap", json!({"how": "stack"}), SOON).await;
    assert_eq!((fault(&dug).kind, dug.usage.fuel), (FaultKind::Trap, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_without_end_ends_without_fuel_too() {
    let host = TestHost::new(&[], &format!("{NONE}timeout = \"300ms\"")).await;
    let spins = Path::new(guest_artifacts::HOSTILE_METADATA_SPIN);
    let refused = host.host.load_file(PluginId::new("spins").unwrap(), spins).await.unwrap_err().to_string();
    assert!(refused.contains("`timeout`"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unmetered_guests_are_cancelled_and_yield_to_others() {
    let guests = [("spin", guest_artifacts::HOSTILE_SPIN)];
    let host = TestHost::new(&guests, "[plugins.spin.limits]\nfuel = \"none\"").await;
    let turn = TurnContext::default();
    let (cancel, view) = (turn.cancel.clone(), host.host.view(Filter::default()));
    let spinners = {
        let host = host.host.clone();
        let calls = (0..8).map(|n| ToolCall::new(n.to_string(), "spin__spin", "{}")).collect();
        tokio::spawn(async move { host.call_all(&view, calls, turn).await })
    };
    host.until_running(8).await;
    tokio::time::sleep(SETTLED).await;
    for _ in 0..5 {
        let start = Instant::now();
        // Its fuel is metered, in the other engine.
        let beside = host.call("neighbour__echo", json!({})).await;
        assert_eq!(value(&beside), "{}");
        assert!(beside.usage.fuel > Some(100), "{:?}", beside.usage);
        assert!(start.elapsed() < Duration::from_secs(5), "{:?} beside eight", start.elapsed());
    }
    assert!(!spinners.is_finished(), "nothing but the clock ends them");
    cancel.cancel();
    assert!(
        spinners.await.unwrap().iter().all(|one| outcome(one) == "cancelled" && one.usage.fuel.is_none())
    );
    assert_eq!(host.host.available_call_permits(), 64);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_places_of_both_engines_are_the_same() {
    let guests = [("free", guest_artifacts::HOSTILE_SLEEP), ("counted", guest_artifacts::HOSTILE_SLEEP)];
    let text = "[host]\nparallel_calls = 1\n[plugins.free.limits]\nfuel = \"none\"";
    let host = TestHost::new(&guests, text).await;
    let calls = ["free__sleep", "counted__sleep"].map(|tool| ToolCall::new(tool, tool, r#"{"ms": 300}"#));
    let start = Instant::now();
    let both =
        host.host.call_all(&host.host.view(Filter::default()), calls.to_vec(), TurnContext::default()).await;
    assert!(both.iter().all(|one| outcome(one) == "ok"), "{both:?}");
    assert!(start.elapsed() >= Duration::from_millis(600), "they ran at once: {:?}", start.elapsed());
    assert_eq!(both.iter().filter(|one| one.usage.fuel.is_none()).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_with_a_fuel_limit_is_metered_among_unmetered_ones() {
    let guests = [("alloc", guest_artifacts::HOSTILE_ALLOC)];
    let text = format!("{NONE}[plugins.alloc.tools.hold]\nlimits = {{ fuel = 2_000 }}");
    let host = TestHost::new(&guests, &text).await;
    let hold = host.provoke("alloc__hold", json!({"mib": 8}), SOON).await;
    let fault = fault(&hold);
    assert_eq!((fault.kind, hold.usage.fuel), (FaultKind::OutOfFuel, Some(2000)), "{fault}");
    assert_eq!(
        fault.limit.as_ref().unwrap().setting.to_string(),
        "[plugins.alloc.tools.hold.limits] fuel = …"
    );
    assert_eq!(host.provoke("alloc__reserve", json!({}), SOON).await.usage.fuel, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn record_and_explanation_show_the_effective_fuel_limit() {
    let host = TestHost::new(
        &[],
        "[plugins.echo.limits]\nfuel = \"none\"\n[plugins.other.limits]\nfuel = 9_000_000",
    )
    .await;
    for id in ["echo", "other"] {
        host.load(id, guest_artifacts::API_ECHO).await;
        assert_eq!(value(&host.call(&format!("{id}__echo"), json!({})).await), "{}");
        let explained = host.host.explain(&format!("{id}__echo"), None).unwrap();
        let row = explained.limits.iter().find(|row| row.key == "fuel").unwrap();
        let (value, counted) = if id == "echo" { ("none", false) } else { ("9000000", true) };
        assert_eq!((&*row.value, &*row.set), (value, &*format!("[plugins.{id}.limits] fuel")));
        let record = host.audit.take().pop().unwrap();
        assert_eq!(record.usage.fuel.is_some(), counted);
        let line = serde_json::to_value(&record).unwrap();
        assert_eq!(line["usage"].get("fuel").is_some(), counted, "{line}");
    }
}

/// A new policy requires the other engine, for a plugin from a file and for one from bytes, which are gone.
#[tokio::test(flavor = "multi_thread")]
async fn another_policy_brings_the_other_code() {
    let dir = tempfile::tempdir().unwrap();
    let (plugins, cache) = (dir.path().join("plugins"), dir.path().join("cache"));
    fs::create_dir(&plugins).unwrap();
    fs::copy(guest_artifacts::API_ECHO, plugins.join("file.wasm")).unwrap();
    let host = Host::builder(policy("", dir.path())).cache_dir(&cache).build().unwrap();
    host.load_dir(&plugins).await.unwrap();
    let bytes = fs::read(guest_artifacts::HOSTILE_SPIN).unwrap();
    host.load_bytes(PluginId::new("bytes").unwrap(), bytes).await.unwrap();
    let codes = || {
        let names = fs::read_dir(&cache).unwrap().map(|one| one.unwrap().file_name());
        names.filter(|name| Path::new(name).extension().is_some_and(|end| end == "cwasm")).count()
    };
    assert_eq!(codes(), 2, "one engine's");
    let fuel = async |tool: &str| {
        let calls = vec![ToolCall::new("1", tool, "{}")];
        let done = host.call_all(&host.view(Filter::default()), calls, TurnContext::default()).await;
        (outcome(&done[0]), done[0].usage.fuel.is_some())
    };
    assert_eq!(fuel("file__echo").await, ("ok", true));
    for (text, echo, spin) in [
        ("[limits]\nfuel = \"none\"\ntimeout = \"300ms\"", ("ok", false), ("deadline", false)),
        ("[limits]\nfuel = 10_000_000", ("ok", true), ("out_of_fuel", true)),
    ] {
        host.reload_policy(policy(text, dir.path())).await.unwrap();
        assert_eq!((fuel("file__echo").await, fuel("bytes__spin").await), (echo, spin), "{text}");
    }
    assert_eq!(codes(), 4, "each engine's");
}
