//! What happens to messages when readers leave and come back.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rmcp::model::RequestId;
use tokio_util::bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::event_stream::{EventStream, Reply, ResumeBudget, place};
use super::event_streams::{EventStreams, StreamRefusal};
use super::outbound::{Destination, MessageSink};

const RETRY: Option<Duration> = Some(Duration::from_secs(3));
const LINE: Bytes = Bytes::from_static(b"{}\n");

fn id(number: i64) -> RequestId {
    RequestId::Number(number)
}

async fn progress(streams: &EventStreams, of: i64) {
    streams.send(LINE, Destination::Progress(&id(of))).await;
}

async fn changed(streams: &EventStreams) {
    streams.send(LINE, Destination::Session).await;
}

fn answer() -> Option<Reply> {
    Some(Reply { line: LINE, error: None })
}

/// What may be kept, and how much of it is.
#[derive(Debug, Clone, Default)]
struct Budget {
    limit: u64,
    used: Arc<std::sync::atomic::AtomicU64>,
}

/// A part of it, until it is dropped.
#[derive(Debug)]
struct Kept(Budget, u64);

impl Budget {
    fn new(limit: u64) -> Self {
        Self { limit, ..Self::default() }
    }

    fn used(&self) -> u64 {
        self.used.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn kept(&self) -> Option<Box<dyn ResumeBudget>> {
        Some(Box::new(Kept(self.clone(), 0)))
    }
}

impl ResumeBudget for Kept {
    fn grow(&mut self, bytes: u64) -> bool {
        let fits = self.0.used() + bytes <= self.0.limit;
        if fits {
            self.1 += bytes;
            self.0.used.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        }
        fits
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.used.fetch_sub(self.1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// What a reader gets now: the ids of events, and whether it is the end.
fn drain(stream: &EventStream, reader: u64) -> (Vec<String>, bool) {
    let mut context = Context::from_waker(Waker::noop());
    let mut ids = Vec::new();
    loop {
        match stream.poll(reader, &mut context) {
            Poll::Ready(Some(event)) => ids.push(event.id.unwrap()),
            Poll::Ready(None) => return (ids, true),
            Poll::Pending => return (ids, false),
        }
    }
}

fn begun(streams: &EventStreams, of: i64) -> (Arc<EventStream>, u64) {
    let stream = streams.begin(&id(of), CancellationToken::new()).unwrap();
    let reader = stream.read(None);
    (stream, reader)
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
    let streams = EventStreams::new(RETRY);
    let ((one, of_one), (two, of_two)) = (begun(&streams, 1), begun(&streams, 2));
    let of_own = streams.own.read(None);
    progress(&streams, 2).await;
    progress(&streams, 77).await;
    changed(&streams).await;
    streams.send(LINE, Destination::Question(&id(1))).await;
    // What it asked is taken back where it was asked.
    let (seven, of_seven) = begun(&streams, 7);
    streams.send(LINE, Destination::Withdrawal(&id(1))).await;
    streams.end(&id(2), answer());
    // Of a request that is over, it goes to the session.
    streams.send(LINE, Destination::Question(&id(2))).await;
    assert_eq!(drain(&one, of_one), (vec!["0/0".into(), "1/0".into(), "2/0".into()], false));
    assert_eq!(drain(&two, of_two), (vec!["0/1".into(), "1/1".into(), "2/1".into()], true));
    assert_eq!(drain(&seven, of_seven), (vec!["0/2".into()], false));
    assert_eq!(drain(&streams.own, of_own), (vec!["0".into(), "1".into()], false));
}

#[tokio::test]
async fn an_id_is_free_when_its_request_has_ended_and_not_when_it_is_cancelled() {
    let streams = EventStreams::new(None);
    let (stream, reader) = begun(&streams, 1);
    let again = || streams.begin(&id(1), CancellationToken::new()).unwrap_err();
    assert_eq!(again(), StreamRefusal::Duplicate);
    streams.cancel(&id(1));
    assert!(stream.cancel.is_cancelled());
    assert_eq!(drain(&stream, reader), (vec![], true), "it is not answered");
    assert!(!streams.is_idle());
    assert_eq!(again(), StreamRefusal::Duplicate);
    streams.end(&id(1), answer());
    assert!(streams.is_idle());
    assert_eq!(drain(&stream, reader), (vec![], true));
    let (next, reader) = begun(&streams, 1);
    streams.close();
    assert_eq!(drain(&next, reader), (vec![], true));
    assert_eq!(streams.begin(&id(2), CancellationToken::new()).unwrap_err(), StreamRefusal::Over);
}

#[tokio::test]
async fn who_sends_waits_for_who_reads_and_for_nobody_else() {
    let streams = Arc::new(EventStreams::new(None));
    let (stream, reader) = begun(&streams, 1);
    let sending = Arc::clone(&streams);
    let sender = tokio::spawn(async move {
        for _ in 0..40 {
            progress(&sending, 1).await;
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

    // A message that waits for room is released when its reader leaves.
    let sending = Arc::clone(&streams);
    let sender = tokio::spawn(async move {
        for _ in 0..100 {
            progress(&sending, 1).await;
        }
    });
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert!(!sender.is_finished());
    let none = Budget::new(0);
    assert!(!stream.leave(reader, || none.kept()));
    tokio::time::timeout(Duration::from_secs(20), sender).await.unwrap().unwrap();
    assert_eq!(none.used(), 0);
}

#[tokio::test]
async fn what_comes_for_who_has_left_is_kept_but_for_how_far_it_is() {
    let (streams, budget) = (EventStreams::new(RETRY), Budget::new(1 << 20));
    let (stream, reader) = begun(&streams, 1);
    assert_eq!(drain(&stream, reader).0, ["0/0"]);
    progress(&streams, 1).await;
    assert!(streams.leave(&stream) && stream.leave(reader, || budget.kept()));
    progress(&streams, 1).await;
    streams.end(&id(1), answer());
    assert!(budget.used() > 4096);
    let back = streams.numbered(0).unwrap();
    let reader = back.read(Some(0));
    assert_eq!(drain(&back, reader), (vec!["3/0".into()], true));
    assert_eq!(budget.used(), 0);

    // A client that got no event has no id to come back with.
    let (stream, reader) = begun(&streams, 2);
    assert!(!stream.leave(reader, || budget.kept()));
    streams.end(&id(2), answer());
    assert_eq!(budget.used(), 0);

    // What waited to be read, and a question, are kept; one for which there is no room is one that says so.
    let (stream, reader) = begun(&streams, 3);
    assert_eq!(drain(&stream, reader).0, ["0/2"]);
    streams.send(LINE, Destination::Question(&id(3))).await;
    let small = Budget::new(4096 + 3);
    assert!(streams.leave(&stream) && stream.leave(reader, || small.kept()));
    streams.end(&id(3), answer());
    let reader = stream.read(Some(0));
    let mut context = Context::from_waker(Waker::noop());
    let mut next = || match stream.poll(reader, &mut context) {
        Poll::Ready(Some(event)) => event.message.unwrap().line,
        other => panic!("{other:?}"),
    };
    assert_eq!(next(), LINE);
    let told: serde_json::Value = serde_json::from_slice(&next()).unwrap();
    assert_eq!((&told["id"], told["error"].is_object()), (&serde_json::json!(3), true), "{told}");
}

#[tokio::test]
async fn who_comes_back_takes_the_place_of_who_read_before_and_gets_what_was_on_its_way() {
    let streams = EventStreams::new(RETRY);
    let (stream, early) = begun(&streams, 1);
    progress(&streams, 1).await;
    assert_eq!(drain(&stream, early).0, ["0/0", "1/0"]);
    let late = stream.read(Some(0));
    assert_eq!(drain(&stream, early), (vec![], true));
    assert_eq!(drain(&stream, late), (vec!["1/0".into()], false));
    streams.end(&id(1), answer());
    assert_eq!(drain(&stream, late), (vec!["2/0".into()], true));
}

#[tokio::test]
async fn the_stream_of_a_session_has_many_readers_and_each_message_goes_to_one() {
    let (streams, budget) = (EventStreams::new(RETRY), Budget::new(1 << 20));
    for _ in 0..40 {
        changed(&streams).await;
    }
    let one = streams.own.read(None);
    let two = streams.own.read(None);
    assert_eq!(drain(&streams.own, one), (vec![], false), "the later one reads");
    let (ids, over) = drain(&streams.own, two);
    assert_eq!((ids.len(), ids.last().unwrap().as_str(), over), (16, "39", false), "the last are remembered");
    streams.own.leave(two, || budget.kept());
    changed(&streams).await;
    assert_eq!(drain(&streams.own, one), (vec!["40".into()], false));
    streams.close();
    assert_eq!(drain(&streams.own, one), (vec![], true));
}

#[test]
fn the_answer_alone_is_no_event() {
    let streams = EventStreams::new(RETRY);
    let (stream, _) = begun(&streams, 1);
    assert!(stream.only().is_none());
    streams.end(&id(1), answer());
    assert_eq!(stream.only().unwrap().line, LINE);
    assert!(stream.only().is_none() && stream.is_over(), "it was read");
}
