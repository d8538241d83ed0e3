//! Bad calls at the gates: each has a defined answer, and the other calls of the batch run.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use integration_tests::{TestHost, another_build, outcome, refusal, value};
use serde_json::json;
use toolbay::core::tool::content::ErrorCode;
use toolbay::{Filter, PluginId, ToolCall, TurnContext};

const ECHO: &str = guest_artifacts::API_ECHO;

/// Invalid arguments in one batch with good ones: the table of `docs/explanation/call.md`.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_arguments_are_reported_by_kind() {
    let host = TestHost::new(&[], "").await;
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let many = format!("{{\"a\":[{}0]}}", "0,".repeat(300_000));
    let long_key = format!("{{\"{0}\":1,\"{0}\":2}}", "k".repeat(100_000));
    let hint = "send one complete JSON object without any text around it";
    for (args, part) in [
        ("{\"a\": ", hint),
        ("{'a': 1}", "not valid JSON: key must be a string"),
        ("{a: 1}", "not valid JSON: key must be a string"),
        ("{\"a\": 1,}", "not valid JSON: trailing comma"),
        ("Sure! {\"a\": 1}", hint),
        ("```json\n{\"a\": 1}\n```", hint),
        ("{\"a\": 1} I hope that helps", hint),
        ("{\"a\": 1}{\"a\": 2}", "not valid JSON: trailing characters"),
        ("{\"a\": NaN}", "not valid JSON"),
        ("{\"a\": Infinity}", "not valid JSON"),
        ("{\"a\": 1e999}", "not valid JSON: number out of range"),
        ("{\"a\": -1e999}", "not valid JSON: number out of range"),
        ("{\"a\": 01}", "not valid JSON: invalid number"),
        ("{\"a\": 1, \"a\": 2}", "duplicate key \"a\""),
        ("{\"a\": {\"b\": 1, \"\\u0062\": 2}}", "duplicate key \"b\""),
        ("{\"a\": \"\\ud800\"}", "not valid JSON"),
        ("{\"a\": \"\\udc00\\ud800\"}", "not valid JSON"),
        ("{\"a\": \"\u{1}\"}", "not valid JSON: control character"),
        ("{\"$serde_json::private::Number\": \"1\"}", "$serde_json::private::"),
        ("[]", "is not of type \"object\""),
        ("null", "is not of type \"object\""),
        ("\"{}\"", "is not of type \"object\""),
        ("7", "is not of type \"object\""),
        ("\u{feff}{}", hint),
        ("{}\u{0}", "or have a NUL character"),
        (&deep, "recursion limit exceeded"),
        (&many, "more than 250000 values"),
        (&long_key, "duplicate key"),
    ] {
        let mut calls = vec![ToolCall::new("bad", "neighbour__echo", args)];
        calls.extend((0..2).map(|n| ToolCall::new(n.to_string(), "neighbour__echo", "{\"n\":1}")));
        let view = host.host.view(Filter::default());
        let results = host.host.call_all(&view, calls, TurnContext::default()).await;
        let error = refusal(&results[0]);
        assert_eq!(error.code, ErrorCode::InputInvalid, "{args:.60}");
        assert!(error.message.contains(part), "{args:.60}: {error:.300}");
        assert!(error.message.len() < 600, "bounded, whatever came: {}", error.message.len());
        assert_eq!((results[0].usage.fuel, &*results[0].call_id), (Some(0), "bad"));
        assert!(results[1..].iter().all(|r| value(r) == "{\"n\":1}"));
    }
}

