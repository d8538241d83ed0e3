//! Serial queues that replicas share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use tokio_util::sync::CancellationToken;
use toolbay_core::call::shared::LeaseError;

use crate::server::{NatsServer, until};

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_at_a_time_has_the_queue() {
    let server = NatsServer::start();
    let inside = Arc::new(AtomicU32::new(0));
    let mut tasks = Vec::new();
    for n in 0..3 {
        let (replica, _) = server.replica(&format!("r{n}")).await;
        let inside = Arc::clone(&inside);
        tasks.push(tokio::spawn(async move {
            let leases = replica.shared_state().leases;
            for _ in 0..5 {
                let lease = leases.acquire("p__t", &CancellationToken::new()).await.unwrap();
                assert!(lease.is_held());
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "another one is inside");
                tokio::time::sleep(Duration::from_millis(20)).await;
                assert!(lease.is_held());
                inside.fetch_sub(1, Ordering::SeqCst);
                lease.release();
                assert!(!lease.is_held());
            }
            replica
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_independent_and_a_call_that_waits_can_be_cancelled() {
    let server = NatsServer::start();
    let (replica, _) = server.replica("r").await;
    let leases = replica.shared_state().leases;
    let (cancel, other) = (CancellationToken::new(), CancellationToken::new());
    let first = leases.acquire("one", &cancel).await.unwrap();
    let second = leases.acquire("two", &other).await.unwrap();
    let waiting = leases.acquire("one", &other);
    let cancelling = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        other.cancel();
    };
    let (waited, ()) = tokio::join!(waiting, cancelling);
    assert_eq!(waited.err(), Some(LeaseError::Cancelled));
    assert!(first.is_held() && second.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_without_the_store_stops_and_cancels_its_call() {
    let server = NatsServer::start();
    let (replica, _) = server.replica("r").await;
    let cancel = CancellationToken::new();
    let lease = replica.shared_state().leases.acquire("q", &cancel).await.unwrap();
    // Frozen, so that connections stay open and nothing answers.
    server.signal(Signal::STOP);
    until("the lease is lost", || !lease.is_held()).await;
    until("its call is cancelled", || cancel.is_cancelled()).await;
    server.signal(Signal::CONT);
    let next = CancellationToken::new();
    let lease = replica.shared_state().leases.acquire("q", &next).await.unwrap();
    assert!(lease.is_held() && !next.is_cancelled());
}
