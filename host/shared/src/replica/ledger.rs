//! The budgets: one [`Escrow`] for the calls and one for the dollars of each session.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio_util::task::AbortOnDropHandle;
use toolbay_core::session::ledger::{Budget, Ledger, LedgerError};

use super::StatusError;
use crate::clock::now;
use crate::nats::{Bucket, Connection, Records, decode, encode};
use crate::protocol::Written;
use crate::protocol::escrow::{Escrow, EscrowRequest, EscrowStep, EscrowTerms};
use crate::roster::Roster;

/// How long a chunk may be spent. Accounts stay in the store for a day after each write.
const CHUNK_LIFE: Duration = Duration::from_secs(60);
/// Most calls of a chunk, unless [`CAP_SHARE`] is more.
const CALLS: u64 = 250;
/// Most millionths of a dollar of a chunk, unless [`CAP_SHARE`] is more: a dollar.
const MICROS: u64 = 1_000_000;
/// A chunk may be this share of the budget. It counts as spent if its replica dies.
const CAP_SHARE: u64 = 100;
/// How often idle chunks and overdrafts are looked for.
const LOOK: Duration = Duration::from_secs(1);
/// Most requests for one call. Each conflict means that another replica got something.
const MAX_REQUESTS: u32 = 64;
/// Most requests without a reply for one call.
const MAX_SILENT: u32 = 2;
/// Most accounts of each unit that are kept. One beyond that is refused: forgetting another would lose what it holds.
const MAX_ACCOUNTS: usize = 10_000;

/// The content of the store for an account.
#[derive(Debug, Serialize, Deserialize)]
struct StoredAccount {
    /// Units that were ever lent to replicas, less those that they gave back.
    lent: u64,
}

/// What an account counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Unit {
    Call,
    /// A millionth of a dollar.
    Micro,
}

impl Unit {
    fn key(self, account: &str) -> String {
        let unit = match self {
            Self::Call => "calls",
            Self::Micro => "cost",
        };
        format!("{unit}.{}", encode(account))
    }

    /// The unit and the account of a key.
    fn parse(key: &str) -> Option<(Self, String)> {
        let (unit, account) = key.split_once('.')?;
        let unit = match unit {
            "calls" => Self::Call,
            "cost" => Self::Micro,
            _ => return None,
        };
        Some((unit, decode(account)?))
    }
}

/// Most sessions whose budgets are listed.
pub const MAX_LENT_BUDGETS: usize = 200;

/// What servers have got of the budget of a session: spent, or in a chunk that they may still give back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct LentBudget {
    /// Calls.
    pub calls: u64,
    /// US dollars.
    pub cost_usd: f64,
}

/// The budgets of sessions that were used in the last day, by their names, at most [`MAX_LENT_BUDGETS`].
///
/// # Errors
/// The bucket cannot be opened or read.
pub async fn lent_budgets(connection: &Connection) -> Result<BTreeMap<String, LentBudget>, StatusError> {
    let records = connection.records(Bucket::Ledger).await?;
    let mut budgets = BTreeMap::<String, LentBudget>::new();
    for key in records.keys("").await? {
        let Some((unit, session)) = Unit::parse(&key) else { continue };
        if budgets.len() >= MAX_LENT_BUDGETS && !budgets.contains_key(&session) {
            continue;
        }
        let Some(account) = records.read::<StoredAccount>(&key).await? else { continue };
        let (budget, lent) = (budgets.entry(session).or_default(), account.value.lent);
        match unit {
            Unit::Call => budget.calls = lent,
            #[expect(clippy::cast_precision_loss, reason = "it is shown to people")]
            Unit::Micro => budget.cost_usd = lent as f64 / MICROS as f64,
        }
    }
    Ok(budgets)
}

/// An account on this replica. Its lock is held while a request is on its way: the next call needs the reply, too.
type SharedEscrow = Arc<tokio::sync::Mutex<Escrow>>;

