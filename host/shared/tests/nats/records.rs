//! Conditional writes.

use toolbay_shared::nats::Bucket;
use toolbay_shared::protocol::Written;

use crate::server::NatsServer;

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
