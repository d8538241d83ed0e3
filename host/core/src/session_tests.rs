use toolbay_policy::limits::table::LimitTable as _;

use super::*;
use crate::tool::canonical::Digest;
use crate::tool::content::{ErrorCode, ToolError, ToolOutput};
use crate::tool::fixture::plugin_def;
use proptest::prelude::*;
use std::time::Duration;

/// The digest of a call with this name.
fn digest(call: &str) -> Digest {
    crate::tool::canonical::sha256(&serde_json::json!(call))
}

fn unlimited() -> SessionLimits {
    SessionLimits::default()
}

#[test]
fn each_exceeded_budget_stops_the_call_and_names_its_limit() {
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
            "Stopped: hit 2-tool-call budget for this session; the program set it as `max_calls` of the session",
        ),
        (
            of_turn.clone(),
            unlimited(),
            "Stopped: hit 2-tool-call budget for this turn; the operator can raise it",
        ),
        (
            unlimited(),
            of_turn,
            "Stopped: hit 2-tool-call budget for this turn; the program set it as `max_calls_per_turn` of the session",
        ),
    ] {
        let session = Session::default().with_limits(own);
        let turn = session.turn_count(&policy, Some(1));
        for _ in 0..2 {
            session.count_call(&policy, turn.as_deref()).unwrap();
        }
        for _ in 0..3 {
            let error = ToolError::from(session.count_call(&policy, turn.as_deref()).unwrap_err());
            assert_eq!((error.code, error.message.as_str()), (ErrorCode::NotAvailable, text));
            let hint = error.hint.as_ref().map(ToString::to_string).unwrap_or_default();
            assert_eq!(
                hint.contains("[session] max_calls"),
                text.ends_with("the operator can raise it"),
                "{hint}"
            );
        }
        assert_eq!(session.calls(), 2, "a stopped call is not counted");
    }
}

#[test]
fn an_exhausted_cost_budget_stops_further_calls() {
    let policy = SessionLimits { max_cost_usd: Some(0.5), ..unlimited() };
    let session = Session::default();
    for cost in [f64::NAN, -5.0, f64::INFINITY, 0.2, 0.25] {
        session.count_call(&policy, None).unwrap();
        session.add_cost(cost);
    }
    session.count_call(&policy, None).unwrap();
    session.add_cost(0.1);
    let error = ToolError::from(session.count_call(&policy, None).unwrap_err());
    assert_eq!(
        error.message,
        "Stopped: hit $0.5 budget cap for this session ($0.5500 spent); the operator can raise it"
    );
    assert!((session.cost_usd() - 0.55).abs() < 1e-9);
}

#[test]
fn identical_calls_are_counted_per_turn_and_session() {
    let policy =
        SessionLimits { max_identical_calls: Some(3), max_identical_calls_per_turn: Some(2), ..unlimited() };
    let session = Session::default();
    let again = |turn: u32, call: &str| {
        let turn = session.turn_count(&policy, Some(turn));
        session
            .count_identical_call(&policy, turn.as_deref(), "p__t", &digest(call))
            .map_err(|refusal| ToolError::from(refusal).message)
    };
    assert_eq!((again(1, "a"), again(1, "a"), again(1, "b")), (Ok(()), Ok(()), Ok(())));
    let error = again(1, "a").unwrap_err();
    assert!(error.starts_with("Stopped: p__t called 2 times in one turn (likely loop); "), "{error}");
    assert_eq!(again(2, "a"), Ok(()));
    let error = again(3, "a").unwrap_err();
    assert!(error.starts_with("Stopped: p__t called 3 times in one session (likely loop); "), "{error}");
}

#[test]
fn turns_are_distinguished_by_number_and_counters_are_bounded() {
    let policy = SessionLimits { max_calls_per_turn: Some(1), ..unlimited() };
    let session = Session::default();
    assert!(
        session.turn_count(&unlimited(), Some(1)).is_none(),
        "turns are counted only if a limit applies to them"
    );
    let call = |number| session.count_call(&policy, session.turn_count(&policy, number).as_deref()).is_ok();
    assert_eq!((call(Some(1)), call(Some(2)), call(Some(1)), call(Some(2))), (true, true, false, false));
    assert_eq!((call(None), call(None)), (true, true), "a batch without a number is its own turn");
    for number in 3..18 {
        assert!(call(Some(number)));
    }
    assert!(!call(Some(17)), "the counters of the last turns are kept");

    let policy = SessionLimits { max_identical_calls: Some(1), ..unlimited() };
    for n in 0..10_000 {
        session.count_identical_call(&policy, None, "p__t", &digest(&n.to_string())).unwrap();
    }
    assert!(session.count_identical_call(&policy, None, "p__t", &digest("9999")).is_err());
    assert!(
        session.count_identical_call(&policy, None, "p__t", &digest("0")).is_ok(),
        "the oldest counter was dropped"
    );
}

