//! Calls with an idempotency key.

use std::sync::Arc;
use std::time::Duration;

use super::CallPolicy;
use super::fixture::{GateFixture, fixture, ruled, text};
use super::gates_tests::fault;
use crate::call::invoke::Failure;
use crate::call::{ToolCall, TurnContext};
use crate::pipeline::CallResult;
use crate::session::Session;
use crate::tool::fault::FaultKind;

async fn call(fixture: &GateFixture, session: &Arc<Session>, key: &str, args: &str) -> CallResult {
    let turn = TurnContext { session: Arc::clone(session), ..TurnContext::default() };
    let call = ToolCall::new("1", "p__t", args).with_idempotency_key(Some(key.into()));
    fixture.all(vec![call], turn).await.pop().unwrap()
}

fn open(reruns_idempotent: bool, is_idempotent: bool) -> GateFixture {
    let policy = CallPolicy { reruns_idempotent, ..ruled("rule = []") };
    fixture(policy, |tool| Arc::make_mut(&mut tool.def).traits.idempotent = is_idempotent)
}

#[tokio::test(start_paused = true)]
async fn a_repeated_call_gets_the_result_of_the_first_one() {
    let fixture = open(false, false);
    let session = Arc::new(Session::with_name("team"));
    let first = call(&fixture, &session, "k", r#"{"n": 1}"#).await;
    tokio::time::advance(Duration::from_secs(9)).await;
    let again = call(&fixture, &session, "k", r#"{"n":1}"#).await;
    assert_eq!((text(&first), again.cached.map(|age| age.as_secs())), (text(&again), Some(9)));
    assert_eq!((fixture.ran(), again.cost_usd()), (1, None));
    let failed = call(&fixture, &session, "f", r#"{"do": "fail"}"#).await;
    assert_eq!(text(&call(&fixture, &session, "f", r#"{"do": "fail"}"#).await), text(&failed));
    assert_eq!(fixture.ran(), 2, "the tool's own error is a result, too");
    let other = call(&fixture, &session, "k", r#"{"n": 2}"#).await;
    assert_eq!(text(&other), "The idempotency key was used for another tool or other arguments");
    // The same key of another session is another key.
    let stranger = Arc::new(Session::with_name("stranger"));
    assert!(call(&fixture, &stranger, "k", r#"{"n": 2}"#).await.cached.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_key_is_claimed_while_its_call_runs() {
    let fixture = open(true, true);
    let session = Arc::new(Session::with_name("team"));
    let (first, second) = tokio::join!(
        call(&fixture, &session, "k", r#"{"do": "sleep"}"#),
        call(&fixture, &session, "k", r#"{"do": "sleep"}"#)
    );
    assert!(first.result.is_ok());
    assert_eq!((fault(&second), fixture.ran()), (FaultKind::Busy, 1));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_result_is_not_repeated_unless_the_policy_and_the_tool_allow_it() {
    for (reruns, idempotent, runs) in [(false, false, 1), (true, false, 1), (false, true, 1), (true, true, 2)]
    {
        let fixture = open(reruns, idempotent);
        let session = Arc::new(Session::with_name("team"));
        let args = r#"{"do": "panic"}"#;
        assert!(matches!(call(&fixture, &session, "k", args).await.result, Err(Failure::Host(_))));
        let again = call(&fixture, &session, "k", args).await;
        assert_eq!(fixture.ran(), runs, "{reruns} {idempotent}");
        if runs == 1 {
            assert_eq!(fault(&again), FaultKind::OutcomeUnknown);
        }
        let hint = again.hints.lines.iter().any(|line| *line == "[shared] rerun_idempotent = true".into());
        assert_eq!(hint, idempotent && !reruns, "the line is shown where it helps");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_leaves_an_unknown_result() {
    let fixture = open(false, false);
    let session = Arc::new(Session::with_name("team"));
    let args = r#"{"do": "sleep"}"#;
    let cut = tokio::time::timeout(Duration::from_millis(1), call(&fixture, &session, "k", args)).await;
    assert!(cut.is_err());
    assert_eq!(fault(&call(&fixture, &session, "k", args).await), FaultKind::OutcomeUnknown);
}

#[tokio::test(start_paused = true)]
async fn a_key_needs_a_session_and_has_a_limit() {
    let fixture = open(false, false);
    let refused = call(&fixture, &Arc::default(), "k", "{}").await;
    assert_eq!(text(&refused), "An idempotency key needs a session: this call has none");
    let session = Arc::new(Session::with_name("team"));
    for (key, fits) in [("", false), (&"k".repeat(255), true), (&"k".repeat(256), false)] {
        assert_eq!(call(&fixture, &session, key, "{}").await.result.is_ok(), fits, "{}", key.len());
    }
    assert_eq!(fixture.ran(), 1);
}
