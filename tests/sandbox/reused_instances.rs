//! Instances that serve several calls: only if plugin and policy agree, only in one session, and within the limits of
//! each call.

use std::sync::Arc;
use std::time::Duration;

use integration_tests::{RecordedProgress, SETTLED, TestHost, fault, outcome, refusal, value};
use serde_json::json;
use toolbay::core::call::Identity;
use toolbay::core::tool::fault::FaultKind;
use toolbay::{CallResult, Filter, PluginId, Session, ToolCall, TurnContext};

const ON: &str = "[plugins.reused]\nreuse = 5";

async fn host(policy: &str) -> TestHost {
    TestHost::new(&[("reused", guest_artifacts::API_REUSED)], policy).await
}

fn session() -> Arc<Session> {
    Arc::new(Session::with_random_key())
}

fn turn(session: &Arc<Session>) -> TurnContext {
    TurnContext { session: Arc::clone(session), ..TurnContext::default() }
}

async fn act(host: &TestHost, session: &Arc<Session>, what: &str, n: u64) -> CallResult {
    let args = json!({"what": what, "n": n}).to_string();
    host.call_in("reused__act", &args, turn(session)).await
}

/// How many calls the instance of this call has served.
async fn count(host: &TestHost, session: &Arc<Session>) -> String {
    value(&act(host, session, "nothing", 0).await).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_serves_at_most_the_calls_that_the_policy_allows() {
    let (host, session) = (host(ON).await, session());
    let mut counts = Vec::new();
    for _ in 0..12 {
        counts.push(count(&host, &session).await);
    }
    assert_eq!(counts.join(" "), "1 2 3 4 5 1 2 3 4 5 1 2");
    assert_eq!(host.host.idle_instances(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn both_the_operator_and_the_author_must_want_it() {
    for policy in ["", "[plugins.reused]\nreuse = 1"] {
        let (host, session) = (host(policy).await, session());
        for _ in 0..3 {
            assert_eq!(count(&host, &session).await, "1", "{policy}");
        }
        assert_eq!(host.host.idle_instances(), 0);
    }
    let (host, session) = (TestHost::empty("[plugins.state]\nreuse = 5"), session());
    let path = std::path::Path::new(guest_artifacts::HOSTILE_STATE);
    let warnings = host.host.load_file(PluginId::new("state").unwrap(), path).await.unwrap();
    assert!(warnings.iter().any(|one| one.message.contains("does not declare")), "{warnings:?}");
    for _ in 0..3 {
        assert_eq!(value(&host.call_in("state__count", "{}", turn(&session)).await), "1");
    }
    let error =
        toolbay::Policy::parse("version = 1\n[plugins.x]\nreuse = 10001", std::path::Path::new("/"), None);
    assert!(error.unwrap_err().to_string().contains("must be at most 10000"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_passes_to_another_session_agent_tool_or_profile() {
    let policy = format!("{ON}\n[profile.strict]\n[profile.wide]");
    let (host, mine, theirs) = (host(&policy).await, session(), session());
    assert_eq!(count(&host, &mine).await, "1");
    assert_eq!(count(&host, &theirs).await, "1", "another session");
    assert_eq!(count(&host, &mine).await, "2");
    assert_eq!(count(&host, &Arc::new(Session::default())).await, "1", "a session for itself");
    for agent in ["a", "b"] {
        let identity = Identity { agent_id: Some(agent.to_owned()), ..Identity::default() };
        let turn = TurnContext { identity, ..turn(&mine) };
        let delivered = host.call_in("reused__act", r#"{"what":"nothing"}"#, turn).await;
        assert_eq!(value(&delivered), "1", "another agent");
    }
    assert_eq!(value(&host.call_in("reused__other", "{}", turn(&mine)).await), "1", "another tool");
    let policy = host.host.policy();
    for profile in ["strict", "wide"] {
        let view = host.host.view(Filter::for_profile(policy.profile(profile).cloned()));
        let call = ToolCall::new("1", "reused__act", r#"{"what":"nothing"}"#);
        let delivered = host.host.call_all(&view, vec![call], turn(&mine)).await;
        assert_eq!(value(&delivered[0]), "1", "under {profile}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_faulted_instance_is_dropped() {
    let policy = format!("{ON}00\n[plugins.reused.limits]\nfuel = 200_000_000");
    let (host, session) = (host(&policy).await, session());
    assert_eq!((count(&host, &session).await, count(&host, &session).await), ("1".into(), "2".into()));
    // An error of the guest is a normal result.
    let no = act(&host, &session, "fail", 0).await;
    assert!(refusal(&no).message.contains('3'), "{no:?}");
    assert_eq!(count(&host, &session).await, "4");
    assert_eq!(fault(&act(&host, &session, "trap", 0).await).kind, FaultKind::Trap);
    assert_eq!((count(&host, &session).await, count(&host, &session).await), ("1".into(), "2".into()));
    assert_eq!(fault(&act(&host, &session, "spin", u64::MAX / 2).await).kind, FaultKind::OutOfFuel);
    assert_eq!(count(&host, &session).await, "1");
    // An instance with open host resources is not reused.
    assert_eq!(outcome(&act(&host, &session, "open", 0).await), "ok");
    assert_eq!(count(&host, &session).await, "1");
    assert_eq!(host.host.available_call_permits(), 64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_leaves_no_instance() {
    let policy = format!("{ON}\n[plugins.reused.limits]\nfuel = 1_000_000_000_000");
    let (host, session) = (host(&policy).await, session());
    assert_eq!(count(&host, &session).await, "1");
    let turn = turn(&session);
    let cancel = turn.cancel.clone();
    let canceller = async {
        host.until_running(1).await;
        tokio::time::sleep(SETTLED).await;
        cancel.cancel();
    };
    let args = json!({"what": "spin", "n": u64::MAX / 2}).to_string();
    let (delivered, ()) = tokio::join!(host.call_in("reused__act", &args, turn), canceller);
    assert_eq!(fault(&delivered).kind, FaultKind::Cancelled);
    assert_eq!((host.host.idle_instances(), count(&host, &session).await), (0, "1".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_has_a_full_fuel_budget() {
    let (measure, session) = (host("[plugins.reused]\nreuse = 100").await, session());
    let spent = act(&measure, &session, "spin", 100_000).await.usage.fuel.unwrap();
    assert!(spent > 100_000, "{spent}");
    // Enough for one and a half calls.
    let policy =
        format!("[plugins.reused]\nreuse = 100\n[plugins.reused.limits]\nfuel = {}", spent + spent / 2);
    let host = host(&policy).await;
    for n in 1..=20 {
        let delivered = act(&host, &session, "spin", 100_000).await;
        assert_eq!(value(&delivered), n.to_string());
        let fuel = delivered.usage.fuel.unwrap();
        assert!(fuel <= spent, "call {n} reports {fuel} of {spent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_starts_at_zero_for_each_call() {
    let policy = format!("{ON}\n[plugins.reused.limits]\nprogress_events = 2");
    let (host, session) = (host(&policy).await, session());
    for n in 1..=3 {
        let heard = Arc::new(RecordedProgress::default());
        let turn = TurnContext { progress: Some(Arc::clone(&heard) as _), ..turn(&session) };
        let delivered = host.call_in("reused__act", r#"{"what":"tell","n":5}"#, turn).await;
        assert_eq!(value(&delivered), n.to_string());
        assert_eq!(heard.0.lock().unwrap().len(), 2, "call {n}");
        assert_eq!(Arc::strong_count(&heard), 1, "what waits holds nothing of the call");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_bounded_over_all_calls() {
    let policy = "[plugins.reused]\nreuse = 1000\n[plugins.reused.limits]\nmemory = \"16MiB\"";
    let (host, session) = (host(policy).await, session());
    let (mut most, mut peak) = (0, 0);
    for _ in 0..40 {
        let delivered = act(&host, &session, "keep", 1024).await;
        most = most.max(value(&delivered).parse::<u64>().unwrap());
        peak = peak.max(delivered.usage.peak_memory_bytes);
    }
    assert!((4..=8).contains(&most), "it goes when half is taken: {most} calls");
    assert!((8 << 20..=10 << 20).contains(&peak), "the whole memory is reported: {peak}");
    // A call that exceeds its limits fails as in a fresh instance.
    assert_eq!(outcome(&act(&host, &session, "keep", 1024).await), "ok");
    assert_eq!(fault(&act(&host, &session, "keep", 20 << 10).await).kind, FaultKind::OutOfMemory);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_and_a_new_policy_drop_idle_instances() {
    let (host, session) = (host(ON).await, session());
    count(&host, &session).await;
    assert_eq!(host.host.idle_instances(), 1);
    host.load("reused", guest_artifacts::API_REUSED).await;
    assert_eq!((host.host.idle_instances(), count(&host, &session).await), (0, "1".to_owned()));
    let policy = integration_tests::policy(&format!("{ON}\nconfig = {{ a = 1 }}"), &host.root());
    host.host.reload_policy(policy).await.unwrap();
    assert_eq!((host.host.idle_instances(), count(&host, &session).await), (0, "1".to_owned()));
    host.host.unload(&PluginId::new("reused").unwrap());
    assert_eq!(host.host.idle_instances(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn few_wait_and_not_for_long() {
    let host = host(&format!("[host]\nidle_instances = 3\ninstance_idle_timeout = \"400ms\"\n{ON}")).await;
    let sessions: Vec<_> = (0..8).map(|_| session()).collect();
    for session in &sessions {
        assert_eq!(count(&host, session).await, "1");
    }
    assert_eq!(host.host.idle_instances(), 3);
    assert_eq!(count(&host, &sessions[0]).await, "1", "the first was pushed out");
    assert_eq!(count(&host, &sessions[7]).await, "2", "the last was not");
    let start = std::time::Instant::now();
    while host.host.idle_instances() > 0 {
        assert!(start.elapsed() < Duration::from_secs(10), "it waits too long");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(count(&host, &sessions[7]).await, "1");
    // At most four instances of one plugin, whatever the host allows, and none if the host allows none.
    for (policy, most) in [(ON.to_owned(), 4), (format!("[host]\nidle_instances = 0\n{ON}"), 0)] {
        let host = self::host(&policy).await;
        for session in &sessions {
            count(&host, session).await;
        }
        assert_eq!(host.host.idle_instances(), most, "{policy}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_ends_with_its_session() {
    let host = host(&format!("[host]\ninstance_idle_timeout = \"1s\"\n{ON}")).await;
    let (mine, other) = (session(), session());
    count(&host, &mine).await;
    drop(mine);
    count(&host, &other).await;
    assert_eq!(host.host.idle_instances(), 1, "only the other's");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_instance_answers_two_calls_at_once() {
    let (host, session) = (host("[plugins.reused]\nreuse = 10000").await, session());
    for _ in 0..5 {
        let view = host.host.view(Filter::default());
        let calls: Vec<_> = (0..100)
            .map(|n| ToolCall::new(n.to_string(), "reused__act", r#"{"what":"spin","n":20000}"#))
            .collect();
        let all = host.host.call_all(&view, calls, turn(&session)).await;
        assert!(all.iter().all(|one| outcome(one) == "ok"), "{all:?}");
        assert!(host.host.idle_instances() <= 4);
    }
    assert_eq!(host.host.available_call_permits(), 64);
}
