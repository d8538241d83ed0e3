//! What operators publish.

use std::process::Stdio;

use serde_json::json;
use toolbay_shared::bundle::Bundle;
use toolbay_shared::nats::{Bucket, Connection, Credentials, SharedAddress};
use toolbay_shared::protocol::Written;
use toolbay_shared::protocol::epoch::Epoch;
use toolbay_shared::publication::Publication;
use toolbay_state::digest::Digest;

use crate::fixture::{CommandRun, HostFolder, wait_until};
use crate::replicas::cluster::SharedFixture;

#[test]
fn decisions_reach_all_servers_and_survive_the_next_publication() {
    let shared = SharedFixture::new("");
    let servers = ["a", "b"].map(|name| shared.server(name));
    assert!(servers.iter().all(|server| server.echoes()));

    shared.run(&["disable", "e__echo", "--reason", "it is broken"]).says(0, &["published as epoch 2"]);
    for server in &servers {
        wait_until("the tool is disabled", || server.call("e__echo", &json!({})).0.contains("it is broken"));
    }
    shared.operator.write_policy("[limits]\ntimeout = \"7s\"\n");
    shared.publish().says(0, &["epoch 3 is published"]);
    shared.publish().says(0, &["epoch 3 is published"]);
    for server in &servers {
        server.process.until_told("epoch 3 applies");
        assert!(server.call("e__echo", &json!({})).0.contains("it is broken"));
    }
    shared.run(&["explain", "s__sleep", "--limits"]).says(0, &["7s"]);
    shared.run(&["enable", "e__echo"]).says(0, &["published as epoch 4"]);
    for server in &servers {
        wait_until("the tool is enabled", || server.echoes());
    }
    shared.run(&["stop", "--reason", "an incident"]).says(0, &["published as epoch 5"]);
    for server in &servers {
        wait_until("calls are stopped", || server.call("e__echo", &json!({})).0.contains("an incident"));
    }
    // So are those of a server that starts now.
    assert!(shared.server("c").call("e__echo", &json!({})).0.contains("an incident"));
    shared.run(&["resume"]).says(0, &["published as epoch 6"]);
    for server in &servers {
        wait_until("calls run again", || server.echoes());
    }
    let status = shared.run(&["shared", "status", "--json"]).says(0, &[]).json();
    assert_eq!(status["epoch"], 6);
    let names: Vec<_> = status["servers"].as_array().unwrap().iter().map(|server| &server["name"]).collect();
    assert!(names.contains(&&json!("a")) && names.contains(&&json!("b")), "{status}");
    assert_eq!(status["warnings"], json!([]));
}

/// As the guide for several servers starts them. The second publication was refused, since the base of the policy was
/// no absolute path.
#[test]
fn a_relative_state_directory_takes_every_publication() {
    let shared = SharedFixture::new("");
    let by_flag = shared.server_with("a", &shared.url(), |command| command.args(["--state-dir", "state-1"]));
    let by_variable =
        shared.server_with("b", &shared.url(), |command| command.env("TOOLBAY_STATE", "state-2"));
    let servers = [by_flag, by_variable];
    shared.operator.write_policy("[serve]\ninstructions = \"second\"\n");
    shared.publish().says(0, &["epoch 2 is published"]);
    for server in &servers {
        server.process.until_told("epoch 2 applies");
        assert!(server.echoes());
        assert_eq!(server.get("/readyz").0, 200);
    }
}

/// The command said what it did, and then that it had not.
#[test]
fn a_decision_that_meets_another_one_reports_no_success() {
    let shared = SharedFixture::new("");
    let url = shared.url();
    let disable = |n: usize| {
        let reason = format!("reason {n}");
        let args = ["disable", "e__echo", "--reason", &reason, "--shared", &url];
        shared.operator.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let running: Vec<_> = (0..8).map(disable).collect();
    let ended: Vec<_> =
        running.into_iter().map(|child| CommandRun(child.wait_with_output().unwrap())).collect();
    let (good, bad): (Vec<_>, Vec<_>) = ended.into_iter().partition(|run| run.0.status.success());
    assert!(!good.is_empty());
    for run in good {
        run.says(0, &["published as epoch", "disabled"]);
    }
    for run in bad {
        let run = run.says(1, &["somebody else published an epoch meanwhile"]);
        assert!(!(run.out() + &run.err()).contains("disabled"), "{run:?}");
    }
}

#[test]
fn plugins_follow_a_publication() {
    let shared = SharedFixture::new("");
    let server = shared.server("a");
    assert!(server.call("x__echo", &json!({})).1);
    std::fs::copy(guest_artifacts::API_ECHO, shared.operator.path("plugins/x.wasm")).unwrap();
    std::fs::remove_file(shared.operator.path("plugins/e.wasm")).unwrap();
    shared.publish().says(0, &["epoch 2 is published, with 4 plugins"]);
    wait_until("the new plugin is there", || !server.call("x__echo", &json!({"a": 1})).1);
    wait_until("the removed one is gone", || server.call("e__echo", &json!({"a": 1})).1);
}

#[test]
fn a_policy_that_a_server_cannot_apply_stops_its_calls_until_the_next() {
    let shared = SharedFixture::new("");
    let server = shared.server("a");
    // The operator has the folder, the server has not.
    let only_here = shared.operator.path("only-here");
    std::fs::create_dir(&only_here).unwrap();
    shared.operator.write_policy(&format!("workspace = {only_here:?}\n"));
    shared.publish().says(0, &["epoch 2"]);
    std::fs::remove_dir(&only_here).unwrap();
    shared.operator.write_policy("[limits]\ntimeout = \"7s\"\n");
    shared.publish().says(0, &["epoch 3"]);
    wait_until("calls run", || server.echoes());
}

/// Publishes a bundle that this version cannot have written.
fn publish_foreign(shared: &SharedFixture, number: u64, bytes: &[u8]) {
    with_nats(shared, async |operator| {
        let digest = Digest::of(bytes);
        let files = operator.objects(Bucket::Files).await.unwrap();
        files.write(&format!("bundle-{digest}"), bytes).await.unwrap();
        let epochs = operator.records(Bucket::Epochs).await.unwrap();
        let current = epochs.read::<Epoch>("epoch").await.unwrap().unwrap();
        let written = epochs.write("epoch", Some(current.revision), &Epoch { number, digest }).await;
        assert!(matches!(written, Written::Stored(_)), "{written:?}");
    });
}

/// Changes the shared state as no command does.
fn with_nats(shared: &SharedFixture, change: impl AsyncFnOnce(Connection)) {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let address = SharedAddress::parse(&shared.url()).unwrap();
        change(Connection::open(address, &Credentials::default(), "operator").await.unwrap()).await;
    });
}