/// The ledger of a replica.
#[derive(Debug)]
pub(super) struct NatsLedger {
    accounts: Arc<Accounts>,
    /// Ends with the ledger.
    _settling: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Accounts {
    records: Records,
    roster: Roster,
    calls: Mutex<OpenAccounts>,
    micros: Mutex<OpenAccounts>,
}

type OpenAccounts = HashMap<Arc<str>, SharedEscrow>;

impl NatsLedger {
    /// A ledger that shares budgets among the replicas of this roster.
    pub(super) fn start(records: Records, roster: Roster) -> Arc<Self> {
        let accounts = Accounts { records, roster, calls: Mutex::default(), micros: Mutex::default() };
        let accounts = Arc::new(accounts);
        let settled = Arc::clone(&accounts);
        // Owned by the ledger, and ends with it.
        let settling = AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                settled.settle(false).await;
            }
        }));
        Arc::new(Self { accounts, _settling: settling })
    }

    /// Gives back all chunks.
    pub(super) async fn drain(&self) {
        self.accounts.settle(true).await;
    }
}

impl Accounts {
    fn of_unit(&self, unit: Unit) -> &Mutex<OpenAccounts> {
        match unit {
            Unit::Call => &self.calls,
            Unit::Micro => &self.micros,
        }
    }

    /// The account; `None` if there are too many.
    fn open(&self, unit: Unit, account: &str) -> Option<SharedEscrow> {
        let mut open = self.of_unit(unit).lock();
        if let Some(escrow) = open.get(account) {
            return Some(Arc::clone(escrow));
        }
        let has_room = open.len() < MAX_ACCOUNTS;
        has_room.then(|| Arc::clone(open.entry(Arc::from(account)).or_default()))
    }

    fn terms(&self, unit: Unit, cap: u64) -> EscrowTerms {
        let most = match unit {
            Unit::Call => CALLS,
            Unit::Micro => MICROS,
        };
        let replicas = self.roster.len() as u64;
        EscrowTerms { cap, replicas, most: most.max(cap / CAP_SHARE), life: CHUNK_LIFE }
    }

    /// Takes units, or only requires that one is left. Returns whether it got them.
    async fn take(&self, unit: Unit, account: &str, units: u64, cap: u64) -> Result<bool, LedgerError> {
        let too_many = || LedgerError::Unavailable(format!("more than {MAX_ACCOUNTS} sessions have budgets"));
        let escrow = self.open(unit, account).ok_or_else(too_many)?;
        let mut escrow = escrow.lock().await;
        let mut silent = 0;
        for _ in 0..MAX_REQUESTS {
            match escrow.take(now(), units, self.terms(unit, cap)) {
                EscrowStep::Taken => return Ok(true),
                EscrowStep::Spent => return Ok(false),
                EscrowStep::Ask(request) => {
                    // On the heap: it is large, and most calls send nothing.
                    let sent = Box::pin(self.send(&mut escrow, (unit, account), request)).await;
                    if let Err(problem) = sent {
                        silent += 1;
                        if silent >= MAX_SILENT {
                            return Err(LedgerError::Unavailable(problem));
                        }
                    }
                }
            }
        }
        Err(LedgerError::Unavailable("too many servers use the same session at once".to_owned()))
    }

    /// Sends a request and passes on the reply.
    async fn send(
        &self,
        escrow: &mut Escrow,
        (unit, account): (Unit, &str),
        request: EscrowRequest,
    ) -> Result<(), String> {
        let (key, sent) = (unit.key(account), now());
        match request {
            EscrowRequest::Read => match self.records.read::<StoredAccount>(&key).await {
                Ok(found) => {
                    escrow.read(now(), found.map(|record| (record.value.lent, record.revision)));
                    Ok(())
                }
                Err(error) => {
                    escrow.read_failed();
                    Err(error.to_string())
                }
            },
            EscrowRequest::Write { lent, revision, .. } => {
                let written = self.records.write(&key, revision, &StoredAccount { lent }).await;
                escrow.written(sent, now(), written);
                match written {
                    Written::Unknown => Err("the shared state does not answer".to_owned()),
                    Written::Stored(_) | Written::Conflict => Ok(()),
                }
            }
        }
    }

