//! The call log: a ring buffer of the last calls in memory, for dashboards, status lines and tests. Unlike the audit,
//! it is not persistent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::tool::ToolSource;

/// The default number of calls in the log.
pub const DEFAULT_ENTRIES: usize = 1000;

/// A finished call. Texts of callers are cut and redacted as in the audit.
#[derive(Debug, Clone)]
pub struct CallEntry {
    /// The number of the call in this log, from 1.
    pub number: u64,
    /// The time when the call ended.
    pub ended: Instant,
    /// The caller's id of the call.
    pub call_id: Arc<str>,
    /// The id of the parent call, if a tool made the call.
    pub outer: Option<Arc<str>>,
    /// The name of the called tool. It may be unknown.
    pub tool: Arc<str>,
    /// The source of the tool; `None` if the tool is unknown.
    pub source: Option<Arc<ToolSource>>,
    /// The session id of the caller.
    pub session_id: Option<Arc<str>>,
    /// The outcome as in the audit: `ok`, an error code, a fault, or `host_failed`.
    pub outcome: &'static str,
    /// Whether the result comes from the session's cache.
    pub cached: bool,
    /// The time from the arrival of the call to its result, in microseconds.
    pub duration_us: u64,
    /// The part of it in which the call waited, in microseconds.
    pub waited_us: u64,
    /// Bytes of the original arguments.
    pub args_bytes: usize,
    /// Characters of the delivered text.
    pub delivered_chars: usize,
    /// The cost in US dollars, if the tool reported one.
    pub cost_usd: Option<f64>,
}

/// A query over the call log. Absent fields match all calls.
#[derive(Debug, Clone, Default)]
pub struct CallQuery {
    /// The maximum number of calls; the newest are returned.
    pub limit: Option<usize>,
    /// The tool.
    pub tool: Option<String>,
    /// The outcome.
    pub outcome: Option<String>,
    /// The maximum time since the end of the call.
    pub since: Option<Duration>,
    /// The session id.
    pub session_id: Option<String>,
}

impl CallQuery {
    fn matches(&self, call: &CallEntry) -> bool {
        self.tool.as_ref().is_none_or(|tool| **tool == *call.tool)
            && self.outcome.as_ref().is_none_or(|outcome| outcome == call.outcome)
            && self.session_id.as_ref().is_none_or(|id| call.session_id.as_deref() == Some(id))
            && self.since.is_none_or(|since| call.ended.elapsed() <= since)
    }
}

/// Statistics of one tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolStats {
    /// The number of calls.
    pub calls: usize,
    /// The number of calls with an outcome other than `ok`.
    pub failures: usize,
    /// The median duration, in microseconds.
    pub p50_us: u64,
    /// The 95th percentile of the duration, in microseconds.
    pub p95_us: u64,
}

/// A ring buffer of calls. Each slot has its own lock, so calls that end concurrently do not contend.
#[derive(Debug)]
pub struct CallLog {
    count: AtomicU64,
    ring: Box<[Mutex<Option<CallEntry>>]>,
}

impl Default for CallLog {
    fn default() -> Self {
        Self::new(DEFAULT_ENTRIES)
    }
}

