//! 2025-11-25 clients with broken connections resume their streams, within limits.

use serde_json::{Value, json};

use super::fixture::{HttpFixture, RawConnection, RawResponse, RequestBuilder};

fn call(id: u64, tool: &str, args: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": args}})
}

/// Starts a call and disconnects after the first event; returns the id of that event.
async fn left(desk: &HttpFixture, session: &str, call: &Value, calls: usize, places: usize) -> String {
    let mut wire = desk.post(call).session(session).open().await;
    let told = wire.until("retry: 3000").await;
    desk.until_running(calls, places).await;
    let id = told.lines().find_map(|line| line.strip_prefix("id:")).unwrap_or_else(|| panic!("{told}"));
    id.trim().to_owned()
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
    let (session, places) = (desk.begin().await, desk.host.host.available_call_permits());
    let event = left(&desk, &session, &call(1, "s__sleep", &json!({"ms": 800})), 1, places).await;
    // The client resumes before the answer, disconnects, and resumes after the answer.
    let mut early: RawConnection = resume(&desk, &session, &event).open().await;
    early.until("\r\n\r\n").await;
    drop(early);
    desk.until_running(0, places).await;
    desk.records(1).await;
    let answer = resume(&desk, &session, &event).send().await;
    assert_eq!((answer.status, text(&answer)), (200, vec![json!("slept")]), "{answer:?}");
    assert_eq!(answer.json()["id"], 1);
    // The answer was delivered once. There is no second delivery, and an unknown id yields nothing.
    for event in [&event, "0/77", "7/77"] {
        let nothing = resume(&desk, &session, event).send().await;
        assert_eq!((nothing.status, nothing.events().len()), (200, 0), "{event}");
    }

    let event = left(&desk, &session, &call(1, "s__sleep", &json!({"ms": 1500})), 1, places).await;
    let waited = resume(&desk, &session, &event).send().await;
    assert_eq!(text(&waited), ["slept"]);
}

#[tokio::test]
async fn the_resume_buffer_is_bounded() {
    // A stream takes 4 KiB and its answer.
    let desk = HttpFixture::new("[serve.limits]\nresume_buffer_bytes_per_client = \"14KiB\"\n").await;
    let (session, places) = (desk.begin().await, desk.host.host.available_call_permits());
    let mut events = Vec::new();
    for id in 1..=5 {
        let call = call(id, "s__sleep", &json!({"ms": 4000}));
        events.push(left(&desk, &session, &call, usize::try_from(id).unwrap(), places).await);
    }
    desk.until_running(0, places).await;
    desk.records(5).await;
    let mut answers = Vec::new();
    for event in &events {
        answers.extend(text(&resume(&desk, &session, event).send().await));
    }
    assert_eq!(answers, ["slept"; 3], "three fit");
}

#[tokio::test]
async fn a_response_without_buffer_space_becomes_an_error() {
    let desk = HttpFixture::new("[serve.limits]\nresume_buffer_bytes_per_client = 4100\n").await;
    let (session, places) = (desk.begin().await, desk.host.host.available_call_permits());
    let event = left(&desk, &session, &call(9, "s__sleep", &json!({"ms": 800})), 1, places).await;
    desk.until_running(0, places).await;
    desk.records(1).await;
    let answer = resume(&desk, &session, &event).send().await;
    assert_eq!((answer.code(), &answer.json()["id"]), (-32603, &json!(9)), "{answer:?}");
    assert!(answer.body.contains("resume_buffer_bytes_per_client"), "{}", answer.body);
}
