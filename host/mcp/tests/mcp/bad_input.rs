//! Invalid messages and misbehaving clients.

use serde_json::{Value, json};
use toolbay_mcp::Options;

use crate::client::{BOTH_ERAS, ClientEra, PipeClient};

async fn assert_still_serves(client: &mut PipeClient) {
    assert_eq!(client.call("p__t", json!({})).await["isError"], false);
}

/// The response to input without a known id.
async fn response_to(client: &mut PipeClient, bytes: &[u8]) -> Value {
    client.write_bytes(bytes).await;
    client.next().await.expect("the server closed the connection")
}

#[tokio::test]
async fn invalid_messages_get_json_rpc_errors() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::new(era).await;
        for (bytes, code) in [
            (&b"{\n"[..], -32700),
            (b"nonsense\n", -32700),
            (b"{\"a\":\xff}\n", -32700),
            (b"\xc3\x28\n", -32700),
            (b"null\n", -32600),
            (b"5\n", -32600),
            (b"[]\n", -32600),
            (b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"},{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}]\n", -32600),
            (b"{\"jsonrpc\":\"2.0\"}\n", -32600),
        ] {
            let answer = response_to(&mut client, bytes).await;
            assert_eq!((answer.get("id"), &answer["error"]["code"]), (None, &json!(code)), "{answer}");
            assert_still_serves(&mut client).await;
        }
        let deep = format!("{}1{}\n", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(response_to(&mut client, deep.as_bytes()).await["error"]["code"], -32700);
        assert_still_serves(&mut client).await;
    }
}

#[tokio::test]
async fn invalid_requests_are_answered_with_their_id() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::new(era).await;
        for (method, params, code) in [
            ("tools/call", json!({}), -32602),
            ("tools/call", json!({"name": 5}), -32602),
            ("tools/call", json!({"name": "p__t", "arguments": [1]}), -32602),
            ("resources/read", json!({"uri": {}}), -32602),
            ("no/such/method", json!({}), -32601),
            ("", json!({}), -32601),
        ] {
            let answer = client.send_and_wait(method, params).await;
            assert_eq!(answer["error"]["code"], code, "{method}: {answer}");
        }
        assert_still_serves(&mut client).await;
        client.send(&json!({"jsonrpc": "1.0", "id": 777, "method": "ping"})).await;
        assert_eq!(client.response(777).await["error"]["code"], -32600);
    }
}

/// Clients in PHP send `[]` for an object without members, and some clients have no version.
#[tokio::test]
async fn empty_lists_are_empty_objects_and_other_values_are_named() {
    let handshake = |capabilities: &Value, client: &Value| json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": client});
    let probe = json!({"name": "probe", "version": "1"});
    for (capabilities, client) in [
        (json!([]), &probe),
        (json!({"roots": []}), &probe),
        (json!({"elicitation": []}), &probe),
        (json!({}), &json!({"name": "probe"})),
        (json!({}), &Value::Null),
    ] {
        let mut pipe = PipeClient::connect(ClientEra::Legacy, Options::default());
        let answer = pipe.send_and_wait("initialize", handshake(&capabilities, client)).await;
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
        for params in [json!([]), json!({})] {
            assert!(pipe.send_and_wait("tools/list", params).await["result"]["tools"].is_array());
        }
        let said = pipe.call("p__t", json!([])).await;
        assert_eq!(said["content"][0]["text"], "{}");
    }
    let mut pipe = PipeClient::connect(ClientEra::Legacy, Options::default());
    for (method, params, member) in [
        ("initialize", handshake(&json!("none"), &probe), "`capabilities`"),
        ("initialize", handshake(&json!({"roots": [1]}), &probe), "`capabilities.roots`"),
        ("initialize", json!({"capabilities": {}}), "`protocolVersion`"),
        ("initialize", json!(["2025-11-25"]), "expected an object"),
    ] {
        let answer = pipe.send_and_wait(method, params).await;
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(answer["error"]["code"] == -32602 && message.contains(member), "{member}: {answer}");
    }
    pipe.initialize().await;
    for (method, params, member) in [
        ("tools/call", json!({"name": 5}), "`name`"),
        ("tools/call", json!({"name": "p__t", "arguments": "x"}), "`arguments`"),
        ("tools/call", json!({"name": "p__t", "task": {"ttl": "long"}}), "`task`"),
        ("resources/read", json!({}), "`uri`"),
        ("tools/list", json!({"cursor": {}}), "`cursor`"),
    ] {
        let answer = pipe.send_and_wait(method, params).await;
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(answer["error"]["code"] == -32602 && message.contains(member), "{member}: {answer}");
    }
}

