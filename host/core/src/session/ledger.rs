//! The budget of a session on all replicas: the port to the store that counts it.

use std::fmt;

use futures_util::future::BoxFuture;

/// Counts what the calls of a session spend on all replicas together. An account is the key of a session.
pub trait Ledger: Send + Sync + fmt::Debug {
    /// Takes one call from the account, if the budget has one left.
    ///
    /// # Errors
    /// The budget is spent, or its store cannot be reached.
    fn take_call<'a>(&'a self, account: &'a str, budget: Budget) -> BoxFuture<'a, Result<(), LedgerError>>;

    /// Returns a call that was taken and did not run.
    fn return_call(&self, account: &str);

    /// Adds the cost of a call that was taken, in US dollars.
    fn add_cost(&self, account: &str, cost_usd: f64);

    /// The number of budgets that this replica takes part in.
    fn budgets(&self) -> usize;
}

/// The budget of a session on all replicas together. `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Budget {
    /// Most calls.
    pub calls: Option<u64>,
    /// Most US dollars. A call begins while any are left, so each call in progress may exceed them once.
    pub cost_usd: Option<f64>,
}

/// The reason why no call was taken from an account.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// All calls are spent, or leased to other replicas.
    #[error("the calls of this session are spent")]
    CallsSpent,
    /// All dollars are spent, or leased to other replicas.
    #[error("the dollars of this session are spent")]
    CostSpent,
    /// The account cannot be read or written. The message says why.
    #[error("{0}")]
    Unavailable(String),
}
