//! Nested calls: they pass the same gates, count for their parent, and never exceed its grants.

use std::sync::Arc;
use std::time::{Duration, Instant};

use integration_tests::{
    NEIGHBOUR, SETTLED, TestHost, fault, hints, outcome, output, refusal, structured, value,
};
use serde_json::{Value, json};
use toolbay::core::session::Session;
use toolbay::core::tool::content::{ErrorCode, ToolOutput};
use toolbay::core::tool::fault::FaultKind;
use toolbay::policy::session::SessionLimits;
use toolbay::{Filter, Policy, ToolCall, TurnContext, native_tool};

use crate::sandbox::compile_bombs::soon;

const GRANTED: &str = "[plugins.caller.grant]\ninvoke = [\"*\"]\n";

async fn host(policy: &str) -> TestHost {
    host_with(policy, &[]).await
}

async fn host_with(policy: &str, more: &[(&str, &str)]) -> TestHost {
    let guests: Vec<_> =
        [("caller", guest_artifacts::CAP_INVOKE)].into_iter().chain(more.iter().copied()).collect();
    TestHost::new(&guests, policy).await
}

/// Makes nested calls in one call, and returns each outcome.
async fn answers(host: &TestHost, calls: Value) -> Vec<Value> {
    host.ask("caller__invoke", json!({ "calls": calls })).await["answers"].as_array().unwrap().clone()
}

