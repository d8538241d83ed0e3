//! The embedder's clock and randomness instead of the system's, for reproducible tests.
//!
//! Grants still apply: a tool without the capability `clock` or `random` still gets the frozen clock and the fixed
//! bytes (see [`super`]).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wasmtime_wasi::{HostMonotonicClock, HostWallClock};

/// The clock that guests read. `HostBuilder::clock` sets one.
///
/// The host does not measure limits with it. A guest that sleeps until a point in time of this clock sleeps for the
/// difference, measured by the system's clock.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time since 1970-01-01T00:00:00Z, for tools with the capability `clock`.
    fn wall(&self) -> Duration;

    /// The time since an arbitrary start, for every call. Never decreases.
    fn monotonic(&self) -> Duration;
}

/// The clock and the random source that an embedder set.
#[derive(Debug, Clone, Default)]
pub struct EnvironmentOverrides {
    /// The clock; `None` for the system's.
    pub clock: Option<Arc<dyn Clock>>,
    /// The random source; `None` for the system's.
    pub random: Option<SeededRandom>,
}

/// The state of a seeded random sequence. All calls of a host draw from it.
#[derive(Debug, Clone)]
pub struct SeededRandom(Arc<AtomicU64>);

impl SeededRandom {
    /// Starts a sequence from a seed.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seed)))
    }

    /// Advances the state by a step and returns it.
    pub(super) fn advance(&self, by: u64) -> u64 {
        self.0.fetch_add(by, Ordering::Relaxed).wrapping_add(by)
    }
}

/// Adapts a [`Clock`] to the clock traits of wasmtime-wasi.
pub(super) struct WasiClock(pub(super) Arc<dyn Clock>);

impl HostWallClock for WasiClock {
    fn resolution(&self) -> Duration {
        Duration::from_nanos(1)
    }
    fn now(&self) -> Duration {
        self.0.wall()
    }
}

impl HostMonotonicClock for WasiClock {
    fn resolution(&self) -> u64 {
        1
    }
    fn now(&self) -> u64 {
        u64::try_from(self.0.monotonic().as_nanos()).unwrap_or(u64::MAX)
    }
}
