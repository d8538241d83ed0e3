//! A clock that the test controls.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use toolbay::Clock;
use toolbay::core::audit::timestamp;

use crate::fail;

/// A clock that advances only when the test says so. Clones share the clock.
///
/// A tool that declares `clock` sees it as the time of day. The monotonic clock, which every tool has, advances with
/// it. A tool that sleeps takes real time, and this clock does not advance.
#[derive(Debug, Clone)]
pub struct FakeClock(Arc<Mutex<FakeClockState>>);

#[derive(Debug)]
struct FakeClockState {
    wall: Duration,
    monotonic: Duration,
    step: Duration,
}

impl FakeClock {
    /// A clock that starts at an RFC 3339 time: `2026-02-03T04:05:06Z`.
    ///
    /// # Panics
    /// When the text is not such a time from 1970 on.
    #[must_use]
    #[track_caller]
    pub fn at(time: &str) -> Self {
        let Some(micros) = timestamp::parse(time) else {
            fail(&format!("`{time}` is no time: write it as `2026-02-03T04:05:06Z`, from 1970 on"));
        };
        let wall = Duration::from_micros(micros);
        Self(Arc::new(Mutex::new(FakeClockState { wall, monotonic: Duration::ZERO, step: Duration::ZERO })))
    }

    /// Advances the clock by this duration on each read, so that two times differ.
    #[must_use]
    pub fn with_step(self, step: Duration) -> Self {
        self.0.lock().step = step;
        self
    }

    /// Advances the clock.
    pub fn advance(&self, by: Duration) {
        let mut state = self.0.lock();
        state.wall = state.wall.saturating_add(by);
        state.monotonic = state.monotonic.saturating_add(by);
    }

    fn look(&self, which: impl Fn(&FakeClockState) -> Duration) -> Duration {
        let mut state = self.0.lock();
        let (now, step) = (which(&state), state.step);
        state.wall = state.wall.saturating_add(step);
        state.monotonic = state.monotonic.saturating_add(step);
        now
    }
}

impl Clock for FakeClock {
    fn wall(&self) -> Duration {
        self.look(|state| state.wall)
    }

    fn monotonic(&self) -> Duration {
        self.look(|state| state.monotonic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_when_it_is_told_to() {
        let clock = FakeClock::at("1970-01-01T00:01:00Z");
        assert_eq!((clock.wall(), clock.wall()), (Duration::from_secs(60), Duration::from_secs(60)));
        clock.advance(Duration::from_secs(5));
        assert_eq!((clock.wall(), clock.monotonic()), (Duration::from_secs(65), Duration::from_secs(5)));
        let clock = clock.with_step(Duration::from_secs(1));
        assert_eq!((clock.wall(), clock.wall()), (Duration::from_secs(65), Duration::from_secs(66)));
    }

    #[test]
    #[should_panic(expected = "`yesterday` is no time")]
    fn what_is_no_time_is_told() {
        drop(FakeClock::at("yesterday"));
    }
}
