//! The budgets of a session: calls, identical calls and dollars.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use toolbay_policy::hint::Remedy;
use toolbay_policy::session::SessionLimits;

use super::Session;
use crate::session::ledger::{Budget, LedgerError};
use crate::tool::canonical::Digest;
use crate::tool::refusal::{Refusal, RefusalReason};

/// Most distinct calls that are counted. Beyond it, the oldest count is dropped.
const MAX_DISTINCT_CALLS: usize = 4096;
/// Most turns of a session that are counted. A later turn replaces the one with the lowest number.
const MAX_TURNS: usize = 16;

/// The usage of a session so far.
#[derive(Debug, Default)]
pub(super) struct SessionUsage {
    calls: AtomicU64,
    cost_usd: Mutex<f64>,
    same: Mutex<RepeatCounts>,
    turns: Mutex<BTreeMap<u32, Arc<TurnCount>>>,
}

/// The usage of one turn so far.
#[derive(Debug, Default)]
pub(crate) struct TurnCount {
    calls: AtomicU64,
    same: Mutex<RepeatCounts>,
}

/// The number of identical calls, by the digest of the call.
#[derive(Debug, Default)]
struct RepeatCounts {
    counts: HashMap<Digest, u64>,
    order: VecDeque<Digest>,
}

impl RepeatCounts {
    /// Counts one more call; `false` if `most` were counted already.
    fn count(&mut self, call: &Digest, most: u64) -> bool {
        if let Some(count) = self.counts.get_mut(call) {
            let fits = *count < most;
            *count += u64::from(fits);
            return fits;
        }
        if self.order.len() >= MAX_DISTINCT_CALLS
            && let Some(oldest) = self.order.pop_front()
        {
            self.counts.remove(&oldest);
        }
        self.order.push_back(*call);
        self.counts.insert(*call, 1);
        true
    }

    /// Takes back one count.
    fn uncount(&mut self, call: &Digest) {
        if let Some(count) = self.counts.get_mut(call) {
            *count = count.saturating_sub(1);
        }
    }
}

/// The stricter of the policy's limit and the session's own limit.
struct EffectiveLimit<T> {
    most: T,
    /// The reason of refusals beyond it, which has the name of its setting.
    reason: RefusalReason,
    of_policy: bool,
}

impl<T> EffectiveLimit<T> {
    /// Refuses a call beyond the limit.
    fn refuse(&self, why: &str) -> Refusal {
        let key = self.reason.to_string();
        if self.of_policy {
            let hint = Remedy::Raise { table: "[session]".to_owned(), key, value: None };
            Refusal::new(self.reason, format!("Stopped: {why}; the operator can raise it"))
                .with_hint(Some(hint.into()))
        } else {
            let text = format!("Stopped: {why}; the program set it as `{key}` of the session");
            Refusal::new(self.reason, text)
        }
    }
}

fn stricter_limit<T: PartialOrd>(
    reason: RefusalReason,
    policy: Option<T>,
    own: Option<T>,
) -> Option<EffectiveLimit<T>> {
    let of_policy = match (&policy, &own) {
        (Some(policy), Some(own)) => policy <= own,
        (policy, _) => policy.is_some(),
    };
    let most = if of_policy { policy } else { own };
    most.map(|most| EffectiveLimit { most, reason, of_policy })
}

