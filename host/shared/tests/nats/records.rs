//! Conditional writes, and the settings of streams.

use std::time::{Duration, Instant};

use toolbay_shared::nats::{Bucket, Connection, Credentials, Durability};
use toolbay_shared::protocol::Written;
use toolbay_shared::publication::Publication;

use crate::server::{CLUSTER, DURABILITY, NatsServer, storage_plan};

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_written_under_its_condition() {
    let server = NatsServer::start();
    server.publication().await;
    let records = server.connect("r").await.records(Bucket::Calls).await.unwrap();
    let Written::Stored(first) = records.write("k", None, &1).await else { panic!() };
    assert_eq!(records.write("k", None, &2).await, Written::Conflict);
    let Written::Stored(second) = records.write("k", Some(first), &2).await else { panic!() };
    assert_eq!(records.write("k", Some(first), &3).await, Written::Conflict);
    assert_eq!(records.read::<u32>("k").await.unwrap().unwrap().value, 2);
    records.remove("k", second).await;
    assert!(records.read::<u32>("k").await.unwrap().is_none());
    assert!(matches!(records.write("k", None, &4).await, Written::Stored(_)), "it was removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_lack_what_a_promise_needs_are_named() {
    let server = NatsServer::start();
    server.publication().await;
    let (operator, plan) =
        (server.connect("operator").await, storage_plan(1, 1 << 20, Duration::from_secs(60)));
    let missing = operator.check(&plan, DURABILITY).await.unwrap();
    let starts: Vec<&str> = missing.iter().filter_map(|problem| problem.split(", so").next()).collect();
    let names = ["KV_toolbay_kv_notes", "KV_toolbay_outputs", "OBJ_toolbay_outputs", "toolbay_audit"];
    assert_eq!(starts, names.map(|name| format!("stream `{name}` does not exist")));
    server.create_storage(&plan).await;
    assert_eq!(operator.check(&plan, DURABILITY).await.unwrap(), Vec::<String>::new());
    let three = operator.check(&plan, Durability { replicas: 3 }).await.unwrap();
    assert_eq!(three.len(), Bucket::ALL.len() + 4, "{three:#?}");
    assert!(three.iter().all(|problem| problem.contains("has 1 of 3 replicas")), "{three:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_disk_space_is_named_with_what_gives_it_room() {
    let server = NatsServer::configured("jetstream { max_file_store: 64MB }");
    let operator = server.connect("operator").await;
    let failed = Publication::create(&operator, DURABILITY).await.unwrap_err().to_string();
    for part in ["no disk space", "`KV_toolbay_calls`", "max_file_store", "store_dir", "256MiB"] {
        assert!(failed.contains(part), "{part}: {failed}");
    }
    let server = NatsServer::configured("jetstream { max_file_store: 2GB }");
    server.publication().await;
    let plan = storage_plan(1, 8 << 30, Duration::from_secs(60));
    let failed = server.connect("operator").await.create_storage(&plan, DURABILITY).await.unwrap_err();
    let failed = failed.to_string();
    assert!(failed.contains("no disk space") && failed.contains("`kv_bytes` of [limits]"), "{failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_a_majority_is_named() {
    let mut servers = NatsServer::cluster();
    servers[0].publication_on(CLUSTER).await;
    for server in &mut servers[1..] {
        server.kill();
    }
    let begin = Instant::now();
    let failed = loop {
        match Connection::open(servers[0].address(), &Credentials::default(), "r").await {
            Err(error) => break error.to_string(),
            // The last server still takes itself for the leader.
            Ok(_) => assert!(begin.elapsed() < Duration::from_secs(60)),
        }
    };
    assert!(failed.contains("has no quorum") && !failed.contains("start it with"), "{failed}");
}
