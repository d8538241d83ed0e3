//! Limits that a guest reaches, beside those in `hostile`: rates, guest handles, a survived refusal, JSON trees.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use integration_tests::{RecordedProgress, TestHost, fault, hints, in_a_process, outcome, refusal};
use serde_json::json;
use toolbay::core::tool::fault::FaultKind;
use toolbay::{PluginId, TurnContext};

use super::attacks::sections;
use super::leaks::MemoryCheck;

#[tokio::test(flavor = "multi_thread")]
async fn progress_comes_no_faster_than_its_rate() {
    let policy = "[limits]\nprogress_rate = 5\nprogress_events = 100_000";
    let host = TestHost::new(&[("calls", guest_artifacts::HOSTILE_HOSTCALLS)], policy).await;
    let heard = Arc::new(RecordedProgress::default());
    let turn = TurnContext { progress: Some(Arc::clone(&heard) as _), ..TurnContext::default() };
    let start = std::time::Instant::now();
    let delivered = host.call_in("neighbour__progress", r#"{"n": 50000}"#, turn).await;
    assert_eq!(outcome(&delivered), "ok");
    let (count, most) = (heard.0.lock().unwrap().len(), 5.0 + 5.0 * start.elapsed().as_secs_f64() + 1.0);
    assert!(count >= 5 && (count as f64) <= most, "{count} of 50 000, at most {most}");
}

/// A refusal after a survived refusal is reported correctly, and not as a lack of memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_that_was_survived_is_not_blamed() {
    let policy = "[plugins.alloc.limits]\nmemory = \"16MiB\"";
    let host = TestHost::new(&[("alloc", guest_artifacts::HOSTILE_ALLOC)], policy).await;
    for (then, kind, part) in [
        ("die", FaultKind::OutOfMemory, "[plugins.alloc.limits] memory = …"),
        ("grow", FaultKind::Trap, "it died of something else"),
        ("signature", FaultKind::Trap, "indirect call type mismatch"),
    ] {
        let delivered = host.provoke("alloc__refused", json!({"then": then}), Duration::from_secs(20)).await;
        let fault = fault(&delivered);
        assert_eq!(fault.kind, kind, "{then}: {fault}");
        let words = format!("{fault}\n{}", hints(&delivered));
        assert!(words.contains(part), "{then}: {words}");
    }
}

/// A guest creates its own resources and never drops them.
#[tokio::test(flavor = "multi_thread")]
async fn guest_handles_are_bounded() {
    let inner = wat::parse_str(
        r#"(component
            (type $r (resource (rep i32)))
            (core func $new (canon resource.new $r))
            (core module $m
                (import "" "new" (func $new (param i32) (result i32)))
                (func $f (loop (drop (call $new (i32.const 1))) (br 0)))
                (start $f))
            (core instance (instantiate $m (with "" (instance (export "new" (func $new)))))))"#,
    )
    .unwrap();
    let mut bytes = fs::read(guest_artifacts::API_ECHO).unwrap();
    let number = u8::try_from(sections(&bytes).into_iter().filter(|id| *id == 4).count()).unwrap();
    bytes.extend([
        4,
        u8::try_from(inner.len() & 0x7f).unwrap() | 0x80,
        u8::try_from(inner.len() >> 7).unwrap(),
    ]);
    bytes.extend(&inner);
    // One component instance: instantiate the component with that number, without arguments.
    bytes.extend([5, 4, 1, 0, number, 0]);
    let host = TestHost::new(&[], "").await;
    let error = host.host.load_bytes(PluginId::new("many").unwrap(), bytes).await.unwrap_err().to_string();
    assert!(error.contains("too many handles") && error.contains("`handles` is 256"), "{error}");
}

/// Small values become large trees. The test measures the worst admissible texts.
#[tokio::test(flavor = "multi_thread")]
async fn json_takes_little_memory_whatever_its_values() {
    if in_a_process("sandbox::limits::json_takes_little_memory_whatever_its_values", "ulimit -c 0") {
        return;
    }
    let most = toolbay::core::tool::json::MAX_VALUES as usize;
    let members = (0..most / 2 - 2).map(|n| format!("\"{n:x}\":0")).collect::<Vec<_>>().join(",");
    let array =
        |item: &str, values: usize| format!("{{\"a\":[{}0]}}", format!("{item},").repeat(most / values - 4));
    for (name, text) in [
        ("numbers", array("0", 1)),
        ("empty arrays", array("[]", 1)),
        ("empty texts", array("\"\"", 1)),
        ("arrays of one", array("[0]", 2)),
        ("objects of one", array("{\"\":0}", 3)),
        ("members", format!("{{{members}}}")),
    ] {
        let memory = MemoryCheck::peak_from_here();
        let parsed = toolbay::core::tool::json::parse(&text).unwrap();
        let more = memory.more_mib();
        drop(parsed);
        println!("{name}: {} bytes, {more} MiB", text.len());
        assert!(more < 80, "{name}: {more} MiB for {} bytes", text.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_and_answers_with_too_many_values_are_refused() {
    let host = TestHost::new(&[("bad", guest_artifacts::HOSTILE_OUTPUT)], "").await;
    let many = format!("{{\"a\":[{}0]}}", "0,".repeat(300_000));
    let delivered = host.call_in("neighbour__echo", &many, TurnContext::default()).await;
    assert!(refusal(&delivered).message.contains("more than 250000 values"), "{:?}", delivered.result);
    let args = json!({ "json": many }).to_string();
    let delivered = host.call_in("bad__json", &args, TurnContext::default()).await;
    assert_eq!(fault(&delivered).kind, FaultKind::BadOutput, "{:?}", delivered.result);
    assert!(fault(&delivered).message.contains("more than 250000 values"));
}

#[test]
fn numbers_that_stop_everything_are_refused_with_the_reason() {
    for (text, part) in [
        ("[limits]\nconcurrency = 0", "`concurrency` must be at least 1"),
        ("[plugins.x.tools.y]\nlimits = { concurrency = 2 }", "applies to a whole plugin"),
        ("[host]\ncompile_timeout = \"0s\"", "`compile_timeout` must be above zero"),
        ("[host]\nbreaker_pause = \"99999999999s\"", "at most"),
        ("[host]\nqueue_timeout = \"99999999999s\"", "at most"),
    ] {
        let text = format!("version = 1\n{text}");
        let error = toolbay::Policy::parse(&text, std::path::Path::new("/"), None).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}