#[tokio::test]
async fn a_framed_or_pretty_message_is_told_what_a_line_is() {
    let mut client = PipeClient::new(ClientEra::Legacy).await;
    for line in ["Content-Length: 40\r\n", "{\n"] {
        let answer = response_to(&mut client, line.as_bytes()).await;
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("each message is one line of JSON"), "{answer}");
    }
    client.write_bytes(b"\xef\xbb\xbf").await;
    assert_still_serves(&mut client).await;
}

/// A client may repeat an id in another form.
#[tokio::test]
async fn equal_ids_match() {
    let mut client = PipeClient::new(ClientEra::Legacy).await;
    let hang = |id: &str| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"p__t\",\"arguments\":{{\"do\":\"hang\"}}}}}}\n"
        )
    };
    for (sent, repeated, cancelled) in
        [("70", "70.0", "70.0"), ("71.0", "71", "\"71\""), ("\"72\"", "\"72\"", "72")]
    {
        client.write(&hang(sent)).await;
        client.write(&hang(repeated)).await;
        let refused = client.next().await.unwrap();
        assert_eq!(refused["error"]["code"], -32600, "{sent}: {refused}");
        client
            .write(&format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{cancelled}}}}}\n"
            ))
            .await;
        assert_still_serves(&mut client).await;
        // The request was cancelled: its id is known, and there is no answer.
        client.write(&hang(sent)).await;
        assert_eq!(client.next().await.unwrap()["error"]["code"], -32600, "{sent}");
        assert_eq!(client.other_messages, Vec::<Value>::new());
    }
}

/// Values that no JSON parser accepts, although their end is unambiguous.
fn unparseable_values() -> Vec<Vec<u8>> {
    let deep = |n: usize| format!("{}1{}", "[".repeat(n), "]".repeat(n)).into_bytes();
    let text: [&[u8]; 8] = [
        b"1e400",
        br#""\ud800""#,
        br#"{"\udfff":1}"#,
        b"NaN",
        b"[-Infinity]",
        b"\"\xff\"",
        b"\"\\\xc3\x28\"",
        br#""\q""#,
    ];
    text.into_iter().map(<[u8]>::to_vec).chain([deep(128), deep(50_000)]).collect()
}

#[tokio::test]
async fn unparseable_requests_are_answered_with_their_id() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::new(era).await;
        let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
        let meta = if era == ClientEra::Modern { meta } else { r#""_meta":{}"# };
        for (bad, id) in unparseable_values().into_iter().zip([json!(501), json!("a\"b")].into_iter().cycle())
        {
            let call = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{{meta},"name":"p__t","arguments":{{"x":"#
            );
            let late = r#"{"method":"tools/call","params":{"arguments":{"id":9,"x":"#;
            let end = format!("}},\"name\":\"p__t\",{meta}}},\"jsonrpc\":\"2.0\",\"id\":{id}}}\n");
            let call = [call.as_bytes(), &bad, b"}}}\n"];
            let late = [late.as_bytes(), &bad, end.as_bytes()];
            for line in [call.concat(), late.concat()] {
                let answer = response_to(&mut client, &line).await;
                let shown = String::from_utf8_lossy(&line).chars().take(200).collect::<String>();
                assert_eq!(answer["id"], id, "{shown}: {answer}");
                assert_eq!(answer["result"]["isError"], true, "{shown}: {answer}");
                assert_eq!(answer["result"]["_meta"]["toolbay/code"], "input_invalid", "{shown}: {answer}");
                let text = answer["result"]["content"][0]["text"].as_str().unwrap();
                assert_eq!(text.contains("not UTF-8"), std::str::from_utf8(&bad).is_err(), "{shown}: {text}");
            }
            for method in ["tools/call", "tools/list", "no/such"] {
                let head = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"name":"p__t","x":"#);
                let line = [head.as_bytes(), &bad, format!("}},\"id\":{id}}}\n").as_bytes()].concat();
                let answer = response_to(&mut client, &line).await;
                assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(-32602)), "{answer}");
                assert_eq!(answer["error"]["data"]["toolbay/code"], "input_invalid", "{answer}");
            }
            // Notifications and responses get no response.
            for head in [
                r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"x":"#,
                r#"{"jsonrpc":"2.0","id":1,"result":{"x":"#,
            ] {
                client.write_bytes(&[head.as_bytes(), &bad, b"}}\n"].concat()).await;
            }
            assert_still_serves(&mut client).await;
            assert_eq!(client.other_messages, Vec::<Value>::new());
        }
        let refused =
            client.audit.take().into_iter().filter(|record| record.outcome == "input_invalid").count();
        assert_eq!(refused, 2 * unparseable_values().len(), "each of these calls is recorded");
    }
}

