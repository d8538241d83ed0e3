//! The clock of the protocol. It continues while the machine sleeps, so that a replica that wakes up knows that its news is
//! old.

use rustix::time::{ClockId, clock_gettime};

use crate::protocol::Moment;

/// The time since the machine started.
pub(super) fn now() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Moment::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

/// The time as a number, for an atomic.
pub(super) fn as_micros(moment: Moment) -> u64 {
    u64::try_from(moment.as_micros()).unwrap_or(u64::MAX)
}

/// A random name of 32 hexadecimal digits.
pub(super) fn random_name() -> String {
    let mut bytes = [0; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        // Another process with the same number and the same time does not run.
        Err(_) => format!("{:08x}{:024x}", std::process::id(), now().as_nanos()),
    }
}
