//! The gates before a call, set by a policy, with real plugins.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use integration_tests::{TestHost, another_build, fault, outcome, refusal, value};
use serde_json::json;
use toolbay::core::call::invoke::{BoxFuture, Failure};
use toolbay::core::call::{AdmittedCall, CallContext};
use toolbay::core::registry::event::HostEvent;
use toolbay::core::tool::content::{ToolOutput, ToolResult};
use toolbay::core::tool::fault::FaultKind;
use toolbay::policy::permission::Action;
use toolbay::{
    ApprovalReply, ApprovalRequest, Approver, CallQuery, CallResult, Filter, Interceptor, InterceptorAction,
    InterceptorScope, PluginId, Session, ToolCall, TurnContext,
};

const ECHO: &str = guest_artifacts::API_ECHO;

#[derive(Debug)]
struct FixedReply(ApprovalReply, Mutex<Vec<ApprovalRequest>>);

impl FixedReply {
    fn new(answer: ApprovalReply) -> Arc<Self> {
        Arc::new(Self(answer, Mutex::default()))
    }
}

impl Approver for FixedReply {
    fn ask<'a>(&'a self, question: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalReply> {
        self.1.lock().unwrap().push(question.clone());
        Box::pin(std::future::ready(self.0.clone()))
    }
}

