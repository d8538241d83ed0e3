//! The gates in their order, and each of them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use toolbay_policy::permission::{Action, Permissions};
use toolbay_policy::session::SessionLimits;
use toolbay_policy::wildcard::text_matches;
use toolbay_policy::{Policy, Profile};

use super::stage::{Person, Stage, calls, limited, ruled, stage, text};
use super::{BATCH_TASKS, CallResult, Gates, cost_usd, outcome};
use crate::audit::call_log::{CallLog, CallQuery};
use crate::call::approval::{Answer, Approver, Question};
use crate::call::fault::FaultKind;
use crate::call::invoke::{BoxFuture, Failure};
use crate::call::{Identity, Progress, ProgressSink, ToolCall, TurnContext};
use crate::registry::event::Event;
use crate::registry::view::Entry;
use crate::session::Session;
use crate::session::attachment::MemoryAttachments;

fn session() -> Arc<Session> {
    Arc::default()
}

fn fault(delivered: &CallResult) -> FaultKind {
    match &delivered.result {
        Err(Failure::Fault(fault)) => fault.kind,
        other => panic!("expected a fault, got {other:?}"),
    }
}

const ASK: &str = "[[rule]]\ntool = \"p__*\"\naction = \"ask\"\nreason = \"it writes\"";

/// A stage on which every gate from the `from`th row of the page on refuses the call, and a session that has used up
/// whatever bounds it.
fn closed_from(from: usize) -> (Stage, Arc<Session>, &'static str, &'static str) {
    let closed = |gate: usize| gate >= from;
    let most = |gate: usize| Some(if closed(gate) { 1 } else { 100 });
    let limits = SessionLimits {
        max_cost_usd: Some(if closed(1) { 0.1 } else { 100.0 }),
        max_calls_per_turn: most(2),
        max_calls: most(3),
        max_identical_calls: most(12),
        ..SessionLimits::default()
    };
    let session = session();
    session.spend(0.2);
    let generous =
        SessionLimits { max_calls_per_turn: Some(9), max_identical_calls: Some(9), ..Default::default() };
    session.count_call(&generous, session.turn(&generous, Some(1)).as_deref()).unwrap();
    for args in [serde_json::json!({}), serde_json::json!({"do": 5})] {
        let (call, _) = crate::tool::canonical::sha256_of_call("p__t", &args);
        session.count_same(&generous, None, "p__t", &call).unwrap();
    }
    let fallback = if closed(14) { Action::Deny } else { Action::Allow };
    let gates =
        Gates { permissions: Permissions::new(vec![], fallback), session: limits, ..Gates::default() };
    let mut stage = stage(gates, |entry| {
        entry.availability.unavailable = closed(9).then(|| "no grant".into());
        entry.call.args_bytes = if closed(10) { 3 } else { 1000 };
    });
    if closed(5) {
        stage.filter.exclude_tools = BTreeSet::from(["p__t".to_owned()]);
    }
    if closed(6) {
        stage.filter.allowed_tools = Some(BTreeSet::new());
    }
    if closed(7) {
        stage.filter.profile = profile("tools = []");
    }
    if closed(8) {
        stage.registry.disable("p__t", "under repair").unwrap();
    }
    let args = match from {
        ..=11 => "{\"do\":5",
        12 | 13 => "{\"do\":5}",
        _ => "{}",
    };
    (stage, session, if closed(4) { "nope" } else { "p__t" }, args)
}

/// A profile `reader` with these lines.
fn profile(lines: &str) -> Option<Arc<Profile>> {
    let text = format!("version = 1\n[profile.reader]\n{lines}");
    Policy::parse(&text, std::path::Path::new("/base"), None).unwrap().profile("reader").cloned()
}

