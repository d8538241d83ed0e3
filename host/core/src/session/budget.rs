//! What a session may use up: calls, calls that are all the same, dollars.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use toolbay_policy::refusal;
use toolbay_policy::session::SessionLimits;

use super::Session;
use crate::tool::canonical::Digest;
use crate::tool::content::{ErrorCode, ToolError};

/// Different calls that are counted; the count of the oldest is forgotten for one more.
const MAX_DIFFERENT: usize = 4096;
/// Turns of a session that are counted at once; a later one takes the place of the first.
const MAX_TURNS: usize = 16;

/// What was used so far.
#[derive(Debug, Default)]
pub(super) struct Spent {
    calls: AtomicU64,
    cost_usd: Mutex<f64>,
    same: Mutex<Tally>,
    turns: Mutex<BTreeMap<u32, Arc<TurnCount>>>,
}

/// What one turn used so far.
#[derive(Debug, Default)]
pub(crate) struct TurnCount {
    calls: AtomicU64,
    same: Mutex<Tally>,
}

/// How often each call was made, by its digest.
#[derive(Debug, Default)]
struct Tally {
    counts: HashMap<Digest, u64>,
    order: VecDeque<Digest>,
}

impl Tally {
    /// Counts one more, unless there were `most`.
    fn count(&mut self, call: &Digest, most: u64) -> bool {
        if let Some(count) = self.counts.get_mut(call) {
            let fits = *count < most;
            *count += u64::from(fits);
            return fits;
        }
        if self.order.len() >= MAX_DIFFERENT
            && let Some(oldest) = self.order.pop_front()
        {
            self.counts.remove(&oldest);
        }
        self.order.push_back(*call);
        self.counts.insert(*call, 1);
        true
    }
}

impl Tally {
    /// Counts one less.
    fn take_back(&mut self, call: &Digest) {
        if let Some(count) = self.counts.get_mut(call) {
            *count = count.saturating_sub(1);
        }
    }
}

/// The stricter of two limits, and where it stands.
struct Bound<T> {
    most: T,
    key: &'static str,
    of_policy: bool,
}

impl<T> Bound<T> {
    /// Says that it was hit.
    fn stopped(&self, why: &str) -> ToolError {
        let (who, hint) = match self.of_policy {
            true => (
                "the operator can raise it".to_owned(),
                Some(refusal::to_raise(&format!("[session] {} = …", self.key))),
            ),
            false => (format!("it is the `{}` of this session's own `SessionLimits`", self.key), None),
        };
        ToolError::new(ErrorCode::NotAvailable, format!("Stopped: {why}; {who}")).with_hint(hint)
    }
}

fn stricter<T: PartialOrd>(key: &'static str, policy: Option<T>, own: Option<T>) -> Option<Bound<T>> {
    match (policy, own) {
        (None, None) => None,
        (Some(most), None) => Some(Bound { most, key, of_policy: true }),
        (None, Some(most)) => Some(Bound { most, key, of_policy: false }),
        (Some(policy), Some(own)) if policy <= own => Some(Bound { most: policy, key, of_policy: true }),
        (Some(_), Some(own)) => Some(Bound { most: own, key, of_policy: false }),
    }
}

/// Counts one more, unless there were `most`; however many do so at once.
fn count(calls: &AtomicU64, most: u64) -> bool {
    let more = |calls: u64| (calls < most).then(|| calls.saturating_add(1));
    calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

impl Session {
    /// The calls so far, refused ones included, but for those over the budget.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.spent.calls.load(Ordering::Relaxed)
    }

    /// US dollars that the tools said their calls cost, the failed ones included.
    #[must_use]
    pub fn cost_usd(&self) -> f64 {
        *self.spent.cost_usd.lock()
    }

    /// Adds what a call cost. What is no amount costs nothing.
    pub(crate) fn spend(&self, cost_usd: f64) {
        if cost_usd.is_finite() && cost_usd > 0.0 {
            *self.spent.cost_usd.lock() += cost_usd;
        }
    }

    /// The counts of a turn, if anything bounds turns. Batches of the same number are one turn; one without a number
    /// is a turn of its own.
    pub(crate) fn turn(&self, policy: &SessionLimits, number: Option<u32>) -> Option<Arc<TurnCount>> {
        let bounds =
            |limits: &SessionLimits| limits.max_calls_per_turn.or(limits.max_identical_calls_per_turn);
        bounds(policy).or(bounds(&self.limits))?;
        let Some(number) = number else { return Some(Arc::default()) };
        let mut turns = self.spent.turns.lock();
        if turns.len() >= MAX_TURNS && !turns.contains_key(&number) {
            turns.pop_first();
        }
        Some(Arc::clone(turns.entry(number).or_default()))
    }

    /// Counts one more call.
    ///
    /// # Errors
    /// It is one too many, or there is no money left.
    pub(crate) fn count_call(
        &self,
        policy: &SessionLimits,
        turn: Option<&TurnCount>,
    ) -> Result<(), ToolError> {
        let own = &self.limits;
        if let Some(cap) = stricter("max_cost_usd", policy.max_cost_usd, own.max_cost_usd) {
            let (most, spent) = (cap.most, self.cost_usd());
            if spent >= most {
                let why = format!("hit ${most} budget cap for this session (${spent:.4} spent)");
                return Err(cap.stopped(&why));
            }
        }
        if let Some(turn) = turn
            && let Some(bound) =
                stricter("max_calls_per_turn", policy.max_calls_per_turn, own.max_calls_per_turn)
            && !count(&turn.calls, bound.most)
        {
            return Err(bound.stopped(&format!("hit {}-tool-call budget for this turn", bound.most)));
        }
        match stricter("max_calls", policy.max_calls, own.max_calls) {
            Some(bound) if !count(&self.spent.calls, bound.most) => {
                Err(bound.stopped(&format!("hit {}-tool-call budget for this session", bound.most)))
            }
            Some(_) => Ok(()),
            None => {
                self.spent.calls.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Counts one call less, which was counted and is to come again; `call` is the digest of its tool and arguments.
    pub(crate) fn take_back(&self, turn: Option<&TurnCount>, call: Option<&Digest>) {
        let less = |calls: &AtomicU64| {
            let less = |calls: u64| Some(calls.saturating_sub(1));
            let _before = calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        };
        less(&self.spent.calls);
        turn.iter().for_each(|turn| less(&turn.calls));
        if let Some(call) = call {
            self.spent.same.lock().take_back(call);
            turn.iter().for_each(|turn| turn.same.lock().take_back(call));
        }
    }

    /// Counts one more call of this tool with these arguments; `call` is the digest of both.
    ///
    /// # Errors
    /// There were enough of them.
    pub(crate) fn count_same(
        &self,
        policy: &SessionLimits,
        turn: Option<&TurnCount>,
        tool: &str,
        call: &Digest,
    ) -> Result<(), ToolError> {
        let own = &self.limits;
        let of_turn = stricter(
            "max_identical_calls_per_turn",
            policy.max_identical_calls_per_turn,
            own.max_identical_calls_per_turn,
        );
        let of_session = stricter("max_identical_calls", policy.max_identical_calls, own.max_identical_calls);
        let of_turn = turn.and_then(|turn| Some(("turn", &turn.same, of_turn?)));
        let of_session = of_session.map(|bound| ("session", &self.spent.same, bound));
        for (span, tally, bound) in of_turn.into_iter().chain(of_session) {
            if !tally.lock().count(call, bound.most) {
                let why = format!("{tool} called {} times in one {span} (likely loop)", bound.most);
                return Err(bound.stopped(&why));
            }
        }
        Ok(())
    }
}
