//! Updates of locked plugins: what is applied, and what waits for `grant`.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fixture::{ServerProcess, wait_until};
use crate::parties::{Parties, REPOSITORY, installed, signed_by, text_plugin};

const ARGS: &str = r#"{"text": "a b c"}"#;

#[test]
fn an_update_is_applied_or_held_until_the_operator_agrees() {
    let parties = Parties::new();
    let operator = &parties.operator;
    parties.trust(&signed_by(&["acme", "other"]));
    parties.publish("1.0.0", guest_artifacts::PLUGIN_TEXT, &["acme"]);
    parties.add("1.0.0", &[]).says(0, &[]);
    operator.run(&["update"]).says(0, &["current"]);
    operator.run(&["update", "absent"]).says(1, &["no plugin `absent`"]);
    let lock = operator.read("toolbay.lock");
    parties.publish("1.1.0", guest_artifacts::PLUGIN_TEXT, &["acme"]);
    operator.run(&["update", "--dry-run"]).says(0, &["available", "1.1.0"]);
    assert_eq!(operator.read("toolbay.lock"), lock);
    operator.run(&["update", "text"]).says(0, &["updated", "1.1.0"]);
    operator.run(&["verify"]).says(0, &["verified"]);

    // Other tools, then another signer, then no signature. A new major version is no update.
    parties.publish("2.0.0", guest_artifacts::PLUGIN_TEXT, &["acme"]);
    let lock = operator.read("toolbay.lock");
    let asks = "asks for more than the locked version";
    for (tag, guest, keys, status, part) in [
        ("1.2.0", guest_artifacts::PLUGIN_HASH, &["acme"][..], "held", asks),
        ("1.3.0", guest_artifacts::API_ECHO, &["other"], "held", "is signed by"),
        ("1.4.0", guest_artifacts::PLUGIN_KANBAN, &[], "failed", "is not signed"),
    ] {
        parties.publish(tag, guest, keys);
        operator.run(&["update", "--dry-run"]).says(1, &[status]);
        let rows = operator.run(&["update", "--json"]).says(1, &[part]).json();
        assert_eq!((&rows[0]["status"], &rows[0]["plugin"]), (&json!(status), &json!("text")), "{rows}");
        operator.run(&["update"]).says(1, &[status, part]);
        assert_eq!(operator.read("toolbay.lock"), lock, "{tag}");
        operator.run(&["call", "text__word_count", ARGS]).says(0, &["3"]);
        if status == "held" {
            operator.run(&["update"]).says(1, &["toolbay grant text", tag]);
        }
    }
    // The last one that was held waits. What the operator declines changes nothing.
    operator.run(&["status"]).says(0, &["held", "text", "1.3.0", "is signed by", "toolbay grant text"]);
    operator.run(&["grant", "text", "--dry-run"]).says(0, &["update from 1.1.0 to 1.3.0", "tool removed"]);
    assert_eq!(operator.read("toolbay.lock"), lock);
    let granted = operator.run(&["grant", "text", "--yes", "--json"]).says(0, &[]).json();
    assert_eq!(granted["update"]["after"]["tag"], "1.3.0");
    assert!(granted["update"]["reasons"].as_array().unwrap().len() > 1, "{granted}");
    operator.run(&["verify"]).says(0, &["verified"]);
    operator.run(&["list"]).says(0, &["text__echo"]);
    assert!(!operator.run(&["status"]).says(0, &[]).out().contains("held"));
    assert!(operator.run(&["grant", "text", "--yes", "--json"]).json()["update"].is_null());
}

