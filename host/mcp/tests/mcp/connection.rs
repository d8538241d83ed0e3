use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use toolbay_core::tool::refusal::RefusalReason;
use toolbay_mcp::Options;

use crate::client::{BOTH_ERAS, ClientEra, PipeClient};
use crate::puppet::MEETING_SIZE;

/// Regression of hyper-mcp over rmcp 1.8: partly read lines were dropped when a response was written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_concurrent_calls_are_all_answered() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::new(era).await;
        for round in 0..10 {
            let mut sent = vec![];
            for n in 0..8 {
                let text = format!("{round}.{n} ").repeat(16 << 10);
                let arguments = json!({"n": n, "text": text});
                sent.push((
                    client.request("tools/call", json!({"name": "p__t", "arguments": arguments})).await,
                    arguments,
                ));
            }
            for (id, arguments) in sent {
                let answer = client.response(id).await;
                let text = answer["result"]["content"][0]["text"].as_str().unwrap();
                assert_eq!(text, arguments.to_string());
            }
        }
    }
}

#[tokio::test]
async fn calls_run_concurrently() {
    let mut client = PipeClient::new(ClientEra::Modern).await;
    let mut ids = vec![];
    for _ in 0..MEETING_SIZE {
        ids.push(client.request("tools/call", json!({"name": "p__t", "arguments": {"do": "meet"}})).await);
    }
    for id in ids {
        assert_eq!(client.response(id).await["result"]["content"][0]["text"], "met");
    }
}

#[tokio::test]
async fn calls_over_the_limit_are_told_to_retry() {
    for era in BOTH_ERAS {
        let mut client =
            PipeClient::with_options(era, Options { max_in_flight: 2, ..Options::default() }).await;
        let hang = json!({"name": "p__t", "arguments": {"do": "hang"}});
        let first = client.request("tools/call", hang.clone()).await;
        client.request("tools/call", hang).await;
        let refused = loop {
            let result = client.call("p__t", json!({})).await;
            if result["isError"] == true {
                break result;
            }
        };
        assert_eq!(refused["_meta"]["toolbay/fault"], "busy");
        assert_eq!(refused["_meta"]["toolbay/code"], "not_available");
        assert_eq!(refused["_meta"]["toolbay/limit"]["value"], "2");
        assert!(refused["content"][0]["text"].as_str().unwrap().contains("retry"), "{refused}");
        let records = client.audit.take();
        let mut busy = records.iter().filter_map(|record| record.refusal).map(RefusalReason::as_str);
        assert_eq!(busy.next_back(), Some("busy"), "it is recorded, too: {records:?}");
        client.cancel_request(first).await;
        while client.call("p__t", json!({})).await["isError"] == true {}
    }
}

#[tokio::test]
async fn a_cancelled_call_ends_and_is_not_answered() {
    for (era, how) in BOTH_ERAS.into_iter().flat_map(|era| [(era, "hang"), (era, "stubborn")]) {
        let mut client = PipeClient::new(era).await;
        let id = client.request("tools/call", json!({"name": "p__t", "arguments": {"do": how}})).await;
        client.call("p__t", json!({})).await;
        assert_eq!(client.puppet.dropped.load(Ordering::Relaxed), 0);
        client.cancel_request(id).await;
        let ended = async {
            while client.puppet.dropped.load(Ordering::Relaxed) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), ended).await.unwrap();
        client.close().await;
        assert_eq!(client.remaining_messages().await, Vec::<Value>::new());
        let records = client.audit.take();
        let cancelled = records.iter().filter(|r| r.outcome == "cancelled").count();
        assert_eq!(cancelled, 1, "recorded once, whether the call ends or is dropped: {how}");
    }
}

/// An `echo` into the program sends all messages and the end at once.
#[tokio::test]
async fn pending_responses_are_delivered_after_a_batch() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::connect(era, Options::default());
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "test", "version": "0"}});
        let first = match era {
            ClientEra::Legacy => client.request("initialize", params).await,
            ClientEra::Modern => client.request("server/discover", json!({})).await,
        };
        let call = json!({"name": "p__t", "arguments": {"do": "nap"}});
        let second = client.request("tools/call", call).await;
        client.close().await;
        let rest = client.remaining_messages().await;
        let ids: Vec<_> = rest.iter().map(|message| &message["id"]).collect();
        assert_eq!(ids, [&json!(first), &json!(second)]);
        assert_eq!(rest[1]["result"]["content"][0]["text"], "rested");
    }
}

