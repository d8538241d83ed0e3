//! What a guest sees of its call, and what the caller receives.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use integration_tests::{RecordedProgress, TestHost, outcome, output, refusal, structured, value};
use serde_json::json;
use toolbay::core::call::{Identity, ProgressAudience};
use toolbay::core::tool::content::{BlockBody, ErrorCode, ResourceBody, ToolError, ToolOutput};
use toolbay::{Filter, Host, Policy, Session, ToolCall, TurnContext, native_tool};

#[tokio::test(flavor = "multi_thread")]
async fn a_call_gets_a_fresh_instance_each_time() {
    let host = TestHost::new(&[("state", guest_artifacts::HOSTILE_STATE)], "").await;
    for _ in 0..20 {
        assert_eq!(value(&host.call("state__count", json!({})).await), "1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_answer_arrives() {
    let host = TestHost::new(&[], "").await;
    assert_eq!(
        host.ask("neighbour__structured", json!({"a": [1, {"b": null}]})).await,
        json!({"a": [1, {"b": null}]})
    );
    let meta = host.call("neighbour__meta", json!({"k": "v"})).await;
    assert_eq!(
        (output(&meta).meta.as_ref().unwrap().get(), output(&meta).cost_usd),
        (r#"{"k":"v"}"#, Some(0.25))
    );
    let content = host.call("neighbour__content", json!({})).await;
    let blocks = &output(&content).content;
    assert_eq!(blocks.len(), 6);
    assert_eq!(blocks[0].annotations.as_ref().unwrap().priority, Some(0.5));
    assert!(
        matches!(&blocks[1].body, BlockBody::Image(blob) if blob.data == b"\x89PNG" && blob.mime_type == "image/png")
    );
    assert!(
        matches!(&blocks[3].body, BlockBody::Link(link) if link.uri == "https://example.com/a" && link.size == Some(12))
    );
    assert!(
        matches!(&blocks[5].body, BlockBody::Embedded(r) if r.body == ResourceBody::Blob(vec![0, 1, 2, 255]))
    );
    for (code, expect) in [
        ("input-invalid", ErrorCode::InputInvalid),
        ("not-available", ErrorCode::NotAvailable),
        ("execution-failed", ErrorCode::ExecutionFailed),
        ("stale-write", ErrorCode::StaleWrite),
    ] {
        let delivered = host.call("neighbour__error", json!({"code": code, "message": "no: {} %s"})).await;
        let error = refusal(&delivered);
        assert_eq!((error.code, error.message.as_str(), error.cost_usd), (expect, "no: {} %s", Some(0.5)));
        assert_eq!(error.subject.as_deref(), Some("/code"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guest_reads_the_budget_and_the_host_enforces_it() {
    let host = TestHost::new(&[], "[plugins.neighbour.tools.long]\nlimits = { result_chars = 500 }").await;
    let turn = || TurnContext { budget_chars: 1000, ..TurnContext::default() };
    let ctx = host.call_in("neighbour__ctx", "{}", turn()).await;
    assert_eq!(structured(&ctx)["budget_chars"], 1000);
    let long = host.call_in("neighbour__long", r#"{"n": 20000, "emoji": true}"#, turn()).await;
    assert_eq!(value(&long).chars().count(), 500);
    assert!(value(&long).ends_with("\n[truncated — 20000 chars total]"));
    assert_eq!(long.shaping.cut_from_chars, Some(20_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_sees_only_the_context_that_the_caller_passed() {
    let host = TestHost::new(&[], "[plugins.neighbour]\nconfig = { greeting = \"hi\", n = 5 }").await;
    let blank = host.ask("neighbour__ctx", json!({})).await;
    for key in ["session_id", "session_key", "platform", "working_dir", "agent_id", "turn", "attribute"] {
        assert_eq!(blank[key], json!(null), "{key}");
    }
    let identity = Identity {
        platform: Some("test".to_owned()),
        turn: Some(7),
        attributes: json!({"traceparent": "00-1"}).as_object().unwrap().clone(),
        ..Identity::default()
    };
    let session = Session::with_name("s1").into();
    let turn = TurnContext { identity, session, ..TurnContext::default() };
    let told = host.call_in("neighbour__ctx", "{}", turn).await;
    let told = structured(&told);
    assert_eq!(
        (&told["session_id"], &told["platform"], &told["turn"]),
        (&json!("s1"), &json!("test"), &json!(7))
    );
    assert_eq!(told["attribute"], json!("\"00-1\""));
    assert_eq!(
        (&told["cancelled"], &told["dry_run"], &told["call_id"]),
        (&json!(false), &json!(false), &json!("1"))
    );
    assert!(told["remaining_ms"].as_u64().unwrap() <= 30_000);
    assert_eq!(host.ask("neighbour__config", json!({})).await, json!({"greeting": "\"hi\"", "n": "5"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_reaches_only_its_caller_up_to_the_limit() {
    let host = TestHost::new(&[], "[limits]\nprogress_events = 10").await;
    let (a, b) = (Arc::new(RecordedProgress::default()), Arc::new(RecordedProgress::default()));
    let turn = |sink: &Arc<RecordedProgress>| TurnContext {
        progress: Some(Arc::clone(sink) as _),
        ..TurnContext::default()
    };
    let (one, two) = tokio::join!(
        host.call_in("neighbour__progress", r#"{"n": 3, "audience": "user"}"#, turn(&a)),
        host.call_in("neighbour__progress", r#"{"n": 5000, "audience": "internal"}"#, turn(&b)),
    );
    assert_eq!((outcome(&one), outcome(&two)), ("ok", "ok"));
    let (a, b) = (a.0.lock().unwrap(), b.0.lock().unwrap());
    assert_eq!(a.iter().map(|e| e.message.as_str()).collect::<Vec<_>>(), ["step 1", "step 2", "step 3"]);
    assert!(a.iter().all(|e| e.audience == ProgressAudience::User && &*e.tool == "neighbour__progress"));
    assert_eq!((b.len(), b[0].audience), (10, ProgressAudience::Internal));
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_reported_and_fuel_is_deterministic() {
    let host = TestHost::new(&[], "").await;
    let first = host.call("neighbour__long", json!({"n": 100_000})).await;
    let again = host.call("neighbour__long", json!({"n": 100_000})).await;
    assert!(first.usage.fuel > Some(1000) && first.usage.peak_memory_bytes >= 1 << 20, "{:?}", first.usage);
    assert_eq!(
        (first.usage.fuel, first.usage.result_bytes, first.usage.args_bytes),
        (again.usage.fuel, 100_000, 12)
    );
    let records = host.audit.take();
    assert_eq!((records.len(), records[0].outcome, records[0].usage.fuel), (2, "ok", first.usage.fuel));
    assert_eq!(records[0].source.as_ref().unwrap().plugin().unwrap().as_str(), "neighbour");
}

/// The same holds if a task of the runtime requested the batch and its thread works on it.
#[test]
fn a_batch_runs_on_several_threads() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    let host = Host::builder(Policy::deny_all(Path::new("/"))).build().unwrap();
    let at_work = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&at_work);
    let meet = native_tool("meet").description("Waits for another.").run(move |_, _| {
        let at_work = Arc::clone(&seen);
        async move {
            at_work.fetch_add(1, Ordering::SeqCst);
            let began = Instant::now();
            // The thread of the test is busy with the batch.
            while at_work.load(Ordering::SeqCst) < 2 {
                if began.elapsed() > Duration::from_secs(20) {
                    return Err(ToolError::new(ErrorCode::ExecutionFailed, "nobody came"));
                }
                std::hint::spin_loop();
            }
            Ok(ToolOutput::text("met"))
        }
    });
    host.register(vec![meet.unwrap()]).unwrap();
    let host = Arc::new(host);
    let (asked, both) = (Arc::clone(&host), || ["1", "2"].map(|id| ToolCall::new(id, "meet", "{}")).to_vec());
    let calls = both();
    let task =
        async move { asked.call_all(&asked.view(Filter::default()), calls, TurnContext::default()).await };
    let of_task = runtime.block_on(runtime.spawn(task)).unwrap();
    at_work.store(0, Ordering::SeqCst);
    let view = host.view(Filter::default());
    let outside = runtime.block_on(host.call_all(&view, both(), TurnContext::default()));
    assert!(
        of_task.iter().chain(&outside).all(|delivered| delivered.result.is_ok()),
        "{of_task:?} {outside:?}"
    );
}