    /// Writes down overdrafts, gives back idle chunks, and forgets accounts that hold nothing.
    async fn settle(&self, is_draining: bool) {
        for unit in [Unit::Call, Unit::Micro] {
            self.settle_unit(unit, is_draining).await;
        }
    }

    async fn settle_unit(&self, unit: Unit, is_draining: bool) {
        let open = self.of_unit(unit).lock().clone();
        for (account, escrow) in open {
            // A drain waits for calls; otherwise, an account whose lock is taken is not idle.
            let mut escrow = match escrow.try_lock() {
                Ok(escrow) => escrow,
                Err(_) if is_draining => escrow.lock().await,
                Err(_) => continue,
            };
            while let Some(request) = escrow.settle(now(), is_draining) {
                if self.send(&mut escrow, (unit, &account), request).await.is_err() {
                    break;
                }
            }
        }
        let is_used = |escrow: &mut SharedEscrow| {
            Arc::strong_count(escrow) > 1 || escrow.try_lock().is_ok_and(|escrow| !escrow.is_empty(now()))
        };
        self.of_unit(unit).lock().retain(|_, escrow| is_used(escrow));
    }

    /// Changes what is held of an account, at once if no request of it is on its way, and writes down an overdraft: other
    /// replicas must not lend what is spent.
    fn change(
        self: &Arc<Self>,
        unit: Unit,
        account: &str,
        change: impl FnOnce(&mut Escrow) + Send + 'static,
    ) {
        let Some(escrow) = self.open(unit, account) else { return };
        let (accounts, account) = (Arc::clone(self), Arc::<str>::from(account));
        let (locked, change) = match Arc::clone(&escrow).try_lock_owned() {
            Ok(mut locked) => {
                change(&mut locked);
                (Some(locked), None)
            }
            Err(_) => (None, Some(change)),
        };
        // Ends with the requests of the account, after seconds.
        tokio::spawn(async move {
            let mut escrow = match locked {
                Some(locked) => locked,
                None => escrow.lock_owned().await,
            };
            if let Some(change) = change {
                change(&mut escrow);
            }
            while let Some(request) = escrow.settle(now(), false) {
                if accounts.send(&mut escrow, (unit, &account), request).await.is_err() {
                    // The next look tries again.
                    return;
                }
            }
        });
    }
}

impl Ledger for NatsLedger {
    fn take_call<'a>(&'a self, account: &'a str, budget: Budget) -> BoxFuture<'a, Result<(), LedgerError>> {
        Box::pin(async move {
            if let Some(cap) = budget.cost_usd
                && !self.accounts.take(Unit::Micro, account, 0, to_micros(cap)).await?
            {
                return Err(LedgerError::CostSpent);
            }
            match budget.calls {
                Some(cap) if !self.accounts.take(Unit::Call, account, 1, cap).await? => {
                    Err(LedgerError::CallsSpent)
                }
                _ => Ok(()),
            }
        })
    }

    fn return_call(&self, account: &str) {
        self.accounts.change(Unit::Call, account, |escrow| escrow.put_back(now(), 1));
    }

    fn add_cost(&self, account: &str, cost_usd: f64) {
        // Rounded up: a budget is never exceeded by rounding.
        let micros = to_micros(cost_usd);
        self.accounts.change(Unit::Micro, account, move |escrow| escrow.overdraw(now(), micros));
    }

    fn budgets(&self) -> usize {
        [Unit::Call, Unit::Micro].iter().map(|unit| self.accounts.of_unit(*unit).lock().len()).sum()
    }
}

/// Dollars as millionths. Negative and non-finite amounts are zero.
fn to_micros(dollars: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a conversion of floats saturates, and the amount is not negative"
    )]
    let micros = (dollars.max(0.0) * 1e6).ceil() as u64;
    if dollars.is_finite() { micros } else { 0 }
}