#[test]
fn a_server_keeps_the_old_version_while_an_update_is_held() {
    let parties = installed();
    let mut server = ServerProcess::serve(&parties.operator);
    server.initialize();
    let mut id = 0;
    let mut description = || {
        id += 1;
        server.send(id, "tools/list", &json!({}));
        let tools = server.result(id)["tools"].clone();
        let tool = tools.as_array().unwrap().iter().find(|tool| tool["name"] == "text__word_count").cloned();
        tool.unwrap()["description"].as_str().unwrap().to_owned()
    };
    assert!(description().starts_with("Count the words"));
    // Another description is text that a model would read.
    parties.publish("1.1.0", &text_plugin(&parties, "1.1.0", "Tally"), &["acme"]);
    parties.operator.run(&["update"]).says(
        1,
        &["held", "describes its tools differently", "before\tCount the words", "after\tTally the words"],
    );
    assert!(description().starts_with("Count the words"));
    parties.operator.run(&["call", "text__word_count", ARGS]).says(0, &["3"]);
    parties.operator.run(&["grant", "text", "--yes"]).says(0, &["updated"]);
    wait_until("the server runs the new version", || description().starts_with("Tally the words"));
    parties.operator.run(&["verify", "--offline"]).says(0, &["verified"]);
}

#[test]
fn a_held_update_of_a_version_that_is_not_locked_any_more_is_dropped() {
    let parties = installed();
    let operator = &parties.operator;
    parties.publish("1.1.0", &text_plugin(&parties, "1.1.0", "Tally"), &["acme"]);
    operator.run(&["update"]).says(1, &["held"]);
    // A colleague commits another version.
    parties.publish("1.0.1", &text_plugin(&parties, "1.0.1", "Count"), &["acme"]);
    parties.add("1.0.1", &["--replace"]).says(0, &[]);
    operator.run(&["grant", "text", "--yes"]).says(0, &["nothing to grant"]);
    assert!(operator.read("toolbay.lock").contains("tag = \"1.0.1\""));
    // The policy stops trusting the signer before the operator looks.
    operator.run(&["update"]).says(1, &["held"]);
    parties.trust(&signed_by(&["other"]));
    operator.run(&["grant", "text", "--yes"]).says(1, &["not trusted", "toolbay update text"]);
    assert!(operator.read("toolbay.lock").contains("tag = \"1.0.1\""));
}

#[test]
fn a_tag_that_was_published_again_waits_for_the_operator() {
    let parties = installed();
    let operator = &parties.operator;
    let lock = operator.read("toolbay.lock");
    parties.registry.content.lock().unwrap().remove(&format!("/v2/{REPOSITORY}/manifests/1.0.0")).unwrap();
    parties.publish("1.0.0", &text_plugin(&parties, "1.0.1", "Count"), &["acme"]);
    operator.run(&["update"]).says(1, &["held", "published again"]);
    assert_eq!(operator.read("toolbay.lock"), lock);
    operator.run(&["grant", "text", "--yes"]).says(0, &["published again"]);
    assert_ne!(operator.read("toolbay.lock"), lock);
    operator.run(&["update"]).says(0, &["current"]);
}

#[test]
fn an_older_version_is_refused_also_under_a_newer_tag() {
    let parties = installed();
    let operator = &parties.operator;
    parties.publish("0.9.0", &text_plugin(&parties, "0.9.0", "Count"), &["acme"]);
    let lock = operator.read("toolbay.lock");
    let error = parties.add("0.9.0", &["--replace", "--json"]).says(1, &["--downgrade"]).json();
    assert_eq!(error["error"]["code"], "downgrade");
    // The registry has no key, but it chooses the tags.
    {
        let mut content = parties.registry.content.lock().unwrap();
        let old = content[&format!("/v2/{REPOSITORY}/manifests/0.9.0")].clone();
        content.insert(format!("/v2/{REPOSITORY}/manifests/1.0.5"), old);
    }
    let rows = operator.run(&["update", "--json"]).says(1, &[]).json();
    assert_eq!(rows[0]["status"], "failed");
    assert!(
        rows[0]["error"].as_str().unwrap().contains("is version 0.9.0, and the lock has 1.0.0"),
        "{rows}"
    );
    assert_eq!(operator.read("toolbay.lock"), lock);
    parties.add("0.9.0", &["--replace", "--downgrade"]).says(0, &[]);
    assert_ne!(operator.read("toolbay.lock"), lock);
}