async fn call_in(host: &TestHost, session: &Arc<Session>, tool: &str, args: &str) -> CallResult {
    let turn = TurnContext { session: Arc::clone(session), ..TurnContext::default() };
    host.call_in(tool, args, turn).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_record_names_the_rule_that_decided() {
    let person = FixedReply::new(ApprovalReply::Yes);
    let host = TestHost::empty_with(
        r#"
        [[rule]]
        tool = "e__echo"
        args = { "/path" = "/etc/*" }
        action = "deny"
        reason = "not there"
        [[rule]]
        source = "plugin:e*"
        args = { "/path" = "*" }
        action = "ask"
        [[rule]]
        tool = "e__echo"
        action = "allow"
        [permissions]
        default = "deny"
        [profile.guest]
        rule = [{ tool = "e__echo", action = "deny" }]
        "#,
        |builder| builder.approver(Arc::clone(&person) as _),
    );
    host.load("e", ECHO).await;
    let mut events = host.host.events().stream();
    for (tool, args, expect, decision) in [
        ("e__echo", json!({}), Ok("{}"), (Action::Allow, Some(3), None)),
        ("e__echo", json!({"path": "/tmp"}), Ok("{\"path\":\"/tmp\"}"), (Action::Ask, Some(2), Some("host"))),
        (
            "e__echo",
            json!({"path": "/etc/hosts"}),
            Err("rule 1 of the policy says `deny` (not there)"),
            (Action::Deny, Some(1), None),
        ),
        (
            "e__long",
            json!({}),
            Err("no rule of the policy fits, and its `default` is `deny`"),
            (Action::Deny, None, None),
        ),
    ] {
        let delivered = host.call(tool, args).await;
        match expect {
            Ok(text) => assert_eq!(value(&delivered), text),
            Err(text) => assert!(refusal(&delivered).message.contains(text), "{}", refusal(&delivered)),
        }
        let record = host.audit.take().pop().unwrap();
        let told = record.permission.unwrap();
        assert_eq!((told.action, told.rule, told.by), decision);
        assert_eq!(told.allowed, record.outcome == "ok");
        assert_eq!(record.call_sha256, delivered.call_sha256);
    }
    let asked = person.1.lock().unwrap().clone();
    assert_eq!(
        (asked.len(), asked[0].source.as_str(), &*asked[0].args),
        (1, "plugin:e", &json!({"path": "/tmp"}))
    );
    assert!(matches!(events.recv().await, Ok(HostEvent::PermissionAsked { .. })));
    assert!(matches!(events.recv().await, Ok(HostEvent::PermissionDenied { .. })));
    let profile = host.host.policy().profile("guest").cloned();
    let view = host.host.view(Filter::for_profile(profile));
    let calls = vec![ToolCall::new("1", "e__echo", "{}")];
    let under = host.host.call_all(&view, calls, TurnContext::default()).await;
    assert!(refusal(&under[0]).message.contains("rule 1 of [profile.guest] says `deny`"));
}

#[tokio::test(flavor = "multi_thread")]
async fn contradictory_policies_are_refused() {
    let base = std::path::Path::new("/base");
    for (text, part) in [
        ("[[rule]]\ntool = \"a\"", "`action` is missing"),
        ("[[rule]]\npreset = \"ask-all\"", "there is no preset `ask-all`"),
        ("[[rule]]\nsource = \"plugins\"\naction = \"deny\"", "`source` is `plugins`"),
        ("[permissions]\ndefault = \"never\"", "never"),
        ("[permissions]\nask_timeout = \"0s\"", "`ask_timeout`"),
        ("[permissions]\nask_timeout = \"2000m\"", "`ask_timeout`"),
        ("[session]\nmax_calls = 0", "[session]: `max_calls` must be at least 1"),
        ("[session]\nmax_cost_usd = -1.0", "[session]: `max_cost_usd`"),
        ("[session]\nmax_cost_usd = nan", "[session]: `max_cost_usd`"),
        ("[session]\ncache_bytes = \"2GiB\"", "[session]: `cache_bytes`"),
        ("[session]\nmax_call = 5", "unknown key `max_call`; did you mean `max_calls`?"),
        ("[plugins.a.tools.b]\ncache = \"0s\"", "`cache`"),
        ("[plugins.a.tools.b]\ncache = 5", "string"),
        ("[plugins.a.tools.b]\ncache = \"2d\"", "`cache`"),
        ("[profile.a]\npermissions = { needs_approval = \"allow\" }", "needs_approval"),
        ("[[profile.a.rule]]\naction = \"no\"", "unknown value `no`"),
    ] {
        let error = toolbay::Policy::parse(&format!("version = 1\n{text}"), base, None).unwrap_err();
        let found = error.findings().iter().any(|finding| finding.message.contains(part));
        assert!(found || error.to_string().contains(part), "{text}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policys_session_budgets_stop_a_session_and_no_other() {
    let host = TestHost::empty(
        "[session]\nmax_calls = 6\nmax_identical_calls = 2\nmax_cost_usd = 0.9\nmax_calls_per_turn = 4",
    );
    host.load("e", ECHO).await;
    let (session, mut seen) = (Arc::default(), vec![]);
    for args in ["{\"n\":1}", "{\"n\" : 1.0}", "{\"n\":1}"] {
        let delivered = call_in(&host, &session, "e__echo", args).await;
        seen.push(outcome(&delivered));
        if seen.len() == 3 {
            let text = &refusal(&delivered).message;
            assert!(
                text.starts_with("Stopped: e__echo called 2 times in one session (likely loop)"),
                "{text}"
            );
        }
    }
    assert_eq!(seen, ["ok", "ok", "not_available"]);
    // A failure costs half a dollar, a result a quarter.
    for (tool, args) in
        [("e__error", "{\"code\":\"execution-failed\"}"), ("e__meta", "{}"), ("e__meta", "{\"n\":1}")]
    {
        call_in(&host, &session, tool, args).await;
    }
    assert!((session.cost_usd() - 1.0).abs() < 1e-9, "{}", session.cost_usd());
    let spent = call_in(&host, &session, "e__echo", "{}").await;
    let text = &refusal(&spent).message;
    assert!(text.starts_with("Stopped: hit $0.9 budget cap for this session ($1.0000 spent)"), "{text}");
    let view = host.host.view(Filter::default());
    let calls = (0..5).map(|n| ToolCall::new(n.to_string(), "e__echo", format!("{{\"n\":{n}}}"))).collect();
    let results = host.host.call_all(&view, calls, TurnContext::default()).await;
    assert_eq!(results.iter().filter(|r| outcome(r) == "ok").count(), 4, "another session, one turn");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cached_result_is_dropped_with_its_plugin() {
    let host = TestHost::empty("[plugins.e.tools.ctx]\ncache = \"5m\"");
    host.load("e", ECHO).await;
    let session = Arc::default();
    let first = call_in(&host, &session, "e__ctx", "{\"attribute\":\"a\"}").await;
    let again = call_in(&host, &session, "e__ctx", "{ \"attribute\": \"a\" }").await;
    assert_eq!((value(&first), first.cached.is_some()), (value(&again), false));
    assert!(again.cached.is_some() && again.usage.fuel == Some(0));
    assert!(call_in(&host, &Arc::default(), "e__ctx", "{\"attribute\":\"a\"}").await.cached.is_none());
    let replaced = host.host.load_bytes(PluginId::new("e").unwrap(), another_build(ECHO, 1)).await;
    replaced.unwrap();
    let anew = call_in(&host, &session, "e__ctx", "{\"attribute\":\"a\"}").await;
    assert!(anew.cached.is_none() && anew.usage.fuel > Some(0), "another build answers for itself");
    let outcomes: Vec<_> = host.audit.take().iter().map(|r| r.cached).collect();
    assert_eq!(outcomes, [false, true, false, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugins_lane_is_shared_by_its_tools_and_outlives_its_builds() {
    let host = TestHost::empty(
        "[plugins.s]\nserial = true\n[plugins.s.tools.long]\nserial = false\n[plugins.e.tools.echo]\nserial = true",
    );
    host.load("s", ECHO).await;
    host.load("e", ECHO).await;
    let catalog = host.host.registry().snapshot();
    let lane = |tool: &str| catalog.get(tool).unwrap().call.serial.as_deref().map(str::to_owned);
    let lanes = ["s__echo", "s__ctx", "s__long", "e__echo", "e__long"].map(lane);
    let some = |name: &str| Some(name.to_owned());
    assert_eq!(lanes, [some("s"), some("s"), None, some("e__echo"), None]);
    let view = host.host.view(Filter::default());
    let calls =
        (0..20).map(|n| ToolCall::new(n.to_string(), if n % 2 == 0 { "s__echo" } else { "s__ctx" }, "{}"));
    let running = host.host.call_all(&view, calls.collect(), TurnContext::default());
    let reload = async {
        for mark in 0..3 {
            host.host.load_bytes(PluginId::new("s").unwrap(), another_build(ECHO, mark)).await.unwrap();
            assert_eq!(outcome(&host.call("s__echo", json!({})).await), "ok");
        }
    };
    let (results, ()) = tokio::join!(running, reload);
    assert!(results.iter().all(|r| outcome(r) == "ok"));
}

#[derive(Debug)]
struct DecisionSigns;

impl Interceptor for DecisionSigns {
    fn before<'a>(
        &'a self,
        call: &'a AdmittedCall,
        _: &'a Arc<CallContext>,
    ) -> BoxFuture<'a, InterceptorAction> {
        let before = match call.parsed().get("n").and_then(serde_json::Value::as_i64) {
            Some(1) => InterceptorAction::Args(json!({"n": 2})),
            Some(3) => InterceptorAction::Answer(Ok(ToolOutput::text("mine"))),
            Some(4) => panic!("four"),
            _ => InterceptorAction::Run,
        };
        Box::pin(std::future::ready(before))
    }

    fn after<'a>(
        &'a self,
        _: &'a AdmittedCall,
        _: &'a Arc<CallContext>,
        result: &'a Result<ToolOutput, Failure>,
    ) -> BoxFuture<'a, Option<ToolResult>> {
        let signed =
            result.as_ref().ok().map(|output| Ok(ToolOutput::text(format!("{} (seen)", output.value))));
        Box::pin(std::future::ready(signed))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedder_puts_code_around_the_calls_of_a_tool() {
    let host = TestHost::empty_with("", |builder| {
        builder.interceptor(InterceptorScope::Tool("e__echo".to_owned()), Arc::new(DecisionSigns))
    });
    host.load("e", ECHO).await;
    for (n, expect) in [(0, "{\"n\":0} (seen)"), (1, "{\"n\":2} (seen)"), (3, "mine (seen)")] {
        assert_eq!(value(&host.call("e__echo", json!({"n": n})).await), expect);
    }
    assert_eq!(outcome(&host.call("e__echo", json!({"n": 4})).await), "host_failed");
    assert_eq!(value(&host.call("e__long", json!({"n": 3})).await), "abc", "another tool is not touched");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_remembers_its_last_calls() {
    let host = TestHost::empty_with("", |builder| builder.call_log(5));
    host.load("e", ECHO).await;
    for n in 0..6 {
        host.call("e__echo", json!({"n": n})).await;
    }
    host.call("e__error", json!({"code": "execution-failed"})).await;
    host.call("e__nothing", json!({})).await;
    let outcomes =
        |query: CallQuery| host.host.calls().calls(&query).iter().map(|c| c.outcome).collect::<Vec<_>>();
    assert_eq!(outcomes(CallQuery::default()), ["not_available", "execution_failed", "ok", "ok", "ok"]);
    let tool = Some("e__echo".to_owned());
    assert_eq!(outcomes(CallQuery { tool, limit: Some(2), ..CallQuery::default() }), ["ok", "ok"]);
    let old = Some(Duration::ZERO);
    assert!(outcomes(CallQuery { since: old, ..CallQuery::default() }).is_empty());
    let stats = host.host.calls().stats();
    assert_eq!((stats["e__error"].calls, stats["e__error"].failures, stats["e__echo"].calls), (1, 1, 3));
    assert!(stats["e__echo"].p50_us > 0 && stats["e__echo"].p95_us >= stats["e__echo"].p50_us);
    assert_eq!(host.host.calls().count(), 8);
}

/// An approver that never answers.
#[derive(Debug)]
struct SilentApprover;

impl Approver for SilentApprover {
    fn ask<'a>(&'a self, _: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalReply> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_without_an_answer_ends_in_time_and_with_the_call() {
    let host = TestHost::empty_with(
        "[[rule]]\naction = \"ask\"\n[permissions]\nask_timeout = \"200ms\"",
        |builder| builder.approver(Arc::new(SilentApprover)),
    );
    host.load("e", ECHO).await;
    let delivered = host.call("e__echo", json!({})).await;
    let text = &refusal(&delivered).message;
    assert!(
        text.contains("the approver did not answer within 200ms (`[permissions] ask_timeout`)"),
        "{text}"
    );
    let turn = TurnContext::default();
    turn.cancel.cancel();
    let cancelled = host.call_in("e__echo", "{}", turn).await;
    assert_eq!(fault(&cancelled).kind, FaultKind::Cancelled);
}