/// Makes one nested call.
async fn answer(host: &TestHost, tool: &str, args: Value) -> Value {
    answers(host, json!([[tool, args]])).await.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_made_and_answered_in_their_order() {
    let host = host(GRANTED).await;
    let calls = json!([
        ["neighbour__echo", {"a": 1}],
        ["neighbour__structured", {"b": [2]}],
        ["neighbour__error", {"code": "stale-write"}],
        ["neighbour__error", {"code": 5}],
        ["nobody__knows", {}],
        ["neighbour__long", {"n": 300_000}],
    ]);
    let all = answers(&host, calls).await;
    assert_eq!(all[0], json!({"value": r#"{"a":1}"#, "structured": null}));
    assert_eq!(all[1]["structured"], json!({"b": [2]}));
    assert_eq!(
        all[2]["error"],
        json!({"code": "ErrorCode::StaleWrite", "message": "as asked", "subject": "/code"})
    );
    assert_eq!(all[3]["error"]["code"], "ErrorCode::InputInvalid");
    assert!(all[4]["error"]["message"].as_str().unwrap().contains("Unknown tool: nobody__knows"), "{all:?}");
    // The nested result is complete. A model would get 80,000 characters of it.
    assert_eq!(all[5], json!({"bytes": 300_000, "truncated": false}));
    assert!(answers(&host, json!([])).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_nested_call_is_recorded_with_its_parent() {
    let host = host(GRANTED).await;
    answers(
        &host,
        json!([["neighbour__echo", {}], ["caller__invoke", {"calls": [["neighbour__meta", {}]]}]]),
    )
    .await;
    let mut lines: Vec<_> = (host.audit.take().into_iter())
        .map(|line| (line.call_id.to_string(), line.outer, line.tool.to_string(), line.outcome))
        .collect();
    lines.sort();
    let line = |id: &str, outer: Option<&str>, tool: &str| {
        (id.to_owned(), outer.map(str::to_owned), tool.to_owned(), "ok")
    };
    assert_eq!(
        lines,
        [
            line("1", None, "caller__invoke"),
            line("1/1", Some("1"), "neighbour__echo"),
            line("1/2", Some("1"), "caller__invoke"),
            line("1/2/3", Some("1/2"), "neighbour__meta"),
        ]
    );
    let log = host.host.calls().calls(&toolbay::core::audit::call_log::CallQuery::default());
    assert_eq!(log.iter().filter(|call| call.outer.is_some()).count(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nested_call_needs_the_grant_and_the_permission_of_its_caller() {
    let denied = |answer: &Value| {
        assert_eq!(answer["error"]["subject"], "denied", "{answer}");
        answer["error"]["message"].as_str().unwrap().to_owned()
    };
    // Without a grant nothing is listed or called, and the operator gets the policy line that would allow it.
    let none = host("").await;
    assert_eq!(none.ask("caller__list", json!({})).await["names"], json!([]));
    let whole = none.ask("caller__invoke", json!({"calls": [["neighbour__echo", {}]]})).await;
    let text = denied(&whole);
    assert!(
        text.ends_with("`toolbay explain caller__invoke` tells the operator what would allow it"),
        "{text}"
    );
    let told = none.call("caller__invoke", json!({"calls": [["neighbour__echo", {}]]})).await;
    let lines = "[plugins.caller.grant]\ninvoke = [\"neighbour__echo\"]";
    assert!(hints(&told).contains(lines), "{told:?}");
    let needs = none.call("caller__needs", json!({})).await;
    assert!(hints(&needs).contains(r#"invoke = ["neighbour__*"]"#), "{needs:?}");
    // Granted, but not declared.
    let all = host(GRANTED).await;
    denied(&all.ask("caller__undeclared", json!({"calls": [["neighbour__echo", {}]]})).await);
    // Some tools are granted.
    let some = host("[plugins.caller.grant]\ninvoke = [\"neighbour__e*\", \"nobody__knows\"]\n").await;
    assert_eq!(
        some.ask("caller__list", json!({})).await["names"],
        json!(["neighbour__echo", "neighbour__error"])
    );
    assert_eq!(answer(&some, "neighbour__echo", json!({})).await["value"], "{}");
    let text = denied(&answer(&some, "neighbour__long", json!({})).await);
    assert!(text.contains("`toolbay explain caller__invoke`"), "{text}");
    let told = some.call("caller__invoke", json!({"calls": [["neighbour__long", {}]]})).await;
    assert!(hints(&told).contains(r#""neighbour__e*", "nobody__knows", "neighbour__long""#), "{told:?}");
    // The error does not say whether an ungranted tool exists.
    denied(&answer(&some, "nobody__else", json!({})).await);
    // A tool that forwards calls is judged by its target.
    let through = json!({"name": "neighbour__long", "arguments": {}});
    let some = host("[plugins.caller.grant]\ninvoke = [\"tool_call\"]\n").await;
    let answer = answer(&some, "tool_call", through).await;
    assert!(answer["error"].is_object(), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_hidden_from_the_caller_cannot_be_called() {
    let host = host(&format!(
        "{GRANTED}[profile.reader]\nplugins = [\"caller\"]\n[[rule]]\ntool = \"neighbour__meta\"\nargs = {{ \"/n\" = \"1\" }}\naction = \"deny\"\n[permissions]\ndefault = \"allow\"\n"
    ))
    .await;
    let under = async |filter: Filter, tool: &str, args: &str| {
        let view = host.host.view(filter);
        let args = format!(r#"{{"calls": [["{tool}", {args}]]}}"#);
        let calls = vec![ToolCall::new("1", "caller__invoke", args)];
        let delivered = host.host.call_all(&view, calls, TurnContext::default()).await.pop().unwrap();
        structured(&delivered)["answers"][0].clone()
    };
    let message = |answer: Value| answer["error"]["message"].as_str().unwrap_or_default().to_owned();
    let excluded = Filter { exclude_tools: ["neighbour__echo".to_owned()].into(), ..Filter::default() };
    assert!(message(under(excluded, "neighbour__echo", "{}").await).starts_with("Unknown tool"));
    let policy = host.host.policy();
    let profile = Filter { profile: policy.profile("reader").cloned(), ..Filter::default() };
    assert!(message(under(profile, "neighbour__echo", "{}").await).starts_with("Unknown tool"));
    let said = message(under(Filter::default(), "neighbour__meta", r#"{"n": "1"}"#).await);
    assert!(said.contains("denied by permission policy"), "{said}");
    assert_eq!(under(Filter::default(), "neighbour__meta", r#"{"n": "2"}"#).await["value"], "meta");
}

#[tokio::test(flavor = "multi_thread")]
async fn depth_is_bounded() {
    let host = host(GRANTED).await;
    let nest = |calls: Value| json!([["caller__invoke", { "calls": calls }]]);
    let inner = |answers: &[Value]| answers[0]["structured"].clone();
    let one = answers(&host, nest(json!([["neighbour__echo", {}]]))).await;
    assert_eq!(inner(&one)["answers"][0]["value"], "{}");
    let two = answers(&host, nest(nest(json!([["neighbour__echo", {}]])))).await;
    let deepest = &inner(&two)["answers"][0]["structured"]["error"];
    assert_eq!(deepest["subject"], "depth", "{two:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nested_calls_are_bounded_in_number() {
    let host = host(&format!("{GRANTED}[plugins.caller.limits]\ninvocations = 5\n")).await;
    let told = host.ask("caller__again", json!({"times": 100_000})).await;
    assert_eq!(told["answered"], 5);
    assert_eq!(told["refused"]["subject"], "limit");
    let text = told["refused"]["message"].as_str().unwrap();
    assert!(text.contains("the limit `invocations` is 5; the operator can raise it"), "{text}");
    assert_eq!(host.audit.take().len(), 6);
    // A batch of nested calls is admitted entirely or not at all.
    assert_eq!(host.ask("caller__many", json!({"times": 6})).await["error"]["subject"], "limit");
    assert_eq!(host.ask("caller__many", json!({"times": 5})).await["good"], 5);
    assert_eq!(host.ask("caller__many", json!({"times": 100_000})).await["error"]["subject"], "limit");
    // Calls of nested calls count for the outermost call.
    let calls = json!([["caller__again", {"times": 4}], ["neighbour__echo", {}]]);
    let told = answers(&host, calls).await;
    assert_eq!(told[0]["structured"]["answered"], 3, "{told:?}");
    // Refused calls count, too.
    drop(host.audit.take());
    let told = host.ask("caller__again", json!({"times": 1000, "tool": "nobody__knows"})).await;
    assert_eq!((told["answered"].as_u64(), host.audit.take().len()), (Some(5), 6));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_and_huge_arguments_are_refused_as_a_models() {
    let host = host_with(&format!("{GRANTED}[limits]\nargs_bytes = \"64KiB\"\n"), &[]).await;
    let raw = async |args: Value| host.ask("caller__raw", args).await["answers"][0]["error"].clone();
    for (args, says) in [
        (json!({"text": "{"}), "not valid JSON"),
        (json!({"text": "[1]", "tool": "neighbour__error"}), "were not accepted"),
        (json!({"text": r#"{"a":1,"a":2}"#}), "duplicate key"),
        (json!({"bytes": 100_000}), "`args_bytes`"),
    ] {
        let error = raw(args.clone()).await;
        assert_eq!(error["code"], "ErrorCode::InputInvalid", "{args}");
        assert!(error["message"].as_str().unwrap().contains(says), "{error}");
    }
    // A request above the byte limit ends the call, as for any import.
    let small = self::host(&format!("{GRANTED}[limits]\nhost_call_bytes = \"1MiB\"\n")).await;
    let ended = small.provoke("caller__raw", json!({"bytes": 2_000_000}), Duration::from_secs(20)).await;
    assert_eq!(fault(&ended).kind, FaultKind::OutputTooLarge);
    // Results that exceed the limit together: the calls were made, and those that do not fit return an error.
    let told = small
        .ask("caller__many", json!({"times": 8, "tool": "neighbour__long", "args": {"n": 300_000}}))
        .await;
    assert_eq!(
        (&told["good"], &told["first"]["error"]["subject"]),
        (&json!(3), &json!("output_too_large")),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_of_a_nested_call_is_its_error() {
    let more = [("trap", guest_artifacts::HOSTILE_TRAP), ("spin", guest_artifacts::HOSTILE_SPIN)];
    let host = host_with(
        &format!("{GRANTED}[plugins.spin.limits]\ntimeout = \"100ms\"\nfuel = 1_000_000_000_000\n"),
        &more,
    )
    .await;
    let spun = answer(&host, "spin__spin", json!({})).await;
    assert_eq!(
        (&spun["error"]["code"], &spun["error"]["subject"]),
        (&json!("ErrorCode::ExecutionFailed"), &json!("deadline"))
    );
    assert_eq!(answer(&host, "neighbour__echo", json!({})).await["value"], "{}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nested_call_ends_with_its_parent() {
    let spin = [("spin", guest_artifacts::HOSTILE_SPIN)];
    let endless = "[limits]\nfuel = 1_000_000_000_000\n[plugins.caller.limits]\ntimeout = \"500ms\"\n";
    let host = host_with(&format!("{GRANTED}{endless}"), &spin).await;
    let places = host.host.available_call_permits();
    // The timeout of the parent applies, whatever the nested call allows.
    let start = Instant::now();
    let ended = host.call("caller__invoke", json!({"calls": [["spin__spin", {}], ["spin__spin", {}]]})).await;
    assert_eq!(fault(&ended).kind, FaultKind::Deadline);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    soon("a place is still taken", || host.host.available_call_permits() == places).await;
    let mut recorded = 0;
    soon("the inner calls are not recorded", || {
        recorded += host.audit.take().len();
        recorded == 3
    })
    .await;
    // Cancelled by the caller.
    let host = host_with(&format!("{GRANTED}[limits]\nfuel = 1_000_000_000_000\n"), &spin).await;
    let turn = TurnContext::default();
    let cancel = turn.cancel.clone();
    let start = Instant::now();
    let canceller = async {
        host.until_begun("spin__spin").await;
        tokio::time::sleep(SETTLED).await;
        cancel.cancel();
    };
    let call = host.call_in("caller__invoke", r#"{"calls": [["spin__spin", {}]]}"#, turn);
    let (ended, ()) = tokio::join!(call, canceller);
    assert_eq!(outcome(&ended), "cancelled");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    soon("a place is still taken", || host.host.available_call_permits() == places).await;
    assert_eq!(answer(&host, "neighbour__echo", json!({})).await["value"], "{}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nested_calls_run_with_one_parallel_call() {
    let host = Arc::new(
        host(&format!("[host]\nparallel_calls = 1\n{GRANTED}[plugins.caller.limits]\nconcurrency = 1\n"))
            .await,
    );
    let nested = json!([["caller__invoke", {"calls": [["neighbour__echo", {}], ["neighbour__meta", {}]]}], ["neighbour__echo", {}]]);
    let many: Vec<_> = (0..8)
        .map(|_| {
            let (host, calls) = (Arc::clone(&host), nested.clone());
            tokio::spawn(async move { answers(&host, calls).await })
        })
        .collect();
    for one in many {
        let told =
            tokio::time::timeout(Duration::from_secs(60), one).await.expect("no call continues").unwrap();
        assert_eq!(told[0]["structured"]["answers"][1]["value"], "meta", "{told:?}");
        assert_eq!(told[1]["value"], "{}");
    }
    soon("a place is still taken", || host.host.available_call_permits() == 1).await;
}

#[test]
fn a_tool_that_calls_others_has_no_serial_queue() {
    for lines in [
        "[plugins.p]\nserial = true\n[plugins.p.grant]\ninvoke = [\"*\"]",
        "[plugins.p.tools.t]\nserial = true\n[plugins.p.grant]\ninvoke = [\"a__b\"]",
    ] {
        let error =
            Policy::parse(&format!("version = 1\n{lines}"), std::path::Path::new("/"), None).unwrap_err();
        assert!(error.to_string().contains("`invoke` and `serial` exclude each other"), "{error}");
    }
}

/// A suggestion compares an unknown name with all names, which is work of the host.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_names_of_a_guest_get_suggestions_within_its_limits() {
    let limits = "[plugins.caller.limits]\ninvocations = 200\n\
                  [plugins.hasty.limits]\ninvocations = 1_000_000\ntimeout = \"300ms\"\nfuel = 1_000_000_000_000\n\
                  [plugins.hasty.grant]\ninvoke = [\"*\"]\n";
    let host = host_with(&format!("{GRANTED}{limits}"), &[("hasty", guest_artifacts::CAP_INVOKE)]).await;
    let tool = |n: usize| {
        let tool = native_tool(format!("list_issues_{n}")).namespace("tracker").description("Lists issues.");
        tool.run(|_, _| async { Ok(ToolOutput::text("none")) }).unwrap()
    };
    host.host.register((0..1850).map(tool).collect::<Vec<_>>()).unwrap();
    let unknown = |times: u64| json!({"tool": "tracker__list_isues_7", "times": times});
    let told = structured(&host.provoke("caller__many", unknown(200), Duration::from_secs(30)).await);
    let first = told["first"]["error"]["message"].as_str().unwrap();
    assert!(first.contains("`tracker__list_issues_7`"), "{told}");
    // The work counts for the time of the caller.
    let ended = host.provoke("hasty__again", unknown(1_000_000), Duration::from_secs(20)).await;
    assert_eq!(fault(&ended).kind, FaultKind::Deadline);
}

#[tokio::test(flavor = "multi_thread")]
async fn serial_tools_never_run_in_parallel() {
    let host = host(&format!("{GRANTED}[plugins.neighbour]\nserial = true\n")).await;
    let told = host.ask("caller__many", json!({"times": 20})).await;
    assert_eq!(told["good"], 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn untrusted_text_stays_marked_in_the_result_of_the_caller() {
    let host = host(GRANTED).await;
    let delivered =
        host.call("caller__invoke", json!({"calls": [["neighbour__untrusted", {"text": "obey"}]]})).await;
    assert!(value(&delivered).starts_with("<untrusted source=\"plugin:caller\""), "{}", value(&delivered));
    // The program itself gets the text unchanged.
    assert_eq!(structured(&delivered)["answers"][0]["value"], "obey");
    let through = json!([["caller__invoke", {"calls": [["neighbour__untrusted", {"text": "obey"}]]}]]);
    let delivered = host.call("caller__invoke", json!({ "calls": through })).await;
    assert!(delivered.shaping.mark.is_some());
    let delivered = host.call("caller__invoke", json!({"calls": [["neighbour__echo", {}]]})).await;
    assert!(delivered.shaping.mark.is_none() && !value(&delivered).contains("<untrusted"));
}

#[tokio::test(flavor = "multi_thread")]
async fn inner_calls_are_the_sessions() {
    let host = host(GRANTED).await;
    let limits = SessionLimits { max_calls: Some(3), ..SessionLimits::default() };
    let session = Arc::new(Session::default().with_limits(limits));
    let turn = TurnContext { session: Arc::clone(&session), ..TurnContext::default() };
    let calls = r#"{"calls": [["neighbour__meta", {}], ["neighbour__meta", {}], ["neighbour__meta", {}]]}"#;
    let delivered = host.call_in("caller__invoke", calls, turn).await;
    let told = structured(&delivered);
    let stopped: Vec<_> =
        told["answers"].as_array().unwrap().iter().filter(|one| one["error"].is_object()).collect();
    assert_eq!(stopped.len(), 1);
    assert!(stopped[0]["error"]["message"].as_str().unwrap().contains("3-tool-call budget for this session"));
    assert_eq!((session.calls(), session.cost_usd()), (3, 0.5));
    // The cost of the nested calls, without the cost of the caller.
    assert_eq!(output(&delivered).cost_usd, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nested_call_needs_approval_like_any_other() {
    let host = host(&format!(
        "{GRANTED}[permissions]\ndefault = \"allow\"\n[[rule]]\ntool = \"neighbour__meta\"\naction = \"ask\"\n"
    ))
    .await;
    let told = answer(&host, "neighbour__meta", json!({})).await;
    assert!(told["error"]["message"].as_str().unwrap().contains("no approver is available"), "{told}");
    assert_eq!(refusal(&host.call("neighbour__meta", json!({})).await).code, ErrorCode::NotAvailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn neighbours_do_not_notice() {
    let host = host(GRANTED).await;
    let told = host.provoke("caller__again", json!({"times": 100_000}), Duration::from_secs(30)).await;
    assert_eq!(structured(&told)["answered"], 100);
    assert_eq!(answer(&host, &format!("{NEIGHBOUR}__echo"), json!({})).await["value"], "{}");
}
