//! Budgets that replicas share.

use futures_util::FutureExt;
use toolbay_core::session::ledger::{Budget, LedgerError};

use crate::server::{NatsServer, until};

const CALLS: Budget = Budget { calls: Some(100), cost_usd: None };

#[tokio::test(flavor = "multi_thread")]
async fn four_replicas_never_spend_more_than_the_budget() {
    let server = NatsServer::start();
    let mut tasks = Vec::new();
    for n in 0..4 {
        let (replica, _) = server.replica(&format!("r{n}")).await;
        tasks.push(tokio::spawn(async move {
            let ledger = replica.shared_state().ledger;
            let mut taken = 0;
            while ledger.take_call("team", CALLS).await.is_ok() {
                taken += 1;
                tokio::task::yield_now().await;
            }
            assert_eq!(ledger.take_call("team", CALLS).await, Err(LedgerError::CallsSpent));
            (taken, replica)
        }));
    }
    let mut taken = Vec::new();
    for task in tasks {
        taken.push(task.await.unwrap().0);
    }
    assert_eq!(taken.iter().sum::<u32>(), 100, "{taken:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_replica_gives_back_what_it_did_not_spend() {
    let server = NatsServer::start();
    let (first, _) = server.replica("first").await;
    first.shared_state().ledger.take_call("team", CALLS).await.unwrap();
    first.shut_down().await;
    let (second, _) = server.replica("second").await;
    let ledger = second.shared_state().ledger;
    for n in 0..99 {
        assert_eq!(ledger.take_call("team", CALLS).await, Ok(()), "{n}");
    }
    assert_eq!(ledger.take_call("team", CALLS).await, Err(LedgerError::CallsSpent));
    ledger.return_call("team");
    assert_eq!(ledger.take_call("team", CALLS).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn dollars_are_spent_once_by_all() {
    let server = NatsServer::start();
    let budget = Budget { calls: None, cost_usd: Some(1.0) };
    let (one, _) = server.replica("one").await;
    let (two, _) = server.replica("two").await;
    let (one, two) = (one.shared_state().ledger, two.shared_state().ledger);
    let mut spent = 0.0;
    while one.take_call("team", budget).await.is_ok() {
        one.add_cost("team", 0.3);
        spent += 0.3;
    }
    // The last call began while something was left.
    assert!((1.0..1.3).contains(&spent), "{spent}");
    // The costs are written down beside the calls.
    until("the other replica refuses", || {
        two.take_call("team", budget).now_or_never() == Some(Err(LedgerError::CostSpent))
    })
    .await;
    assert_eq!(two.take_call("other", budget).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_store_only_what_is_lent_is_spent() {
    let mut server = NatsServer::start();
    let (replica, _) = server.replica("r").await;
    let ledger = replica.shared_state().ledger;
    ledger.take_call("team", CALLS).await.unwrap();
    server.kill();
    let mut taken = 1;
    let refused = loop {
        match ledger.take_call("team", CALLS).await {
            Ok(()) => taken += 1,
            Err(refused) => break refused,
        }
        assert!(taken <= 100);
    };
    assert!(matches!(refused, LedgerError::Unavailable(_)), "{refused}");
    server.restart();
    while ledger.take_call("team", CALLS).await != Err(LedgerError::CallsSpent) {
        taken += 1;
        assert!(taken <= 100);
    }
}
