use toolbay_policy::limits::table::LimitTable as _;

use super::*;
use crate::testing::plugin_tool;
use crate::tool::canonical::Digest;
use crate::tool::content::{ErrorCode, ToolOutput};
use proptest::prelude::*;
use std::time::Duration;

/// Of a call that is called so.
fn digest(call: &str) -> Digest {
    crate::tool::canonical::sha256(&serde_json::json!(call))
}

fn unlimited() -> SessionLimits {
    SessionLimits::default()
}

#[test]
fn each_budget_stops_with_the_seeds_text_and_what_raises_it() {
    let calls = SessionLimits { max_calls: Some(2), ..unlimited() };
    let of_turn = SessionLimits { max_calls_per_turn: Some(2), ..unlimited() };
    for (policy, own, text) in [
        (
            calls.clone(),
            unlimited(),
            "Stopped: hit 2-tool-call budget for this session; the operator can raise it",
        ),
        (
            SessionLimits { max_calls: Some(3), ..unlimited() },
            calls.clone(),
            "Stopped: hit 2-tool-call budget for this session; it is the `max_calls` of this session's own `SessionLimits`",
        ),
        (
            of_turn.clone(),
            unlimited(),
            "Stopped: hit 2-tool-call budget for this turn; the operator can raise it",
        ),
        (
            unlimited(),
            of_turn,
            "Stopped: hit 2-tool-call budget for this turn; it is the `max_calls_per_turn` of this session's own `SessionLimits`",
        ),
    ] {
        let session = Session::new(own);
        let turn = session.turn(&policy, Some(1));
        for _ in 0..2 {
            session.count_call(&policy, turn.as_deref()).unwrap();
        }
        for _ in 0..3 {
            let error = session.count_call(&policy, turn.as_deref()).unwrap_err();
            assert_eq!((error.code, error.message.as_str()), (ErrorCode::NotAvailable, text));
            let hint = error.hint.as_deref().unwrap_or_default();
            assert_eq!(
                hint.contains("[session] max_calls"),
                text.ends_with("the operator can raise it"),
                "{hint}"
            );
        }
        assert_eq!(session.calls(), 2, "what was stopped is not counted");
    }
}

#[test]
fn dollars_stop_further_calls() {
    let policy = SessionLimits { max_cost_usd: Some(0.5), ..unlimited() };
    let session = Session::default();
    for cost in [f64::NAN, -5.0, f64::INFINITY, 0.2, 0.25] {
        session.count_call(&policy, None).unwrap();
        session.spend(cost);
    }
    session.count_call(&policy, None).unwrap();
    session.spend(0.1);
    let error = session.count_call(&policy, None).unwrap_err();
    assert_eq!(
        error.message,
        "Stopped: hit $0.5 budget cap for this session ($0.5500 spent); the operator can raise it"
    );
    assert!((session.cost_usd() - 0.55).abs() < 1e-9);
}

#[test]
fn the_same_call_is_counted_by_what_it_is() {
    let policy =
        SessionLimits { max_identical_calls: Some(3), max_identical_calls_per_turn: Some(2), ..unlimited() };
    let session = Session::default();
    let again = |turn: u32, call: &str| {
        let turn = session.turn(&policy, Some(turn));
        session.count_same(&policy, turn.as_deref(), "p__t", &digest(call)).map_err(|error| error.message)
    };
    assert_eq!((again(1, "a"), again(1, "a"), again(1, "b")), (Ok(()), Ok(()), Ok(())));
    let error = again(1, "a").unwrap_err();
    assert!(error.starts_with("Stopped: p__t called 2 times in one turn (likely loop); "), "{error}");
    assert_eq!(again(2, "a"), Ok(()));
    let error = again(3, "a").unwrap_err();
    assert!(error.starts_with("Stopped: p__t called 3 times in one session (likely loop); "), "{error}");
}

#[test]
fn turns_are_told_apart_by_their_number_and_what_is_counted_is_bounded() {
    let policy = SessionLimits { max_calls_per_turn: Some(1), ..unlimited() };
    let session = Session::default();
    assert!(session.turn(&unlimited(), Some(1)).is_none(), "nothing is counted that nothing bounds");
    let call = |number| session.count_call(&policy, session.turn(&policy, number).as_deref()).is_ok();
    assert_eq!((call(Some(1)), call(Some(2)), call(Some(1)), call(Some(2))), (true, true, false, false));
    assert_eq!((call(None), call(None)), (true, true), "a batch without a number is a turn of its own");
    for number in 3..18 {
        assert!(call(Some(number)));
    }
    assert!(!call(Some(17)), "the last turns are still known");

    let policy = SessionLimits { max_identical_calls: Some(1), ..unlimited() };
    for n in 0..10_000 {
        session.count_same(&policy, None, "p__t", &digest(&n.to_string())).unwrap();
    }
    assert!(session.count_same(&policy, None, "p__t", &digest("9999")).is_err());
    assert!(session.count_same(&policy, None, "p__t", &digest("0")).is_ok(), "long forgotten");
}

#[test]
fn limits_that_could_not_be_meant_are_refused() {
    for (limits, part) in [
        (SessionLimits { max_calls: Some(0), ..unlimited() }, "max_calls"),
        (SessionLimits { max_identical_calls_per_turn: Some(0), ..unlimited() }, "per_turn"),
        (SessionLimits { max_cost_usd: Some(0.0), ..unlimited() }, "max_cost_usd"),
        (SessionLimits { max_cost_usd: Some(f64::NAN), ..unlimited() }, "max_cost_usd"),
        (SessionLimits { cache_bytes: 1 << 40, ..unlimited() }, "1GiB"),
    ] {
        assert!(limits.check_ranges().unwrap_err().contains(part));
    }
    assert_eq!(unlimited().check_ranges(), Ok(()));
}

