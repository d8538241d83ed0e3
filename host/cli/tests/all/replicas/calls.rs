//! Tasks and idempotency keys on another server than the one that runs the call.

use std::time::Duration;

use serde_json::{Value, json};

use crate::fixture::wait_until;
use crate::replicas::cluster::{Client, SharedFixture};

const SLOW: &str = "[plugins.s.limits]\ntimeout = \"60s\"\n";

/// Begins a call that becomes a task. Returns the id of the task.
fn begin_task(server: &Client, ms: u32) -> String {
    let params = json!({"name": "s__sleep", "arguments": {"ms": ms}});
    let created = server.message("tools/call", "s__sleep", &params);
    assert_eq!(created["result"]["resultType"], "task", "{created}");
    created["result"]["taskId"].as_str().unwrap().to_owned()
}

fn of_task(server: &Client, method: &str, id: &str) -> Value {
    server.message(method, id, &json!({"taskId": id}))
}

fn status(server: &Client, id: &str) -> String {
    of_task(server, "tasks/get", id)["result"]["status"].as_str().unwrap_or("none").to_owned()
}

#[test]
fn a_task_is_seen_and_cancelled_on_another_server_and_outlives_its_own() {
    let shared = SharedFixture::new(SLOW);
    let [mut drained, killed, other] = ["a", "b", "c"].map(|name| shared.server(name));
    let (cancelled, completed, lost) = std::thread::scope(|scope| {
        let (first, second) = (drained.client, killed.client);
        let cancelled = scope.spawn(move || begin_task(&first, 50_000));
        let completed = scope.spawn(move || begin_task(&first, 14_000));
        let lost = scope.spawn(move || begin_task(&second, 50_000));
        (cancelled.join().unwrap(), completed.join().unwrap(), lost.join().unwrap())
    });
    for id in [&cancelled, &completed, &lost] {
        assert_eq!(status(&other, id), "working");
    }
    let stranger = of_task(&other, "tasks/get", "0123456789abcdef");
    assert!(stranger["error"]["message"].as_str().unwrap().contains("unknown task"), "{stranger}");

    let acknowledged = of_task(&other, "tasks/cancel", &cancelled);
    assert!(acknowledged["result"].is_object(), "{acknowledged}");
    wait_until("it is cancelled", || status(&other, &cancelled) == "cancelled");
    wait_until("on its own server, too", || status(&drained, &cancelled) == "cancelled");

    // A drain waits for the task, and its result stays.
    drained.process.signal("TERM");
    assert_eq!(drained.process.exit_code(), 0);
    let result = of_task(&other, "tasks/get", &completed);
    assert_eq!(result["result"]["status"], "completed", "{result}");
    assert_eq!(result["result"]["result"]["content"][0]["type"], "text", "{result}");

    drop(killed);
    wait_until("its server is known to be dead", || status(&other, &lost) == "failed");
    let failed = of_task(&other, "tasks/get", &lost);
    let message = failed["result"]["error"]["message"].as_str().unwrap();
    assert!(message.contains("check whether the call had its effects"), "{failed}");
    assert!(of_task(&other, "tasks/cancel", &lost)["result"].is_object());
}

/// Adds one under an idempotency key. Returns the message, with the result or an error.
fn count(server: &Client, key: &Value, name: &str) -> Value {
    let params = json!({
        "name": "k__do",
        "arguments": {"op": "increment", "key": name},
        "_meta": {"toolbay/idempotencyKey": key},
    });
    server.message("tools/call", "k__do", &params)
}

#[test]
fn a_call_that_is_repeated_under_its_key_runs_once() {
    let policy = format!("[plugins.k.grant]\nkv = [\"plugin\"]\n{SLOW}[shared]\nrerun_idempotent = true\n");
    let shared = SharedFixture::new(&policy);
    let [first, second] = ["a", "b"].map(|name| shared.server(name));
    let sum = |message: &Value| message["result"]["structuredContent"]["sum"].clone();
    let (one, again) = (count(&first, &json!("1"), "n"), count(&second, &json!("1"), "n"));
    assert_eq!((sum(&one), sum(&again)), (json!(1), json!(1)), "{one} {again}");
    assert_eq!(sum(&count(&second, &json!("2"), "n")), 2);
    let other = count(&first, &json!("2"), "m").to_string();
    assert!(other.contains("was used for another tool or other arguments"), "{other}");
    let malformed = count(&first, &json!(7), "n")["error"]["message"].to_string();
    assert!(malformed.contains("toolbay/idempotencyKey"), "{malformed}");

    // The server dies with the call. Nobody repeats it: the tool is not idempotent.
    let sleep = json!({
        "name": "s__sleep", "arguments": {"ms": 50_000}, "_meta": {"toolbay/idempotencyKey": "3"},
    });
    let running = first.send_message("tools/call", "s__sleep", &sleep);
    let repeat = || second.message("tools/call", "s__sleep", &sleep)["result"].to_string();
    std::thread::sleep(Duration::from_millis(500));
    assert!(repeat().contains("is running: repeat it later"), "{}", repeat());
    drop(first);
    drop(running);
    wait_until("its server is known to be dead", || repeat().contains("its result is not known"));
}

#[test]
fn a_file_of_a_tool_is_read_on_another_server() {
    let shared = SharedFixture::new("[plugins.f.grant]\nattachments = [\"create\"]\n");
    let [first, second] = ["a", "b"].map(|name| shared.server(name));
    let params = json!({"name": "f__link", "arguments": {"name": "report.txt", "text": "three words here"}});
    let made = first.message("tools/call", "f__link", &params);
    let content = made["result"]["content"].as_array().unwrap_or_else(|| panic!("{made}"));
    let link = content.iter().find(|block| block["type"] == "resource_link").unwrap();
    let uri = link["uri"].as_str().unwrap();
    let read = second.message("resources/read", uri, &json!({"uri": uri}));
    assert_eq!(read["result"]["contents"][0]["blob"], "dGhyZWUgd29yZHMgaGVyZQ==", "{read}");
    let listed = second.message("resources/list", "", &json!({}));
    assert!(listed.to_string().contains(uri), "{listed}");
}
