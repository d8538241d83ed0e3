//! What each session used so far.

use std::collections::HashMap;
use std::time::SystemTime;

use serde::Serialize;
use toolbay_core::audit::AuditRecord;

/// Most sessions. A further one takes the place of the half that was used least recently.
const MAX_SESSIONS: usize = 1000;

/// The sums of one session since the server started.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct SessionTotals {
    /// The calls.
    pub(crate) calls: u64,
    /// The calls with an outcome other than `ok`.
    pub(crate) failures: u64,
    /// The fuel.
    pub(crate) fuel: u64,
    /// The cost in US dollars, as tools reported it.
    pub(crate) cost_usd: f64,
    /// The time of the last call.
    #[serde(skip)]
    pub(crate) used: SystemTime,
}

#[derive(Debug, Default)]
pub(super) struct SessionTable(HashMap<String, SessionTotals>);

impl SessionTable {
    pub(super) fn add(&mut self, ended: SystemTime, record: &AuditRecord) {
        let Some(session) = &record.session_id else { return };
        if self.0.len() >= MAX_SESSIONS && !self.0.contains_key(session) {
            self.drop_older_half();
        }
        let none = SessionTotals { calls: 0, failures: 0, fuel: 0, cost_usd: 0.0, used: ended };
        let totals = self.0.entry(session.clone()).or_insert(none);
        totals.calls += 1;
        totals.failures += u64::from(record.outcome != "ok");
        totals.fuel = totals.fuel.saturating_add(record.usage.fuel.unwrap_or(0));
        totals.cost_usd += record.cost_usd.unwrap_or(0.0);
        totals.used = ended;
    }

    /// At once, so that a client with a new session for each call does not slow each call down.
    fn drop_older_half(&mut self) {
        let mut times: Vec<SystemTime> = self.0.values().map(|totals| totals.used).collect();
        let (_, middle, _) = times.select_nth_unstable(MAX_SESSIONS / 2);
        let middle = *middle;
        self.0.retain(|_, totals| totals.used > middle);
    }

    pub(super) fn list(&self) -> Vec<(String, SessionTotals)> {
        let mut all: Vec<_> = self.0.iter().map(|(id, totals)| (id.clone(), *totals)).collect();
        all.sort_unstable_by(|(a, one), (b, other)| other.used.cmp(&one.used).then_with(|| a.cmp(b)));
        all
    }
}
