//! 2025-11-25 clients with broken connections resume their streams, within limits.

use serde_json::{Value, json};

use super::fixture::{HeldTool, HttpFixture, RawConnection, RawResponse, RequestBuilder};

/// Starts the call of this number and disconnects after the first event; returns the id of that event.
async fn left(desk: &HttpFixture, session: &str, id: u64, held: &HeldTool, calls: usize) -> String {
    let params = json!({"name": "held", "arguments": {}});
    let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    let mut wire = desk.post(&call).session(session).open().await;
    let told = wire.until("retry: 3000").await;
    held.until_begun(desk, calls).await;
    drop(wire);
    gone(desk).await;
    let id = told.lines().find_map(|line| line.strip_prefix("id:")).unwrap_or_else(|| panic!("{told}"));
    id.trim().to_owned()
}

/// Waits until the server knows that nobody listens.
async fn gone(desk: &HttpFixture) {
    desk.until("every connection is closed", |desk| desk.http.counts().connections == 0).await;
}

fn resume(desk: &HttpFixture, session: &str, event: &str) -> RequestBuilder {
    let ask = desk.get("/mcp").session(session).header("accept", "text/event-stream");
    ask.header("last-event-id", event)
}

fn text(answer: &RawResponse) -> Vec<Value> {
    answer.events().into_iter().map(|event| event["result"]["content"][0]["text"].clone()).collect()
}

#[tokio::test]
async fn a_resumed_stream_has_earlier_and_later_responses() {
    let desk = HttpFixture::new("").await;
    let (session, held) = (desk.begin().await, desk.held_tool());
    let event = left(&desk, &session, 1, &held, 1).await;
    // The client resumes before the answer, disconnects, and resumes after the answer.
    let mut early: RawConnection = resume(&desk, &session, &event).open().await;
    early.until("\r\n\r\n").await;
    drop(early);
    gone(&desk).await;
    held.end(1);
    desk.records(1).await;
    let answer = resume(&desk, &session, &event).send().await;
    assert_eq!((answer.status, text(&answer)), (200, vec![json!("held")]), "{answer:?}");
    assert_eq!(answer.json()["id"], 1);
    // The answer was delivered once. There is no second delivery, and an unknown id yields nothing.
    for event in [&event, "0/77", "7/77"] {
        let nothing = resume(&desk, &session, event).send().await;
        assert_eq!((nothing.status, nothing.events().len()), (200, 0), "{event}");
    }

    let event = left(&desk, &session, 1, &held, 2).await;
    let mut waiting = resume(&desk, &session, &event).open().await;
    waiting.until("\r\n\r\n").await;
    held.end(1);
    let told = waiting.until("0\r\n\r\n").await;
    assert_eq!(told.matches(r#""text":"held""#).count(), 1, "{told}");
}

#[tokio::test]
async fn the_resume_buffer_is_bounded() {
    // A stream takes 4 KiB and its answer.
    let desk = HttpFixture::new("[serve.limits]\nresume_buffer_bytes_per_client = \"14KiB\"\n").await;
    let (session, held) = (desk.begin().await, desk.held_tool());
    let mut events = Vec::new();
    for id in 1..=5 {
        events.push(left(&desk, &session, id, &held, usize::try_from(id).unwrap()).await);
    }
    held.end(5);
    desk.records(5).await;
    let mut answers = Vec::new();
    for event in &events {
        answers.extend(text(&resume(&desk, &session, event).send().await));
    }
    assert_eq!(answers, ["held"; 3], "three fit");
}

#[tokio::test]
async fn a_response_without_buffer_space_becomes_an_error() {
    let desk = HttpFixture::new("[serve.limits]\nresume_buffer_bytes_per_client = 4100\n").await;
    let (session, held) = (desk.begin().await, desk.held_tool());
    let event = left(&desk, &session, 9, &held, 1).await;
    held.end(1);
    desk.records(1).await;
    let answer = resume(&desk, &session, &event).send().await;
    assert_eq!((answer.code(), &answer.json()["id"]), (-32603, &json!(9)), "{answer:?}");
    assert!(answer.body.contains("resume_buffer_bytes_per_client"), "{}", answer.body);
}
