//! How many, and how often a second: a bucket that fills at the rate and holds one second's worth.

use std::time::Instant;

/// How many a guest entry may still have, and how quickly.
#[derive(Debug)]
pub(crate) struct Meter {
    left: u32,
    rate: Rate,
    /// How many it wanted beyond that.
    pub(crate) dropped: u64,
}

impl Meter {
    pub(super) fn new(most: u32, a_second: u32) -> Self {
        Self { left: most, rate: Rate::new(a_second), dropped: 0 }
    }

    /// Takes one, if there is one.
    pub(super) fn take(&mut self) -> bool {
        let one = self.left > 0 && self.rate.take();
        self.left -= u32::from(one);
        self.dropped += u64::from(!one);
        one
    }
}

/// One call's bucket.
#[derive(Debug)]
struct Rate {
    a_second: f64,
    left: f64,
    /// When it was looked at last; `None`: it is as full as it was at first.
    filled: Option<Instant>,
}

impl Rate {
    /// A full bucket.
    fn new(a_second: u32) -> Self {
        Self { a_second: a_second.into(), left: a_second.into(), filled: None }
    }

    /// Takes one, if there is one.
    fn take(&mut self) -> bool {
        self.take_at(Instant::now())
    }

    fn take_at(&mut self, now: Instant) -> bool {
        let filled = self.filled.replace(now).unwrap_or(now);
        let passed = now.saturating_duration_since(filled).as_secs_f64();
        self.left = passed.mul_add(self.a_second, self.left).min(self.a_second);
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
    fn lines_are_counted_in_all_and_a_second() {
        let taken = |most, a_second| {
            let mut meter = Meter::new(most, a_second);
            let start = Instant::now();
            let taken = (0..10_000).filter(|_| meter.take()).count();
            assert_eq!(meter.dropped, 10_000 - taken as u64);
            (taken, start.elapsed().as_secs_f64())
        };
        assert_eq!(taken(7, 1000).0, 7);
        let (count, seconds) = taken(5000, 20);
        assert!(count >= 20 && count as f64 <= 21.0 + 20.0 * seconds, "{count} in {seconds} s");
    }

    #[test]
    fn a_burst_of_a_second_and_then_the_rate() {
        let start = Instant::now();
        let mut rate = Rate { a_second: 10.0, left: 10.0, filled: Some(start) };
        let taken = |rate: &mut Rate, ms: u64, tries: usize| {
            (0..tries).filter(|_| rate.take_at(start + Duration::from_millis(ms))).count()
        };
        assert_eq!(taken(&mut rate, 0, 100), 10);
        assert_eq!(taken(&mut rate, 500, 100), 5);
        assert_eq!(taken(&mut rate, 100_000, 100), 10, "no more than a second's worth is saved up");
        assert_eq!((0..100).map(|n| taken(&mut rate, 100_001 + n, 1)).sum::<usize>(), 1, "fractions add up");
        let mut none = Rate::new(0);
        assert!(!none.take() && !none.take_at(start + Duration::from_secs(1000)));
    }
}
