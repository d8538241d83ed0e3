//! What replicas know about each other's calls: idempotency keys, tasks, approvals.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use toolbay_core::call::idempotency::{CallEnd, CallKey, KeyState, MAX_RESULT_BYTES, RecordedResult};
use toolbay_core::call::shared::{SharedState, TaskMessage, TaskRecord, TaskWrite};
use toolbay_core::session::attachment::{Attachment, AttachmentError};
use toolbay_core::tool::canonical::{self, Digest};
use toolbay_core::tool::content::ToolOutput;
use toolbay_shared::replica::Replica;

use crate::server::{NatsServer, STALE_AFTER, until};

const LIFE: Duration = Duration::from_secs(60);

fn key() -> CallKey {
    CallKey { session: "named:team \0*".into(), key: "order 1".into() }
}

fn digest(n: u32) -> Digest {
    canonical::sha256(&json!(n))
}

async fn claim(shared: &SharedState, call: u32, reruns_unknown: bool) -> KeyState {
    shared.calls.claim(&key(), digest(call), reruns_unknown).await.unwrap()
}

fn result(text: &str) -> CallEnd {
    let result = RecordedResult::Output(ToolOutput::text(text));
    CallEnd::Result(serde_json::to_string(&result).unwrap().into())
}

/// Ends a replica as a crash does, and waits until another one has noticed.
async fn crash(replica: Replica, other: &Replica) {
    drop(replica);
    tokio::time::sleep(STALE_AFTER).await;
    until("the other one notices", || other.status().others.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_claimed_once_on_all_replicas() {
    let server = NatsServer::start();
    let ((one, _), (two, _)) = (server.replica("a").await, server.replica("b").await);
    let (a, b) = (one.shared_state(), two.shared_state());
    until("they see each other", || !one.status().others.is_empty() && !two.status().others.is_empty()).await;
    let (first, second) = tokio::join!(claim(&a, 1, true), claim(&b, 1, true));
    let (winner, state) = match (&first, &second) {
        (KeyState::Claimed(claim), KeyState::Running) => (&a, *claim),
        (KeyState::Running, KeyState::Claimed(claim)) => (&b, *claim),
        both => panic!("{both:?}"),
    };
    assert!(matches!(claim(&b, 2, true).await, KeyState::OtherCall));
    winner.calls.settle(key(), state, result("done")).await;
    for shared in [&a, &b] {
        let KeyState::Ended(RecordedResult::Output(output), age) = claim(shared, 1, true).await else {
            panic!()
        };
        assert!(output.value == "done" && age < LIFE);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_a_dead_replica_has_an_unknown_result() {
    let server = NatsServer::start();
    let ((one, _), (two, _)) = (server.replica("a").await, server.replica("b").await);
    let b = two.shared_state();
    until("they see each other", || !two.status().others.is_empty()).await;
    assert!(matches!(claim(&one.shared_state(), 1, false).await, KeyState::Claimed(_)));
    assert!(matches!(claim(&b, 1, true).await, KeyState::Running));
    crash(one, &two).await;
    assert!(matches!(claim(&b, 1, false).await, KeyState::Unknown));
    let KeyState::Claimed(second) = claim(&b, 1, true).await else { panic!() };
    b.calls.settle(key(), second, CallEnd::NotBegun).await;
    let KeyState::Claimed(third) = claim(&b, 2, false).await else { panic!("the key is free again") };
    b.calls.settle(key(), third, CallEnd::Unknown).await;
    assert!(matches!(claim(&b, 2, false).await, KeyState::Unknown));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_ends_without_the_store_is_settled_later() {
    let server = NatsServer::start();
    let (replica, _) = server.replica("a").await;
    let shared = replica.shared_state();
    let KeyState::Claimed(first) = claim(&shared, 1, false).await else { panic!() };
    server.signal(Signal::STOP);
    shared.calls.settle(key(), first, result("done")).await;
    assert!(shared.calls.claim(&key(), digest(1), true).await.is_err(), "the store does not answer");
    server.signal(Signal::CONT);
    for _ in 0..100 {
        if !matches!(shared.calls.claim(&key(), digest(1), false).await, Ok(KeyState::Running) | Err(_)) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let state = claim(&shared, 1, false).await;
    assert!(matches!(state, KeyState::Unknown), "its caller alone has the result: {state:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_result_is_kept_and_one_that_is_too_large_frees_no_key() {
    let server = NatsServer::start();
    let (replica, _) = server.replica("a").await;
    let shared = replica.shared_state();
    let KeyState::Claimed(first) = claim(&shared, 1, false).await else { panic!() };
    // In the text of a result, each quotation mark has two characters.
    let output =
        ToolOutput::text("\"".repeat(MAX_RESULT_BYTES / 2 - 1000)).with_structured(&json!([1])).unwrap();
    let text = serde_json::to_string(&RecordedResult::Output(output.clone())).unwrap();
    assert!(text.len() <= MAX_RESULT_BYTES && text.len() > MAX_RESULT_BYTES - 4000, "{}", text.len());
    shared.calls.settle(key(), first, CallEnd::Result(text.into())).await;
    let KeyState::Ended(RecordedResult::Output(kept), _) = claim(&shared, 1, true).await else { panic!() };
    assert_eq!((kept.value, kept.structured.unwrap().get()), (output.value, "{\"result\":[1]}"));

    let other = CallKey { key: "order 2".into(), ..key() };
    let KeyState::Claimed(second) = shared.calls.claim(&other, digest(1), false).await.unwrap() else {
        panic!()
    };
    shared.calls.settle(other.clone(), second, result(&"x".repeat(1 << 20))).await;
    for _ in 0..100 {
        match shared.calls.claim(&other, digest(1), false).await.unwrap() {
            KeyState::Running => tokio::time::sleep(Duration::from_millis(20)).await,
            state => return assert!(matches!(state, KeyState::Unknown), "{state:?}"),
        }
    }
    panic!("its end is never written");
}

fn task(state: String, has_ended: bool) -> TaskRecord {
    TaskRecord { id: "0af3".to_owned(), owner: "team".into(), state, has_ended, life: LIFE }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_read_and_reached_from_every_replica() {
    let server = NatsServer::start();
    let ((one, _), (two, _)) = (server.replica("a").await, server.replica("b.c *").await);
    let (a, b) = (one.shared_state().tasks, two.shared_state().tasks);
    until("they see each other", || !one.status().others.is_empty() && !two.status().others.is_empty()).await;
    a.put(task("working".to_owned(), false)).await.unwrap();
    let found = b.get("team", "0af3").await.unwrap().unwrap();
    assert_eq!((found.state.as_str(), found.has_ended, found.replica_is_alive), ("working", false, true));
    assert_eq!(b.get("other", "0af3").await.unwrap(), None);
    assert_eq!(b.get("team", "0af4.>").await.unwrap(), None);
    let responses = |key: &str| TaskMessage { responses: [(key.to_owned(), json!(1))].into(), cancel: false };
    b.send(&found, responses("x")).await.unwrap();
    let (id, message) = a.receive().await;
    assert_eq!((id.as_str(), message), ("0af3", responses("x")));
    b.send(&found, TaskMessage { cancel: true, ..TaskMessage::default() }).await.unwrap();
    assert!(a.receive().await.1.cancel);
    // A state grows in its record.
    let quoted = "\"".repeat(64 << 10);
    a.put(task(quoted.clone(), false)).await.unwrap();
    assert!(b.get("team", "0af3").await.unwrap().unwrap().state == quoted);
    // More than one message of NATS.
    let large = "ü".repeat(1 << 20);
    a.put(task(large.clone(), true)).await.unwrap();
    crash(one, &two).await;
    let found = b.get("team", "0af3").await.unwrap().unwrap();
    assert!(found.state == large && found.has_ended && !found.replica_is_alive);
    assert_eq!(b.put(task("late".to_owned(), true)).await.unwrap(), TaskWrite::EndedBefore);
    b.end(&found, "failed".to_owned()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_was_ended_for_a_dead_replica_stays_ended() {
    let server = NatsServer::start();
    let ((one, _), (two, _)) = (server.replica("a").await, server.replica("b").await);
    let (a, b) = (one.shared_state().tasks, two.shared_state().tasks);
    a.put(task("working".to_owned(), false)).await.unwrap();
    let stale = b.get("team", "0af3").await.unwrap().unwrap();
    a.put(task("still working".to_owned(), false)).await.unwrap();
    b.end(&stale, "failed".to_owned()).await.unwrap();
    let found = b.get("team", "0af3").await.unwrap().unwrap();
    assert_eq!((&*found.state, found.has_ended), ("still working", false), "it changed since it was read");
    b.end(&found, "failed".to_owned()).await.unwrap();
    assert_eq!(a.put(task("done".to_owned(), true)).await.unwrap(), TaskWrite::EndedBefore);
    let found = b.get("team", "0af3").await.unwrap().unwrap();
    assert_eq!((&*found.state, found.has_ended), ("failed", true));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_holds_on_every_replica() {
    let server = NatsServer::start();
    let ((one, _), (two, _)) = (server.replica("a").await, server.replica("b").await);
    let (a, b) = (one.shared_state().approvals, two.shared_state().approvals);
    assert!(!b.contains("team", digest(1)).await);
    a.add("team", digest(1)).await;
    assert!(b.contains("team", digest(1)).await);
    assert!(!b.contains("team", digest(2)).await && !b.contains("other", digest(1)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_a_session_is_read_on_every_replica() {
    let server = NatsServer::start();
    let ((one, _), (two, _)) = (server.replica("a").await, server.replica("b").await);
    let (a, b) = (one.shared_state().attachments, two.shared_state().attachments);
    let about = |id: &str, size| Attachment {
        id: id.to_owned(),
        name: "ü.bin".to_owned(),
        media_type: "a/b".to_owned(),
        size,
    };
    let large = vec![7; 3 << 20];
    a.put("named:team", &about("1", large.len() as u64), large.clone()).await.unwrap();
    b.put("named:team", &about("2", 0), Vec::new()).await.unwrap();
    assert_eq!(b.list("named:team").await, [about("1", large.len() as u64), about("2", 0)]);
    assert_eq!(&*b.get("named:team", "1").await.unwrap(), &*large);
    assert!(a.get("named:team", "2").await.unwrap().is_empty());
    assert_eq!(a.get("named:other", "1").await, Err(AttachmentError::NotFound));
    let too_large = a.put("named:team", &about("3", 64 << 20), Vec::new()).await;
    assert_eq!(too_large, Err(AttachmentError::TooLarge(64 << 20)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_results_of_one_session_do_not_push_out_those_of_others() {
    let server = NatsServer::start();
    let (replica, _) = server.replica("a").await;
    let shared = replica.shared_state();
    let run = async |session: &str, n: u32, result: CallEnd| {
        let key = CallKey { session: session.into(), key: n.to_string().into() };
        let state = shared.calls.claim(&key, digest(1), false).await.unwrap();
        if let KeyState::Claimed(claim) = state {
            shared.calls.settle(key, claim, result).await;
        }
        state
    };
    run("small", 0, result("mine")).await;
    let large = "x".repeat(MAX_RESULT_BYTES - 1000);
    // More than the bucket has room for.
    for n in 0..1500 {
        assert!(matches!(run("large", n, result(&large)).await, KeyState::Claimed(_)), "{n}");
    }
    assert!(matches!(run("large", 1499, CallEnd::NotBegun).await, KeyState::Ended(..)), "its newest is kept");
    assert!(matches!(run("large", 0, CallEnd::NotBegun).await, KeyState::Claimed(_)), "its oldest is not");
    assert!(matches!(run("small", 0, CallEnd::NotBegun).await, KeyState::Ended(..)));
}
