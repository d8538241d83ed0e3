//! Quotas of log lines and progress events: a total for each entry, and a token bucket that holds one second's worth.

use std::time::Instant;

/// The remaining events of one guest entry.
#[derive(Debug)]
pub(crate) struct EventQuota {
    left: u32,
    bucket: TokenBucket,
    /// Events that were dropped because the quota was used up.
    pub(crate) dropped: u64,
}

impl EventQuota {
    pub(super) fn new(max: u32, per_second: u32) -> Self {
        Self { left: max, bucket: TokenBucket::new(per_second), dropped: 0 }
    }

    /// Counts one event; `false` when the quota is used up.
    pub(super) fn try_take(&mut self) -> bool {
        let one = self.left > 0 && self.bucket.try_take();
        self.left -= u32::from(one);
        self.dropped += u64::from(!one);
        one
    }
}

/// A token bucket.
#[derive(Debug)]
struct TokenBucket {
    per_second: f64,
    left: f64,
    /// When the bucket was last refilled; `None` for a bucket that was never used.
    filled: Option<Instant>,
}

impl TokenBucket {
    /// Creates a full bucket.
    fn new(per_second: u32) -> Self {
        Self { per_second: per_second.into(), left: per_second.into(), filled: None }
    }

    /// Counts one event; `false` when the quota is used up.
    fn try_take(&mut self) -> bool {
        self.try_take_at(Instant::now())
    }

    fn try_take_at(&mut self, now: Instant) -> bool {
        let filled = self.filled.replace(now).unwrap_or(now);
        let passed = now.saturating_duration_since(filled).as_secs_f64();
        self.left = passed.mul_add(self.per_second, self.left).min(self.per_second);
        let one = self.left >= 1.0;
        if one {
            self.left -= 1.0;
        }
        one
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn events_are_limited_in_total_and_per_second() {
        let taken = |max, per_second| {
            let mut meter = EventQuota::new(max, per_second);
            let start = Instant::now();
            let taken = (0..10_000).filter(|_| meter.try_take()).count();
            assert_eq!(meter.dropped, 10_000 - taken as u64);
            (taken, start.elapsed().as_secs_f64())
        };
        assert_eq!(taken(7, 1000).0, 7);
        let (count, seconds) = taken(5000, 20);
        assert!(count >= 20 && count as f64 <= 21.0 + 20.0 * seconds, "{count} in {seconds} s");
    }

    #[test]
    fn a_burst_of_one_second_precedes_the_steady_rate() {
        let start = Instant::now();
        let mut rate = TokenBucket { per_second: 10.0, left: 10.0, filled: Some(start) };
        let taken = |rate: &mut TokenBucket, ms: u64, tries: usize| {
            (0..tries).filter(|_| rate.try_take_at(start + Duration::from_millis(ms))).count()
        };
        assert_eq!(taken(&mut rate, 0, 100), 10);
        assert_eq!(taken(&mut rate, 500, 100), 5);
        assert_eq!(taken(&mut rate, 100_000, 100), 10, "no more than a second's worth is saved up");
        assert_eq!((0..100).map(|n| taken(&mut rate, 100_001 + n, 1)).sum::<usize>(), 1, "fractions add up");
        let mut none = TokenBucket::new(0);
        assert!(!none.try_take() && !none.try_take_at(start + Duration::from_secs(1000)));
    }
}
