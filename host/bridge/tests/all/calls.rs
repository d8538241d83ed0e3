//! Calls of plugins and native tools.

use std::sync::Arc;

use serde_json::{Value, json};
use toolbay_bridge::{Bridge, ErrorKind};

use crate::event_loop::EventLoop;

#[test]
fn a_plugin_is_called_and_its_result_becomes_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let plugins = folder.path().join("plugins");
    std::fs::create_dir(&plugins).unwrap();
    std::fs::copy(guest_artifacts::PLUGIN_TEXT, plugins.join("text.wasm")).unwrap();
    let mut program = EventLoop::new(&Arc::default());
    let settings = json!({"plugins": plugins, "state_dir": folder.path().join("state")});
    let host = program.open(folder.path(), settings);
    let id = program.call(host, "text__word_count", &[r#"{"text": "a b a"}"#], json!({}));
    let done = program.expect("results");
    let result = &done["results"][0];
    assert_eq!((&done["id"], &result["failure"]), (&id.into(), &Value::Null), "{done}");
    let text = result["output"]["value"].as_str().unwrap();
    let request = json!({"op": "result_messages", "vendor": "openai-chat"}).to_string();
    let messages = program.bridge.query(&request, &done["results"].to_string()).unwrap();
    let messages: Value = serde_json::from_str(&messages).unwrap();
    assert_eq!(messages, json!([{"role": "tool", "tool_call_id": "0", "content": text}]));
    assert_eq!(program.query(&json!({"op": "problems", "host": host})), json!([]));
    let audit = std::fs::read_to_string(folder.path().join("state/audit.jsonl")).unwrap();
    assert!(audit.contains("text__word_count"), "{audit}");
    let closed = program.ask(&json!({"op": "close", "host": host}));
    assert_eq!(closed["event"], "done", "{closed}");
}

#[test]
fn a_native_tool_gets_its_arguments_as_they_were_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = EventLoop::new(&Arc::default());
    let host = program.open(folder.path(), json!({}));
    program.register(host, json!({"name": "add", "traits": ["read_only"]}));
    let args = format!(r#"{{"n": {}, "x": 1.0}}"#, "9".repeat(100));
    let id = program.call(host, "add", &[&args], json!({"progress": true, "identity": {"platform": "test"}}));
    let call = program.expect("call");
    assert_eq!((&call["batch"], &call["args"]), (&id.into(), &args.into()));
    assert_eq!(call["context"]["platform"], "test");
    program
        .reply(&call, &json!({"reply": "progress", "message": "half", "percent": 50.0, "audience": "user"}));
    let progress = program.expect("progress");
    assert_eq!((&progress["id"], &progress["message"]), (&id.into(), &"half".into()));
    let structured = format!(r#"{{"n":{}}}"#, "8".repeat(100));
    program.reply(&call, &json!({"reply": "output", "value": "text", "structured": structured}));
    let output = program.expect("results")["results"][0]["output"].clone();
    assert_eq!((&output["value"], &output["structured"]), (&"text".into(), &structured.into()));
}

#[test]
fn every_reply_of_a_native_tool_is_a_result() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = EventLoop::new(&Arc::default());
    let host = program.open(folder.path(), json!({}));
    program.register(host, json!({"name": "t"}));
    for (reply, kind, code) in [
        (
            json!({"reply": "error", "code": "input_invalid", "message": "no", "subject": "/a"}),
            "refused",
            "input_invalid",
        ),
        (json!({"reply": "error", "code": "another", "message": "no"}), "refused", "execution_failed"),
        (json!({"reply": "busy", "message": "32 threads are busy"}), "fault", "busy"),
        (json!({"reply": "cancelled", "message": "the task was cancelled"}), "fault", "cancelled"),
    ] {
        let _id = program.call(host, "t", &["{}"], json!({}));
        let call = program.expect("call");
        program.reply(&call, &reply);
        let failure = program.expect("results")["results"][0]["failure"].clone();
        assert_eq!((&failure["kind"], &failure["code"]), (&kind.into(), &code.into()), "{failure}");
    }
}

#[test]
fn a_stream_has_each_result_as_its_call_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = EventLoop::new(&Arc::default());
    let host = program.open(folder.path(), json!({}));
    program.register(host, json!({"name": "t"}));
    let id = program.call(host, "t", &[r#"{"n": 0}"#, r#"{"n": 1}"#], json!({"stream": true}));
    let (first, second) = (program.expect("call"), program.expect("call"));
    let of = |n: u64| if first["args"] == format!(r#"{{"n": {n}}}"#) { &first } else { &second };
    for n in [1, 0] {
        program.reply(of(n), &json!({"reply": "output", "value": n.to_string()}));
        let result = program.expect("result");
        assert_eq!((&result["id"], &result["index"]), (&id.into(), &n.into()), "{result}");
        assert_eq!(result["result"]["output"]["value"], n.to_string());
    }
    assert_eq!(program.expect("results")["results"], json!([]));
}

#[test]
fn a_person_approves_or_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = EventLoop::new(&Arc::default());
    let host = program.open(folder.path(), json!({"approver": true}));
    program.register(host, json!({"name": "t", "traits": ["needs_approval"]}));
    let args = r#"{"a": 18446744073709551617}"#;
    for (answer, runs) in [("yes", true), ("no", false), ("unanswered", false)] {
        let id = program.call(host, "t", &[args], json!({}));
        let question = program.expect("approval");
        assert_eq!((&question["batch"], &question["request"]["args"]), (&id.into(), &args.into()));
        program.reply(&question, &json!({"reply": "approval", "answer": answer, "comment": "not today"}));
        if runs {
            let call = program.expect("call");
            program.reply(&call, &json!({"reply": "output", "value": ""}));
        }
        let result = program.expect("results")["results"][0].clone();
        assert_eq!(result["failure"].is_null(), runs, "{result}");
    }
}

#[test]
fn a_call_runs_on_the_loop_that_made_it() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = Arc::<Bridge>::default();
    let (mut one, mut other) = (EventLoop::new(&bridge), EventLoop::new(&bridge));
    let host = one.open(folder.path(), json!({}));
    one.register(host, json!({"name": "t"}));
    let _id = other.call(host, "t", &["{}"], json!({}));
    let call = other.expect("call");
    other.reply(&call, &json!({"reply": "output", "value": "here"}));
    assert_eq!(other.expect("results")["results"][0]["output"]["value"], "here");
    assert_eq!(one.ask(&json!({"op": "close", "host": host}))["event"], "done");
}

#[test]
fn what_is_cancelled_is_withdrawn() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = Arc::<Bridge>::default();
    let mut program = EventLoop::new(&bridge);
    let host = program.open(folder.path(), json!({"approver": true}));
    program.register(host, json!({"name": "t"}));
    program.register(host, json!({"name": "late", "timeout_ms": 1}));
    program.register(host, json!({"name": "asks", "traits": ["needs_approval"]}));
    for (tool, asks, cancel, code) in [
        ("t", "call", true, "cancelled"),
        ("asks", "approval", true, "cancelled"),
        ("late", "call", false, "deadline"),
    ] {
        let id = program.call(host, tool, &["{}"], json!({}));
        let question = program.expect(asks);
        if cancel {
            bridge.cancel(program.mailbox, id).unwrap();
        }
        assert_eq!(program.expect("withdrawn")["id"], question["id"]);
        // Too late.
        program.reply(&question, &json!({"reply": "output", "value": ""}));
        let failure = program.expect("results")["results"][0]["failure"].clone();
        assert_eq!(failure["code"], code, "{tool}: {failure}");
    }
}