/// The page has the gates in the order in which they stand: for each row there is a call that this gate and all after it
/// would refuse, and it is this gate's text that is told.
#[tokio::test(start_paused = true)]
async fn the_order_of_the_gates_is_that_of_the_page() {
    let page = include_str!("../../../../docs/explanation/call.md");
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| {
            line.strip_prefix("| ").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), 15, "the rows with a number in front");
    for (from, row) in (1..).zip(&rows) {
        let [_, number, _, code, told, ..] = row[..] else { panic!("{row:?}") };
        assert_eq!(number, from.to_string());
        let (stage, session, tool, args) = closed_from(from);
        let identity = Identity { turn: Some(1), ..Identity::default() };
        let turn = TurnContext { session, identity, dry_run: true, ..TurnContext::default() };
        let delivered = stage.all(vec![ToolCall::new("1", tool, args)], turn).await.pop().unwrap();
        let (pattern, told) = (told.trim_matches('`').replace('…', "*"), text(&delivered));
        assert!(text_matches(&pattern, told), "gate {from}: `{pattern}` is not `{told}`");
        assert_eq!(outcome(&delivered.result), code.trim_matches('`'), "gate {from}: {told}");
        assert_eq!(stage.ran(), 0);
    }
}

// ---- permissions ----

#[tokio::test(start_paused = true)]
async fn without_rules_nobody_is_asked_and_with_them_the_first_decides() {
    let person = Person::who(Some(Answer::Yes));
    for (gates, told, asked, decision) in [
        (Gates::default(), "run 1: {}", 0, None),
        (
            ruled("[[rule]]\ntool = \"p__*\"\naction = \"allow\""),
            "run 1: {}",
            0,
            Some((Action::Allow, Some(1), true)),
        ),
        (
            ruled(
                "[[rule]]\ntag = \"x\"\naction = \"allow\"\n[[rule]]\naction = \"deny\"\nreason = \"closed\"",
            ),
            "Tool p__t is denied by permission policy: rule 2 of the policy says `deny` (closed): not permitted; the \
             operator can allow it with `toolbay explain p__t`",
            0,
            Some((Action::Deny, Some(2), false)),
        ),
        (ruled(ASK), "run 1: {}", 1, Some((Action::Ask, Some(1), true))),
        (
            Gates { permissions: Permissions::new(vec![], Action::Deny), ..Gates::default() },
            "Tool p__t is denied by permission policy: no rule of the policy fits, and its `default` is `deny`: not \
             permitted; the operator can allow it with `toolbay explain p__t`",
            0,
            Some((Action::Deny, None, false)),
        ),
    ] {
        let before = person.count();
        let stage = stage(gates, |_| {}).with(|p| p.with_approver(Arc::clone(&person) as _));
        let delivered = stage.call(&session(), "").await;
        assert_eq!((text(&delivered), person.count() - before), (told, asked));
        let advised = delivered.hints.lines.iter().any(|hint| hint.contains("[[rule]]"));
        assert_eq!(advised, decision.is_some_and(|(_, _, allowed)| !allowed), "{:?}", delivered.hints);
        let record = stage.audit.take().pop().unwrap();
        assert_eq!(record.permission.map(|d| (d.action, d.rule, d.allowed)), decision);
    }
    let question = person.asked.lock().unwrap().pop().unwrap();
    assert_eq!(
        (question.call_id.as_str(), question.tool.as_str(), question.source.as_str()),
        ("1", "p__t", "plugin:p")
    );
    assert_eq!(question.reason, "rule 1 of the policy says `ask` (it writes)");
}

#[derive(Debug)]
struct Silent;

