//! Servers and stores that fail.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::fixture::{HostFolder, wait_until};
use crate::replicas::cluster::{SharedFixture, result};
use crate::replicas::proxy::Proxy;

/// The default of `[shared] stale_after`.
const STALE_AFTER: Duration = Duration::from_secs(2);

#[test]
fn a_server_without_nats_refuses_calls_and_cancels_those_that_run() {
    let mut shared = SharedFixture::new("[plugins.s.limits]\ntimeout = \"60s\"\n");
    let server = shared.server("a");
    let running = server.send("s__sleep", &json!({"ms": 50_000}));
    std::thread::sleep(Duration::from_millis(300));
    shared.nats.signal(Signal::STOP);
    let frozen = Instant::now();
    let (text, is_error) = result(running);
    assert!(is_error && text.contains("check whether it had its effects"), "{text}");
    assert!(frozen.elapsed() < STALE_AFTER + Duration::from_secs(2), "{:?}", frozen.elapsed());
    let (text, is_error) = server.call("e__echo", &json!({}));
    assert!(is_error && text.contains("no contact with the shared state"), "{text}");
    assert_ne!(server.get("/readyz").0, 200, "a balancer must not choose it");
    assert_eq!(server.get("/healthz").0, 200, "and must not restart it");
    shared.nats.signal(Signal::CONT);
    wait_until("calls run again", || server.echoes());
    shared.nats.restart();
    wait_until("calls run after a restart of NATS", || server.echoes());
    wait_until("it is ready", || server.get("/readyz").0 == 200);
}

#[test]
fn a_slow_nats_delays_calls_until_its_news_is_too_old() {
    let shared = SharedFixture::new("[session]\nmax_calls = 10000\n");
    let proxy = Proxy::start(shared.nats.port);
    let server = shared.server_at("slow", &format!("nats://127.0.0.1:{}", proxy.port));
    proxy.delay(STALE_AFTER / 16);
    for _ in 0..20 {
        let (text, is_error) = server.call("e__echo", &json!({"a": 1}));
        assert!(!is_error, "{text}");
        std::thread::sleep(Duration::from_millis(100));
    }
    proxy.delay(STALE_AFTER);
    let refused = |text: &str| text.contains("no contact with the shared state");
    wait_until("calls are refused", || refused(&server.call("e__echo", &json!({"a": 1})).0));
    proxy.delay(Duration::ZERO);
    wait_until("calls run again", || server.echoes());
}

#[test]
fn a_revocation_holds_on_a_server_that_is_cut_off() {
    let shared = SharedFixture::new("");
    let proxy = Proxy::start(shared.nats.port);
    let near = shared.server("near");
    let far = shared.server_at("far", &format!("nats://127.0.0.1:{}", proxy.port));
    assert!(near.echoes() && far.echoes());
    proxy.cut(true);
    shared.run(&["disable", "e__echo", "--reason", "revoked"]).says(0, &["published as epoch 2"]);
    let published = Instant::now();
    let mut last_success = None;
    while published.elapsed() < STALE_AFTER * 2 {
        let (text, is_error) = far.call("e__echo", &json!({"a": 1}));
        match is_error {
            false => last_success = Some(published.elapsed()),
            true => assert!(text.contains("no contact with the shared state"), "{text}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(last_success.is_none_or(|last| last < STALE_AFTER), "{last_success:?}");
    assert!(near.call("e__echo", &json!({})).0.contains("revoked"));
    assert!(!near.call("s__sleep", &json!({"ms": 1})).1, "the other server continues");
    proxy.cut(false);
    wait_until("it has the new epoch", || far.call("e__echo", &json!({})).0.contains("revoked"));
    assert!(!far.call("s__sleep", &json!({"ms": 1})).1);
}

#[test]
fn a_frozen_server_acts_for_nobody_when_it_wakes() {
    let shared = SharedFixture::new("[plugins.s]\nserial = true\n[plugins.s.limits]\ntimeout = \"60s\"\n");
    let (first, second) = (shared.server("a"), shared.server("b"));
    let running = first.send("s__naps", &json!({}));
    let status = || shared.run(&["shared", "status", "--json"]).json();
    wait_until("the first server has the queue", || status()["queues"]["s"] == "a");
    first.process.signal("STOP");
    // The other server takes the queue over once the lease has ended.
    let (text, is_error) = second.call("s__sleep", &json!({"ms": 1}));
    assert!(!is_error, "{text}");
    first.process.signal("CONT");
    let (text, is_error) = result(running);
    assert!(is_error && text.contains("check whether it had its effects"), "{text}");
    wait_until("it accepts calls again", || first.echoes());
}

#[test]
fn two_servers_under_one_name_refuse_calls() {
    let shared = SharedFixture::new("");
    let first = shared.server("same");
    let second = shared.start("same", HostFolder::new(""));
    wait_until("the first refuses", || {
        first.call("e__echo", &json!({})).0.contains("another server runs under the name")
    });
    drop(second);
    wait_until("the first accepts calls again", || first.echoes());
}

#[test]
fn a_restart_keeps_the_highest_epoch_of_the_disk() {
    let mut shared = SharedFixture::new("");
    let copy = tempfile::tempdir().unwrap();
    let server = shared.server("a");
    shared.nats.kill();
    copy_folder(&shared.nats.store(), copy.path());
    shared.nats.restart();
    shared.run(&["disable", "e__echo", "--reason", "revoked"]).says(0, &["published as epoch 2"]);
    wait_until("it is disabled", || server.call("e__echo", &json!({})).0.contains("revoked"));
    // An operator restores an old copy of the store.
    shared.nats.kill();
    std::fs::remove_dir_all(shared.nats.store()).unwrap();
    copy_folder(copy.path(), &shared.nats.store());
    shared.nats.restart();
    let says = |part: &str| server.call("e__echo", &json!({})).0.contains(part);
    wait_until("calls are refused", || says("the shared state went back"));
    let status = shared.run(&["shared", "status", "--json"]).says(0, &["the shared state went back"]).json();
    assert_eq!((&status["epoch"], &status["went_back_from"]), (&json!(1), &json!(2)), "{status}");
    // The files are those of the store, and all servers refuse calls. It said that they are published.
    shared
        .publish()
        .says(0, &["epoch 3 is published", "the shared state went back: it had epoch 1, and epoch 2"]);
    wait_until("the decision is lost, as it says", || server.echoes());
    shared.run(&["disable", "e__echo", "--reason", "revoked again"]).says(0, &["published as epoch 4"]);
    wait_until("the new epoch applies", || says("revoked again"));
    // Without any server, the machine of the operator knows.
    drop(server);
    shared.nats.kill();
    std::fs::remove_dir_all(shared.nats.store()).unwrap();
    copy_folder(copy.path(), &shared.nats.store());
    shared.nats.restart();
    shared.publish().says(0, &["epoch 5 is published", "epoch 4 was in force"]);
}

fn copy_folder(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}
