//! Tests of streams whose readers disconnect and reconnect.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rmcp::model::RequestId;
use tokio_util::bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::event_stream::{EncodedResponse, EventStream, ResumeBudget, parse_event_id};
use super::event_streams::{BeginStreamError, EventStreams};
use super::outbound::{Destination, MessageSink};

const RETRY: Option<Duration> = Some(Duration::from_secs(3));
const LINE: Bytes = Bytes::from_static(b"{}\n");

fn id(number: i64) -> RequestId {
    RequestId::Number(number)
}

async fn send_progress(streams: &EventStreams, of: i64) {
    streams.send(LINE, Destination::Progress(&id(of))).await;
}

async fn send_session_message(streams: &EventStreams) {
    streams.send(LINE, Destination::Session).await;
}

fn response() -> Option<EncodedResponse> {
    Some(EncodedResponse { line: LINE, error: None })
}

/// A resume budget that counts its use.
#[derive(Debug, Clone, Default)]
struct TestBudget {
    limit: u64,
    used: Arc<std::sync::atomic::AtomicU64>,
}

/// A share of the budget, released on drop.
#[derive(Debug)]
struct BudgetShare(TestBudget, u64);

impl TestBudget {
    fn new(limit: u64) -> Self {
        Self { limit, ..Self::default() }
    }