/// Any other client has left when it closes its end. The Python SDK 1.30 fails if anything is written then.
#[tokio::test(start_paused = true)]
async fn nothing_is_written_to_a_client_that_has_left() {
    for (era, has_conversed) in
        [(ClientEra::Legacy, true), (ClientEra::Modern, true), (ClientEra::Modern, false)]
    {
        let mut client = PipeClient::connect(era, Options::default());
        if has_conversed {
            client.initialize().await;
            client.send_and_wait("tools/list", json!({})).await;
        }
        let params = json!({"name": "p__t", "arguments": {"do": "meet"}, "_meta": {"progressToken": 1}});
        for _ in 1..MEETING_SIZE {
            client.request("tools/call", params.clone()).await;
        }
        if !has_conversed {
            // Longer than a pipe takes to end behind its last message. The clock is virtual.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        client.close().await;
        // The calls end, and the list changes.
        client.puppet.meet().await;
        client.registry.unregister("p__list");
        client.server.notify_changed();
        assert_eq!(client.remaining_messages().await, Vec::<Value>::new(), "{era:?}");
        let outcomes: Vec<_> = client.audit.take().iter().map(|record| record.outcome).collect();
        assert_eq!(outcomes.len(), MEETING_SIZE - 1, "every call is recorded: {outcomes:?}");
    }
}

#[tokio::test]
async fn calls_cancelled_at_the_end_are_recorded() {
    let mut client = PipeClient::new(ClientEra::Legacy).await;
    client.request("tools/call", json!({"name": "p__t", "arguments": {"do": "stubborn"}})).await;
    client.call("p__t", json!({})).await;
    drop(client.audit.take());
    client.close().await;
    client.remaining_messages().await;
    let outcomes: Vec<_> = client.audit.take().iter().map(|record| record.outcome).collect();
    assert_eq!(outcomes, ["cancelled"]);
}

#[tokio::test]
async fn a_client_that_stops_reading_does_not_block_the_server() {
    let client = PipeClient::connect(ClientEra::Legacy, Options::default());
    let (mut write, reader) = tokio::io::duplex(64 << 10);
    let (writer, mut read) = tokio::io::duplex(64 << 10);
    let cancel = toolbay_mcp::CancellationToken::new();
    let ended = tokio::spawn(toolbay_mcp::serve(client.server.clone(), reader, writer, cancel));
    let line = |message: serde_json::Value| format!("{message}\n").into_bytes();
    let info = json!({"name": "test", "version": "0"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
    let begin = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    write.write_all(&line(begin)).await.unwrap();
    read.read_u8().await.unwrap();
    // The client stops reading: responses are lost, but requests are still processed.
    drop(read);
    write.write_all(&line(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))).await.unwrap();
    for id in 2..50 {
        let params = json!({"name": "p__t", "arguments": {}});
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        if write.write_all(&line(call)).await.is_err() {
            break;
        }
    }
    drop(write);
    tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn an_open_subscription_does_not_delay_the_exit() {
    let mut client = PipeClient::new(ClientEra::Modern).await;
    client.request("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}})).await;
    client.notification("notifications/subscriptions/acknowledged").await;
    let start = std::time::Instant::now();
    client.close().await;
    client.remaining_messages().await;
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[tokio::test]
async fn the_embedder_can_cancel_the_server() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::new(era).await;
        let id = client.request("tools/call", json!({"name": "p__t", "arguments": {"do": "hang"}})).await;
        client.call("p__t", json!({})).await;
        client.cancel.cancel();
        let rest = client.remaining_messages().await;
        assert!(
            rest.iter().all(|m| m["id"] == id && m["result"]["_meta"]["toolbay/fault"] == "cancelled"),
            "{rest:?}"
        );
    }
    let mut silent = PipeClient::connect(ClientEra::Legacy, Options::default());
    silent.cancel.cancel();
    assert_eq!(silent.remaining_messages().await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_silent_client_is_not_an_error() {
    let mut client = PipeClient::connect(ClientEra::Legacy, Options::default());
    client.close().await;
    assert_eq!(client.remaining_messages().await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_last_line_without_a_newline_is_read() {
    let mut client = PipeClient::connect(ClientEra::Legacy, Options::default());
    client.write(r#"{"jsonrpc":"2.0","id":77,"method":"ping"}"#).await;
    client.close().await;
    assert_eq!(client.remaining_messages().await[0]["id"], 77);
}

#[tokio::test]
async fn an_oversized_line_is_answered_and_the_next_one_is_read() {
    for era in BOTH_ERAS {
        let mut client =
            PipeClient::with_options(era, Options { max_line_bytes: 4096, ..Options::default() }).await;
        let arguments = json!({"text": "x".repeat(1 << 20)});
        let answer =
            client.send_and_wait("tools/call", json!({"name": "p__t", "arguments": arguments})).await;
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
        assert_eq!(answer["error"]["message"], "the message exceeds 4096 bytes");
        assert_eq!(client.call("p__t", json!({})).await["isError"], false);
        client.write(&format!("{}\n", "x".repeat(1 << 20))).await;
        let answer = client.next().await.unwrap();
        assert_eq!((answer.get("id"), &answer["error"]["code"]), (None, &json!(-32600)));
        assert_eq!(client.call("p__t", json!({})).await["isError"], false);
    }
}

#[tokio::test]
async fn invalid_lines_do_not_end_the_connection() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::new(era).await;
        for junk in [
            "",
            "\r",
            "{",
            "null",
            "[]",
            "[1]",
            "\u{feff}",
            "{\"jsonrpc\":\"2.0\"}",
            "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/nonsense\"}",
            "{\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}",
            "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":12345}}",
        ] {
            client.write(&format!("{junk}\n")).await;
            assert_eq!(client.call("p__t", json!({})).await["isError"], false, "{junk:?}");
        }
        let bad = |m: &Value| m["error"]["code"] == -32600 || m["error"]["code"] == -32700;
        assert!(client.other_messages.iter().all(bad), "{:?}", client.other_messages);
    }
}

#[tokio::test]
async fn premature_messages_do_not_end_the_connection() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::connect(era, Options::default());
        for early in [
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
            json!({"jsonrpc": "2.0", "id": 5, "result": {}}),
            json!({"jsonrpc": "2.0", "id": 901, "method": "ping"}),
            json!({"jsonrpc": "2.0", "id": 902, "method": "tools/list"}),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        ] {
            client.send(&early).await;
        }
        client.initialize().await;
        assert_eq!(client.other_messages[0], json!({"jsonrpc": "2.0", "id": 901, "result": {}}));
        assert_eq!(client.other_messages[1]["error"]["code"], -32602, "{:?}", client.other_messages);
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        assert_eq!(client.call("p__t", json!({})).await["isError"], false);
    }
}
