//! Calls, failures and times of the last minutes.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use toolbay_core::audit::AuditRecord;

/// The seconds of one point.
pub(crate) const POINT_SECONDS: u64 = 10;
/// The points: ten minutes.
const POINTS: u64 = 60;

/// The sums of one point.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ChartPoint {
    pub(crate) calls: u64,
    pub(crate) failures: u64,
    /// The longest call without what it waited, in microseconds.
    pub(crate) longest_us: u64,
}

/// The points with calls, the oldest first, each with its number since 1970.
#[derive(Debug, Default)]
pub(super) struct Chart(VecDeque<(u64, ChartPoint)>);

impl Chart {
    pub(super) fn add(&mut self, ended: SystemTime, record: &AuditRecord) {
        // A clock that is set back adds to the newest point.
        let newest = self.0.back().map_or(0, |(number, _)| *number);
        let number = number(ended).max(newest);
        if newest < number || self.0.is_empty() {
            self.0.push_back((number, ChartPoint::default()));
            while self.0.front().is_some_and(|(oldest, _)| oldest + POINTS <= number) {
                self.0.pop_front();
            }
        }
        if let Some((_, point)) = self.0.back_mut() {
            point.calls += 1;
            point.failures += u64::from(record.outcome != "ok");
            point.longest_us = point.longest_us.max(record.working_us());
        }
    }

    /// All points up to `now`, the oldest first.
    pub(super) fn points(&self, now: SystemTime) -> Vec<ChartPoint> {
        let last = number(now);
        let first = last.saturating_sub(POINTS - 1);
        let at = |wanted: u64| self.0.iter().find(|(number, _)| *number == wanted).map(|(_, point)| *point);
        (first..=last).map(|number| at(number).unwrap_or_default()).collect()
    }
}

fn number(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / POINT_SECONDS
}
