//! Clients of 2025-11-25 whose connections break come back for their answers, within bounds.

use serde_json::{Value, json};

use super::fixture::{Answer, Ask, Desk, Wire};

fn call(id: u64, tool: &str, args: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": args}})
}

/// Begins a call, and leaves when it has been told how to come back: the id of that event.
async fn left(desk: &Desk, session: &str, call: &Value, calls: usize, places: usize) -> String {
    let mut wire = desk.post(call).session(session).open().await;
    let told = wire.until("retry: 3000").await;
    desk.until_running(calls, places).await;
    let id = told.lines().find_map(|line| line.strip_prefix("id:")).unwrap_or_else(|| panic!("{told}"));
    id.trim().to_owned()
}

fn resume(desk: &Desk, session: &str, event: &str) -> Ask {
    let ask = desk.get("/mcp").session(session).header("accept", "text/event-stream");
    ask.header("last-event-id", event)
}

fn text(answer: &Answer) -> Vec<Value> {
    answer.events().into_iter().map(|event| event["result"]["content"][0]["text"].clone()).collect()
}

#[tokio::test]
async fn an_answer_that_came_meanwhile_is_there_and_one_that_comes_later_comes() {
    let desk = Desk::new("").await;
    let (session, places) = (desk.begin().await, desk.host.host.free_places());
    let event = left(&desk, &session, &call(1, "s__sleep", &json!({"ms": 800})), 1, places).await;
    // It comes back before the answer, leaves, and comes back after it.
    let mut early: Wire = resume(&desk, &session, &event).open().await;
    early.until("\r\n\r\n").await;
    drop(early);
    desk.until_running(0, places).await;
    desk.until("the call is recorded", |desk| !desk.host.audit.take().is_empty()).await;
    let answer = resume(&desk, &session, &event).send().await;
    assert_eq!((answer.status, text(&answer)), (200, vec![json!("slept")]), "{answer:?}");
    assert_eq!(answer.json()["id"], 1);
    // It was given; there is no second one, and an id that was nobody's gives nothing.
    for event in [&event, "0/77", "7/77"] {
        let nothing = resume(&desk, &session, event).send().await;
        assert_eq!((nothing.status, nothing.events().len()), (200, 0), "{event}");
    }

    let event = left(&desk, &session, &call(1, "s__sleep", &json!({"ms": 1500})), 1, places).await;
    let waited = resume(&desk, &session, &event).send().await;
    assert_eq!(text(&waited), ["slept"]);
}

#[tokio::test]
async fn what_is_kept_for_who_left_is_bounded() {
    // A stream takes four KiB and its answer.
    let desk = Desk::new("[serve.limits]\nresume_buffer_bytes_per_client = \"14KiB\"\n").await;
    let (session, places) = (desk.begin().await, desk.host.host.free_places());
    let mut events = Vec::new();
    for id in 1..=5 {
        let call = call(id, "s__sleep", &json!({"ms": 4000}));
        events.push(left(&desk, &session, &call, usize::try_from(id).unwrap(), places).await);
    }
    desk.until_running(0, places).await;
    let mut recorded = 0;
    desk.until("all are recorded", |desk| {
        recorded += desk.host.audit.take().len();
        recorded == 5
    })
    .await;
    let mut answers = Vec::new();
    for event in &events {
        answers.extend(text(&resume(&desk, &session, event).send().await));
    }
    assert_eq!(answers, ["slept"; 3], "three fit");
}

#[tokio::test]
async fn an_answer_for_which_there_is_no_room_is_one_that_says_so() {
    let desk = Desk::new("[serve.limits]\nresume_buffer_bytes_per_client = 4100\n").await;
    let (session, places) = (desk.begin().await, desk.host.host.free_places());
    let event = left(&desk, &session, &call(9, "s__sleep", &json!({"ms": 800})), 1, places).await;
    desk.until_running(0, places).await;
    desk.until("the call is recorded", |desk| !desk.host.audit.take().is_empty()).await;
    let answer = resume(&desk, &session, &event).send().await;
    assert_eq!((answer.code(), &answer.json()["id"]), (-32603, &json!(9)), "{answer:?}");
    assert!(answer.body.contains("resume_buffer_bytes_per_client"), "{}", answer.body);
}
