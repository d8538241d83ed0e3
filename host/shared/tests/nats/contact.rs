//! The contact of replicas: revocations, lost stores, stores that went back, names that clash.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::json;
use toolbay_shared::bundle::Bundle;
use toolbay_shared::nats::{Bucket, Connection, Credentials, SharedAddress};
use toolbay_shared::protocol::Written;
use toolbay_shared::publication::EpochGap;

use crate::server::{Journal, NatsServer, STALE_AFTER, until};

/// Publishes a policy that says its number, as an operator does. Returns the epoch.
async fn publish(server: &NatsServer, number: u64) -> u64 {
    let publication = server.publication().await;
    let policy = ("policy.toml".to_owned(), format!("version = {number}"));
    let current = publication.current().await.unwrap();
    let published = publication.publish(current.as_ref(), &Bundle::new([policy]).unwrap(), 0).await;
    published.unwrap().epoch.number
}

#[tokio::test(flavor = "multi_thread")]
async fn every_replica_applies_each_epoch_and_sees_the_others() {
    let server = NatsServer::start();
    let (one, first) = server.replica("one").await;
    let (two, second) = server.replica("two").await;
    assert_eq!(one.status().epoch, None);
    publish(&server, 1).await;
    publish(&server, 2).await;
    for journal in [&first, &second] {
        until("epoch 2 is applied", || journal.applied.lock().last() == Some(&2)).await;
    }
    until("it sees the other", || one.status().others.get("two") == Some(&2)).await;
    assert!(two.status().refusing.is_none());
    two.shut_down().await;
    until("it sees the other leave", || one.status().others.is_empty()).await;
}