#[test]
fn origin_digest_and_signer_are_shown_wherever_a_plugin_is() {
    let parties = installed();
    let operator = &parties.operator;
    let reference = format!("oci://{}", parties.reference("1.0.0"));
    let inspected = operator.run(&["inspect", "text", "--json"]).says(0, &[]).json();
    let origin = inspected["origin"].clone();
    assert_eq!(origin["reference"], reference.as_str());
    let signer = origin["signer"].as_str().unwrap();
    assert!(signer.starts_with("key:") && origin["manifest"].as_str().unwrap().starts_with("sha256:"));
    let digest = &inspected["digest"].as_str().unwrap()[..12];
    for command in [
        &["inspect", "text"][..],
        &["list", "--all"],
        &["status"],
        &["status", "--tools"],
        &["explain", "text__word_count"],
    ] {
        operator.run(command).says(0, &[&reference, digest, signer]);
    }
    let listed = operator.run(&["list", "--json"]).json();
    let tool = listed.as_array().unwrap().iter().find(|tool| tool["name"] == "text__word_count").unwrap();
    assert_eq!(tool["source"]["origin"], origin);
    assert_eq!(operator.run(&["explain", "text__word_count", "--json"]).json()["origin"], origin);
    operator.run(&["call", "text__word_count", ARGS]).says(0, &["3"]);
    let audit = operator.run(&["log", "--json"]).says(0, &[]).out();
    let records = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let calls: Vec<Value> = records.filter(|record| record["kind"] == "call").collect();
    assert_eq!(calls.last().unwrap()["source"]["origin"], origin);

    // A decision of the operator names it, too.
    parties.publish("1.1.0", &text_plugin(&parties, "1.1.0", "Tally"), &["acme"]);
    operator.run(&["update"]).says(1, &["held"]);
    operator.run(&["grant", "text", "--yes"]).says(0, &[]);
    let newer = format!("oci://{}", parties.reference("1.1.0"));
    operator.run(&["log"]).says(0, &["granted", &format!("from {newer}"), signer]);

    // The same component from elsewhere: a running host knows.
    let lock = operator.read("toolbay.lock").replace("tag = \"1.1.0\"", "tag = \"stable\"");
    fs::write(operator.path("toolbay.lock"), lock).unwrap();
    operator.run(&["status"]).says(0, &[":stable"]);
}

#[test]
fn an_update_that_is_killed_leaves_the_old_or_the_new_version() {
    const MOMENTS: u32 = 100;
    let parties = installed();
    let operator = &parties.operator;
    let before = operator.read("toolbay.lock");
    parties.publish("1.1.0", &text_plugin(&parties, "1.1.0", "Count"), &["acme"]);
    let begin = std::time::Instant::now();
    operator.run(&["update"]).says(0, &["updated"]);
    let (whole, after) = (begin.elapsed(), operator.read("toolbay.lock"));
    let store = operator.path(".local/share/toolbay/store/blobs/sha256");
    let blobs = || fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().path());
    let kept: Vec<_> =
        blobs().filter(|blob| before.contains(blob.file_name().unwrap().to_str().unwrap())).collect();
    for moment in 0..MOMENTS {
        fs::write(operator.path("toolbay.lock"), &before).unwrap();
        blobs().filter(|blob| !kept.contains(blob)).for_each(|blob| fs::remove_file(blob).unwrap());
        let mut command = operator.command(&["update"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // The moments are spread over the time of a whole run.
        std::thread::sleep(whole.mul_f64(f64::from(moment) / f64::from(MOMENTS)).min(Duration::from_secs(5)));
        child.kill().unwrap();
        child.wait().unwrap();
        let lock = operator.read("toolbay.lock");
        assert!(lock == before || lock == after, "{lock}");
        if moment % 10 == 0 {
            operator.run(&["verify", "--offline"]).says(0, &["verified"]);
            operator.run(&["call", "text__word_count", ARGS]).says(0, &["3"]);
        }
    }
    operator.run(&["update"]).says(0, &[]);
    assert_eq!(operator.read("toolbay.lock"), after);
}
