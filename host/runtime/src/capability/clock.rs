//! Time and chance of an embedder's making, in place of the machine's: for tests, whose results are to be the same each
//! time.
//!
//! They change what is seen, not who sees it: a tool without the capability `clock` or `random` has the clock that stands
//! still and the fixed bytes as before (see [`super::environment`]).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wasmtime_wasi::{HostMonotonicClock, HostWallClock};

/// What guests take for the time. [`crate::HostBuilder::clock`] puts one in.
///
/// Limits are not measured by it, and a guest that sleeps until some time of it sleeps for as long as that is away, by the
/// machine's clock.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Since 1970-01-01T00:00:00Z; for tools with the capability `clock`.
    fn wall(&self) -> Duration;

    /// Since some moment, and never less than before; for every call.
    fn monotonic(&self) -> Duration;
}

/// What an embedder put in place of the machine's time and chance.
#[derive(Debug, Clone, Default)]
pub(crate) struct TimeAndChance {
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) random: Option<Random>,
}

/// Where seeded randomness is: the calls of a host draw from it one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Random(Arc<AtomicU64>);

impl Random {
    /// From a seed on.
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seed)))
    }

    /// Goes on by a step, and returns where it is then.
    pub(super) fn step(&self, by: u64) -> u64 {
        self.0.fetch_add(by, Ordering::Relaxed).wrapping_add(by)
    }
}

/// A [`Clock`] as wasmtime asks for it.
pub(super) struct Shown(pub(super) Arc<dyn Clock>);

impl HostWallClock for Shown {
    fn resolution(&self) -> Duration {
        Duration::from_nanos(1)
    }
    fn now(&self) -> Duration {
        self.0.wall()
    }
}

impl HostMonotonicClock for Shown {
    fn resolution(&self) -> u64 {
        1
    }
    fn now(&self) -> u64 {
        u64::try_from(self.0.monotonic().as_nanos()).unwrap_or(u64::MAX)
    }
}
