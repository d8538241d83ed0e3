//! Reducers are sealed, bounded, and never make a result worse.

use integration_tests::{TestHost, outcome, output, value, words};
use serde_json::json;
use toolbay::TurnContext;

#[tokio::test(flavor = "multi_thread")]
async fn a_reducer_of_the_same_plugin_is_applied() {
    let host = TestHost::new(&[("r", guest_artifacts::REDUCE_GOOD)], "").await;
    let whole = host.call("r__produce", json!({})).await;
    assert_eq!(host.audit.take()[0].reducer, Some("reduced"));
    assert!(!value(&whole).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_misbehaving_reducer_leaves_the_result_intact() {
    let host = TestHost::new(
        &["r", "brief"].map(|id| (id, guest_artifacts::REDUCE_BAD)),
        "[plugins.r.limits]\nmemory = \"256MiB\"\n[plugins.brief.limits]\ntimeout = \"500ms\"",
    )
    .await;
    let original = value(&host.call("r__produce", json!({"reduce": "keep"})).await).to_owned();
    drop(host.audit.take());
    for (action, note) in [
        ("grow", "refused: longer, or another kind of result"),
        ("huge", "output_too_large"),
        ("trap", "trap"),
        ("exit", "trap"),
        ("alloc", "out_of_memory"),
        ("sleep", "deadline"),
        ("error_from_ok", "refused: longer, or another kind of result"),
        ("bad_structured", "bad_output"),
        ("unknown", "kept"),
    ] {
        let tool = if action == "sleep" { "brief__produce" } else { "r__produce" };
        let delivered = host.call(tool, json!({"reduce": action})).await;
        assert_eq!(value(&delivered), original, "{action}");
        assert_eq!(host.audit.take()[0].reducer, Some(note), "{action}");
    }
    let spun = host.call("r__produce", json!({"reduce": "spin"})).await;
    assert_eq!(value(&spun), original);
    assert!(matches!(host.audit.take()[0].reducer, Some("deadline" | "out_of_fuel")));
    let dropped = host.call("r__produce", json!({"reduce": "drop_structured", "structured": {"a": 1}})).await;
    assert!(output(&dropped).structured.is_some(), "the structured part survives");
    assert_eq!(host.host.available_call_permits(), 64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reducer_has_nothing_but_its_input() {
    let host = TestHost::new(&[("r", guest_artifacts::REDUCE_BAD)], "").await;
    let a = host.call("r__produce", json!({"reduce": "random"})).await;
    let b = host.call("r__produce", json!({"reduce": "random"})).await;
    assert_eq!(value(&a), value(&b), "randomness is fixed");
    let import = host.call("r__produce", json!({"reduce": "import"})).await;
    assert_eq!(outcome(&import), "ok");
    assert!(!value(&import).contains("Ok("), "{}", value(&import));
}

#[tokio::test(flavor = "multi_thread")]
async fn reducing_results_of_other_plugins_needs_a_grant() {
    let guests = [("api_echo", guest_artifacts::API_ECHO), ("r", guest_artifacts::REDUCE_FOREIGN)];
    let without = TestHost::new(&guests, "").await;
    assert!(value(&without.call("api_echo__long", json!({"n": 500})).await).len() == 500);
    let with = TestHost::new(&guests, "[plugins.r.grant]\nreduce = [\"api_echo__long\"]").await;
    let mut turn = TurnContext::default();
    turn.identity.turn = Some(3);
    let reduced = with.call_in("api_echo__long", r#"{"n": 500}"#, turn).await;
    assert_eq!(value(&reduced), "500 characters, turn 3, budget 80000");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_party_reducer_shortens_results_of_files() {
    let policy = "[plugins.files.grant]\nfs_read = [\"$workspace\"]\n[plugins.reducers.grant]\nreduce = [\"files__read_file\"]";
    let plugins = [("files", guest_artifacts::PLUGIN_FILES), ("reducers", guest_artifacts::PLUGIN_REDUCERS)];
    let host = TestHost::new(&plugins, policy).await;
    let text: String = (1..=400).map(|n| format!("line {n}\n")).collect();
    std::fs::write(host.root().join("long.txt"), text).unwrap();
    let short = host.call("files__read_file", json!({"path": "long.txt"})).await;
    assert!(words(&short).starts_with("File is 400 lines. Showing lines 1-200."), "{:.100}", value(&short));
    assert!(value(&short).contains("\nline 200") && !value(&short).contains("\nline 201"));
    let range =
        host.call("files__read_file", json!({"path": "long.txt", "start_line": 1, "end_line": 300})).await;
    assert!(value(&range).contains("line 300"), "an explicit range is left alone");
}
