//! What becomes of messages, whoever reads and whoever has left.

#![expect(deprecated, reason = "older clients speak it: roots")]

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rmcp::model::{
    EmptyResult, ErrorData, JsonRpcMessage, ListRootsRequest, Notification, ProgressNotificationParam,
    ProgressToken, RequestId, ServerJsonRpcMessage, ServerNotification, ServerRequest, ServerResult,
    ToolListChangedNotification,
};
use rmcp::service::OriginatingRequestId;
use tokio_util::sync::CancellationToken;
use toolbay_policy::serve::ServeLimits;

use super::clients::{Clients, Kind};
use super::line::{Kept, Line, place};
use super::streams::{Refused, Streams};
use crate::server::outbox::OutboxSettings;

const RETRY: Option<Duration> = Some(Duration::from_secs(3));

fn id(number: i64) -> RequestId {
    RequestId::Number(number)
}

fn token(text: &str) -> ProgressToken {
    ProgressToken(RequestId::String(text.into()))
}

fn progress(of: &str, step: f64) -> ServerJsonRpcMessage {
    let param = ProgressNotificationParam::new(token(of), step);
    ServerJsonRpcMessage::notification(ServerNotification::ProgressNotification(Notification::new(param)))
}

fn changed() -> ServerJsonRpcMessage {
    let changed = ToolListChangedNotification::default();
    ServerJsonRpcMessage::notification(ServerNotification::ToolListChangedNotification(changed))
}

fn answer(of: i64) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::response(ServerResult::EmptyResult(EmptyResult {}), id(of))
}

fn kept(clients: &Clients, limits: &ServeLimits) -> Kept {
    let client = clients.get(&"a".into(), limits).unwrap();
    Kept { share: clients.nothing(&client, Kind::KeptBytes), limits: limits.clone() }
}

/// What a reader gets now: the ids of events, and whether it is the end.
fn drain(line: &Line, reader: u64) -> (Vec<String>, bool) {
    let mut context = Context::from_waker(Waker::noop());
    let mut ids = Vec::new();
    loop {
        match line.poll(reader, &mut context) {
            Poll::Ready(Some(event)) => ids.push(event.event_id.unwrap()),
            Poll::Ready(None) => return (ids, true),
            Poll::Pending => return (ids, false),
        }
    }
}

fn begun(streams: &Streams, of: i64) -> (Arc<Line>, u64) {
    let line = streams.begin(&id(of), Some(token(&of.to_string())), CancellationToken::new()).unwrap();
    let reader = line.read(None);
    (line, reader)
}

#[test]
fn an_event_says_where_it_was() {
    assert_eq!(place("3/17"), Some((3, Some(17))));
    assert_eq!(place("0"), Some((0, None)));
    for wrong in ["", "x", "1/", "/1", "1/x", "1/2/3", "-1", "99999999999999999999999"] {
        assert_eq!(place(wrong), None, "{wrong}");
    }
}

#[tokio::test]
async fn each_message_goes_to_the_stream_it_belongs_to() {
    let streams = Streams::new(RETRY);
    let ((one, of_one), (two, of_two)) = (begun(&streams, 1), begun(&streams, 2));
    let of_own = streams.own.read(None);
    streams.tell(progress("2", 1.0)).await;
    streams.tell(progress("nobody's", 1.0)).await;
    streams.tell(changed()).await;
    let mut roots = ListRootsRequest::default();
    roots.extensions.insert(OriginatingRequestId(id(1)));
    streams.tell(JsonRpcMessage::request(ServerRequest::ListRootsRequest(roots), id(7))).await;
    // What it asked is taken back where it was asked, though a request of the client has the same id.
    let (seven, of_seven) = begun(&streams, 7);
    let cancelled: ServerJsonRpcMessage = serde_json::from_value(serde_json::json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}
    }))
    .unwrap();
    streams.tell(cancelled).await;
    streams.tell(answer(2)).await;
    assert_eq!(drain(&one, of_one), (vec!["0/0".into(), "1/0".into(), "2/0".into()], false));
    assert_eq!(drain(&two, of_two), (vec!["0/1".into(), "1/1".into(), "2/1".into()], true));
    assert_eq!(drain(&seven, of_seven), (vec!["0/2".into()], false));
    assert_eq!(drain(&streams.own, of_own), (vec!["0".into()], false));
}