#[test]
fn the_end_of_a_loop_cancels_its_calls() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = Arc::<Bridge>::default();
    let (mut one, mut other) = (EventLoop::new(&bridge), EventLoop::new(&bridge));
    let host = one.open(folder.path(), json!({}));
    one.register(host, json!({"name": "t"}));
    let _id = other.call(host, "t", &["{}"], json!({}));
    drop(other.expect("call"));
    bridge.close_mailbox(other.mailbox).unwrap();
    assert!(bridge.drain(other.mailbox).is_err());
    // The calls have ended once the host is closed.
    assert_eq!(one.ask(&json!({"op": "close", "host": host}))["event"], "done");
}

#[test]
fn a_process_that_ends_closes_its_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = Arc::<Bridge>::default();
    let mut program = EventLoop::new(&bridge);
    let host = program.open(folder.path(), json!({"state_dir": folder.path().join("state")}));
    program.register(host, json!({"name": "t"}));
    let id = program.call(host, "t", &["{}"], json!({}));
    drop(program.expect("call"));
    bridge.shut_down().unwrap();
    let audit = std::fs::read_to_string(folder.path().join("state/audit.jsonl")).unwrap();
    assert!(audit.contains("cancelled"), "{audit}");
    // The loop may still look.
    drop(program.expect("withdrawn"));
    let done = program.expect("results");
    assert_eq!((&done["id"], &done["results"][0]["failure"]["code"]), (&id.into(), &"cancelled".into()));
    assert_eq!(program.submit(&json!({"op": "close", "host": host})).unwrap_err().kind, ErrorKind::Closed);
}