/// Counts one more call atomically; `false` if `most` were counted already.
fn count(calls: &AtomicU64, most: u64) -> bool {
    let add = |calls: u64| (calls < most).then(|| calls.saturating_add(1));
    calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

/// The limits of a session that all replicas count together.
pub(crate) struct SharedBudget {
    calls: Option<EffectiveLimit<u64>>,
    cost: Option<EffectiveLimit<f64>>,
}

impl SharedBudget {
    /// The limits.
    pub(crate) fn budget(&self) -> Budget {
        let (calls, cost) = (self.calls.as_ref(), self.cost.as_ref());
        Budget { calls: calls.map(|limit| limit.most), cost_usd: cost.map(|limit| limit.most) }
    }

    /// The refusal of a call that the ledger refused.
    pub(crate) fn refuse(&self, refused: &LedgerError) -> Refusal {
        match (refused, &self.calls, &self.cost) {
            (LedgerError::CallsSpent, Some(limit), _) => {
                limit.refuse(&format!("hit {}-tool-call budget for this session", limit.most))
            }
            (LedgerError::CostSpent, _, Some(limit)) => {
                limit.refuse(&format!("hit ${} budget cap for this session", limit.most))
            }
            _ => Refusal::new(
                RefusalReason::BudgetUnavailable,
                format!("Stopped: the budget of this session cannot be read: {refused}"),
            ),
        }
    }
}

impl Session {
    /// The number of calls so far, including refused calls, but not those beyond the budget.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.usage.calls.load(Ordering::Relaxed)
    }

    /// The cost of all calls so far, in US dollars, as the tools reported it; failed calls included.
    #[must_use]
    pub fn cost_usd(&self) -> f64 {
        *self.usage.cost_usd.lock()
    }

    /// Adds the cost of a call. Negative and non-finite amounts are ignored.
    pub(crate) fn add_cost(&self, cost_usd: f64) {
        if cost_usd.is_finite() && cost_usd > 0.0 {
            *self.usage.cost_usd.lock() += cost_usd;
        }
    }

    /// The counters of a turn, if a limit applies to turns. Batches with the same number belong to one turn; a batch
    /// without a number is its own turn.
    pub(crate) fn turn_count(&self, policy: &SessionLimits, number: Option<u32>) -> Option<Arc<TurnCount>> {
        let bounds =
            |limits: &SessionLimits| limits.max_calls_per_turn.or(limits.max_identical_calls_per_turn);
        bounds(policy).or(bounds(&self.limits))?;
        let Some(number) = number else { return Some(Arc::default()) };
        let mut turns = self.usage.turns.lock();
        if turns.len() >= MAX_TURNS && !turns.contains_key(&number) {
            turns.pop_first();
        }
        Some(Arc::clone(turns.entry(number).or_default()))
    }

    /// Counts one more call.
    ///
    /// # Errors
    /// The number of calls or the cost has reached its limit.
    pub(crate) fn count_call(&self, policy: &SessionLimits, turn: Option<&TurnCount>) -> Result<(), Refusal> {
        let limits = &self.limits;
        if let Some(cap) = stricter_limit(RefusalReason::MaxCost, policy.max_cost_usd, limits.max_cost_usd) {
            let (most, spent) = (cap.most, self.cost_usd());
            if spent >= most {
                let why = format!("hit ${most} budget cap for this session (${spent:.4} spent)");
                return Err(cap.refuse(&why));
            }
        }
        if let Some(turn) = turn
            && let Some(bound) = stricter_limit(
                RefusalReason::MaxCallsPerTurn,
                policy.max_calls_per_turn,
                limits.max_calls_per_turn,
            )
            && !count(&turn.calls, bound.most)
        {
            return Err(bound.refuse(&format!("hit {}-tool-call budget for this turn", bound.most)));
        }
        match stricter_limit(RefusalReason::MaxCalls, policy.max_calls, limits.max_calls) {
            Some(bound) if !count(&self.usage.calls, bound.most) => {
                Err(bound.refuse(&format!("hit {}-tool-call budget for this session", bound.most)))
            }
            Some(_) => Ok(()),
            None => {
                self.usage.calls.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// The limits that all replicas count together, and the errors of calls beyond them.
    pub(crate) fn shared_budget(&self, policy: &SessionLimits) -> Option<SharedBudget> {
        let limits = &self.limits;
        let calls = stricter_limit(RefusalReason::MaxCalls, policy.max_calls, limits.max_calls);
        let cost = stricter_limit(RefusalReason::MaxCost, policy.max_cost_usd, limits.max_cost_usd);
        (calls.is_some() || cost.is_some()).then_some(SharedBudget { calls, cost })
    }

    /// Takes back the counts of a call that will be repeated. `call` is the digest of its tool and arguments.
    pub(crate) fn uncount_call(&self, turn: Option<&TurnCount>, call: Option<&Digest>) {
        let less = |calls: &AtomicU64| {
            let less = |calls: u64| Some(calls.saturating_sub(1));
            let _before = calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        };
        less(&self.usage.calls);
        turn.iter().for_each(|turn| less(&turn.calls));
        if let Some(call) = call {
            self.usage.same.lock().uncount(call);
            turn.iter().for_each(|turn| turn.same.lock().uncount(call));
        }
    }

    /// Counts one more call of this tool with these arguments. `call` is the digest of both.
    ///
    /// # Errors
    /// The number of identical calls has reached its limit.
    pub(crate) fn count_identical_call(
        &self,
        policy: &SessionLimits,
        turn: Option<&TurnCount>,
        tool: &str,
        call: &Digest,
    ) -> Result<(), Refusal> {
        let limits = &self.limits;
        let of_turn = stricter_limit(
            RefusalReason::MaxIdenticalCallsPerTurn,
            policy.max_identical_calls_per_turn,
            limits.max_identical_calls_per_turn,
        );
        let of_session = stricter_limit(
            RefusalReason::MaxIdenticalCalls,
            policy.max_identical_calls,
            limits.max_identical_calls,
        );
        let of_turn = turn.and_then(|turn| Some(("turn", &turn.same, of_turn?)));
        let of_session = of_session.map(|bound| ("session", &self.usage.same, bound));
        for (span, tally, bound) in of_turn.into_iter().chain(of_session) {
            if !tally.lock().count(call, bound.most) {
                let why = format!("{tool} called {} times in one {span} (likely loop)", bound.most);
                return Err(bound.refuse(&why));
            }
        }
        Ok(())
    }
}
