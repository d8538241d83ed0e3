//! Calls of running servers: `ps`, `cancel`, `stop` and `resume`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fixture::{HostFolder, ServerProcess, wait_until};

fn folder() -> HostFolder {
    let folder = HostFolder::new("").with_plugin("e", guest_artifacts::API_ECHO);
    folder.with_plugin("s", guest_artifacts::HOSTILE_SLEEP)
}

fn sleeping(server: &mut ServerProcess, id: u64) {
    server.send(id, "tools/call", &json!({"name": "s__sleep", "arguments": {"ms": 25_000}}));
}

/// The calls in progress, once there are as many as expected and all have begun.
fn calls(desk: &HostFolder, count: usize) -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    wait_until("the calls are in progress", || {
        found = serde_json::from_value(desk.run(&["ps", "--json"]).says(0, &[]).json()).unwrap();
        found.len() == count && found.iter().all(|call| call["began"] == json!(true))
    });
    found
}

fn error_text(answer: &Value) -> &str {
    assert_eq!(answer["isError"], json!(true), "{answer}");
    answer["content"][0]["text"].as_str().unwrap()
}

fn sockets(desk: &HostFolder) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(desk.path("state/servers")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_call_is_listed_and_cancelled_and_its_client_gets_an_answer() {
    let desk = folder();
    let mut server = ServerProcess::serve(&desk);
    server.initialize();
    for id in [1, 2] {
        sleeping(&mut server, id);
    }
    let running = calls(&desk, 2);
    assert_eq!((&running[0]["tool"], &running[0]["source"]), (&json!("s__sleep"), &json!("plugin:s")));
    let (first, other) = match running[0]["call_id"] == "1" {
        true => (&running[0], &running[1]),
        false => (&running[1], &running[0]),
    };
    let id = first["id"].as_str().unwrap().to_owned();
    assert!(id.starts_with(&format!("{}-", server.child.id())), "{id}");
    let out = desk.good(&["ps"]);
    assert!(out.lines().any(|line| line.starts_with(&format!("{id}\ts__sleep\trunning\t"))), "{out}");
    let process = format!("process {}, stdio, 2 calls in progress", server.child.id());
    desk.run(&["status"]).says(0, &[&process]);

    desk.run(&["cancel", &id]).says(0, &["note: cancelled `s__sleep`"]);
    assert!(error_text(&server.result(1)).contains("cancelled"));
    for gone in [id.as_str(), "1-1"] {
        desk.run(&["cancel", gone]).says(1, &["toolbay ps"]);
    }
    desk.run(&["cancel", "12"]).says(2, &["4711-12"]);
    assert_eq!(calls(&desk, 1)[0]["number"], other["number"], "the other one runs on");
    let log = desk.good(&["log", "--json"]);
    let mut records = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let action = records.find(|record| record["kind"] == "action").unwrap();
    assert_eq!(action["action"], "cancel");
    assert!(action["subject"].as_str().unwrap().starts_with("s__sleep "), "{action}");
    assert!(action["by"].as_str().unwrap().contains("uid "), "{action}");
}

#[test]
fn a_stop_cancels_all_calls_and_survives_a_restart() {
    let desk = folder();
    let mut servers = [ServerProcess::serve(&desk), ServerProcess::serve(&desk)];
    for server in &mut servers {
        server.initialize();
        sleeping(server, 1);
    }
    calls(&desk, 2);
    desk.run(&["stop", "--reason", "leaked\ntoken"]).says(0, &["2 running servers; cancelled 2 calls"]);
    for server in &mut servers {
        assert!(error_text(&server.result(1)).contains("cancelled"));
        server.send(2, "tools/call", &json!({"name": "e__echo", "arguments": {}}));
        let refused = "Stopped: the operator stopped all calls: leaked\\ntoken";
        assert_eq!(error_text(&server.result(2)), refused);
        server.send(3, "tools/list", &json!({}));
        let listed = server.result(3)["tools"].to_string();
        assert!(listed.contains("\"e__echo\"") && listed.contains("\"s__sleep\""), "{listed}");
    }
    drop(servers);
    desk.run(&["call", "e__echo", "{}"]).says(1, &["leaked\\ntoken", "toolbay resume"]);
    desk.run(&["status"]).says(0, &["calls\tstopped: leaked\\ntoken"]);

    let mut server = ServerProcess::serve(&desk);
    server.initialize();
    server.send(1, "tools/call", &json!({"name": "e__echo", "arguments": {}}));
    assert!(error_text(&server.result(1)).starts_with("Stopped: "));
    desk.run(&["resume"]).says(0, &["calls are allowed again"]);
    server.send(2, "tools/call", &json!({"name": "e__echo", "arguments": {}}));
    assert_eq!(server.result(2)["isError"], json!(false));
    desk.run(&["resume"]).says(0, &["calls were not stopped"]);
}

#[test]
fn an_order_reaches_a_server_without_a_socket() {
    let desk = folder();
    let mut server = ServerProcess::serve(&desk);
    server.initialize();
    sleeping(&mut server, 1);
    calls(&desk, 1);
    std::fs::remove_file(&sockets(&desk)[0]).unwrap();
    desk.run(&["stop"]).says(0, &["no server is running"]);
    assert!(error_text(&server.result(1)).contains("cancelled"));
}

#[test]
fn a_killed_server_leaves_no_trace_in_the_lists() {
    let desk = folder();
    let mut server = ServerProcess::serve(&desk);
    server.initialize();
    assert_eq!(sockets(&desk).len(), 1);
    server.signal("KILL");
    server.child.wait().unwrap();
    desk.run(&["ps"]).says(0, &["0 running servers"]);
    assert_eq!(sockets(&desk), Vec::<PathBuf>::new());

    let mut server = ServerProcess::serve(&desk);
    server.initialize();
    server.stdin = None;
    assert_eq!(server.exit_code(), 0);
    assert_eq!(sockets(&desk), Vec::<PathBuf>::new());
}

#[test]
fn a_start_removes_the_sockets_of_killed_servers_only() {
    let desk = folder();
    let (mut killed, mut running) = (ServerProcess::serve(&desk), ServerProcess::serve(&desk));
    killed.initialize();
    running.initialize();
    killed.signal("KILL");
    killed.child.wait().unwrap();
    assert_eq!(sockets(&desk).len(), 2);
    let mut next = ServerProcess::serve(&desk);
    next.initialize();
    let mut left: Vec<String> = [&running, &next].map(|one| format!("{}.sock", one.child.id())).into();
    left.sort();
    let mut found: Vec<String> =
        sockets(&desk).iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    found.sort();
    assert_eq!(found, left);
}

#[test]
fn decisions_reach_the_running_server_at_once() {
    let desk = folder();
    let mut server = ServerProcess::serve(&desk);
    server.initialize();
    server.send(1, "tools/call", &json!({"name": "e__echo", "arguments": {}}));
    assert_eq!(server.result(1)["isError"], json!(false));
    let process = format!("the running server (process {}) applies the change now", server.child.id());
    desk.run(&["disable", "e__echo"]).says(0, &[&process]);
    server.until_told("the policy was read again");
    server.send(2, "tools/call", &json!({"name": "e__echo", "arguments": {}}));
    assert!(error_text(&server.result(2)).contains("is disabled"));
}

#[test]
fn the_socket_is_private_and_survives_bad_clients() {
    use std::os::unix::fs::PermissionsExt;
    let desk = folder();
    let mut server = ServerProcess::serve(&desk);
    server.initialize();
    let mode = std::fs::metadata(desk.path("state/servers")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let socket = sockets(&desk)[0].clone();
    let exchange = |request: &[u8]| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        // A server that closes with unread input resets the connection.
        drop(stream.read_to_end(&mut answer));
        String::from_utf8_lossy(&answer).into_owned()
    };
    let post = |path: &str, body: &str| {
        let length = body.len();
        exchange(
            format!(
                "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
                 content-length: {length}\r\n\r\n{body}"
            )
            .as_bytes(),
        )
    };
    for (answer, status) in [
        (exchange(b"GET /nothing HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"), "404"),
        (exchange(b"GET /api/v1/stop HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"), "405"),
        (exchange(b"\x16\x03\x01\x00\r\n\r\n"), "400"),
        (post("/api/v1/stop", "{"), "400"),
        (post("/api/v1/stop", r#"{"by":"x","extra":1}"#), "422"),
        (post("/api/v1/stop", &format!(r#"{{"by":"x","reason":"{}"}}"#, "a".repeat(70_000))), "413"),
        (post("/api/v1/calls/x/cancel", r#"{"by":"x"}"#), "400"),
        (post("/api/v1/calls/1/cancel", r#"{"by":"x"}"#), "404"),
    ] {
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
    }
    // Silent clients hold every place for connections, for a bounded time.
    let silent: Vec<_> = (0..130).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    desk.run(&["ps"]).says(0, &[]);
    drop(silent);
    server.send(1, "tools/call", &json!({"name": "e__echo", "arguments": {}}));
    assert_eq!(server.result(1)["isError"], json!(false));
}