#[test]
fn a_publication_of_a_newer_version_or_a_damaged_one_stops_calls_until_the_next() {
    let shared = SharedFixture::new("");
    let server = shared.server("a");
    let foreign: [(&[u8], &str); 2] =
        [(br#"{"format": 99, "zones": []}"#, "has format 99"), (b"\xff", "cannot be read")];
    for ((bytes, says), number) in foreign.into_iter().zip(2..) {
        publish_foreign(&shared, number, bytes);
        wait_until("calls are refused", || server.call("e__echo", &json!({})).0.contains(says));
        for command in [&["shared", "status"][..], &["list"], &["serve", "--replica", "b"]] {
            shared.run(command).says(3, &[says]);
        }
    }
    shared.publish().says(3, &["nats kv del toolbay_epochs epoch"]);
    with_nats(&shared, async |operator| {
        let epochs = operator.records(Bucket::Epochs).await.unwrap();
        let current = epochs.read::<Epoch>("epoch").await.unwrap().unwrap();
        epochs.remove("epoch", current.revision).await;
    });
    // No server applied the epochs in between.
    shared.publish().says(0, &["epoch 2 is published"]);
    wait_until("calls run again", || server.echoes());
}

#[test]
fn a_revocation_does_not_wait_for_plugins() {
    let shared = SharedFixture::new("[plugins.k.grant]\nkv = [\"plugin\"]\n");
    let server = shared.server("a");
    let increment = || server.call("k__do", &json!({"op": "increment", "key": "n"}));
    assert!(!increment().1, "{}", increment().0);
    with_nats(&shared, async |operator| {
        let publication = Publication::open(&operator).await.unwrap();
        let current = publication.current().await.unwrap().unwrap();
        let mut files = current.bundle.files().clone();
        files.insert("policy.toml".to_owned(), "version = 1\n".to_owned());
        let mut plugins = current.bundle.plugins().clone();
        plugins.insert("x.wasm".to_owned(), Digest::of(b"not there"));
        let bundle = Bundle::new(files).unwrap().with_plugins(plugins).unwrap();
        publication.publish(Some(&current), &bundle, 0).await.unwrap();
    });
    server.process.until_told("the published plugins are not complete");
    let (text, _) = increment();
    assert!(text.contains("is not granted"), "{text}");
    assert!(server.echoes());
}

#[test]
fn mistakes_are_named() {
    let shared = SharedFixture::new("");
    let alone = HostFolder::new("");
    let url = shared.url();
    alone.run(&["shared", "publish"]).says(2, &["--shared nats://HOST:PORT"]);
    alone.run(&["shared", "status", "--shared", "nats://u:secret@h"]).says(2, &["--shared-credentials"]);
    let other = format!("{url}/other");
    alone.run(&["shared", "status", "--shared", &other]).says(2, &["toolbay shared publish"]);
    alone.run(&["serve", "--shared", &other]).says(2, &["toolbay shared publish"]);
    alone.run(&["call", "e__echo", "{}", "--shared", &url]).says(2, &["this machine only"]);
    alone.run(&["serve", "--replica", "a"]).says(2, &["--shared"]);
    alone.run(&["serve", "--shared", "nats://127.0.0.1:1"]).says(3, &["--shared nats://127.0.0.1:1"]);
    let none = ["shared", "publish", "--shared", &url, "--config", "/nowhere.toml"];
    alone.run(&none).says(2, &["/nowhere.toml"]);
    alone.write_policy("[shared]\nreplicas = 2\n");
    alone.run(&["shared", "publish", "--shared", &url]).says(2, &["1, 3 or 5"]);
    shared.run(&["shared", "permissions"]).says(0, &["$KV.toolbay_epochs.replica.*"]);
    shared.run(&["shared", "permissions", "--operator"]).says(0, &["$KV.toolbay_epochs.>"]);
}