/// Numbers are passed on digit by digit. The schema decides what is valid.
#[tokio::test(flavor = "multi_thread")]
async fn huge_numbers_reach_the_tool_unchanged() {
    let host = TestHost::new(&[], "").await;
    for args in [
        "{\"n\":123456789012345678901234567890}",
        "{\"n\":-9223372036854775809}",
        "{\"n\":1e308}",
        "{\"n\":5e-324}",
        "{\"n\":-0.0}",
    ] {
        assert_eq!(value(&host.call_in("neighbour__echo", args, TurnContext::default()).await), args);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unavailable_tool_fails_only_its_own_call_of_a_batch() {
    let host = TestHost::new(
        &[("f", guest_artifacts::CAP_FILES)],
        "[[rule]]\ntool = \"neighbour__long\"\naction = \"deny\"",
    )
    .await;
    let calls = vec![
        ToolCall::new("a", "neighbour__echo", "{}"),
        ToolCall::new("b", "f__must_read", "{\"path\":\"a\"}"),
        ToolCall::new("c", "neighbour__long", "{}"),
        ToolCall::new("d", "neighbour__error", "{\"code\":\"execution-failed\"}"),
        ToolCall::new("d", "", ""),
        ToolCall::new("", "neighbour__echo", ""),
    ];
    let view = host.host.view(Filter::default());
    let results = host.host.call_all(&view, calls, TurnContext::default()).await;
    let seen: Vec<_> = results.iter().map(|r| (&*r.call_id, outcome(r))).collect();
    let expect = [
        ("a", "ok"),
        ("b", "not_available"),
        ("c", "not_available"),
        ("d", "execution_failed"),
        ("d", "not_available"),
        ("", "ok"),
    ];
    assert_eq!(seen, expect);
    assert_eq!(host.audit.take().len(), 6);
    assert!(host.host.call_all(&view, vec![], TurnContext::default()).await.is_empty());
    assert!(host.audit.take().is_empty());
}

/// Code of an embedder that panics wherever the host calls it.
#[tokio::test(flavor = "multi_thread")]
async fn callbacks_that_panic_cost_no_call_anything() {
    #[derive(Debug)]
    struct PanickingTool;
    impl toolbay::core::call::ProgressSink for PanickingTool {
        fn progress(&self, _: toolbay::core::call::ProgressEvent) {
            panic!("a progress sink");
        }
    }
    let host = TestHost::new(&[], "").await;
    host.host.events().listen(|_| panic!("a listener"));
    let failed = host.call("neighbour__nothing", json!({})).await;
    assert_eq!(outcome(&failed), "not_available");
    let turn = TurnContext { progress: Some(Arc::new(PanickingTool)), ..TurnContext::default() };
    let calls =
        vec![ToolCall::new("1", "neighbour__progress", "{}"), ToolCall::new("2", "neighbour__echo", "{}")];
    let view = host.host.view(Filter::default());
    let results = host.host.call_all(&view, calls, turn).await;
    assert_eq!(results.iter().map(outcome).collect::<Vec<_>>(), ["ok", "ok"]);
    assert_eq!(outcome(&host.call("neighbour__echo", json!({})).await), "ok");
    assert_eq!(host.host.available_call_permits(), TestHost::empty("").host.available_call_permits());
}

/// While a plugin is replaced repeatedly, every listing has all of its tools.
#[tokio::test(flavor = "multi_thread")]
async fn a_listing_during_a_reload_is_consistent() {
    let host = TestHost::empty("");
    host.load("e", ECHO).await;
    let names = |host: &toolbay::Host| -> BTreeSet<(String, String)> {
        let view = host.view(Filter::default());
        let entries = view.definitions().map(|e| (e.def.name.to_string(), e.def.source.label()));
        entries.collect()
    };
    let digests = |host: &toolbay::Host| -> BTreeSet<String> {
        let view = host.view(Filter::default());
        let source =
            |e: &Arc<toolbay::core::registry::ToolEntry>| serde_json::to_string(&e.def.source).unwrap();
        view.definitions().filter(|e| e.def.source.plugin().is_some()).map(source).collect()
    };
    let (all, done) = (names(&host.host), Arc::new(AtomicBool::new(false)));
    let lister = {
        let (host, done, all) = (host.host.clone(), Arc::clone(&done), all.clone());
        tokio::task::spawn_blocking(move || {
            let mut listings = 0;
            while !done.load(Ordering::Relaxed) || listings == 0 {
                assert_eq!(names(&host), all);
                assert_eq!(digests(&host).len(), 1, "two builds in one listing");
                listings += 1;
            }
            listings
        })
    };
    let (first, second) = (another_build(ECHO, 1), another_build(ECHO, 2));
    for n in 0..6 {
        let build = if n % 2 == 0 { &first } else { &second };
        host.host.load_bytes(PluginId::new("e").unwrap(), build.clone()).await.unwrap();
        assert_eq!(outcome(&host.call("e__echo", json!({"n": n})).await), "ok");
    }
    done.store(true, Ordering::Relaxed);
    assert!(lister.await.unwrap() > 0);
}
