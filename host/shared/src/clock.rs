//! The clock of the protocol, and that of the store. The first one continues while the machine sleeps, so that a replica that
//! wakes up knows how long it has heard nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::protocol::Moment;

/// The clock that counts the time in which the machine sleeps.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// The time since the machine started.
pub(crate) fn now() -> Moment {
    let time = clock_gettime(CLOCK);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Moment::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

/// The time as a number, for an atomic.
pub(crate) fn as_micros(moment: Moment) -> u64 {
    u64::try_from(moment.as_micros()).unwrap_or(u64::MAX)
}

/// The clock of the store, as this replica sees it by the entries that it watches. Servers whose own clocks differ agree on
/// it, up to the time that a message takes. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct StoreClock(Arc<AtomicI64>);

impl StoreClock {
    /// The time in milliseconds since 1970. Before the first entry, it is that of the system.
    #[must_use]
    pub fn now(&self) -> u64 {
        match self.0.load(Ordering::Relaxed) {
            0 => u64::try_from(system_millis()).unwrap_or(0),
            ahead => u64::try_from(own_millis().saturating_add(ahead)).unwrap_or(0),
        }
    }

    /// An entry that is seen now was written at this time of the store, in milliseconds since 1970.
    pub(crate) fn seen(&self, written: i64) {
        let ahead = written.saturating_sub(own_millis());
        // An entry that is seen late must not set it back.
        self.0.fetch_max(ahead, Ordering::Relaxed);
    }

    /// The next entry sets it, even back: the store may have another clock now.
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

fn own_millis() -> i64 {
    i64::try_from(now().as_millis()).unwrap_or(i64::MAX)
}

fn system_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A random name of 32 hexadecimal digits.
pub(crate) fn random_name() -> String {
    let mut bytes = [0; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        // Another process with the same number and the same time does not run.
        Err(_) => format!("{:08x}{:024x}", std::process::id(), now().as_nanos()),
    }
}