fn key(call: &str) -> ResultKey {
    ResultKey { call: digest(call), profile: None, caller: String::new() }
}

#[tokio::test(start_paused = true)]
async fn a_result_is_kept_for_its_tool_its_caller_and_its_time() {
    let (session, policy, minute) = (Session::default(), unlimited(), Duration::from_secs(60));
    let (tool, same_name) = (plugin_tool("p", "t").def, plugin_tool("p", "t").def);
    let output = ToolOutput { cost_usd: Some(1.0), ..ToolOutput::text("once") };
    session.keep(&policy, key("a"), &tool, &output);
    tokio::time::advance(Duration::from_secs(59)).await;
    let (found, age) = session.cached(&key("a"), &tool, minute).unwrap();
    assert_eq!((found.value.as_str(), found.cost_usd, age.as_secs()), ("once", None, 59));
    for other in [
        key("b"),
        ResultKey { profile: Some("reader".into()), ..key("a") },
        ResultKey { caller: "somebody".to_owned(), ..key("a") },
    ] {
        assert!(session.cached(&other, &tool, minute).is_none(), "{other:?}");
    }
    assert!(Session::default().cached(&key("a"), &tool, minute).is_none(), "another session");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(session.cached(&key("a"), &tool, minute).is_none(), "its time is over");
    session.keep(&policy, key("a"), &tool, &output);
    assert!(session.cached(&key("a"), &same_name, minute).is_none(), "another tool of the same name");
    assert!(session.cached(&key("a"), &tool, minute).is_none(), "and the old one is gone");
}

#[test]
fn answers_for_good_are_for_one_tool_and_one_rule() {
    let rule = toolbay_policy::permission::Permissions::preset("ask-network").unwrap();
    let (old, mut new) = (plugin_tool("p", "t").def, plugin_tool("p", "t").def);
    Arc::make_mut(&mut new).source = crate::tool::ToolSource::Builtin.into();
    let session = Session::default();
    session.approve(Approval::new(&old, Some(&rule), None));
    assert!(session.approved(&Approval::new(&old, Some(&rule), None)));
    for other in [
        Approval::new(&old, None, None),
        Approval::new(&old, Some(&rule), Some("reader")),
        Approval::new(&new, Some(&rule), None),
        Approval::new(&plugin_tool("p", "u").def, Some(&rule), None),
    ] {
        assert!(!session.approved(&other), "{other:?}");
    }
    for n in 0..1000 {
        session.approve(Approval::new(&plugin_tool("p", &format!("t{n}")).def, None, None));
    }
    assert!(session.approvals.lock().len() <= 256);
}

proptest! {
    /// However many threads count at once, exactly as many calls pass as may.
    #[test]
    fn a_budget_can_not_be_raced_past(most in 1..200_u64, threads in 1..5_usize, each in 1..100_usize) {
        let policy =
            SessionLimits { max_calls: Some(most), max_identical_calls: Some(most), ..SessionLimits::default() };
        let session = Session::default();
        let passed = |count: &(dyn Fn() -> bool + Sync)| {
            std::thread::scope(|scope| {
                let run = || (0..each).filter(|_| count()).count();
                let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
            })
        };
        let expect = (threads * each).min(usize::try_from(most).unwrap());
        prop_assert_eq!(passed(&|| session.count_call(&policy, None).is_ok()), expect);
        prop_assert_eq!(passed(&|| session.count_same(&policy, None, "t", &digest("a")).is_ok()), expect);
    }

    /// Whatever is kept, the cache is within its bounds, and what it finds is what was kept last.
    #[test]
    fn a_cache_never_outgrows_its_bounds(
        entries in 0..6_usize,
        bytes in 0..6000_u64,
        puts in proptest::collection::vec((0..8_u8, 0..2000_usize), 0..40),
    ) {
        let policy = SessionLimits { cache_entries: entries, cache_bytes: bytes, ..SessionLimits::default() };
        let (session, tool) = (Session::default(), plugin_tool("p", "t").def);
        let mut last = std::collections::HashMap::new();
        for (n, size) in puts {
            let name = n.to_string();
            session.keep(&policy, key(&name), &tool, &ToolOutput::text("x".repeat(size)));
            last.insert(name, size);
            let (count, held) = session.cache_size();
            prop_assert!(count <= entries && held <= bytes, "{} {}", count, held);
        }
        for (name, size) in last {
            if let Some((found, _)) = session.cached(&key(&name), &tool, Duration::from_secs(9)) {
                prop_assert_eq!(found.value.len(), size);
            }
        }
    }
}

#[test]
fn a_name_is_a_session_and_a_fresh_one_is_no_other() {
    assert_eq!(Session::default().key(), None);
    assert_eq!(Session::named("a").key(), Session::named("a").key());
    let fresh = Session::fresh();
    let name = fresh.key().unwrap().strip_prefix("fresh:").unwrap();
    for other in [Session::named("A"), Session::named(fresh.key().unwrap()), Session::named(name)] {
        assert_ne!(fresh.key(), other.key());
    }
    assert_ne!(fresh.key(), Session::fresh().key());
}