impl CallLog {
    /// A log of the last `most` calls, with all slots allocated in advance. 0 disables the log.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { count: AtomicU64::new(0), ring: (0..most).map(|_| Mutex::default()).collect() }
    }

    /// Whether the log is enabled.
    pub(crate) fn is_enabled(&self) -> bool {
        !self.ring.is_empty()
    }

    /// Adds a call and sets its number.
    pub(crate) fn push(&self, call: CallEntry) {
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        let Some(place) = self.slot(before) else { return };
        let number = before + 1;
        let mut slot = place.lock();
        // If two threads write to the same slot, the later call stays.
        if slot.as_ref().is_none_or(|call| call.number < number) {
            let replaced = slot.replace(CallEntry { number, ..call });
            drop(slot);
            drop(replaced);
        }
    }

    fn slot(&self, before: u64) -> Option<&Mutex<Option<CallEntry>>> {
        let at = before.checked_rem(self.ring.len() as u64)?;
        self.ring.get(usize::try_from(at).ok()?)
    }

    /// The calls in the log, the newest first.
    fn entries(&self) -> impl Iterator<Item = CallEntry> {
        let count = self.count();
        let numbers = (count.saturating_sub(self.ring.len() as u64)..count).rev();
        numbers
            .filter_map(|before| self.slot(before)?.lock().clone().filter(|call| call.number == before + 1))
    }

    /// The calls that match a query, the newest first.
    ///
    /// ```
    /// use toolbay_core::audit::call_log::{CallLog, CallQuery};
    ///
    /// let log = CallLog::default();
    /// let failed = CallQuery { outcome: Some("trap".to_owned()), limit: Some(10), ..CallQuery::default() };
    /// assert!(log.calls(&failed).is_empty());
    /// ```
    #[must_use]
    pub fn calls(&self, query: &CallQuery) -> Vec<CallEntry> {
        let wanted = self.entries().filter(|call| query.matches(call));
        wanted.take(query.limit.unwrap_or(usize::MAX)).collect()
    }

    /// The number of calls so far, including those that the ring has overwritten.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Statistics of each tool, from the calls in the log.
    #[must_use]
    pub fn stats(&self) -> BTreeMap<Arc<str>, ToolStats> {
        let mut by_tool: BTreeMap<Arc<str>, (Vec<u64>, usize)> = BTreeMap::new();
        for call in self.entries() {
            let (durations, failures) = by_tool.entry(Arc::clone(&call.tool)).or_default();
            durations.push(call.duration_us.saturating_sub(call.waited_us));
            *failures += usize::from(call.outcome != "ok");
        }
        let stats = |(mut durations, failures): (Vec<u64>, usize)| {
            durations.sort_unstable();
            let calls = durations.len();
            let at =
                |percent: usize| durations.get((calls * percent).div_ceil(100) - 1).copied().unwrap_or(0);
            ToolStats { calls, failures, p50_us: at(50), p95_us: at(95) }
        };
        by_tool.into_iter().map(|(tool, seen)| (tool, stats(seen))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tool: &str, outcome: &'static str, session: &str, duration_us: u64) -> CallEntry {
        CallEntry {
            number: 0,
            ended: Instant::now(),
            call_id: "c".into(),
            outer: None,
            tool: tool.into(),
            source: None,
            session_id: Some(session.into()),
            outcome,
            cached: false,
            duration_us,
            waited_us: 0,
            args_bytes: 2,
            delivered_chars: 3,
            cost_usd: None,
        }
    }

    fn numbers(log: &CallLog, query: &CallQuery) -> Vec<u64> {
        log.calls(query).iter().map(|call| call.number).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn queries_find_the_newest_calls() {
        let log = CallLog::new(4);
        log.push(call("gone", "ok", "a", 1));
        log.push(call("x", "ok", "a", 1));
        log.push(call("x", "trap", "b", 1));
        tokio::time::advance(Duration::from_secs(60)).await;
        log.push(call("y", "ok", "a", 1));
        log.push(call("x", "ok", "a", 1));
        let (some, all) = (|text: &str| Some(text.to_owned()), CallQuery::default());
        for (query, expect) in [
            (all.clone(), vec![5, 4, 3, 2]),
            (CallQuery { limit: Some(2), ..all.clone() }, vec![5, 4]),
            (CallQuery { limit: Some(0), ..all.clone() }, vec![]),
            (CallQuery { tool: some("x"), ..all.clone() }, vec![5, 3, 2]),
            (CallQuery { tool: some("x"), limit: Some(2), ..all.clone() }, vec![5, 3]),
            (CallQuery { tool: some("gone"), ..all.clone() }, vec![]),
            (CallQuery { outcome: some("trap"), ..all.clone() }, vec![3]),
            (CallQuery { session_id: some("a"), ..all.clone() }, vec![5, 4, 2]),
            (CallQuery { since: Some(Duration::from_secs(30)), ..all.clone() }, vec![5, 4]),
            (CallQuery { session_id: some("b"), outcome: some("ok"), ..all.clone() }, vec![]),
        ] {
            assert_eq!(numbers(&log, &query), expect, "{query:?}");
        }
        assert_eq!(log.count(), 5);
    }

    #[test]
    fn each_tool_has_its_statistics() {
        let log = CallLog::default();
        for n in 1..=100 {
            log.push(call("x", if n % 10 == 0 { "deadline" } else { "ok" }, "a", n));
        }
        log.push(call("y", "ok", "a", 7));
        let stats: Vec<_> = log.stats().into_iter().collect();
        let x = ToolStats { calls: 100, failures: 10, p50_us: 50, p95_us: 95 };
        let y = ToolStats { calls: 1, failures: 0, p50_us: 7, p95_us: 7 };
        assert_eq!(stats, [(Arc::from("x"), x), (Arc::from("y"), y)]);
        assert!(CallLog::default().stats().is_empty());
    }

    #[test]
    fn concurrent_pushes_lose_no_call() {
        let log = CallLog::new(100);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| log.push(call("x", "ok", "a", 1))));
            }
        });
        let mut kept = numbers(&log, &CallQuery::default());
        assert_eq!((log.count(), kept.len()), (4000, 100));
        kept.reverse();
        assert_eq!(kept, (3901..=4000).collect::<Vec<_>>());
    }
}