#[tokio::test]
async fn the_id_of_a_running_request_cannot_be_reused() {
    let mut client = PipeClient::new(ClientEra::Legacy).await;
    let call = json!({"jsonrpc": "2.0", "id": 70, "method": "tools/call", "params": {"name": "p__t", "arguments": {"do": "hang"}}});
    client.send(&call).await;
    client.send(&call).await;
    let answer = client.response(70).await;
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
    // The id of a cancelled request cannot be reused either, since the request may still be running.
    client.cancel_request(70).await;
    let again =
        |id: u64| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "p__t"}});
    client.send(&again(70)).await;
    assert_eq!(client.response(70).await["error"]["code"], -32600);
    // The id of an answered request can be reused.
    for _ in 0..2 {
        client.send(&again(71)).await;
        assert_eq!(client.response(71).await["result"]["isError"], false);
    }
}

#[tokio::test]
async fn unmatched_notifications_and_responses_are_ignored() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::new(era).await;
        let done = client.request("tools/call", json!({"name": "p__t"})).await;
        client.response(done).await;
        for id in [json!(done), json!(99_999), json!("text"), json!(null)] {
            client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})).await;
        }
        client.send(&json!({"jsonrpc": "2.0", "id": 5, "result": {}})).await;
        client.send(&json!({"jsonrpc": "2.0", "id": 5, "error": {"code": 1, "message": "x"}})).await;
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}})).await;
        assert_still_serves(&mut client).await;
        assert_eq!(client.other_messages, Vec::<Value>::new());
    }
}

#[tokio::test]
async fn arguments_reach_the_tool_unchanged() {
    let mut client = PipeClient::new(ClientEra::Legacy).await;
    let line = |arguments: &str| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":50,\"method\":\"tools/call\",\"params\":{{\"name\":\"p__t\",\"arguments\":{arguments}}}}}\n"
        )
    };
    client.write(&line(r#"{"big": 123456789012345678901234567890, "a": 1.10}"#)).await;
    let text = client.response(50).await["result"]["content"][0]["text"].clone();
    assert_eq!(text, r#"{"big": 123456789012345678901234567890, "a": 1.10}"#);
    client.write(&line(r#"{"n": 1, "n": 2}"#)).await;
    let result = client.response(50).await["result"].clone();
    assert_eq!(
        (&result["isError"], &result["_meta"]["toolbay/code"]),
        (&json!(true), &json!("input_invalid"))
    );
}

/// The server stops reading from a client that does not read, and continues when it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_reads_is_throttled() {
    let options = Options { max_in_flight: 4, ..Options::default() };
    let mut client = PipeClient::with_options(ClientEra::Modern, options).await;
    let mut written = 0;
    for id in 1000..100_000 {
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
        let request = json!({"jsonrpc": "2.0", "id": id, "method": "tools/list", "params": {"_meta": meta}});
        let line = format!("{request}\n");
        let write = client.write(&line);
        if tokio::time::timeout(std::time::Duration::from_secs(2), write).await.is_err() {
            break;
        }
        written += 1;
    }
    // Bounded by the pipe buffer and the limit on unanswered requests.
    assert!(written < 5000, "{written} requests were accepted");
    client.abandon_writer();
    let mut answered = 0;
    while answered < written {
        let message = client.next().await.expect("the server closed the connection");
        answered += usize::from(message["result"]["tools"].is_array());
    }
}

#[tokio::test]
async fn requests_of_the_other_era_are_answered() {
    let mut legacy = PipeClient::new(ClientEra::Legacy).await;
    // A request with the metadata of 2026-07-28 is modern on any connection.
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let answer = legacy.send_and_wait("tools/list", json!({"_meta": meta})).await;
    assert!(answer["result"]["tools"].is_array() && answer["result"]["ttlMs"].is_u64(), "{answer}");
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2099-01-01", "io.modelcontextprotocol/clientCapabilities": {}});
    let answer = legacy.send_and_wait("tools/list", json!({"_meta": meta})).await;
    assert!(answer["error"]["data"]["supported"].is_array(), "{answer}");
    assert_still_serves(&mut legacy).await;

    let mut modern = PipeClient::new(ClientEra::Modern).await;
    modern.send_and_wait("tools/list", json!({})).await;
    for method in ["ping", "logging/setLevel", "resources/subscribe"] {
        let answer = modern.send_and_wait(method, json!({"uri": "x", "level": "info"})).await;
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
    modern.send(&json!({"jsonrpc": "2.0", "id": 901, "method": "tools/list", "params": {}})).await;
    assert_eq!(
        modern.response(901).await["error"]["code"],
        -32602,
        "a modern request without metadata is refused"
    );
    assert_still_serves(&mut modern).await;
}
