//! The order of the gates, and each gate alone.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use toolbay_policy::permission::{Action, Permissions};
use toolbay_policy::session::SessionLimits;
use toolbay_policy::wildcard::text_matches;
use toolbay_policy::{Policy, Profile};

use super::fixture::{GateFixture, ScriptedApprover, calls, fixture, limited, ruled, text};
use super::{BATCH_TASKS, CallPolicy, CallResult, cost_usd, outcome};
use crate::approval::ApprovalReply;
use crate::audit::call_log::{CallLog, CallQuery};
use crate::call::invoke::Failure;
use crate::call::{Identity, ProgressEvent, ProgressSink, ToolCall, TurnContext};
use crate::registry::event::HostEvent;
use crate::registry::view::ToolEntry;
use crate::session::Session;
use crate::session::attachment::MemoryAttachments;
use crate::tool::fault::FaultKind;
use crate::tool::refusal::RefusalReason;

pub(super) fn session() -> Arc<Session> {
    Arc::default()
}

pub(super) fn fault(delivered: &CallResult) -> FaultKind {
    match &delivered.result {
        Err(Failure::Fault(fault)) => fault.kind,
        other => panic!("expected a fault, got {other:?}"),
    }
}

/// A fixture in which every gate from row `from` of the page on refuses the call, with a session that has used up its
/// budgets.
fn fixture_closed_from(from: usize) -> (GateFixture, Arc<Session>, &'static str, &'static str) {
    let closed = |gate: usize| gate >= from;
    let most = |gate: usize| Some(if closed(gate) { 1 } else { 100 });
    let limits = SessionLimits {
        max_cost_usd: Some(if closed(2) { 0.1 } else { 100.0 }),
        max_calls_per_turn: most(3),
        max_calls: most(4),
        max_identical_calls: most(13),
        ..SessionLimits::default()
    };
    let session = session();
    session.add_cost(0.2);
    let generous =
        SessionLimits { max_calls_per_turn: Some(9), max_identical_calls: Some(9), ..Default::default() };
    session.count_call(&generous, session.turn_count(&generous, Some(1)).as_deref()).unwrap();
    for args in [serde_json::json!({}), serde_json::json!({"do": 5})] {
        let (call, _) = crate::tool::canonical::sha256_of_call("p__t", &args);
        session.count_identical_call(&generous, None, "p__t", &call).unwrap();
    }
    let fallback = if closed(15) { Action::Deny } else { Action::Allow };
    let gates = CallPolicy {
        permissions: Permissions::new(vec![], fallback),
        session: limits,
        ..CallPolicy::default()
    };
    let mut fixture = fixture(gates, |entry| {
        entry.availability.unavailable = closed(10).then(|| "no grant".into());
        entry.call.args_bytes = if closed(11) { 3 } else { 1000 };
    });
    if closed(1) {
        fixture.pipeline.running().stop("an incident");
    }
    if closed(6) {
        fixture.filter.exclude_tools = BTreeSet::from(["p__t".to_owned()]);
    }
    if closed(7) {
        fixture.filter.allowed_tools = Some(BTreeSet::new());
    }
    if closed(8) {
        fixture.filter.profile = profile("tools = []");
    }
    if closed(9) {
        fixture.registry.disable("p__t", "under repair").unwrap();
    }
    let args = match from {
        ..=12 => "{\"do\":5",
        13 | 14 => "{\"do\":5}",
        _ => "{}",
    };
    (fixture, session, if closed(5) { "nope" } else { "p__t" }, args)
}

/// A profile `reader` with these lines.
pub(super) fn profile(lines: &str) -> Option<Arc<Profile>> {
    let text = format!("version = 1\n[profile.reader]\n{lines}");
    Policy::parse(&text, std::path::Path::new("/base"), None).unwrap().profile("reader").cloned()
}

