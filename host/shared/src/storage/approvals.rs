//! Standing approvals that replicas share: one record for each, which expires.

use std::time::Duration;

use futures_util::future::BoxFuture;
use toolbay_core::call::shared::Approvals;
use toolbay_state::digest::Digest;

use crate::nats::Records;

/// The start of the keys.
const APPROVAL: &str = "approval.";

/// The standing approvals of all sessions.
#[derive(Debug)]
pub(crate) struct NatsApprovals {
    records: Records,
    life: Duration,
}

impl NatsApprovals {
    /// Approvals that last this long.
    pub(crate) fn new(records: Records, life: Duration) -> Self {
        Self { records, life }
    }
}

fn key(account: &str, approval: Digest) -> String {
    format!("{APPROVAL}{}.{approval}", Digest::of(account.as_bytes()))
}

impl Approvals for NatsApprovals {
    fn contains<'a>(&'a self, account: &'a str, approval: Digest) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            match self.records.read::<bool>(&key(account, approval)).await {
                Ok(found) => found.is_some_and(|record| record.value),
                Err(error) => {
                    tracing::warn!(%error, "a standing approval cannot be read, so it is asked again");
                    false
                }
            }
        })
    }

    fn add<'a>(&'a self, account: &'a str, approval: Digest) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if self.records.put(&key(account, approval), &true, self.life).await.is_none() {
                tracing::warn!("a standing approval was not stored, so other servers ask again");
            }
        })
    }
}
