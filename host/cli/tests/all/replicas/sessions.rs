//! What a client finds on another server, and what the audit says about it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::fixture::wait_until;
use crate::replicas::cluster::SharedFixture;

/// The policy lines of a key of `requestState`.
fn with_key(shared: &SharedFixture, policy: &str) -> String {
    let key = shared.operator.path("state.key");
    shared.operator.write_private("state.key", &"k".repeat(32));
    format!("[serve]\nrequest_state_key = {key:?}\n{policy}")
}

#[test]
fn a_question_is_answered_on_another_server() {
    let shared = SharedFixture::new("");
    let policy = with_key(&shared, "[[rule]]\ntool = \"e__*\"\naction = \"ask\"\n");
    shared.operator.write_policy(&policy);
    shared.publish().says(0, &["epoch 2"]);
    let [first, second] = ["a", "b"].map(|name| shared.server(name));
    let args = json!({"a": 1});
    let asked = first.request("e__echo", &args, &json!({}));
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let requests = asked["inputRequests"].as_object().unwrap();
    let answers: BTreeMap<_, _> =
        requests.keys().map(|key| (key, json!({"action": "accept", "content": {}}))).collect();
    let retry = json!({"requestState": asked["requestState"], "inputResponses": answers});
    let answered = second.request("e__echo", &args, &retry);
    assert_eq!(answered["content"][0]["type"], "text", "{answered}");
    assert_ne!(answered["isError"], true, "{answered}");
    let other = second.request("e__echo", &json!({"a": 2}), &retry);
    assert!(other.to_string().contains("was not issued by this server"), "{other}");
}

#[test]
fn a_missing_key_is_an_error_that_names_its_setting() {
    let shared = SharedFixture::new("");
    shared.operator.write_policy("[serve]\nrequest_state_key = \"/nowhere.key\"\n");
    shared.publish().says(0, &["epoch 2"]);
    let url = shared.url();
    let serve = ["serve", "--http", "127.0.0.1:0", "--shared", &url];
    shared.operator.run(&serve).says(2, &["request_state_key", "/nowhere.key"]);
}

#[test]
fn every_line_of_the_audit_is_forwarded_once() {
    let mut shared = SharedFixture::new("");
    let [mut first, mut second] = ["a", "b"].map(|name| shared.server(name));
    for n in 0..30 {
        let server = if n % 3 == 0 { &first } else { &second };
        assert!(server.echoes());
    }
    // Lines wait while NATS is away.
    shared.nats.kill();
    assert!(first.echoes());
    shared.nats.restart();
    wait_until("calls run", || second.echoes());
    first.process.signal("TERM");
    second.process.child.kill().unwrap();
    assert_eq!(first.process.exit_code(), 0);
    second.process.child.wait().unwrap();
    let lines = second.audit();
    // The other one was killed; it continues where it was.
    let again = shared.restart("b", second);
    let mut forwarded = Vec::new();
    let of = |forwarded: &[Value], server: &str| -> Vec<Value> {
        forwarded.iter().filter(|line| line["server"] == server).cloned().collect()
    };
    wait_until("all lines are forwarded", || {
        forwarded = shared.forwarded_audit();
        of(&forwarded, "b").len() >= lines.len()
    });
    drop(again);
    for (name, lines) in [("a", first.audit()), ("b", lines)] {
        assert!(lines.len() > 10);
        let own = lines.into_iter().enumerate().map(|(at, mut line)| {
            line["server"] = name.into();
            line["sequence"] = (at + 1).into();
            line
        });
        let own: Vec<Value> = own.collect();
        assert_eq!(of(&forwarded, name), own, "{name}");
        assert!(own.iter().filter(|line| line["kind"] == "call").all(|line| line["epoch"] == 1));
    }
}