/// The page lists the gates in order: for each row, a call that this gate and all later gates refuse gets the text of
/// this gate.
#[tokio::test(start_paused = true)]
async fn the_gates_run_in_the_order_of_the_page() {
    let page = include_str!("../../../../docs/explanation/call.md");
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| {
            line.strip_prefix("| ").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    for (from, row) in (1..).zip(&rows) {
        let [_, number, _, code, reason, told, ..] = row[..] else { panic!("{row:?}") };
        assert_eq!(number, from.to_string());
        let (fixture, session, tool, args) = fixture_closed_from(from);
        let identity = Identity { turn: Some(1), ..Identity::default() };
        let turn = TurnContext { session, identity, dry_run: true, ..TurnContext::default() };
        let delivered = fixture.all(vec![ToolCall::new("1", tool, args)], turn).await.pop().unwrap();
        let (pattern, told) = (told.trim_matches('`').replace('…', "*"), text(&delivered));
        assert!(text_matches(&pattern, told), "gate {from}: `{pattern}` is not `{told}`");
        assert_eq!(outcome(&delivered.result), code.trim_matches('`'), "gate {from}: {told}");
        let record = fixture.audit.take().pop().unwrap();
        assert_eq!(record.refusal.map_or("", RefusalReason::as_str), reason.trim_matches('`'), "gate {from}");
        assert_eq!(fixture.ran(), 0);
    }
    let last = rows.last().unwrap();
    assert_eq!(last[3], "`ok`", "the page ends where a dry run does");
}

// ---- session budgets ----

#[tokio::test(start_paused = true)]
async fn parallel_calls_never_exceed_a_budget() {
    for limits in [
        SessionLimits { max_calls: Some(10), ..SessionLimits::default() },
        SessionLimits { max_identical_calls: Some(10), ..SessionLimits::default() },
        SessionLimits { max_calls_per_turn: Some(10), ..SessionLimits::default() },
        SessionLimits { max_identical_calls_per_turn: Some(10), ..SessionLimits::default() },
    ] {
        let fixture = fixture(limited(limits.clone()), |_| {});
        let results = fixture.all(calls(100, |_| String::new()), TurnContext::default()).await;
        let stopped = results.iter().filter(|r| text(r).starts_with("Stopped: ")).count();
        assert_eq!((stopped, fixture.ran()), (90, 10), "{limits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_cost_of_failures_counts_and_a_spent_budget_stops_calls() {
    let fixture =
        fixture(limited(SessionLimits { max_cost_usd: Some(0.6), ..SessionLimits::default() }), |_| {});
    let session = session();
    let mut results = vec![];
    for args in ["{}", "{\"do\":\"fail\"}", "{}", "{}"] {
        results.push(fixture.call(&session, args).await);
    }
    let outcomes: Vec<_> = results.iter().map(|r| outcome(&r.result)).collect();
    assert_eq!(outcomes, ["ok", "execution_failed", "ok", "not_available"]);
    assert!(text(&results[3]).starts_with("Stopped: hit $0.6 budget cap for this session ($0.7500 spent)"));
    assert_eq!((session.cost_usd(), cost_usd(&results), session.calls()), (0.75, 0.75, 3));
    assert_eq!(fixture.audit.take()[1].cost_usd, Some(0.25));
    assert_eq!(cost_usd(&[]).to_string(), "0");
}

// ---- the result cache ----

fn cached(entry: &mut ToolEntry) {
    entry.call.cache = Some(Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn results_are_cached_only_where_the_operator_allows_it() {
    let (without, with, session) =
        (fixture(CallPolicy::default(), |_| {}), fixture(CallPolicy::default(), cached), session());
    for fixture in [&without, &with] {
        for args in ["{\"n\":1,\"do\":\"x\"}", " {\"do\":\"x\", \"n\":1.0}", "{\"n\":2}"] {
            fixture.call(&session, args).await;
        }
    }
    assert_eq!(
        (without.ran(), with.ran()),
        (3, 2),
        "the order and the formatting of arguments do not matter"
    );
    let hit = with.call(&session, "{\"n\":2}").await;
    assert_eq!((text(&hit), hit.usage.fuel, hit.cost_usd()), ("run 2: {\"n\":2}", Some(0), None));
    assert!(hit.cached.is_some());
    let records = with.audit.take();
    assert_eq!(records.iter().map(|r| r.cached).collect::<Vec<_>>(), [false, true, false, true]);
    assert_eq!(records[0].call_sha256, records[1].call_sha256);
    assert_eq!(hit.call_sha256, records[2].call_sha256);
    assert_eq!((session.calls(), session.cost_usd()), (7, 1.25), "a hit counts as a call and costs nothing");
    tokio::time::advance(Duration::from_secs(61)).await;
    assert!(with.call(&session, "{\"n\":2}").await.cached.is_none());
}

#[tokio::test(start_paused = true)]
async fn failures_other_callers_and_turns_with_attachments_are_not_cached() {
    let (fixture, session) = (fixture(CallPolicy::default(), cached), session());
    fixture.call(&session, "{\"do\":\"fail\"}").await;
    fixture.call(&session, "{\"do\":\"fail\"}").await;
    assert_eq!(fixture.ran(), 2, "a failure is never cached");
    let base = || TurnContext { session: Arc::clone(&session), ..TurnContext::default() };
    let identity = |agent: &str, turn| Identity {
        agent_id: Some(agent.to_owned()),
        turn: Some(turn),
        ..Identity::default()
    };
    let mut ran = vec![];
    for turn in [
        base(),
        base(),
        TurnContext { identity: identity("a", 1), ..base() },
        TurnContext { identity: identity("a", 2), ..base() },
        TurnContext { identity: identity("b", 2), ..base() },
        TurnContext { attachments: Some(Arc::<MemoryAttachments>::default()), ..base() },
        TurnContext { attachments: Some(Arc::<MemoryAttachments>::default()), ..base() },
        TurnContext { session: Arc::default(), ..base() },
    ] {
        let before = fixture.ran();
        fixture.all(calls(1, |_| String::new()), turn).await;
        ran.push(fixture.ran() - before);
    }
    assert_eq!(ran, [1, 0, 1, 0, 1, 1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn rules_and_budgets_apply_before_the_cache() {
    let (fixture, session) = (fixture(CallPolicy::default(), cached), session());
    fixture.call(&session, "{}").await;
    fixture.pipeline.set_call_policy(ruled("[[rule]]\naction = \"deny\""));
    assert!(text(&fixture.call(&session, "{}").await).contains("denied by permission policy"));
    fixture
        .pipeline
        .set_call_policy(limited(SessionLimits { max_calls: Some(1), ..SessionLimits::default() }));
    assert!(text(&fixture.call(&session, "{}").await).starts_with("Stopped: "));
}

// ---- serial tools, large batches ----

#[tokio::test(start_paused = true)]
async fn a_serial_tool_runs_one_call_at_a_time_in_the_order_of_the_batch() {
    let fixture = fixture(CallPolicy::default(), |entry| entry.call.serial = Some("p__t".into()));
    let (one, two) = tokio::join!(
        fixture.all(calls(20, |n| format!("{{\"n\":{n}}}")), TurnContext::default()),
        fixture.all(calls(20, |n| format!("{{\"n\":{}}}", n + 100)), TurnContext::default()),
    );
    assert!(one.iter().chain(&two).all(|r| r.result.is_ok()));
    assert_eq!(fixture.tool.most.load(Ordering::SeqCst), 1, "across batches and sessions");
    let seen = fixture.tool.seen.lock().unwrap().clone();
    for offset in [0, 100] {
        let of_batch: Vec<_> = (0..20).map(|n| format!("{{\"n\":{}}}", n + offset)).collect();
        let order: Vec<_> = seen.iter().filter(|args| of_batch.contains(args)).collect();
        assert_eq!(order, of_batch.iter().collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn other_tools_do_not_wait_for_a_serial_queue_and_a_panic_frees_it() {
    let fixture = fixture(CallPolicy::default(), |entry| entry.call.serial = Some("p__t".into()));
    let mut mixed = calls(3, |n| if n == 1 { "{\"do\":\"panic\"}".to_owned() } else { "{}".to_owned() });
    mixed.insert(1, ToolCall::new("other", "q__other", "{}"));
    let results = fixture.all(mixed, TurnContext::default()).await;
    let seen: Vec<_> = results.iter().map(|r| (&*r.call_id, outcome(&r.result))).collect();
    assert_eq!(seen, [("0", "ok"), ("other", "ok"), ("1", "host_failed"), ("2", "ok")]);
    let turn = TurnContext::default();
    let cancel = turn.cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(7)).await;
        cancel.cancel();
    });
    let ran = fixture.ran();
    let results = fixture.all(calls(50, |_| String::new()), turn).await;
    assert!(fixture.ran() < ran + 5, "a queue drops the calls of a cancelled batch");
    assert_eq!(
        results.iter().filter(|r| outcome(&r.result) == "cancelled").count(),
        50 - (fixture.ran() - ran)
    );
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_calls_run_with_bounded_concurrency() {
    let fixture = fixture(CallPolicy::default(), |_| {});
    let results = fixture.all(calls(10_000, |n| format!("{{\"n\":{n}}}")), TurnContext::default()).await;
    assert!(results.iter().zip(0..).all(|(r, n)| *r.call_id == *n.to_string() && r.result.is_ok()));
    assert_eq!((results.len(), fixture.ran()), (10_000, 10_000));
    assert_eq!(fixture.tool.most.load(Ordering::SeqCst), BATCH_TASKS);
}

// ---- log, events ----

#[tokio::test(start_paused = true)]
async fn the_call_log_and_the_events_record_what_happened() {
    let fixture = fixture(CallPolicy::default(), |_| {}).map_pipeline(|p| p.with_call_log(CallLog::new(3)));
    let heard = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&heard);
    fixture.pipeline.events().listen(|_| panic!("a bad callback"));
    fixture.pipeline.events().listen(move |event| {
        assert!(matches!(event, HostEvent::ToolError { .. }));
        count.fetch_add(1, Ordering::SeqCst);
    });
    let session = Arc::new(Session::default().with_id("s".repeat(500)));
    let turn = TurnContext { session, ..TurnContext::default() };
    let mut all = calls(4, |n| if n == 2 { "{\"do\":\"fail\"}".to_owned() } else { "{}".to_owned() });
    all.push(ToolCall::new("x".repeat(9000), "no\u{0} such tool".repeat(1000), "{}"));
    for call in all {
        fixture.all(vec![call], turn.clone()).await;
    }
    let log = fixture.pipeline.call_log();
    let seen: Vec<_> = log.calls(&CallQuery::default()).iter().map(|c| (c.number, c.outcome)).collect();
    assert_eq!(seen, [(5, "not_available"), (4, "ok"), (3, "execution_failed")]);
    let failed = log.calls(&CallQuery { outcome: Some("execution_failed".to_owned()), ..Default::default() });
    assert_eq!((failed[0].cost_usd, failed[0].args_bytes, failed[0].delivered_chars), (Some(0.25), 13, 7));
    let strange = &log.calls(&CallQuery { limit: Some(1), ..Default::default() })[0];
    assert!(strange.tool.len() <= 100 && strange.call_id.len() <= 100);
    assert_eq!(strange.session_id.as_ref().unwrap().len(), 100);
    assert_eq!(heard.load(Ordering::SeqCst), 2);
}

// ---- two sessions ----

#[derive(Debug, Default)]
struct ProgressLog(Mutex<Vec<String>>);

impl ProgressSink for ProgressLog {
    fn progress(&self, event: ProgressEvent) {
        self.0.lock().unwrap().push(format!("{} {}", event.call_id, event.message));
    }
}

/// All parts of a session, in two sessions at once on one pipeline.
#[tokio::test(start_paused = true)]
async fn two_sessions_share_nothing() {
    let mut gates = ruled("[[rule]]\nargs = { \"/do\" = \"ask\" }\naction = \"ask\"");
    gates.session.max_calls = Some(7);
    gates.session.max_identical_calls = Some(4);
    gates.session.max_cost_usd = Some(10.0);
    let fixture = fixture(gates, cached);
    let (yes, no) = (
        ScriptedApprover::replying(Some(ApprovalReply::Always)),
        ScriptedApprover::replying(Some(ApprovalReply::No(None))),
    );
    let one = Arc::new(Session::default().with_approver(Arc::clone(&yes) as _));
    let two = Arc::new(Session::default().with_approver(Arc::clone(&no) as _));
    let (heard_one, heard_two) = (Arc::<ProgressLog>::default(), Arc::<ProgressLog>::default());
    let run = async |session: &Arc<Session>, heard: &Arc<ProgressLog>, id: &str, args: &str| {
        let turn = TurnContext {
            session: Arc::clone(session),
            progress: Some(Arc::clone(heard) as _),
            ..TurnContext::default()
        };
        let call = ToolCall::new(id, "p__t", args);
        fixture.all(vec![call], turn).await.pop().unwrap()
    };
    // Approvals: a standing approval of one session does not cover the other.
    for _ in 0..2 {
        assert!(run(&one, &heard_one, "one", "{\"do\":\"ask\"}").await.result.is_ok());
        assert!(text(&run(&two, &heard_two, "two", "{\"do\":\"ask\"}").await).contains("the answer was no"));
    }
    assert_eq!((yes.count(), no.count()), (1, 2));
    // Results.
    let (a, b) = tokio::join!(run(&one, &heard_one, "one", "{}"), run(&two, &heard_two, "two", "{}"));
    assert!(a.cached.is_none() && b.cached.is_none());
    assert!(run(&one, &heard_one, "one", "{}").await.cached.is_some());
    assert_eq!((one.cost_usd(), two.cost_usd()), (0.5, 0.25));
    // Counts: one session uses up its budget.
    let mut last = String::new();
    for _ in 0..3 {
        last = text(&run(&one, &heard_one, "one", "{}").await).to_owned();
    }
    assert!(last.starts_with("Stopped: p__t called 4 times in one session"), "{last}");
    assert!(text(&run(&one, &heard_one, "one", "{\"n\":1}").await).starts_with("Stopped: hit 7-tool-call"));
    assert!(run(&two, &heard_two, "two", "{}").await.cached.is_some());
    assert_eq!((one.calls(), two.calls()), (7, 4));
    // Progress.
    assert_eq!(*heard_one.0.lock().unwrap(), ["one at work", "one at work"]);
    assert_eq!(*heard_two.0.lock().unwrap(), ["two at work"]);
}