impl Approver for Silent {
    fn ask<'a>(&'a self, _: &'a Question) -> BoxFuture<'a, Answer> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_is_no_yes_is_a_no() {
    let no = |text: Option<&str>| Person::who(Some(Answer::No(text.map(str::to_owned)))) as Arc<dyn Approver>;
    for (approver, why, by) in [
        (None, "there is nobody to ask", None),
        (Some(no(None)), "the answer was no", Some("host")),
        (Some(no(Some("not on Sundays"))), "the answer was no: not on Sundays", Some("host")),
        (Some(Person::who(None) as _), "the approver failed", Some("host")),
        (
            Some(Arc::new(Silent) as _),
            "nobody answered within 300s (`[permissions] ask_timeout`)",
            Some("host"),
        ),
    ] {
        let stage = stage(ruled(ASK), |_| {}).with(|p| match approver {
            Some(approver) => p.with_approver(approver),
            None => p,
        });
        let mut events = stage.pipeline.events().stream();
        let delivered = stage.call(&session(), "{}").await;
        let told = text(&delivered);
        assert!(
            told.contains(&format!(
                "says `ask` (it writes), and {why}: not permitted; the operator can allow it"
            )),
            "{told}"
        );
        assert_eq!((outcome(&delivered.result), stage.ran()), ("not_available", 0));
        let decision = stage.audit.take().pop().unwrap().permission.unwrap();
        assert_eq!((decision.action, decision.allowed, decision.by), (Action::Ask, false, by));
        if by.is_some() {
            assert!(matches!(events.recv().await, Ok(Event::PermissionAsked { .. })));
        }
        assert!(
            matches!(events.recv().await, Ok(Event::PermissionDenied { reason: Some(r), .. }) if r.contains(why))
        );
        assert!(matches!(events.recv().await, Ok(Event::ToolError { outcome: "not_available", .. })));
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_ends_with_its_call() {
    let stage = stage(ruled(ASK), |_| {}).with(|p| p.with_approver(Arc::new(Silent)));
    let turn = TurnContext::default();
    let cancel = turn.cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(10)).await;
        cancel.cancel();
    });
    for delivered in stage.all(calls(2, |_| String::new()), turn).await {
        assert_eq!(fault(&delivered), FaultKind::Cancelled);
    }
}