#[tokio::test]
async fn an_id_is_free_when_its_request_has_ended_and_not_when_it_is_cancelled() {
    let streams = Streams::new(None);
    let (line, reader) = begun(&streams, 1);
    assert_eq!(streams.begin(&id(1), None, CancellationToken::new()).unwrap_err(), Refused::Twice);
    streams.cancel(&id(1));
    assert!(line.cancel.is_cancelled());
    assert_eq!(drain(&line, reader), (vec![], true), "it is not answered");
    assert!(!streams.rests());
    assert_eq!(streams.begin(&id(1), None, CancellationToken::new()).unwrap_err(), Refused::Twice);
    streams.end(&id(1), Some(answer(1)));
    assert!(streams.rests());
    assert_eq!(drain(&line, reader), (vec![], true));
    let (next, reader) = begun(&streams, 1);
    streams.close();
    assert_eq!(drain(&next, reader), (vec![], true));
    assert_eq!(streams.begin(&id(2), None, CancellationToken::new()).unwrap_err(), Refused::Over);
}

#[tokio::test]
async fn who_sends_waits_for_who_reads_and_for_nobody_else() {
    let streams = Arc::new(Streams::new(None));
    let (line, reader) = begun(&streams, 1);
    let sending = Arc::clone(&streams);
    let sender = tokio::spawn(async move {
        for step in 0..40 {
            sending.tell(progress("1", f64::from(step))).await;
        }
    });
    let mut read = Vec::new();
    while read.len() < 40 {
        tokio::task::yield_now().await;
        let (ids, _) = drain(&line, reader);
        assert!(ids.len() <= 16, "{}", ids.len());
        read.extend(ids);
    }
    sender.await.unwrap();
    assert_eq!(read, (0..40).map(|n| format!("{n}/0")).collect::<Vec<_>>());

    // One that waits for room goes on when its reader leaves: nobody is there to hear it.
    let sending = Arc::clone(&streams);
    let sender = tokio::spawn(async move {
        for step in 0..100 {
            sending.tell(progress("1", f64::from(step))).await;
        }
    });
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert!(!sender.is_finished());
    let (clients, none) =
        (Clients::new(OutboxSettings::roomy()), ServeLimits { kept_bytes: 0, ..ServeLimits::default() });
    assert!(!line.leave(reader, || kept(&clients, &none)));
    tokio::time::timeout(Duration::from_secs(20), sender).await.unwrap().unwrap();
    assert_eq!(clients.count(Kind::KeptBytes), 0);
}

#[tokio::test]
async fn what_comes_for_who_has_left_is_kept_but_for_how_far_it_is() {
    let (streams, clients, limits) =
        (Streams::new(RETRY), Clients::new(OutboxSettings::roomy()), ServeLimits::default());
    let (line, reader) = begun(&streams, 1);
    assert_eq!(drain(&line, reader).0, ["0/0"]);
    streams.tell(progress("1", 1.0)).await;
    assert!(streams.leave(&line) && line.leave(reader, || kept(&clients, &limits)));
    streams.tell(progress("1", 2.0)).await;
    streams.tell(answer(1)).await;
    assert!(clients.count(Kind::KeptBytes) > 4096);
    let back = streams.numbered(0).unwrap();
    let reader = back.read(Some(0));
    assert_eq!(drain(&back, reader), (vec!["3/0".into()], true));
    assert_eq!(clients.count(Kind::KeptBytes), 0);

    // Whoever was told nothing does not know what to come back to.
    let (line, reader) = begun(&streams, 2);
    assert!(!line.leave(reader, || kept(&clients, &limits)));
    streams.tell(answer(2)).await;
    assert_eq!(clients.count(Kind::KeptBytes), 0);
}

#[tokio::test]
async fn who_comes_back_takes_the_place_of_who_read_before_and_gets_what_was_on_its_way() {
    let streams = Streams::new(RETRY);
    let (line, early) = begun(&streams, 1);
    streams.tell(progress("1", 1.0)).await;
    assert_eq!(drain(&line, early).0, ["0/0", "1/0"]);
    let late = line.read(Some(0));
    assert_eq!(drain(&line, early), (vec![], true));
    assert_eq!(drain(&line, late), (vec!["1/0".into()], false));
    streams.tell(ServerJsonRpcMessage::error(ErrorData::internal_error("x", None), Some(id(1)))).await;
    assert_eq!(drain(&line, late), (vec!["2/0".into()], true));
}

#[tokio::test]
async fn the_stream_of_a_session_has_many_readers_and_each_message_goes_to_one() {
    let (streams, clients, limits) =
        (Streams::new(RETRY), Clients::new(OutboxSettings::roomy()), ServeLimits::default());
    for _ in 0..40 {
        streams.tell(changed()).await;
    }
    let one = streams.own.read(None);
    let two = streams.own.read(None);
    assert_eq!(drain(&streams.own, one), (vec![], false), "the later one reads");
    let (ids, over) = drain(&streams.own, two);
    assert_eq!((ids.len(), ids.last().unwrap().as_str(), over), (16, "39", false), "the last are remembered");
    streams.own.leave(two, || kept(&clients, &limits));
    streams.tell(changed()).await;
    assert_eq!(drain(&streams.own, one), (vec!["40".into()], false));
    streams.close();
    assert_eq!(drain(&streams.own, one), (vec![], true));
}