/// The bundle of an epoch that is replaced was removed while it was read. The watch waited for the read, and with it the
/// next epoch and all beats.
#[tokio::test(flavor = "multi_thread")]
async fn an_epoch_whose_transfer_hangs_stops_neither_the_beats_nor_the_next_epoch() {
    let server = NatsServer::start();
    let journal = Arc::<Journal>::default();
    journal.hangs_at.store(1, Ordering::Relaxed);
    let (replica, journal) = server.replica_with("r", journal).await;
    let (other, _) = server.replica("other").await;
    publish(&server, 1).await;
    until("epoch 1 begins", || *journal.begun.lock() == [1]).await;
    let heartbeat = replica.shared_state().heartbeat;
    until("no call runs under the policy before it", || heartbeat.check().is_err()).await;
    // The other one forgets a server that has not beaten for this time.
    tokio::time::sleep(STALE_AFTER * 2).await;
    assert!(other.status().others.contains_key("r"), "it beats");
    publish(&server, 2).await;
    until("epoch 2 is applied", || *journal.applied.lock() == [2]).await;
    until("calls are accepted", || heartbeat.check().is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_epoch_that_could_not_be_applied_is_tried_again() {
    let server = NatsServer::start();
    let journal = Arc::<Journal>::default();
    journal.fails_at.store(1, Ordering::Relaxed);
    let (replica, journal) = server.replica_with("r", journal).await;
    publish(&server, 1).await;
    let heartbeat = replica.shared_state().heartbeat;
    until("calls are refused", || {
        heartbeat.check().is_err_and(|lost| lost.reason.contains("epoch 1 cannot be applied"))
    })
    .await;
    until("epoch 1 is applied", || *journal.applied.lock() == [1]).await;
    until("calls are accepted", || heartbeat.check().is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_bundles_are_kept_for_those_who_read_them() {
    let server = NatsServer::start();
    let publication = server.publication().await;
    let mut digests = Vec::new();
    for number in 1..=10 {
        publish(&server, number).await;
        digests.push(publication.current().await.unwrap().unwrap().epoch.digest);
    }
    let mut kept = Vec::new();
    for digest in &digests {
        kept.push(publication.bundle(digest).await.is_ok());
    }
    assert_eq!(kept, [false, true, true, true, true, true, true, true, true, true]);
    // The same policy again keeps its own bundle.
    publish(&server, 9).await;
    publish(&server, 9).await;
    assert!(publication.current().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_that_brings_nothing_ends_soon() {
    let server = NatsServer::start();
    let publication = server.publication().await;
    let digest = publication.put_component(&vec![7; 1 << 20]).await.unwrap();
    let client = async_nats::connect(format!("127.0.0.1:{}", server.port)).await.unwrap();
    let stream = async_nats::jetstream::new(client).get_stream("OBJ_toolbay_files").await.unwrap();
    stream.purge().filter("$O.toolbay_files.C.>").await.unwrap();
    let began = Instant::now();
    publication.component(&digest, 2 << 20).await.unwrap_err();
    assert!(began.elapsed() < std::time::Duration::from_secs(30), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_behind_what_was_seen_is_published_above_and_named() {
    let server = NatsServer::start();
    publish(&server, 1).await;
    let publication = server.publication().await;
    let current = publication.current().await.unwrap();
    assert_eq!(publication.gap(current.as_ref(), 1).await.unwrap(), None);
    let gap = Some(EpochGap { stored: 1, seen: 7 });
    assert_eq!(publication.gap(current.as_ref(), 7).await.unwrap(), gap);
    let published =
        publication.publish(current.as_ref(), &current.as_ref().unwrap().bundle, 7).await.unwrap();
    assert_eq!((published.epoch.number, published.gap), (8, gap));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_without_the_store_refuses_within_the_time_and_comes_back() {
    let mut server = NatsServer::start();
    let (replica, journal) = server.replica("r").await;
    let heartbeat = replica.shared_state().heartbeat;
    server.signal(Signal::STOP);
    let frozen = Instant::now();
    until("calls are refused", || heartbeat.check().is_err()).await;
    assert!(frozen.elapsed() < STALE_AFTER * 2, "{:?}", frozen.elapsed());
    let lost = heartbeat.check().unwrap_err();
    assert!(lost.reason.contains("no contact"), "{lost}");
    assert!(lost.hint.unwrap().contains("[shared] stale_after"));
    until("running calls are cancelled", || journal.lost.load(Ordering::Relaxed) > 0).await;
    server.signal(Signal::CONT);
    until("calls are accepted again", || heartbeat.check().is_ok()).await;
    server.restart();
    until("calls are accepted after a restart", || heartbeat.check().is_ok()).await;
    publish(&server, 1).await;
    until("the watch continues", || *journal.applied.lock() == [1]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_other_versions_understand_each_other() {
    let server = NatsServer::start();
    let (replica, _) = server.replica("own").await;
    let records = server.connect("newer").await.records(Bucket::Epochs).await.unwrap();
    let life = std::time::Duration::from_secs(60);
    // A newer one may write more members.
    let newer = json!({"incarnation": "1", "epoch": 0, "accepts_calls": true, "zone": "b"});
    records.put("replica.newer", &newer, life).await.unwrap();
    until("it sees the newer one", || replica.status().others.contains_key("newer")).await;
    // One that writes something else is not seen, and nothing else happens.
    records.put("replica.other", &json!({"beat": 7}), life).await.unwrap();
    records.put("replica.newer", &newer, life).await.unwrap();
    until("it sees the newer one", || replica.status().others.contains_key("newer")).await;
    assert!(!replica.status().others.contains_key("other") && replica.status().refusing.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_went_back_is_noticed() {
    let mut server = NatsServer::start();
    let (replica, journal) = server.replica("r").await;
    publish(&server, 1).await;
    until("epoch 1", || replica.status().epoch == Some(1)).await;
    let copy = tempfile::tempdir().unwrap();
    server.kill();
    copy_folder(&server.store(), &copy.path().join("store"));
    server.restart();
    publish(&server, 2).await;
    until("epoch 2", || replica.status().epoch == Some(2)).await;
    server.kill();
    std::fs::remove_dir_all(server.store()).unwrap();
    copy_folder(&copy.path().join("store"), &server.store());
    server.restart();
    let heartbeat = replica.shared_state().heartbeat;
    let says = |told: &str| heartbeat.check().is_err_and(|lost| lost.reason.contains(told));
    until("the replica refuses", || says("went back")).await;
    assert_eq!(*journal.applied.lock(), [1, 2]);
    // So does one that starts again with the same disk.
    let again = server.connect("again").await;
    drop(again);
    publish(&server, 3).await;
    until("a higher epoch ends it", || heartbeat.check().is_ok() && replica.status().epoch == Some(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_with_one_name_refuse() {
    let server = NatsServer::start();
    let (first, _) = server.replica("same").await;
    let heartbeat = first.shared_state().heartbeat;
    let journal = Arc::<Journal>::default();
    let settings = toolbay_shared::replica::ReplicaSettings {
        name: "same".to_owned(),
        stale_after: STALE_AFTER,
        queue_timeout: STALE_AFTER,
        approval_life: STALE_AFTER,
    };
    let connection = server.connect("same").await;
    let second = toolbay_shared::replica::Replica::start(connection, settings, journal).await.unwrap();
    until("the first refuses", || {
        heartbeat.check().is_err_and(|lost| lost.hint.is_some_and(|hint| hint.contains("--replica")))
    })
    .await;
    drop(second);
    until("the first accepts again", || heartbeat.check().is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_epoch_is_refused() {
    let server = NatsServer::start();
    let (replica, _) = server.replica("r").await;
    let connection = server.connect("operator").await;
    let records = connection.records(Bucket::Epochs).await.unwrap();
    let Written::Stored(revision) = records.write("epoch", None, &"nonsense").await else {
        panic!("not written")
    };
    let heartbeat = replica.shared_state().heartbeat;
    until("the replica refuses", || {
        heartbeat
            .check()
            .is_err_and(|lost| lost.reason.contains("`epoch`") && lost.reason.contains("nats kv del"))
    })
    .await;
    records.remove("epoch", revision).await;
    publish(&server, 1).await;
    until("a good epoch ends it", || heartbeat.check().is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_down_at_the_start_is_an_error_with_its_address() {
    let mut server = NatsServer::start();
    server.kill();
    let failed = Connection::open(server.address(), &Credentials::default(), "r").await.unwrap_err();
    let text = failed.to_string();
    assert!(text.contains(&format!("--shared nats://127.0.0.1:{}", server.port)), "{text}");
    let file = Credentials { credentials: Some("/nowhere.creds".into()), ..Credentials::default() };
    let failed = Connection::open(SharedAddress::parse("nats://127.0.0.1:1").unwrap(), &file, "r").await;
    assert!(failed.unwrap_err().to_string().contains("/nowhere.creds"));
}

fn copy_folder(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