#[test]
fn limits_out_of_range_are_refused() {
    for (limits, part) in [
        (SessionLimits { max_calls: Some(0), ..unlimited() }, "max_calls"),
        (SessionLimits { max_identical_calls_per_turn: Some(0), ..unlimited() }, "per_turn"),
        (SessionLimits { max_cost_usd: Some(0.0), ..unlimited() }, "max_cost_usd"),
        (SessionLimits { max_cost_usd: Some(f64::NAN), ..unlimited() }, "max_cost_usd"),
        (SessionLimits { cache_bytes: 1 << 40, ..unlimited() }, "1GiB"),
    ] {
        assert!(limits.check_ranges().unwrap_err().to_string().contains(part));
    }
    assert_eq!(unlimited().check_ranges(), Ok(()));
}

fn key(call: &str) -> ResultKey {
    ResultKey { call: digest(call), profile: None, caller: String::new() }
}

#[tokio::test(start_paused = true)]
async fn a_cached_result_is_found_by_tool_caller_and_age() {
    let (session, policy, minute) = (Session::default(), unlimited(), Duration::from_secs(60));
    let (tool, same_name) = (Arc::new(plugin_def("p", "t")), Arc::new(plugin_def("p", "t")));
    let output = ToolOutput { cost_usd: Some(1.0), ..ToolOutput::text("once") };
    session.cache_result(&policy, key("a"), &tool, &output);
    tokio::time::advance(Duration::from_secs(59)).await;
    let (found, age) = session.cached_result(&key("a"), &tool, minute).unwrap();
    assert_eq!((found.value.as_str(), found.cost_usd, age.as_secs()), ("once", None, 59));
    for other in [
        key("b"),
        ResultKey { profile: Some("reader".into()), ..key("a") },
        ResultKey { caller: "somebody".to_owned(), ..key("a") },
    ] {
        assert!(session.cached_result(&other, &tool, minute).is_none(), "{other:?}");
    }
    assert!(Session::default().cached_result(&key("a"), &tool, minute).is_none(), "another session");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(session.cached_result(&key("a"), &tool, minute).is_none(), "the cached result has expired");
    session.cache_result(&policy, key("a"), &tool, &output);
    assert!(
        session.cached_result(&key("a"), &same_name, minute).is_none(),
        "another tool with the same name"
    );
    assert!(session.cached_result(&key("a"), &tool, minute).is_none(), "the outdated result was removed");
}

#[test]
fn a_standing_approval_covers_one_tool_and_one_rule() {
    let rule = toolbay_policy::permission::Permissions::preset("ask-network").unwrap();
    let (old, mut new) = (plugin_def("p", "t"), plugin_def("p", "t"));
    new.source = crate::tool::ToolSource::Builtin.into();
    let session = Session::default();
    session.add_approval(StandingApproval::new(&old, Some(&rule), None));
    assert!(session.is_approved(&StandingApproval::new(&old, Some(&rule), None)));
    for other in [
        StandingApproval::new(&old, None, None),
        StandingApproval::new(&old, Some(&rule), Some("reader")),
        StandingApproval::new(&new, Some(&rule), None),
        StandingApproval::new(&plugin_def("p", "u"), Some(&rule), None),
    ] {
        assert!(!session.is_approved(&other), "{other:?}");
    }
    for n in 0..1000 {
        session.add_approval(StandingApproval::new(&plugin_def("p", &format!("t{n}")), None, None));
    }
    assert!(session.approvals.lock().len() <= 256);
}

proptest! {
    /// With any number of threads, exactly as many calls pass as the limit allows.
    #[test]
    fn concurrent_calls_never_exceed_a_budget(most in 1..200_u64, threads in 1..5_usize, each in 1..100_usize) {
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
        prop_assert_eq!(passed(&|| session.count_identical_call(&policy, None, "t", &digest("a")).is_ok()), expect);
    }

    /// The cache stays within its limits and returns the last cached result.
    #[test]
    fn a_cache_never_outgrows_its_bounds(
        entries in 0..6_usize,
        bytes in 0..6000_u64,
        puts in proptest::collection::vec((0..8_u8, 0..2000_usize), 0..40),
    ) {
        let policy = SessionLimits { cache_entries: entries, cache_bytes: bytes, ..SessionLimits::default() };
        let (session, tool) = (Session::default(), Arc::new(plugin_def("p", "t")));
        let mut last = std::collections::HashMap::new();
        for (n, size) in puts {
            let name = n.to_string();
            session.cache_result(&policy, key(&name), &tool, &ToolOutput::text("x".repeat(size)));
            last.insert(name, size);
            let (count, held) = session.cache_size();
            prop_assert!(count <= entries && held <= bytes, "{} {}", count, held);
        }
        for (name, size) in last {
            if let Some((found, _)) = session.cached_result(&key(&name), &tool, Duration::from_secs(9)) {
                prop_assert_eq!(found.value.len(), size);
            }
        }
    }
}

#[test]
fn equal_names_share_a_key_and_a_random_key_is_unique() {
    assert_eq!(Session::default().key(), None);
    assert_eq!(Session::with_name("a").key(), Session::with_name("a").key());
    let fresh = Session::with_random_key();
    let name = fresh.key().unwrap().strip_prefix("fresh:").unwrap();
    for other in [Session::with_name("A"), Session::with_name(fresh.key().unwrap()), Session::with_name(name)]
    {
        assert_ne!(fresh.key(), other.key());
    }
    assert_ne!(fresh.key(), Session::with_random_key().key());
}