    fn used(&self) -> u64 {
        self.used.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn share(&self) -> Option<Box<dyn ResumeBudget>> {
        Some(Box::new(BudgetShare(self.clone(), 0)))
    }
}

impl ResumeBudget for BudgetShare {
    fn grow(&mut self, bytes: u64) -> bool {
        let fits = self.0.used() + bytes <= self.0.limit;
        if fits {
            self.1 += bytes;
            self.0.used.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        }
        fits
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.0.used.fetch_sub(self.1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Reads all available events: their ids, and whether the stream has ended.
fn drain(stream: &EventStream, reader: u64) -> (Vec<String>, bool) {
    let mut context = Context::from_waker(Waker::noop());
    let mut ids = Vec::new();
    loop {
        match stream.poll_next(reader, &mut context) {
            Poll::Ready(Some(event)) => ids.push(event.id.unwrap()),
            Poll::Ready(None) => return (ids, true),
            Poll::Pending => return (ids, false),
        }
    }
}

fn begin_and_read(streams: &EventStreams, of: i64) -> (Arc<EventStream>, u64) {
    let stream = streams.begin(&id(of), CancellationToken::new(), true).unwrap();
    let reader = stream.attach_reader(None);
    (stream, reader)
}

#[test]
fn an_event_id_has_its_index_and_its_stream() {
    assert_eq!(parse_event_id("3/17"), Some((3, Some(17))));
    assert_eq!(parse_event_id("0"), Some((0, None)));
    for wrong in ["", "x", "1/", "/1", "1/x", "1/2/3", "-1", "99999999999999999999999"] {
        assert_eq!(parse_event_id(wrong), None, "{wrong}");
    }
}

#[tokio::test]
async fn each_message_goes_to_the_stream_it_belongs_to() {
    let streams = EventStreams::new(RETRY);
    let ((one, of_one), (two, of_two)) = (begin_and_read(&streams, 1), begin_and_read(&streams, 2));
    let of_own = streams.session_stream.attach_reader(None);
    send_progress(&streams, 2).await;
    send_progress(&streams, 77).await;
    send_session_message(&streams).await;
    streams.send(LINE, Destination::ServerRequest(&id(1))).await;
    // A cancellation goes to the stream of the request that it cancels.
    let (seven, of_seven) = begin_and_read(&streams, 7);
    streams.send(LINE, Destination::Cancellation(&id(1))).await;
    streams.finish(&id(2), response());
    // A server request for a finished request goes to the session.
    streams.send(LINE, Destination::ServerRequest(&id(2))).await;
    assert_eq!(drain(&one, of_one), (vec!["0/0".into(), "1/0".into(), "2/0".into()], false));
    assert_eq!(drain(&two, of_two), (vec!["0/1".into(), "1/1".into(), "2/1".into()], true));
    assert_eq!(drain(&seven, of_seven), (vec!["0/2".into()], false));
    assert_eq!(drain(&streams.session_stream, of_own), (vec!["0".into(), "1".into()], false));
}

#[tokio::test]
async fn a_client_that_takes_no_events_gets_only_the_response() {
    let streams = EventStreams::new(RETRY);
    let stream = streams.begin(&id(1), CancellationToken::new(), false).unwrap();
    let reader = stream.attach_reader(None);
    let of_session = streams.session_stream.attach_reader(None);
    // More than the buffer holds: none of them waits for the reader.
    for _ in 0..100 {
        send_progress(&streams, 1).await;
    }
    streams.send(LINE, Destination::ServerRequest(&id(1))).await;
    assert_eq!(drain(&stream, reader), (vec![], false));
    assert_eq!(drain(&streams.session_stream, of_session), (vec!["0".into()], false));
    streams.finish(&id(1), response());
    assert!(stream.take_single_response().is_some());
}

#[tokio::test]
async fn an_id_is_free_once_its_request_has_ended() {
    let streams = EventStreams::new(None);
    let (stream, reader) = begin_and_read(&streams, 1);
    let again = || streams.begin(&id(1), CancellationToken::new(), true).unwrap_err();
    assert_eq!(again(), BeginStreamError::Duplicate);
    streams.cancel(&id(1));
    assert!(stream.cancel.is_cancelled());
    assert_eq!(drain(&stream, reader), (vec![], true), "a cancelled request gets no response");
    assert!(!streams.is_idle());
    assert_eq!(again(), BeginStreamError::Duplicate);
    streams.finish(&id(1), response());
    assert!(streams.is_idle());
    assert_eq!(drain(&stream, reader), (vec![], true));
    let (next, reader) = begin_and_read(&streams, 1);
    streams.close();
    assert_eq!(drain(&next, reader), (vec![], true));
    assert_eq!(streams.begin(&id(2), CancellationToken::new(), true).unwrap_err(), BeginStreamError::Closed);
}

#[tokio::test]
async fn senders_wait_only_for_an_active_reader() {
    let streams = Arc::new(EventStreams::new(None));
    let (stream, reader) = begin_and_read(&streams, 1);
    let sending = Arc::clone(&streams);
    let sender = tokio::spawn(async move {
        for _ in 0..40 {
            send_progress(&sending, 1).await;
        }
    });
    let mut read = Vec::new();
    while read.len() < 40 {
        tokio::task::yield_now().await;
        let (ids, _) = drain(&stream, reader);
        assert!(ids.len() <= 16, "{}", ids.len());
        read.extend(ids);
    }
    sender.await.unwrap();
    assert_eq!(read, (0..40).map(|n| format!("{n}/0")).collect::<Vec<_>>());

    // A sender that waits for capacity continues when the reader detaches.
    let sending = Arc::clone(&streams);
    let sender = tokio::spawn(async move {
        for _ in 0..100 {
            send_progress(&sending, 1).await;
        }
    });
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert!(!sender.is_finished());
    let none = TestBudget::new(0);
    assert!(!stream.detach_reader(reader, || none.share()));
    tokio::time::timeout(Duration::from_secs(20), sender).await.unwrap().unwrap();
    assert_eq!(none.used(), 0);
}

#[tokio::test]
async fn messages_for_a_detached_reader_are_retained_except_progress() {
    let (streams, budget) = (EventStreams::new(RETRY), TestBudget::new(1 << 20));
    let (stream, reader) = begin_and_read(&streams, 1);
    assert_eq!(drain(&stream, reader).0, ["0/0"]);
    send_progress(&streams, 1).await;
    assert!(streams.detach(&stream) && stream.detach_reader(reader, || budget.share()));
    send_progress(&streams, 1).await;
    streams.finish(&id(1), response());
    assert!(budget.used() > 4096);
    let back = streams.find_by_number(0).unwrap();
    let reader = back.attach_reader(Some(0));
    assert_eq!(drain(&back, reader), (vec!["3/0".into()], true));
    assert_eq!(budget.used(), 0);

    // A client that got no event has no id to resume from.
    let (stream, reader) = begin_and_read(&streams, 2);
    assert!(!stream.detach_reader(reader, || budget.share()));
    streams.finish(&id(2), response());
    assert_eq!(budget.used(), 0);

    // Unread messages and server requests are retained. An error replaces a response that does not fit.
    let (stream, reader) = begin_and_read(&streams, 3);
    assert_eq!(drain(&stream, reader).0, ["0/2"]);
    streams.send(LINE, Destination::ServerRequest(&id(3))).await;
    let small = TestBudget::new(4096 + 3);
    assert!(streams.detach(&stream) && stream.detach_reader(reader, || small.share()));
    streams.finish(&id(3), response());
    let reader = stream.attach_reader(Some(0));
    let mut context = Context::from_waker(Waker::noop());
    let mut next = || match stream.poll_next(reader, &mut context) {
        Poll::Ready(Some(event)) => event.message.unwrap().line,
        other => panic!("{other:?}"),
    };
    assert_eq!(next(), LINE);
    let told: serde_json::Value = serde_json::from_slice(&next()).unwrap();
    assert_eq!((&told["id"], told["error"].is_object()), (&serde_json::json!(3), true), "{told}");
}

#[tokio::test]
async fn a_resumed_reader_replaces_the_earlier_one_and_gets_its_missed_events() {
    let streams = EventStreams::new(RETRY);
    let (stream, early) = begin_and_read(&streams, 1);
    send_progress(&streams, 1).await;
    assert_eq!(drain(&stream, early).0, ["0/0", "1/0"]);
    let late = stream.attach_reader(Some(0));
    assert_eq!(drain(&stream, early), (vec![], true));
    assert_eq!(drain(&stream, late), (vec!["1/0".into()], false));
    streams.finish(&id(1), response());
    assert_eq!(drain(&stream, late), (vec!["2/0".into()], true));
}

#[tokio::test]
async fn each_session_message_goes_to_one_of_several_readers() {
    let (streams, budget) = (EventStreams::new(RETRY), TestBudget::new(1 << 20));
    for _ in 0..40 {
        send_session_message(&streams).await;
    }
    let one = streams.session_stream.attach_reader(None);
    let two = streams.session_stream.attach_reader(None);
    assert_eq!(drain(&streams.session_stream, one), (vec![], false), "the later reader gets the events");
    let (ids, over) = drain(&streams.session_stream, two);
    assert_eq!(
        (ids.len(), ids.last().unwrap().as_str(), over),
        (16, "39", false),
        "the last events are kept"
    );
    streams.session_stream.detach_reader(two, || budget.share());
    send_session_message(&streams).await;
    assert_eq!(drain(&streams.session_stream, one), (vec!["40".into()], false));
    streams.close();
    assert_eq!(drain(&streams.session_stream, one), (vec![], true));
}

#[test]
fn a_response_alone_needs_no_events() {
    let streams = EventStreams::new(RETRY);
    let (stream, _) = begin_and_read(&streams, 1);
    assert!(stream.take_single_response().is_none());
    streams.finish(&id(1), response());
    assert_eq!(stream.take_single_response().unwrap().line, LINE);
    assert!(stream.take_single_response().is_none() && stream.is_drained(), "the response was read");
}
