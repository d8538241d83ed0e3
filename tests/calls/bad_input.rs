//! Callers that send invalid input get a typed answer, and their next call works.

use integration_tests::{TestHost, outcome, refusal, value};
use serde_json::json;
use toolbay::core::tool::content::ErrorCode;
use toolbay::{Filter, ToolCall, TurnContext};

#[tokio::test(flavor = "multi_thread")]
async fn wrong_calls_are_refused_before_anything_runs() {
    let host = TestHost::new(&[("text", guest_artifacts::PLUGIN_TEXT)], "").await;
    let long = format!(r#"{{"text":"{}"}}"#, "x".repeat(5 << 20));
    let deep = format!(r#"{{"text":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    for (tool, args, code, part) in [
        ("text__nothing", "{}", ErrorCode::NotAvailable, "Unknown tool: text__nothing"),
        ("", "{}", ErrorCode::NotAvailable, "Unknown tool: "),
        ("text__word_count\u{0}", "{}", ErrorCode::NotAvailable, "Unknown tool: "),
        ("text__word_count", r#"{"text": 5}"#, ErrorCode::InputInvalid, "/text"),
        ("text__word_count", "{}", ErrorCode::InputInvalid, "\"text\" is a required property"),
        ("text__word_count", r#"{"text": "a", "txt": 1}"#, ErrorCode::InputInvalid, "txt"),
        ("text__word_count", "text=a", ErrorCode::InputInvalid, "not valid JSON"),
        ("text__word_count", "[1]", ErrorCode::InputInvalid, "object"),
        ("text__word_count", r#"{"text": "a"} and more"#, ErrorCode::InputInvalid, "not valid JSON"),
        ("text__word_count", r#"{"text": "a", "text": "b"}"#, ErrorCode::InputInvalid, "duplicate key"),
        ("text__word_count", r#"{"text": "\ud800"}"#, ErrorCode::InputInvalid, "not valid JSON"),
        ("text__word_count", r#"{"text": NaN}"#, ErrorCode::InputInvalid, "not valid JSON"),
        ("text__word_count", &deep, ErrorCode::InputInvalid, "not valid JSON"),
        ("text__word_count", &long, ErrorCode::InputInvalid, "args_bytes"),
    ] {
        let delivered = host.call_in(tool, args, TurnContext::default()).await;
        let error = refusal(&delivered);
        assert_eq!(error.code, code, "{tool} {args:.60}: {error}");
        assert!(error.message.contains(part), "{tool} {args:.60}: {error}");
        assert_eq!(delivered.usage.fuel, Some(0), "nothing ran");
        let next = host.call("text__word_count", json!({"text": "a b a"})).await;
        assert_eq!(outcome(&next), "ok");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_keeps_its_order_whatever_its_members_do() {
    let host = TestHost::new(
        &[("spin", guest_artifacts::HOSTILE_SPIN)],
        "[plugins.spin.limits]\nfuel = 100_000_000",
    )
    .await;
    let calls = vec![
        ToolCall::new("a", "neighbour__echo", "{\"n\":1}"),
        ToolCall::new("b", "spin__spin", "{}"),
        ToolCall::new("c", "nobody__knows", "{}"),
        ToolCall::new("d", "neighbour__echo", "not json"),
        ToolCall::new("e", "neighbour__echo", "{\"n\":2}"),
    ];
    let results = host.host.call_all(&host.host.view(Filter::default()), calls, TurnContext::default()).await;
    let seen: Vec<_> = results.iter().map(|r| (&*r.call_id, outcome(r))).collect();
    assert_eq!(
        seen,
        [("a", "ok"), ("b", "out_of_fuel"), ("c", "not_available"), ("d", "input_invalid"), ("e", "ok")]
    );
    assert_eq!((value(&results[0]), value(&results[4])), ("{\"n\":1}", "{\"n\":2}"));
    assert!(
        host.host
            .call_all(&host.host.view(Filter::default()), vec![], TurnContext::default())
            .await
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_calls_in_one_batch_are_all_answered() {
    let host = TestHost::new(&[], "").await;
    let calls = (0..10_000)
        .map(|n| ToolCall::new(n.to_string(), "neighbour__echo", format!("{{\"n\":{n}}}")))
        .collect();
    let turn = TurnContext { budget_chars: 1_000_000, ..TurnContext::default() };
    let results = host.host.call_all(&host.host.view(Filter::default()), calls, turn).await;
    assert_eq!(results.len(), 10_000);
    for (n, delivered) in results.iter().enumerate() {
        assert_eq!(
            (delivered.call_id.clone(), value(delivered)),
            (n.to_string().into(), format!("{{\"n\":{n}}}").as_str())
        );
    }
}