#[test]
fn a_request_of_a_host_that_is_closed_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = EventLoop::new(&Arc::default());
    let host = program.open(folder.path(), json!({"approver": true}));
    program.register(host, json!({"name": "t", "traits": ["needs_approval"]}));
    let call = program.call(host, "t", &["{}"], json!({}));
    drop(program.expect("approval"));
    let plugin = std::fs::read(guest_artifacts::PLUGIN_TEXT).unwrap();
    let load = json!({"op": "load_bytes", "host": host, "plugin": "text"}).to_string();
    let load = program.bridge.submit(program.mailbox, &load, plugin).unwrap();
    let close = program.submit(&json!({"op": "close", "host": host})).unwrap();
    let mut answered = Vec::new();
    while answered.len() < 3 {
        let event = program.next();
        if event["event"] != "withdrawn" {
            answered.push(event["id"].as_u64().unwrap());
        }
    }
    answered.sort_unstable();
    assert_eq!(answered, [call, load, close]);
}

#[test]
fn an_opening_whose_loop_ends_leaves_nothing_open() {
    let folder = tempfile::tempdir().unwrap();
    let settings = json!({"state_dir": folder.path().join("state")});
    let bridge = Arc::<Bridge>::default();
    for _ in 0..3 {
        let program = EventLoop::new(&bridge);
        let _id = program.begin_opening(folder.path(), settings.clone());
        bridge.close_mailbox(program.mailbox).unwrap();
    }
    bridge.shut_down().unwrap();
    let mut program = EventLoop::new(&bridge);
    let host = program.open(folder.path(), settings);
    assert_eq!(program.ask(&json!({"op": "close", "host": host}))["event"], "done");
}

#[test]
fn a_host_that_is_closed_with_its_loop_records_its_calls() {
    let (folder, bridge) = (tempfile::tempdir().unwrap(), Arc::<Bridge>::default());
    let mut program = EventLoop::new(&bridge);
    let host = program.open(folder.path(), json!({"state_dir": folder.path().join("state")}));
    program.register(host, json!({"name": "t"}));
    let _id = program.call(host, "t", &["{}"], json!({}));
    drop(program.expect("call"));
    let view = program.query(&json!({"op": "view", "host": host, "filter": {}}));
    bridge.close_mailbox(program.mailbox).unwrap();
    bridge.close_host(host).unwrap();
    bridge.close_host(host).unwrap();
    assert!(bridge.query(&json!({"op": "tools", "view": view}).to_string(), "").is_err());
    let audit = std::fs::read_to_string(folder.path().join("state/audit.jsonl")).unwrap();
    assert!(audit.contains("cancelled"), "{audit}");
}