#[tokio::test(start_paused = true)]
async fn the_session_is_asked_before_the_host_and_always_lasts_as_long_as_it() {
    let (host, own) = (Person::who(Some(Answer::No(None))), Person::who(Some(Answer::Always)));
    let stage = stage(ruled(ASK), |_| {}).with(|p| p.with_approver(Arc::clone(&host) as _));
    let session = Arc::new(Session::default().with_approver(Arc::clone(&own) as _));
    for n in 0..3 {
        assert_eq!(outcome(&stage.call(&session, &format!("{{\"n\":{n}}}")).await.result), "ok");
    }
    let by: Vec<_> = stage.audit.take().iter().map(|r| r.permission.unwrap().by).collect();
    assert_eq!(
        (by, own.count(), host.count()),
        (vec![Some("session"), Some("before"), Some("before")], 1, 0)
    );
    assert_eq!(outcome(&stage.call(&Arc::default(), "{}").await.result), "not_available");
    assert_eq!(host.count(), 1, "another session knows nothing of it");
    // Other rules, other questions.
    stage.pipeline.set_gates(ruled("[[rule]]\naction = \"ask\"\nreason = \"another\""));
    stage.call(&session, "{}").await;
    assert_eq!(own.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_session_is_asked_one_thing_at_a_time_so_that_always_comes_in_time() {
    let person = Person::who(Some(Answer::Always));
    let stage = stage(ruled(ASK), |_| {}).with(|p| p.with_approver(Arc::clone(&person) as _));
    let results = stage.all(calls(20, |n| format!("{{\"n\":{n}}}")), TurnContext::default()).await;
    assert!(results.iter().all(|r| r.result.is_ok()));
    assert_eq!(person.count(), 1, "one answer for all of a batch");
}

#[tokio::test(start_paused = true)]
async fn a_profile_only_makes_it_stricter() {
    let deny = "[[profile.reader.rule]]\naction = \"deny\"";
    let allow = "[[profile.reader.rule]]\naction = \"allow\"";
    for (policy, of_profile, expect) in [
        (Gates::default(), deny, "[[profile.reader.rule]]"),
        (ruled("[[rule]]\naction = \"deny\""), allow, "rule 1 of the policy says `deny`"),
        (ruled(ASK), deny, "rule 1 of [profile.reader] says `deny`"),
        (ruled(ASK), allow, "rule 1 of the policy says `ask` (it writes), and there is nobody to ask"),
        (
            ruled("[[rule]]\naction = \"allow\""),
            "permissions = { default = \"deny\" }",
            "no rule of [profile.reader] fits",
        ),
        (Gates::default(), allow, "run 1: {}"),
        (Gates::default(), "", "run 1: {}"),
    ] {
        let mut stage = stage(policy, |_| {});
        stage.filter.profile = profile(of_profile);
        let delivered = stage.call(&session(), "{}").await;
        let words = format!("{}\n{}", text(&delivered), delivered.hints.lines.join("\n"));
        assert!(words.contains(expect), "{words}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_its_author_wants_approved_is_asked() {
    let wants = |entry: &mut Entry| Arc::make_mut(&mut entry.def).traits.needs_approval = true;
    let nobody = stage(Gates::default(), wants);
    let told = nobody.call(&session(), "{}").await;
    let expect =
        "its author wants every call approved (`needs_approval`), and there is nobody to ask: not permitted";
    assert!(text(&told).contains(expect), "{}", text(&told));
    let person = Person::who(Some(Answer::Yes));
    let asked = stage(Gates::default(), wants).with(|p| p.with_approver(Arc::clone(&person) as _));
    assert_eq!((outcome(&asked.call(&session(), "{}").await.result), person.count()), ("ok", 1));
    let ruled = stage(ruled("[[rule]]\naction = \"allow\""), wants);
    assert_eq!(outcome(&ruled.call(&session(), "{}").await.result), "ok");
    let off = Permissions { needs_approval: Action::Allow, ..Permissions::default() };
    let off = stage(Gates { permissions: off, ..Gates::default() }, wants);
    assert_eq!(outcome(&off.call(&session(), "{}").await.result), "ok");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_shows_the_refusal_and_asks_nobody() {
    let dry = || TurnContext { dry_run: true, ..TurnContext::default() };
    let refused = stage(ruled("[[rule]]\naction = \"deny\""), |_| {});
    let results = refused.all(calls(1, |_| String::new()), dry()).await;
    assert_eq!(outcome(&results[0].result), "not_available");
    let person = Person::who(Some(Answer::Yes));
    let asking = stage(ruled(ASK), |_| {}).with(|p| p.with_approver(Arc::clone(&person) as _));
    let results = asking.all(calls(1, |_| String::new()), dry()).await;
    assert_eq!(text(&results[0]), "[dry-run] p__t would be called, if it is approved with: {}");
    assert_eq!((asking.ran(), person.count()), (0, 0));
}

// ---- session budgets ----

#[tokio::test(start_paused = true)]
async fn parallel_calls_can_not_race_past_a_budget() {
    for limits in [
        SessionLimits { max_calls: Some(10), ..SessionLimits::default() },
        SessionLimits { max_identical_calls: Some(10), ..SessionLimits::default() },
        SessionLimits { max_calls_per_turn: Some(10), ..SessionLimits::default() },
        SessionLimits { max_identical_calls_per_turn: Some(10), ..SessionLimits::default() },
    ] {
        let stage = stage(limited(limits.clone()), |_| {});
        let results = stage.all(calls(100, |_| String::new()), TurnContext::default()).await;
        let stopped = results.iter().filter(|r| text(r).starts_with("Stopped: ")).count();
        assert_eq!((stopped, stage.ran()), (90, 10), "{limits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn dollars_are_counted_of_failures_too_and_end_a_session() {
    let stage = stage(limited(SessionLimits { max_cost_usd: Some(0.6), ..SessionLimits::default() }), |_| {});
    let session = session();
    let mut results = vec![];
    for args in ["{}", "{\"do\":\"fail\"}", "{}", "{}"] {
        results.push(stage.call(&session, args).await);
    }
    let outcomes: Vec<_> = results.iter().map(|r| outcome(&r.result)).collect();
    assert_eq!(outcomes, ["ok", "execution_failed", "ok", "not_available"]);
    assert!(text(&results[3]).starts_with("Stopped: hit $0.6 budget cap for this session ($0.7500 spent)"));
    assert_eq!((session.cost_usd(), cost_usd(&results), session.calls()), (0.75, 0.75, 3));
    assert_eq!(stage.audit.take()[1].cost_usd, Some(0.25));
    assert_eq!(cost_usd(&[]).to_string(), "0");
}

// ---- the result cache ----

fn cached(entry: &mut Entry) {
    entry.call.cache = Some(Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_result_is_looked_up_only_where_the_operator_said_so() {
    let (without, with, session) =
        (stage(Gates::default(), |_| {}), stage(Gates::default(), cached), session());
    for stage in [&without, &with] {
        for args in ["{\"n\":1,\"do\":\"x\"}", " {\"do\":\"x\", \"n\":1.0}", "{\"n\":2}"] {
            stage.call(&session, args).await;
        }
    }
    assert_eq!((without.ran(), with.ran()), (3, 2), "the order and the spelling of arguments do not count");
    let hit = with.call(&session, "{\"n\":2}").await;
    assert_eq!((text(&hit), hit.usage.fuel, hit.cost_usd()), ("run 2: {\"n\":2}", Some(0), None));
    assert!(hit.cached.is_some());
    let records = with.audit.take();
    assert_eq!(records.iter().map(|r| r.cached).collect::<Vec<_>>(), [false, true, false, true]);
    assert_eq!(records[0].call_sha256, records[1].call_sha256);
    assert_eq!(hit.call_sha256, records[2].call_sha256);
    assert_eq!((session.calls(), session.cost_usd()), (7, 1.25), "a hit counts and costs nothing");
    tokio::time::advance(Duration::from_secs(61)).await;
    assert!(with.call(&session, "{\"n\":2}").await.cached.is_none());
}

#[tokio::test(start_paused = true)]
async fn failures_other_callers_and_turns_with_attachments_are_not_looked_up() {
    let (stage, session) = (stage(Gates::default(), cached), session());
    stage.call(&session, "{\"do\":\"fail\"}").await;
    stage.call(&session, "{\"do\":\"fail\"}").await;
    assert_eq!(stage.ran(), 2, "a failure is never kept");
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
        let before = stage.ran();
        stage.all(calls(1, |_| String::new()), turn).await;
        ran.push(stage.ran() - before);
    }
    assert_eq!(ran, [1, 0, 1, 0, 1, 1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn rules_and_budgets_stand_before_the_cache() {
    let (stage, session) = (stage(Gates::default(), cached), session());
    stage.call(&session, "{}").await;
    stage.pipeline.set_gates(ruled("[[rule]]\naction = \"deny\""));
    assert!(text(&stage.call(&session, "{}").await).contains("denied by permission policy"));
    stage.pipeline.set_gates(limited(SessionLimits { max_calls: Some(1), ..SessionLimits::default() }));
    assert!(text(&stage.call(&session, "{}").await).starts_with("Stopped: "));
}

// ---- serial tools, large batches ----

#[tokio::test(start_paused = true)]
async fn a_serial_tool_runs_alone_in_the_order_of_the_batch() {
    let stage = stage(Gates::default(), |entry| entry.call.serial = Some("p__t".into()));
    let (one, two) = tokio::join!(
        stage.all(calls(20, |n| format!("{{\"n\":{n}}}")), TurnContext::default()),
        stage.all(calls(20, |n| format!("{{\"n\":{}}}", n + 100)), TurnContext::default()),
    );
    assert!(one.iter().chain(&two).all(|r| r.result.is_ok()));
    assert_eq!(stage.actor.most.load(Ordering::SeqCst), 1, "across batches and sessions");
    let seen = stage.actor.seen.lock().unwrap().clone();
    for offset in [0, 100] {
        let of_batch: Vec<_> = (0..20).map(|n| format!("{{\"n\":{}}}", n + offset)).collect();
        let order: Vec<_> = seen.iter().filter(|args| of_batch.contains(args)).collect();
        assert_eq!(order, of_batch.iter().collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn others_do_not_wait_for_a_serial_tool_and_a_panic_in_its_lane_frees_it() {
    let stage = stage(Gates::default(), |entry| entry.call.serial = Some("p__t".into()));
    let mut mixed = calls(3, |n| if n == 1 { "{\"do\":\"panic\"}".to_owned() } else { "{}".to_owned() });
    mixed.insert(1, ToolCall::new("other", "q__other", "{}"));
    let results = stage.all(mixed, TurnContext::default()).await;
    let seen: Vec<_> = results.iter().map(|r| (&*r.call_id, outcome(&r.result))).collect();
    assert_eq!(seen, [("0", "ok"), ("other", "ok"), ("1", "host_failed"), ("2", "ok")]);
    let turn = TurnContext::default();
    let cancel = turn.cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(7)).await;
        cancel.cancel();
    });
    let ran = stage.ran();
    let results = stage.all(calls(50, |_| String::new()), turn).await;
    assert!(stage.ran() < ran + 5, "a lane ends with its batch");
    assert_eq!(
        results.iter().filter(|r| outcome(&r.result) == "cancelled").count(),
        50 - (stage.ran() - ran)
    );
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_calls_are_answered_a_few_at_a_time() {
    let stage = stage(Gates::default(), |_| {});
    let results = stage.all(calls(10_000, |n| format!("{{\"n\":{n}}}")), TurnContext::default()).await;
    assert!(results.iter().zip(0..).all(|(r, n)| *r.call_id == *n.to_string() && r.result.is_ok()));
    assert_eq!((results.len(), stage.ran()), (10_000, 10_000));
    assert_eq!(stage.actor.most.load(Ordering::SeqCst), BATCH_TASKS);
}

// ---- log, events ----

#[tokio::test(start_paused = true)]
async fn the_log_and_the_events_tell_what_happened() {
    let stage = stage(Gates::default(), |_| {}).with(|p| p.with_log(CallLog::new(3)));
    let heard = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&heard);
    stage.pipeline.events().listen(|_| panic!("a bad callback"));
    stage.pipeline.events().listen(move |event| {
        assert!(matches!(event, Event::ToolError { .. }));
        count.fetch_add(1, Ordering::SeqCst);
    });
    let identity = Identity { session_id: Some("s".repeat(500)), ..Identity::default() };
    let turn = TurnContext { identity, ..TurnContext::default() };
    let mut all = calls(4, |n| if n == 2 { "{\"do\":\"fail\"}".to_owned() } else { "{}".to_owned() });
    all.push(ToolCall::new("x".repeat(9000), "no\u{0} such tool".repeat(1000), "{}"));
    for call in all {
        stage.all(vec![call], turn.clone()).await;
    }
    let log = stage.pipeline.log();
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
struct Heard(Mutex<Vec<String>>);

impl ProgressSink for Heard {
    fn progress(&self, event: Progress) {
        self.0.lock().unwrap().push(format!("{} {}", event.call_id, event.message));
    }
}

/// Everything of a session that there is, in two of them at once on one pipeline.
#[tokio::test(start_paused = true)]
async fn two_sessions_share_nothing() {
    let mut gates = ruled("[[rule]]\nargs = { \"/do\" = \"ask\" }\naction = \"ask\"");
    gates.session.max_calls = Some(7);
    gates.session.max_identical_calls = Some(4);
    gates.session.max_cost_usd = Some(10.0);
    let stage = stage(gates, cached);
    let (yes, no) = (Person::who(Some(Answer::Always)), Person::who(Some(Answer::No(None))));
    let one = Arc::new(Session::default().with_approver(Arc::clone(&yes) as _));
    let two = Arc::new(Session::default().with_approver(Arc::clone(&no) as _));
    let (heard_one, heard_two) = (Arc::<Heard>::default(), Arc::<Heard>::default());
    let run = async |session: &Arc<Session>, heard: &Arc<Heard>, id: &str, args: &str| {
        let turn = TurnContext {
            session: Arc::clone(session),
            progress: Some(Arc::clone(heard) as _),
            ..TurnContext::default()
        };
        let call = ToolCall::new(id, "p__t", args);
        stage.all(vec![call], turn).await.pop().unwrap()
    };
    // Approvals: what one agreed to for good is asked of the other.
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
    // Counts: one uses up all it has.
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
